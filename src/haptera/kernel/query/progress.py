"""What came of a query so far: what it used, what repeats in it, how long it and its parts took."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from decimal import Decimal
from functools import cached_property
from types import TracebackType
from typing import Literal, Self, overload

import msgspec

from haptera.kernel.blocks.repetitions import LoopDetector, RepeatedErrors
from haptera.kernel.blocks.stream_processor.processor import AnswerInterface
from haptera.model.errors import ErrorReport
from haptera.model.events import (
    LiveEvent,
    Measured,
    QueryMeasured,
    ToolMeasured,
    TurnMeasured,
)
from haptera.model.ids import CallId, QueryId
from haptera.model.log.native import NativeSessionState
from haptera.model.log.queries import QueryEnded
from haptera.model.log.tools import ToolEnded
from haptera.model.log.turns import TurnEnded
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import Part
from haptera.model.results import ResumeKind
from haptera.model.settings import Limits, Settings
from haptera.model.stream_parts import PartOpened, StreamOpened, StreamPart
from haptera.model.usage import Usage, add_costs
from haptera.ports.telemetry import Begun, QueryBegun, Span, Telemetry, ToolBegun, TurnBegun
from haptera.system.clock import Clock
from haptera.system.logs import scrubbed_logger


class WorkspaceState(msgspec.Struct, kw_only=True, eq=False):
    """What is known of the files while the tools of a turn run."""

    is_taken: bool = False
    """Whether the log has a snapshot before the first tool that can change them, or its error."""
    error: str | None = None
    """Why none can be taken in this query; None as long as none has failed."""
    one_takes: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class QueryChildren(msgspec.Struct, kw_only=True, eq=False):
    """The sub-agents of one query: what they used, and how many run."""

    usage: Usage = msgspec.field(default_factory=Usage)
    cost: Decimal | None = Decimal(0)
    slots: asyncio.Semaphore | None = None
    """Bounds how many run at the same time; None before the first one."""

    def add(self, usage: Usage, cost: Decimal | None) -> None:
        """Count what a sub-agent used."""
        self.usage += usage
        self.cost = add_costs(self.cost, cost)


class QueryProgress(msgspec.Struct, kw_only=True, eq=False):
    """What came of a query so far."""

    prompt: UserMessage | None = None
    """The prompt as the fold will have it, from when it is staged."""
    turns: int = 0
    """How many turns were answered."""
    tool_calls: int = 0
    tool_reports: int = 0
    """How often tools reported progress."""
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: Decimal | None = Decimal(0)
    children: QueryChildren = msgspec.field(default_factory=QueryChildren)
    files: WorkspaceState = msgspec.field(default_factory=WorkspaceState)
    finish_reason: str | None = None
    output: object = None
    joined: set[QueryId | None] = msgspec.field(default_factory=set)
    """The ids under which prompts came that joined the query."""

    def add_usage(self, usage: Usage, cost: Decimal | None) -> None:
        """Count what a turn used."""
        self.usage += usage
        self.cost = add_costs(self.cost, cost)

    def limit_reached(self, limits: Limits, *, seconds: float) -> str | None:
        """Return the limit that allows one more turn and no other after it, as `turns=50`."""
        cost = float(self.cost or 0) + float(self.children.cost or 0)
        used: dict[str, float] = {
            # Counts the turn that is about to begin.
            "turns": self.turns + 1,
            "tokens": self.usage.total + self.children.usage.total,
            "cost": cost,
            "seconds": seconds,
            "tool_calls": self.tool_calls,
        }
        for name, amount in used.items():
            limit: float | None = getattr(limits, name)
            if limit is not None and amount >= limit:
                return f"{name}={limit:g}"
        return None


class QueryChecks(msgspec.Struct, kw_only=True, eq=False, dict=True):
    """What repeats or fails in a query, and what its model and its caller are told of that."""

    settings: Settings
    """As the query began."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What the model is told with the next request that is answered, and with no other."""
    repeated_call: str | None = None
    """The tool call for which the query ends as a loop, for people."""
    denied_call: str | None = None
    """The last tool call that was denied, for people."""
    trouble: str | None = None
    """Why a call of a model or a tool is being repeated or made elsewhere, for the error of a query
    whose time is up; None while nothing has failed."""

    @cached_property
    def loop(self) -> LoopDetector:
        """What watches its calls, once there are some."""
        return LoopDetector.of(self.settings)

    @cached_property
    def errors(self) -> RepeatedErrors:
        """What watches its errors, once there are some."""
        return RepeatedErrors.of(self.settings)


