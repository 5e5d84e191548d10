"""Measurements: how long a query, its turns and its tool calls take, as events and as spans."""

from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self

from haptera.kernel.blocks.stream_processor.processor import AnswerInterface
from haptera.model.errors import AgentError, ErrorReport
from haptera.model.events import (
    LiveEvent,
    Measured,
    QueryMeasured,
    ToolMeasured,
    TurnMeasured,
)
from haptera.model.ids import CallId
from haptera.model.log.queries import QueryEnded
from haptera.model.log.tools import ToolEnded
from haptera.model.log.turns import TurnEnded
from haptera.model.parts import Part
from haptera.model.stream_parts import PartOpened, StreamOpened, StreamPart
from haptera.model.usage import Usage
from haptera.ports.telemetry import Begun, QueryBegun, Span, Telemetry, ToolBegun, TurnBegun
from haptera.system.clock import Clock
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)


class _SafeSpan:
    """The span of a tracing system that may be missing or fail; a query does not notice."""

    def __init__(self, telemetry: Telemetry | None, begun: Begun) -> None:
        self._span: Span | None = None
        if telemetry is not None:
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
        self._query = query
        self._begun = begun
        self._answer = answer
        self._started_at = query.clock.now()
        self.turn_id = begun.turn_id
        self.span = _SafeSpan(query.telemetry, begun)
        self.first_at: float | None = None
        """When the first piece of the answer came. Nothing is called for those after it."""
        self.ended: TurnEnded | None = None
        """What is recorded of an answer that is complete."""

    def see(self, batch: Sequence[StreamPart]) -> None:
        """Look at what came in a read, until the first piece of the answer was among it."""
        # A stream and its parts are opened before the model has produced anything.
        if not all(isinstance(part, StreamOpened | PartOpened) for part in batch):
            self.first_at = self._query.clock.now()
            self._query.see_first(self.first_at)

    def end(self) -> list[LiveEvent]:
        """Say that the model has answered."""
        return self._end()

    def fail(self, error: AgentError) -> list[LiveEvent]:
        """Say that the request failed."""
        return self._end(error=error.report)

    def interrupt(self) -> list[LiveEvent]:
        """Say that the query was stopped."""
        # The query may be stopped between the end of an answer and the end of its measurement.
        return self._end(interrupted=self.ended is None)

    def _end(
        self, *, error: ErrorReport | None = None, interrupted: bool = False
    ) -> list[LiveEvent]:
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
            duration_ms=_ms(self._query.clock.now() - self._started_at),
            first_token_ms=_latency(self._started_at, self.first_at),
            finish_reason=ended.finish_reason if ended else None,
            usage=ended.usage if ended else Usage(),
            cost=ended.cost if ended else None,
            response_model=opened.model or None,
            response_id=opened.response_id,
            request_id=opened.request_id or (error.request_id if error else None),
            error=error,
            interrupted=interrupted,
        )
        self.span.end(measured, self._answer.parts)
        return [measured]


class ToolMeasurement:
    """Measures one tool call that is run. Ends once: later ends give no events."""

    def __init__(self, query: "QueryMeasurement", begun: ToolBegun) -> None:
        self._query = query
        self._begun = begun
        self._started_at = query.clock.now()
        self.span = _SafeSpan(query.telemetry, begun)

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
            duration_ms=_ms(self._query.clock.now() - self._started_at),
            attempts=self._query.runs.pop(self._begun.call_id, 0),
            error=error,
        )
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
        self._first_at: float | None = None
        self._attempts = 0
        self._tool_calls = 0
        self._open: list[TurnMeasurement | ToolMeasurement] = []
        self._interrupted: list[LiveEvent] = []
        self._measured: QueryMeasured | None = None
        self.clock = clock
        self.telemetry = telemetry
        self.runs: dict[CallId, int] = {}
        """How many times the tool of a call that goes on was run."""
        self.span = _SafeSpan(telemetry, begun)

    def begin_turn(self, begun: TurnBegun, answer: AnswerInterface) -> TurnMeasurement:
        """Begin to measure a request and its answer."""
        self._attempts += 1
        turn = TurnMeasurement(self, begun, answer)
        self._open.append(turn)
        return turn

    def begin_tool(self, begun: ToolBegun) -> ToolMeasurement:
        """Begin to measure a tool call."""
        self._tool_calls += 1
        tool = ToolMeasurement(self, begun)
        self._open.append(tool)
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
        for measurement in self._open.copy():
            self._interrupted += measurement.interrupt()
        self._measured = measured = QueryMeasured(
            session_id=self._begun.session_id,
            query_id=self._begun.query_id,
            stop_reason=ended.stop_reason,
            duration_ms=ended.duration_ms,
            first_token_ms=_latency(self.started_at, self._first_at),
            turns=ended.turns,
            attempts=self._attempts,
            tool_calls=self._tool_calls,
            finish_reason=ended.finish_reason,
            usage=ended.usage,
            cost=ended.cost,
            error=ended.error,
        )
        return [*self._interrupted, measured]

    def finish(self) -> None:
        """Say that the query has ended as was said."""
        if self._measured is not None:
            self.span.end(self._measured)

    def see_first(self, at: float) -> None:
        """Take note of when an answer began."""
        if self._first_at is None:
            self._first_at = at

    def forget(self, measurement: TurnMeasurement | ToolMeasurement) -> bool:
        """Whether a measurement was still open; from now on it is not."""
        if measurement not in self._open:
            return False
        self._open.remove(measurement)
        return True


def _latency(started_at: float, first_at: float | None) -> int | None:
    return None if first_at is None else _ms(first_at - started_at)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
