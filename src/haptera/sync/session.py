"""AgentSession, AgentRemote and QueryStream, blocking: each is its async twin, waited for."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Literal, Self, TypeVar, Unpack

from haptera.agent.agent_options import SettingsOptions
from haptera.agent.query_options import (
    AdmissionOptions,
    Prompt,
    QueryOptions,
    ResumeOptions,
    RewindOptions,
    UndoOptions,
)
from haptera.agent.query_stream import QueryStream as AsyncQueryStream
from haptera.agent.remote import AgentRemote as AsyncAgentRemote
from haptera.agent.session import AgentSession as AsyncAgentSession
from haptera.agent.session_surroundings import IncludedAs
from haptera.kernel.session.session_descriptions import SessionView, Unfinished
from haptera.model.approvals import ApprovalRequest, ApprovalScope
from haptera.model.budgets import Budgets
from haptera.model.context_files import ContextFile, Skill
from haptera.model.events import Event, SessionStatus, TextDelta
from haptera.model.file_snapshots import FileDiff, RewindReport
from haptera.model.ids import MessageId, QueryId, SessionId
from haptera.model.json_types import Json
from haptera.model.log.compactions import Compaction
from haptera.model.messages import Message, UserMessage
from haptera.model.option_declarations import takes
from haptera.model.parts import Part
from haptera.model.requests import TokenCount
from haptera.model.results import AgentResult, OutputT, ResumeKind
from haptera.model.session_state import SessionState
from haptera.model.settings import Settings
from haptera.model.tools import ToolSpec
from haptera.sync.background_loop import LoopAccess
from haptera.system.abort import AbortSignal

EventT = TypeVar("EventT", bound=Event)
InnerT = TypeVar("InnerT", bound=AsyncAgentSession | AsyncAgentRemote)


class QueryStream(Generic[OutputT]):
    """The blocking face of a query's stream; see `haptera.QueryStream`."""

    def __init__(self, inner: AsyncQueryStream[Any], access: LoopAccess) -> None:
        self._inner = inner
        self._access = access

    @property
    def phase(self) -> str:
        """What the stream is doing."""
        return self._inner.phase

    def __enter__(self) -> Self:
        self._access.call(self._inner.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        # By batches: each event by itself would be a hop between threads.
        for batch in self.batches():
            yield from batch

    def text(self) -> Iterator[str]:
        """Iterate over the answer's text as it comes."""
        for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    def take(self, count: int) -> Iterator[Event]:
        """Iterate over the first events, then stop the query."""
        events = iter(self)
        try:
            yield from islice(events, max(count, 0))
        finally:
            self.close()

    def batches(self) -> Iterator[list[Event]]:
        """Iterate over events as they come in, many at a time: one hop to the loop for each."""
        return self._access.iterate(self._inner.batches())

    def result(self) -> AgentResult[OutputT]:
        """Let the query run to its end and return what came of it."""
        return self._access.call(self._inner.result())

    def abort(self, reason: str | None = None) -> None:
        """Stop the query, from any thread; what was streamed is kept."""
        self._inner.abort(reason)

    def suspend(self, reason: str | None = None) -> None:
        """Stop the query without an end, from any thread: `session.resume()` carries it on."""
        self._inner.suspend(reason)

    def close(self) -> None:
        """Leave the stream: a query that still runs is aborted, and its end waited for."""
        self._access.close(self._inner.aclose)


class SessionVerbs(Generic[InnerT]):
    """What a session can be told wherever it is held, blocking."""

    def __init__(self, inner: InnerT, access: LoopAccess) -> None:
        self._inner = inner
        self._access = access

    @takes(AdmissionOptions)
    def send(self, prompt: Prompt, **options: Unpack[AdmissionOptions]) -> QueryId:
        """Send a prompt without waiting for the answer, and return the id of its query."""
        return self._access.call(self._inner.send(prompt, **options))

    def steer(self, prompt: Prompt) -> None:
        """Say something into the running query; when none runs, it becomes a query."""
        self._access.call(self._inner.steer(prompt))

    def approve(
        self,
        approval_id: str,
        *,
        arguments: Json | None = None,
        scope: ApprovalScope = "once",
        by: str | None = None,
        feedback: str | None = None,
    ) -> None:
        """Let a waiting tool call run, with other arguments if given."""
        approving = self._inner.approve(
            approval_id, arguments=arguments, scope=scope, by=by, feedback=feedback
        )
        self._access.call(approving)

    def deny(self, approval_id: str, reason: str | None = None, *, by: str | None = None) -> None:
        """Refuse a waiting tool call; the model is told why."""
        self._access.call(self._inner.deny(approval_id, reason, by=by))

    @takes(SettingsOptions)
    def configure(self, **options: Unpack[SettingsOptions]) -> None:
        """Change settings, from the next turn on."""
        self._access.call(self._inner.configure(**options))

    def fork(self, *, after: str | None = None, name: str | None = None) -> "AgentSession":
        """Go on from a message (itself included) in a new session, which the caller closes."""
        return AgentSession(
            self._access.call(self._inner.fork(after=after, name=name)), self._access
        )

    @takes(RewindOptions)
    def rewind(self, *, to: str, **options: Unpack[RewindOptions]) -> RewindReport:
        """Make a message the last one of the conversation, with `files` also for the workspace."""
        return self._access.call(self._inner.rewind(to=to, **options))

    @takes(UndoOptions)
    def undo_rewind(self, **options: Unpack[UndoOptions]) -> RewindReport:
        """Take the last rewind back, with what it did to files."""
        return self._access.call(self._inner.undo_rewind(**options))

    def compact(
        self, instructions: str | None = None, *, signal: AbortSignal | None = None
    ) -> Compaction:
        """Replace the earlier messages by a summary in what is sent, and return what was done."""
        return self._access.call(self._inner.compact(instructions, signal=signal))


class AgentSession(SessionVerbs[AsyncAgentSession]):
    """The blocking face of a session; see `haptera.AgentSession`."""

    def __enter__(self) -> Self:
        self._access.call(self._inner.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def session_id(self) -> SessionId | None:
        """The session's id; None until it is open."""
        return self._inner.session_id

    @property
    def native_session_id(self) -> str | None:
        """The id of the session that a native agent keeps for this one; None without one."""
        return self._inner.native_session_id

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._inner.closed

    @property
    def status(self) -> SessionStatus:
        """What the session is doing."""
        return self._inner.status

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._inner.settings

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that its queries offer to the model."""
        return self._inner.tools

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        return self._inner.messages

    @property
    def unfinished(self) -> Unfinished:
        """What an earlier process or query left to be carried on."""
        return self._inner.unfinished

    def view(self) -> SessionView:
        """Return what the session is at this moment, as a value."""
        return self._inner.view()

    @takes(QueryOptions)
    def chat(
        self, prompt: Prompt, **options: Unpack[QueryOptions[OutputT]]
    ) -> AgentResult[OutputT]:
        """Send a prompt and wait for the answer."""
        return self._access.call(self._inner.chat(prompt, **options))

    @takes(QueryOptions)
    def stream(
        self, prompt: Prompt, **options: Unpack[QueryOptions[OutputT]]
    ) -> QueryStream[OutputT]:
        """Send a prompt and watch the answer come; nothing is sent before the first use."""
        return QueryStream(self._inner.stream(prompt, **options), self._access)

    @takes(ResumeOptions)
    def resume(self, **options: Unpack[ResumeOptions[OutputT]]) -> QueryStream[OutputT]:
        """Carry an unfinished query on."""
        return QueryStream(self._inner.resume(**options), self._access)

    def resume_kind(self) -> ResumeKind | None:
        """Find out how the next query gets the conversation; None when there is none."""
        return self._access.call(self._inner.resume_kind())

    def count_tokens(self, prompt: Prompt | None = None) -> TokenCount:
        """Count the tokens that the next request would hold; with a prompt, if it were said now."""
        return self._access.call(self._inner.count_tokens(prompt))

    def drain_queue(self) -> tuple[UserMessage, ...]:
        """Take every prompt that waits out of the queue and return them."""
        return self._access.call(self._inner.drain_queue())

    def wait_idle(self) -> SessionStatus:
        """Wait until no query runs and none is about to; returns the status then."""
        return self._access.call(self._inner.wait_idle())

    def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Stop the running query: from any thread, any number of times; what came is kept."""
        self._inner.abort(reason, query_id=query_id)

    def note(self, text: str) -> None:
        """Keep a note for every session of this project."""
        self._access.call(self._inner.note(text))

    def include(self, other: str, *, as_: IncludedAs = "summary") -> None:
        """Tell this session's model of another session, with its next prompt."""
        self._access.call(self._inner.include(other, as_=as_))

    def diff(self, turn: str | None = None) -> FileDiff:
        """Return what a turn, an answer's turn or a query changed in the workspace."""
        return self._access.call(self._inner.diff(turn))

    @property
    def taken_over(self) -> bool:
        """Whether another process has taken the session: nothing more can be written here."""
        return self._inner.taken_over

    @property
    def is_native(self) -> bool:
        """Whether its model is run by an agent that keeps a session of its own."""
        return self._inner.is_native

    @property
    def context_files(self) -> tuple[ContextFile, ...]:
        """The instruction files that the model is told, as the last query found them."""
        return self._inner.context_files

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills that the model can load, as the last query found them."""
        return self._inner.skills

    def remaining_budget(self) -> Budgets:
        """Return the budgets of the agent less what was spent."""
        return self._access.call(self._inner.remaining_budget())

    def expand(self, compaction_id: str | None = None) -> tuple[Message, ...]:
        """Return the messages that a compaction left out, by the id of its event."""
        return self._access.call(self._inner.expand(compaction_id))

    def export(self) -> SessionState:
        """Return the conversation as a value that a new session can be restored from."""
        return self._access.call(self._inner.export())

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Observe the session from a `seq` on: what was, then what happens.

        An observer that is too slow gets an `ObserverLagged` as its last event. It misses no entry
        if it goes on with `events(after=lagged.resume_after)`.
        """
        return self._access.iterate(self._inner.events(after=after))

    def on(self, kind: type[EventT], handler: Callable[[EventT], Any]) -> Callable[[], None]:
        """Call `handler`, in the loop's thread, for every event of a kind."""
        return self._inner.on(kind, handler)

    def open(self) -> Self:
        """Open the session if it is not open yet, and return it."""
        self._access.call(self._inner.open())
        return self

    def add_message(
        self,
        content: str | Sequence[Part],
        *,
        role: Literal["user", "assistant"] = "user",
        after: str | None = None,
    ) -> MessageId:
        """Add a message after another, or at the end, and return its id; no model is asked."""
        return self._access.call(self._inner.add_message(content, role=role, after=after))

    def replace_message(self, message_id: str, content: str | Sequence[Part]) -> None:
        """Let a message say something else; its id, model and usage stay."""
        self._access.call(self._inner.replace_message(message_id, content))

    def remove_message(self, message_id: str) -> None:
        """Take a message out of the conversation."""
        self._access.call(self._inner.remove_message(message_id))

    def replace_part(self, message_id: str, place: int, part: Part) -> None:
        """Put another part in the place of one; the first part of a message has place 0."""
        self._access.call(self._inner.replace_part(message_id, place, part))

    def remove_part(self, message_id: str, place: int) -> None:
        """Take a part out of a message; a message without parts is taken out as a whole."""
        self._access.call(self._inner.remove_part(message_id, place))

    def delete(self) -> None:
        """Close the session by force and delete it."""
        self._access.call(self._inner.delete())

    def close(self, *, force: bool = False, abort: bool = False) -> None:
        """Close the session."""
        self._access.close(lambda: self._inner.close(force=force, abort=abort))


class AgentRemote(SessionVerbs[AsyncAgentRemote]):
    """The blocking face of a session in another process; see `haptera.AgentRemote`."""

    @property
    def session_id(self) -> SessionId:
        """The session's id."""
        return self._inner.session_id

    def messages(self) -> tuple[Message, ...]:
        """Read the conversation so far."""
        return self._access.call(self._inner.messages())

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Read the approvals without an answer."""
        return self._access.call(self._inner.pending())

    def status(self) -> SessionStatus:
        """Read what the session is doing, by its log."""
        return self._access.call(self._inner.status())

    def view(self) -> SessionView:
        """Read what the session is at this moment, by its log."""
        return self._access.call(self._inner.view())

    def unfinished(self) -> Unfinished:
        """Read what has no recorded end: a query that runs elsewhere, too."""
        return self._access.call(self._inner.unfinished())

    def is_native(self) -> bool:
        """Read whether its model is run by an agent that keeps a session of its own."""
        return self._access.call(self._inner.is_native())

    def resume_kind(self) -> ResumeKind | None:
        """Find out how the next query gets the conversation; None when there is none."""
        return self._access.call(self._inner.resume_kind())

    def count_tokens(self) -> TokenCount:
        """Count the tokens that the next request would hold, with the tools of this agent."""
        return self._access.call(self._inner.count_tokens())

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Read what happened after a `seq`, then what happens, until closed or deleted."""
        return self._access.iterate(self._inner.events(after=after))

    def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Ask for the running query to be stopped; with an id, only if it is that one."""
        self._access.call(self._inner.abort(reason, query_id=query_id))
