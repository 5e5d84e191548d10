"""SessionSurroundings: what a session has around its conversation.

Notes for its project and what other sessions said; context files, skills, tools and the budget.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal, TypeAlias

from haptera.agent import late
from haptera.agent.option_checks import check_id
from haptera.agent.verbs import SessionT, SessionVerbs
from haptera.formats.transcript import transcript_of
from haptera.model.budgets import Budgets
from haptera.model.context_files import ContextFile, Skill
from haptera.model.errors import ConfigError, ErrorCode, SessionError
from haptera.model.ids import SessionId
from haptera.model.json_types import writable
from haptera.model.log.notes import ContextNoted
from haptera.model.results import ResumeKind
from haptera.model.settings import Settings
from haptera.model.tools import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from haptera.access.descriptions import SessionDescription, SessionSummary
    from haptera.kernel.blocks.control_channel.subscription import Subscription
    from haptera.kernel.session.live_session import LiveSession
    from haptera.model.events import Event

IncludedAs: TypeAlias = Literal["summary", "full"]
"""What of another session is told: its summary, or all of its conversation."""


class SessionSurroundings(SessionVerbs[SessionT]):
    """What an open session works with, shares with its project and takes from other sessions.

    Does not own what is found of other sessions: their logs do.
    """

    _live: "LiveSession | None"

    @abstractmethod
    async def _live_session(self) -> "LiveSession":
        """Return what stands behind the session; opens it."""

    @abstractmethod
    def _opened(self) -> "LiveSession":
        """Return what stands behind the session; CLOSED when it is not open."""

    @property
    def taken_over(self) -> bool:
        """Whether another process has taken the session: nothing more can be written here.

        It is known of sessions in a PostgreSQL store, and False until the session is open.
        """
        return self._live is not None and self._live.taken_over

    @property
    def is_native(self) -> bool:
        """Whether its model is run by an agent that keeps a session of its own."""
        return self._composition.clients.is_native(self._opened().fold.settings.model)

    async def resume_kind(self) -> ResumeKind | None:
        """Find out how the next query gets the conversation; None when there is none.

        `native`: its agent has a session of its own that agrees with the log. `replay`: it is
        handed over, as to any model.
        """
        live = self._opened()
        if live.has_native_open:
            return "native"
        return await self._composition.native_sessions.resume_kind(live.fold)

    @property
    def context_files(self) -> tuple[ContextFile, ...]:
        """The instruction files that the model is told, as the last query found them."""
        context = self._opened().fold.context
        return () if context is None else context.files

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills that the model can load, as the last query found them."""
        context = self._opened().fold.context
        return () if context is None else context.skills

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that its queries offer to the model."""
        live = self._opened()
        settings = live.settings
        offered = live.registry.current().view(settings.allowed_tools, settings.denied_tools)
        return tuple(offered.wire_tools)

    def attach(self, subscription: "Subscription[Event]") -> "Callable[[], None]":
        """Publish every event from now on to a buffer, for a program with many observers.

        The consumer of the `haptera.building_blocks.Subscription` pulls the events, in batches as
        they were published, on the event loop of the session. It ends when the session is closed.
        Returns a function that ends this earlier.

        Raises:
            SessionError: CLOSED when the session is not open.

        """
        return self._opened().channel.attach(subscription)

    async def remaining_budget(self) -> Budgets:
        """Return the budgets of the agent less what was spent, for what this session starts.

        What an agent of your own does for this session stays within it if it gets these `budgets`.
        """
        session_id = (await self._live_session()).session_id
        return await self._composition.budget.remaining(session_id)

    async def note(self, text: str) -> None:
        """Keep a note for every session of this project.

        The model gets it with the next prompt of this session, and with the first one of each
        session that is opened anew. `agent.sessions.notes()` lists notes, and `forget_note()` takes
        one back.

        Raises:
            ConfigError: CONFIG_INVALID when it is blank.

        """
        check_id(text, of="a note")
        live = await self._live_session()
        await _record(live, ContextNoted(**live.stamp(), text=text.strip()))

    async def include(self, other: str, *, as_: IncludedAs = "summary") -> None:
        """Tell this session's model of another session, with its next prompt.

        The summary is the stored one (`agent.sessions.set_summary`), or else this session's model
        is asked for one now. `full` is the whole conversation as text, without reasoning.

        Raises:
            SessionError: NOT_FOUND when there is no such session of this owner and project.
            ConfigError: CONFIG_INVALID when there is nothing in it, or sessions are kept apart.
            AgentError: when the model cannot be asked for a summary.

        """
        if as_ not in ("summary", "full"):
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, f"as_ must be 'summary' or 'full', not {as_!r}"
            )
        check_id(other, of="a session's name or id")
        if not self._composition.configuration.resolved.runtime.cross_session_context:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, "the runtime setting cross_session_context is off"
            )
        live = await self._live_session()
        found = await self._find(other)
        told = await self._told_of(found.id, as_, live.fold.settings)
        if not told.strip():
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, f"there is nothing in session {other!r} to include"
            )
        what = "A summary of" if as_ == "summary" else "The conversation of"
        text = f"{what} an earlier session of this project, {found.title!r}:\n\n{told}"
        # A model, or an import, may have said what no store can keep, such as half of a surrogate
        # pair.
        noted = ContextNoted(**live.stamp(), text=writable(text), source=found.id, included=as_)
        await _record(live, noted)

    async def _find(self, other: str) -> "SessionDescription":
        found = await self._finder.get(other)
        # The finder finds an id in every project of the owner; what is told stays within one
        # project.
        if found.project != self._request.project:
            raise SessionError(
                ErrorCode.NOT_FOUND,
                f"there is no session {other!r} in project {self._request.project!r}",
            )
        return found

    async def _told_of(self, session_id: SessionId, as_: IncludedAs, settings: Settings) -> str:
        summary = await self._finder.summary(session_id) if as_ == "summary" else None
        if summary is not None:
            return _summary_text(summary)
        messages = (await self._finder.folded(session_id))[0].committed_messages()
        transcript = "\n\n".join(transcript_of(messages))
        if as_ == "full" or not transcript:
            return transcript
        resources = self._composition.session_resources()
        return await late.ask_for_summary(resources, settings, messages)

    @property
    def _finder(self) -> "late.SessionFinder":
        return late.SessionFinder(
            self._composition, owner=self._request.owner, project=self._request.project
        )


async def _record(live: "LiveSession", noted: ContextNoted) -> None:
    live.check_open()
    # After a failed append the recorder refuses all others until it has read the log again.
    await live.queue.recover()
    await live.recorder.commit([noted])


def _summary_text(summary: "SessionSummary") -> str:
    lines = [summary.title, summary.body]
    if summary.topics:
        lines.append("Topics: " + ", ".join(summary.topics))
    if summary.files_changed:
        lines.append("Files changed: " + ", ".join(summary.files_changed))
    return "\n\n".join(line for line in lines if line)
