"""SessionMemory: what a session keeps for others of its project, and what it takes from them."""

from typing import TYPE_CHECKING, Literal, TypeAlias

from holdfast.agent.option_checks import check_id
from holdfast.agent.verbs import SessionVerbs
from holdfast.session.session_descriptions import SessionRequest
from holdfast.vocabulary.entries import ContextNoted
from holdfast.vocabulary.errors import ConfigError, ErrorCode, SessionError
from holdfast.vocabulary.ids import SessionId
from holdfast.vocabulary.json_types import writable
from holdfast.vocabulary.late_names import late_module
from holdfast.vocabulary.settings import Settings

if TYPE_CHECKING:
    from holdfast.administration.descriptions import SessionDescription, SessionSummary
    from holdfast.administration.finding import SessionFinder
    from holdfast.session.live_session import LiveSession

IncludedAs: TypeAlias = Literal["summary", "full"]
"""What of another session is told: its summary, or all of its conversation."""


class SessionMemory(SessionVerbs):
    """Notes for all sessions of a project, and other sessions that are included in this one.

    Does not own what is found: the logs of the sessions do.
    """

    _request: SessionRequest

    async def _live_session(self) -> "LiveSession":
        raise NotImplementedError

    async def note(self, text: str) -> None:
        """Keep a note for every session of this project.

        The model hears of it with the next prompt of this session, and with the first one of each
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
        noted = ContextNoted(**live.stamp(), text=writable(text), source=found.id, included=as_)
        await _record(live, noted)

    async def _find(self, other: str) -> "SessionDescription":
        found = await self._finder.get(other)
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
        transcript: str = late_module("holdfast.session.notes").transcript_of(messages)
        if as_ == "full" or not transcript:
            return transcript
        ask = late_module("holdfast.assembly.side_questions").ask_for_summary
        summary_text: str = await ask(self._composition.session_resources(), settings, messages)
        return summary_text

    @property
    def _finder(self) -> "SessionFinder":
        finder: SessionFinder = late_module("holdfast.administration.finding").SessionFinder(
            self._composition, owner=self._request.owner, project=self._request.project
        )
        return finder


async def _record(live: "LiveSession", noted: ContextNoted) -> None:
    live.check_open()
    await live.queue.recover()
    await live.recorder.commit([noted])


def _summary_text(summary: "SessionSummary") -> str:
    lines = [summary.title, summary.body]
    if summary.topics:
        lines.append("Topics: " + ", ".join(summary.topics))
    if summary.files_changed:
        lines.append("Files changed: " + ", ".join(summary.files_changed))
    return "\n\n".join(line for line in lines if line)