class NativeShare(msgspec.Struct, kw_only=True, eq=False):
    """What a native agent has of the conversation, as far as a query needs it."""

    is_remembered: bool = False
    """Whether the rest is known: it is noted where the session has, or had, a native agent."""
    is_asked: bool = False
    """Whether the agent answers the query."""
    prompt: UserMessage | None = None
    """What the agent is asked, also where it was taken from the queue."""
    before: tuple[Message, ...] = ()
    """The conversation before the prompt."""
    state: NativeSessionState = NativeSessionState()
    """What the agent had of it."""
    resume: ResumeKind | None = None
    """How the earlier conversation reached the agent, where that has to be said."""
    resumed: bool = False
    """Whether the agent took up its own session again for this query."""


_logger = scrubbed_logger(__name__)


NO_SPAN = nullcontext()
"""Entered where nothing traces."""


class SafeSpan:
    """The span of a tracing system, which may fail; a query does not notice."""

    def __init__(self, telemetry: Telemetry, begun: Begun) -> None:
        self._span: Span | None = None
        try:
            self._span = telemetry.begin(begun)
        except Exception:
            _logger.exception("telemetry failed to begin a span")

    def __enter__(self) -> Self:
        if self._span is not None:
            try:
                self._span.__enter__()
            except Exception:
                _logger.exception("telemetry failed to enter a span")
                # A span that was not entered must not be left.
                self._span = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._span is not None:
            try:
                self._span.__exit__(kind, error, traceback)
            except Exception:
                _logger.exception("telemetry failed to leave a span")

    def end(self, measured: Measured, parts: Sequence[Part] = ()) -> None:
        """End the span with what was measured."""
        if self._span is not None:
            try:
                self._span.end(measured, parts)
            except Exception:
                _logger.exception("telemetry failed to end a span")


class TurnMeasurement:
    """Measures one request and its answer. Ends once: later ends give no events."""

    def __init__(
        self, query: "QueryMeasurement", begun: TurnBegun, answer: AnswerInterface
    ) -> None:
        query.attempts += 1
        query.open.append(self)
        self._query = query
        self._begun = begun
        self._answer = answer
        self._started_at = query.clock.now()
        self.turn_id = begun.turn_id
        self.span = _span_of(query.telemetry, begun)
        self.first_at: float | None = None
        """When the first piece of the answer came. Nothing is called for those after it."""
        self.ended: TurnEnded | None = None
        """What is recorded of an answer that is complete."""

    def see(self, batch: Sequence[StreamPart]) -> None:
        """Look at what came in a read, until the first piece of the answer was among it."""
        # A stream and its parts are opened before the model has produced anything.
        if not all(isinstance(part, StreamOpened | PartOpened) for part in batch):
            self.first_at = self._query.clock.now()
            if self._query.first_at is None:
                self._query.first_at = self.first_at

    def interrupt(self) -> list[LiveEvent]:
        """Say that the query was stopped."""
        # The query may be stopped between the end of an answer and the end of its measurement.
        return self.end(interrupted=self.ended is None)

    def end(
        self, *, error: ErrorReport | None = None, interrupted: bool = False
    ) -> list[LiveEvent]:
        """Say that the model has answered, or that the request failed."""
        if not self._query.forget(self):
            return []
        begun, ended = self._begun, self.ended
        opened = self._answer.opened or StreamOpened()
        measured = TurnMeasured(
            session_id=begun.session_id,
            query_id=begun.query_id,
            turn_id=self.turn_id,
            provider=begun.provider,
            model=begun.request.model,
            attempt=begun.attempt,
            duration_ms=_ms(self._started_at, self._query.clock.now()),
            first_token_ms=_ms(self._started_at, self.first_at),
            finish_reason=ended.finish_reason if ended else None,
            usage=ended.usage if ended else Usage(),
            cost=ended.cost if ended else None,
            response_model=opened.model or None,
            response_id=opened.response_id,
            request_id=opened.request_id or (error.request_id if error else None),
            error=error,
            interrupted=interrupted,
        )
        if self.span is not None:
            self.span.end(measured, self._answer.parts)
        return [measured]


