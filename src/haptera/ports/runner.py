"""The port to a runner of queries: what it is given, where it records, and what it promises."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from haptera.model.errors import AgentError
from haptera.model.events import Event, LiveEvent
from haptera.model.ids import QueryId
from haptera.model.json_types import JsonObject
from haptera.model.messages import CompactOrder, Sender, UserMessage
from haptera.model.requests import OutputSchema
from haptera.model.results import StopReason
from haptera.ports.tools import OutputTransform, ToolSource


class Recorder(Protocol):
    """Writes entries to the log and shows events to consumers, in one order.

    - Entries among `events` are durable, and folded into the conversation, before any of the
      events is shown.
    - Events of all callers are shown in the order in which they were recorded.
    - It returns once no consumer is too far behind; cancelling that wait loses nothing.
    - What was recorded first is in the log first, also when two callers record at the same time: a
      decision that is made before the first wait rests on everything recorded before it.
    - A store that fails raises a `StoreError`; nothing of the batch is shown.
    - What is staged is recorded with the next events, in one append, or by itself after a moment.
      Until then it may be neither folded nor shown, and nothing may be done that rests on it.
    """

    def stage(self, events: Sequence[Event]) -> None:
        """Take `events` in, to be recorded together with what comes next."""
        ...

    async def record(self, events: Sequence[Event]) -> None:
        """Make `events` durable, then visible."""
        ...

    def show(self, events: Sequence[LiveEvent]) -> None:
        """Show live-only events at once, without waiting for anything."""
        ...


ScopeT_contra = TypeVar("ScopeT_contra", contravariant=True)


class OutputSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The type that an answer must have."""

    schema: OutputSchema
    parse: Callable[[str], object]
    """Returns the value, or raises ValueError saying what is wrong."""
    max_repairs: int = 2


class QueryInput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one query is given; everything else is the session's."""

    query_id: QueryId
    message: UserMessage | None
    """The prompt; None to go on with what is there."""
    reminders: tuple[str, ...] = ()
    """Notes to the model with the first request only; never stored."""
    require_tool: str | None = None
    """The tool that the model must call in its first turn."""
    transform: OutputTransform | None = None
    """Changes tool output before it is encoded, in this query only."""
    output: OutputSpec | None = None
    wants_text: bool = False
    """Whether the output is the text of the answer as it is."""
    is_only: bool = False
    """Whether its session ends with it, so that no later query repeats what it sends."""
    timeout: float | None = None
    """Seconds that a model may take for one attempt of one turn; a consumer's time is not its."""
    settings: JsonObject = msgspec.field(default_factory=dict)
    """Settings of this query alone, laid over those of the session."""
    tools: ToolSource | None = None
    """What the model may call in this query; None: what the session offers."""
    deps: object = None
    """For tools that ask for it; None: what the session has."""
    sender: Sender | None = None
    """Who sent the prompt."""
    resumes: QueryId | None = None
    compact: CompactOrder | None = None
    """The query compacts the conversation, and answers no prompt."""
    input_id: str | None = None
    """The queued input that this query promotes."""


class QueryOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How a query came to rest."""

    stop_reason: StopReason
    stop_detail: str | None = None
    """Which limit was reached, which tool call was repeated, or that a compaction was the end."""
    error: AgentError | None = None


class Runner(Protocol[ScopeT_contra]):
    """Answers the prompt of a query, with a model or with an agent that keeps its own session.

    - `start` is called first, once. When it returns, the prompt is in the log. An abort does not
      cut it short: a prompt that was taken in is part of the session.
    - `run` returns when the query has come to rest, or raises an `AgentError` when it cannot go on.
      It can be cancelled at any point, and leaves open what it was about: the caller records how
      the query ended, because an abort can end it anywhere.
    - Everything that a query does goes through the recorder of its scope. A runner keeps nothing
      of any query between two of them, and runs any number of queries at the same time.
    """

    async def start(self, scope: ScopeT_contra) -> None:
        """Record the prompt."""
        ...

    def run(self, scope: ScopeT_contra) -> Coroutine[Any, Any, QueryOutcome]:
        """Answer it."""
        ...
