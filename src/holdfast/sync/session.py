"""AgentSession, blocking: every method is its async twin, waited for."""

from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar, Unpack

from holdfast.agent.keywords import Prompt, QueryOptions, SettingsOptions
from holdfast.agent.session import AgentSession as AsyncAgentSession
from holdfast.serialization.session_state import SessionState
from holdfast.session.recovery import Unfinished
from holdfast.session.snapshots import SessionSnapshot
from holdfast.sync.background_loop import LoopAccess
from holdfast.sync.query_stream import QueryStream
from holdfast.vocabulary.approvals import ApprovalScope
from holdfast.vocabulary.events import Event
from holdfast.vocabulary.ids import SessionId
from holdfast.vocabulary.json_types import Json
from holdfast.vocabulary.messages import Message, UserMessage
from holdfast.vocabulary.requests import TokenCount
from holdfast.vocabulary.results import AgentResult
from holdfast.vocabulary.settings import Settings
from holdfast.vocabulary.status import SessionStatus

EventT = TypeVar("EventT", bound=Event)


class AgentSession:
    """The blocking face of a session; see `holdfast.AgentSession`."""

    def __init__(self, inner: AsyncAgentSession, access: LoopAccess) -> None:
        self._inner = inner
        self._access = access

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
    def status(self) -> SessionStatus:
        """What the session is doing."""
        return self._inner.status

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._inner.settings

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        return self._inner.messages

    @property
    def unfinished(self) -> Unfinished:
        """What an earlier process or query left to be carried on."""
        return self._inner.unfinished

    def snapshot(self) -> SessionSnapshot:
        """Return what the session is at this moment, as a value."""
        return self._inner.snapshot()

    def chat(self, prompt: Prompt, **options: Unpack[QueryOptions]) -> AgentResult[Any]:
        """Send a prompt and wait for the answer."""
        return self._access.call(self._inner.chat(prompt, **options))

    def stream(self, prompt: Prompt, **options: Unpack[QueryOptions]) -> QueryStream[Any]:
        """Send a prompt and watch the answer come; nothing is sent before the first use."""
        return QueryStream(self._inner.stream(prompt, **options), self._access)

    def resume(self, **options: Unpack[QueryOptions]) -> QueryStream[Any]:
        """Carry an unfinished query on."""
        return QueryStream(self._inner.resume(**options), self._access)

    def count_tokens(self, prompt: Prompt | None = None) -> TokenCount:
        """Count the tokens that the next request would hold; with a prompt, if it were said now."""
        return self._access.call(self._inner.count_tokens(prompt))

    def steer(self, prompt: Prompt) -> None:
        """Say something into the running query; when none runs, it becomes a query."""
        self._access.call(self._inner.steer(prompt))

    def drain_queue(self) -> tuple[UserMessage, ...]:
        """Take every prompt that waits out of the queue and return them."""
        return self._access.call(self._inner.drain_queue())

    def wait_idle(self) -> SessionStatus:
        """Wait until no query runs and none is about to; returns the status then."""
        return self._access.call(self._inner.wait_idle())

    def abort(self, reason: str | None = None) -> None:
        """Stop the running query: from any thread, any number of times; what came is kept."""
        self._inner.abort(reason)

    def approve(
        self,
        approval_id: str,
        *,
        arguments: Json | None = None,
        scope: ApprovalScope = "once",
        by: str | None = None,
    ) -> None:
        """Let a tool call run, with other arguments if given."""
        self._access.call(self._inner.approve(approval_id, arguments=arguments, scope=scope, by=by))

    def deny(self, approval_id: str, reason: str | None = None, *, by: str | None = None) -> None:
        """Refuse a tool call; the model is told why."""
        self._access.call(self._inner.deny(approval_id, reason, by=by))

    def configure(self, **options: Unpack[SettingsOptions]) -> None:
        """Change settings, from the next turn on."""
        self._access.call(self._inner.configure(**options))

    def fork(self, *, after: str | None = None, name: str | None = None) -> "AgentSession":
        """Go on from a message (itself included) in a new session, which the caller closes."""
        return AgentSession(
            self._access.call(self._inner.fork(after=after, name=name)), self._access
        )

    def rewind(self, *, to: str) -> None:
        """Make a message the last one of the conversation; nothing is lost by it."""
        self._access.call(self._inner.rewind(to=to))

    def undo_rewind(self) -> None:
        """Take the last rewind back."""
        self._access.call(self._inner.undo_rewind())

    def export(self) -> SessionState:
        """Return the conversation as a value that a new session can be restored from."""
        return self._access.call(self._inner.export())

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Observe the session from a `seq` on: what was, then what happens."""
        return self._access.iterate(self._inner.events(after=after))

    def on(self, kind: type[EventT], handler: Callable[[EventT], Any]) -> Callable[[], None]:
        """Call `handler`, in the loop's thread, for every event of a kind."""
        return self._inner.on(kind, handler)

    def close(self, *, force: bool = False) -> None:
        """Close the session."""
        self._access.close(lambda: self._inner.close(force=force))