class ToolMeasurement:
    """Measures one tool call that is run. Ends once: later ends give no events."""

    def __init__(self, query: "QueryMeasurement", begun: ToolBegun) -> None:
        self._query = query
        self._begun = begun
        self._started_at = query.clock.now()
        self.span = _span_of(query.telemetry, begun)

    def end(self, ended: ToolEnded) -> list[LiveEvent]:
        """Say that the tool has ended."""
        # For the type checker: what is measured has run, and so was not denied.
        outcome = ended.outcome if ended.outcome != "denied" else "error"
        return self._end(outcome, ended.content, error=ended.error)

    def interrupt(self) -> list[LiveEvent]:
        """Say that the query was stopped."""
        return self._end("cancelled")

    def _end(
        self,
        outcome: Literal["ok", "error", "cancelled", "timed_out"],
        parts: Sequence[Part] = (),
        *,
        error: ErrorReport | None = None,
    ) -> list[LiveEvent]:
        if not self._query.forget(self):
            return []
        measured = ToolMeasured(
            session_id=self._begun.session_id,
            query_id=self._begun.query_id,
            turn_id=self._begun.turn_id,
            call_id=self._begun.call_id,
            tool=self._begun.tool,
            outcome=outcome,
            duration_ms=_ms(self._started_at, self._query.clock.now()),
            attempts=self._query.runs.pop(self._begun.call_id, 0),
            error=error,
        )
        if self.span is not None:
            self.span.end(measured, parts)
        return [measured]


class QueryMeasurement:
    """Measures one query, and knows what of it is still going on.

    Owns the numbers that no entry has: latencies and attempts. Does not show events: the
    caller that ends a measurement shows what it returns.
    """

    def __init__(self, begun: QueryBegun, *, clock: Clock, telemetry: Telemetry | None) -> None:
        self._begun = begun
        self.started_at = clock.now()
        self.first_at: float | None = None
        """When the first answer began."""
        self.attempts = 0
        self._tool_calls = 0
        self.open: list[TurnMeasurement | ToolMeasurement] = []
        self._interrupted: list[LiveEvent] = []
        self._measured: QueryMeasured | None = None
        self.clock = clock
        self.telemetry = telemetry
        self.runs: dict[CallId, int] = {}
        """How many times the tool of a call that goes on was run."""
        self.span = _span_of(telemetry, begun)

    def begin_tool(self, begun: ToolBegun) -> ToolMeasurement:
        """Begin to measure a tool call."""
        self._tool_calls += 1
        tool = ToolMeasurement(self, begun)
        self.open.append(tool)
        return tool

    def count_run(self, call_id: CallId) -> None:
        """Count that a tool is run for a call, for the first time or again."""
        self.runs[call_id] = self.runs.get(call_id, 0) + 1

    def end(self, ended: QueryEnded) -> list[LiveEvent]:
        """Say that the query ends, and with it whatever of it was still going on.

        An end that could not be stored becomes another: what was said last is true. The span ends
        with `finish`.
        """
        # `interrupt` removes from the list. What it returns is kept for a second call, which
        # happens when the store did not take the first end.
        for measurement in self.open.copy():
            self._interrupted += measurement.interrupt()
        self._measured = measured = QueryMeasured(
            session_id=self._begun.session_id,
            query_id=self._begun.query_id,
            stop_reason=ended.stop_reason,
            duration_ms=ended.duration_ms,
            first_token_ms=_ms(self.started_at, self.first_at),
            turns=ended.turns,
            attempts=self.attempts,
            tool_calls=self._tool_calls,
            finish_reason=ended.finish_reason,
            usage=ended.usage,
            cost=ended.cost,
            error=ended.error,
        )
        return [*self._interrupted, measured]

    def finish(self) -> None:
        """Say that the query has ended as was said."""
        if self._measured is not None and self.span is not None:
            self.span.end(self._measured)

    def forget(self, measurement: TurnMeasurement | ToolMeasurement) -> bool:
        """Whether a measurement was still open; from now on it is not."""
        if measurement not in self.open:
            return False
        self.open.remove(measurement)
        return True


def _span_of(telemetry: Telemetry | None, begun: Begun) -> SafeSpan | None:
    """Begin a span where something traces."""
    return None if telemetry is None else SafeSpan(telemetry, begun)


@overload
def _ms(start: float, end: float) -> int: ...
@overload
def _ms(start: float, end: float | None) -> int | None: ...
def _ms(start: float, end: float | None) -> int | None:
    """Return the milliseconds between two readings of a clock; None where there is no second."""
    return None if end is None else max(0, round((end - start) * 1000))
