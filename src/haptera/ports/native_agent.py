"""The ports to agents that keep their own session: one agent, and one live session of it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from haptera.model.json_types import JsonObject
from haptera.model.native_messages import NativeMessage
from haptera.model.parts import Part, ResultContent
from haptera.model.settings import Settings
from haptera.model.tools import ToolSpec


class NativeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that a native agent is about to run itself, or wants us to run."""

    call_id: str | None
    """None where the agent does not say which of its calls it is."""
    tool: str
    arguments: JsonObject
    agent: str | None = None
    """The sub-agent that calls; None for the agent itself."""


class Allow(msgspec.Struct, frozen=True):
    """The call may run, with these arguments."""

    arguments: JsonObject


class Refuse(msgspec.Struct, frozen=True):
    """The call may not run; the model is told why."""

    reason: str
    stop: bool = False
    """Whether the turn ends here."""


class CallResult(msgspec.Struct, frozen=True):
    """What one of our own tools answered."""

    content: tuple[ResultContent, ...] = ()
    is_error: bool = False


Permission: TypeAlias = Allow | Refuse


class NativeHost(Protocol):
    """Answers what a native agent asks while it works on a turn.

    - Every call of a tool of the agent's own is announced, also one that it does not ask about.
      The agent goes on when the announcement returns: as it would have (None), without the call, or
      with other arguments.
    - A call that needs permission waits for `permit`. Where the turn was stopped, the answer is a
      refusal, so that no agent hangs.
    - `run_tool` runs one of the tools that were offered at the opening.
    """

    async def announce(self, call: NativeCall) -> Permission | None:
        """Take note of a call before it runs."""
        ...

    async def permit(self, call: NativeCall) -> Permission:
        """Decide whether a call may run."""
        ...

    async def run_tool(self, call: NativeCall) -> CallResult:
        """Run one of our own tools."""
        ...


class NativeOpening(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a native session is opened with."""

    model: str
    """The model's name without the provider."""
    settings: Settings
    owner: str
    """The owner of what is kept of it in the store."""
    tools: tuple[ToolSpec, ...] = ()
    """Our own tools; the host runs them."""
    host: NativeHost | None = None
    resume: str | None = None
    """The id of the native session to go on with."""
    fork: bool = False
    """Whether to go on in a copy of it."""


class KnownTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says of the transcript of a native session."""

    entry: str | None = None
    """The last entry of the conversation that it had when it was recorded; None: not recorded."""
    count: int = 0
    """How many entries the conversation had then."""
    prompt: str | None = None
    """The id of a prompt that was perhaps sent since; None when there is no such prompt."""
    is_copied: bool = False
    """Whether a copy of it is wanted: it must end where the log says then."""


class FoundTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript that agrees with a log."""

    has_prompt: bool = True
    """Whether it has the prompt that was perhaps sent."""


class ReadTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript that a session of ours can adopt."""

    content: bytes
    """Its lines, as the agent writes them."""
    entry: str
    """The last entry of the conversation."""
    count: int
    """How many entries the conversation has."""


class NativeSession(Protocol):
    """One live session of a native agent.

    - `send` hands over a prompt; sends are serialised in the order of the calls, also while a
      stream is active. The transcript knows the prompt by its `prompt_id`.
    - `is_alive` is False once the agent has ended by itself.
    - `stream` yields messages until and including the next `NativeResult`; nothing, where the
      agent has answered the prompt together with the one before. It has one consumer;
      another one is STREAM_BUSY, or waits with `wait`. What remains of a turn whose stream was left
      is never seen by a later stream.
    - `session_id` is known at once for a session that was resumed or whose id we chose, otherwise
      when the agent has named it; it fails with CLOSED when the session is closed before that.
    - The agent's output is always read, however slow the consumer: its control replies travel in
      the same pipe. What waits is bounded in memory, and nothing of it is lost.
    - `interrupt` ends the turn that runs; before the agent has named its session it waits for that.
    - `close` wins: from then on everything is CLOSED. It lets sends and the stream end for a while,
      then ends the agent by force; concurrent callers share one outcome, closing twice is fine.
      When it returns, no process of the agent is left.
    """

    @property
    def is_alive(self) -> bool:
        """Whether the agent still runs."""
        ...

    async def send(self, parts: Sequence[Part], *, prompt_id: str | None = None) -> None:
        """Hand over a prompt."""
        ...

    def stream(self, *, wait: bool = False) -> AsyncGenerator[Sequence[NativeMessage], None]:
        """Yield messages in batches until and including the next result."""
        ...

    async def session_id(self) -> str:
        """Return the agent's id of the session, when it is known."""
        ...

    async def ensure_session_id(self, *, within: float) -> str:
        """Return the id, or fail with TIMEOUT when the agent has not named it by then."""
        ...

    async def interrupt(self) -> None:
        """End the turn that runs."""
        ...

    async def close(self, *, within: float | None = None) -> None:
        """Close; `within` is how many seconds what runs may take to end by itself."""
        ...


@runtime_checkable
class NativeAgent(Protocol):
    """An agent that keeps its history, compaction and context window itself.

    - `open` starts a session, or goes on with an earlier one. An id that the agent does not know
      any more is NOT_FOUND. A cancelled opening leaves no process behind.
    - `find` looks for the transcript of a session, and says nothing of one that does not agree with
      what the log says of it. The one that it has found is what `open` goes on with.
    - `read` returns the transcript of a session that the log knows nothing of, or None. What is
      only on this machine is the program's own user's; `is_own` says whether that is who asks.
    - `starts_unasked` says whether the agent runs a tool with effects without asking for
      permission.
    """

    @property
    def provider(self) -> str:
        """The name before the slash in `provider/model`."""
        ...

    async def open(self, opening: NativeOpening) -> NativeSession:
        """Open a session."""
        ...

    async def resume_session(self, session_id: str, opening: NativeOpening) -> NativeSession:
        """Open an earlier session."""
        ...

    async def prompt(self, text: str, opening: NativeOpening) -> Sequence[NativeMessage]:
        """Open a session for one prompt, and return all messages up to the result."""
        ...

    async def find(
        self, native_session_id: str, *, owner: str, known: KnownTranscript
    ) -> FoundTranscript | None:
        """Find what a session can be gone on with."""
        ...

    async def read(
        self, native_session_id: str, *, owner: str, is_own: bool
    ) -> ReadTranscript | None:
        """Read a transcript that is to be adopted."""
        ...

    def starts_unasked(self, tool: str) -> bool:
        """Whether a tool with effects runs without a question."""
        ...

    async def close(self) -> None:
        """Close what the sessions share."""
        ...


NativeRoute: TypeAlias = Callable[[str], Awaitable[tuple[NativeAgent, str] | None]]
"""Finds the native agent behind `provider/model`, and the model's own name; None for others."""
