"""The port to a tracing system: notified when a query, a turn or a tool call begins and ends.

Deltas are not reported: tracing adds no cost per delta.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, TypeAlias

import msgspec

from haptera.model.events import Measured
from haptera.model.ids import CallId, QueryId, SessionId, TurnId
from haptera.model.json_types import Json
from haptera.model.messages import UserMessage
from haptera.model.parts import Part
from haptera.model.requests import ModelRequest


class QueryBegun(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A query begins."""

    session_id: SessionId
    query_id: QueryId
    model: str
    """As `provider/model`."""
    provider_name: str = ""
    """The name that tracing conventions have for the provider; empty: its own."""
    prompt: UserMessage | None = None
    """None when an earlier query goes on."""


class TurnBegun(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request is about to be sent."""

    session_id: SessionId
    query_id: QueryId
    turn_id: TurnId
    provider: str
    provider_name: str = ""
    """The name that tracing conventions have for the provider; empty: its own."""
    request: ModelRequest
    attempt: int


class ToolBegun(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A tool is about to run."""

    session_id: SessionId
    query_id: QueryId
    turn_id: TurnId | None
    """None when a later query runs what an earlier one was asked for."""
    call_id: CallId
    tool: str
    description: str
    arguments: Json


Begun: TypeAlias = QueryBegun | TurnBegun | ToolBegun


class Span(Protocol):
    """One query, turn or tool call, from its beginning to its end.

    - Inside of `with` it is the current span of the context: what is begun there, also by a tool,
      a provider's HTTP client or a task of theirs, belongs to it.
    - `end` is called once, inside or after it, also when the query is stopped.
    """

    def __enter__(self) -> object:
        """Make this the current span."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the span before it be the current one again."""
        ...

    def end(self, measured: Measured, parts: Sequence[Part] = ()) -> None:
        """End it; `parts` are the answer of a model or the result of a tool."""
        ...


class Telemetry(Protocol):
    """Follows what sessions do, for a tracing system.

    - It is called on the event loop and never waits.
    - What it raises is logged and does no harm to the query.
    - It holds nothing of a query that has ended.
    """

    def begin(self, begun: Begun) -> Span:
        """Begin a span below the current one."""
        ...
