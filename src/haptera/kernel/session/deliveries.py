"""Answers of calls that wait: what is delivered is checked, and recorded once."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal

from haptera.kernel.blocks.tool_registry.running import to_content
from haptera.kernel.session.recorder import SessionRecorder
from haptera.model.canonical import canonical_json
from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    SessionError,
    StoreError,
    ToolError,
)
from haptera.model.json_types import Json, writable
from haptera.model.log.entry import Entry
from haptera.model.log.tools import ToolEnded, ToolWaiting
from haptera.model.operations.session import DeliverResult
from haptera.model.parts import ResultContent, TextPart
from haptera.options.json_schemas import schema_check
from haptera.system.clock import Clock, Stamp

_MOST_BYTES = 1_000_000
"""How long a delivered answer may be, as JSON."""
_REST_SECONDS = 1.0
"""How long a store that failed is left alone before the end of a wait is recorded again."""
_TIME_IS_UP = "The answer of this call did not come in time."


def wait_named(waits: Iterable[ToolWaiting], call: str) -> ToolWaiting | None:
    """Find the call that waits by its id or its ref."""
    return next((each for each in waits if call in (each.call_id, each.ref)), None)


def delivered(waiting: ToolWaiting, order: DeliverResult, *, clock: Clock) -> ToolEnded:
    """Return the end of a call with the answer that is delivered.

    Raises:
        ConfigError: CONFIG_INVALID when there is a result and an error.
        ToolError: TOOL_INVALID_INPUT when the answer is too long, or not what the call asked for.

    """
    if order.error is not None:
        if order.result is not None:
            message = "deliver a result or an error, and not both"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message)
        report = ToolError(ErrorCode.TOOL_FAILED, writable(order.error)).report
        fault, outcome = _size_fault(report.message), "error"
        content: tuple[ResultContent, ...] = (TextPart(text=report.message),)
    else:
        report = None
        fault = _size_fault(order.result) or _schema_fault(waiting, order.result)
        outcome, content = "ok", to_content(order.result)
    if fault is not None:
        message = f"the answer of {waiting.tool} was not taken: {fault}; the call goes on waiting"
        raise ToolError(ErrorCode.TOOL_INVALID_INPUT, message)
    return ToolEnded(
        **_stamp_of(waiting, clock)(),
        call_id=waiting.call_id,
        tool=waiting.tool,
        outcome="ok" if outcome == "ok" else "error",
        content=content,
        error=report,
    )


def _size_fault(answer: Json) -> str | None:
    size = len(canonical_json(answer))
    return f"it has {size} bytes, and may have {_MOST_BYTES}" if size > _MOST_BYTES else None


def _schema_fault(waiting: ToolWaiting, answer: Json) -> str | None:
    if waiting.schema is None:
        return None
    return schema_check(waiting.schema, of="the schema of the call")(answer)


def require_delivered(entries: Sequence[Entry], order: DeliverResult, *, clock: Clock) -> None:
    """Accept what was delivered before, by the log of the session.

    Raises:
        SessionError: NOT_FOUND when no call waits, or did, or the conversation went on without it.
        StoreError: CONFLICT when the call has another answer.

    """
    places = [
        place
        for place, entry in enumerate(entries)
        if isinstance(entry, ToolWaiting) and order.call in (entry.call_id, entry.ref)
    ]
    last = entries[places[-1]] if places else None
    if not isinstance(last, ToolWaiting):
        message = f"no call {order.call!r} waits for an answer"
        raise SessionError(ErrorCode.NOT_FOUND, message)
    following = entries[places[-1] :]
    ends = [
        entry
        for entry in following
        if isinstance(entry, ToolEnded) and entry.call_id == last.call_id
    ]
    if not ends or ends[0].outcome == "cancelled":
        message = (
            f"call {order.call!r} waits no longer: the conversation went on without its answer"
        )
        raise SessionError(ErrorCode.NOT_FOUND, message)
    wanted = delivered(last, order, clock=clock)
    if (wanted.outcome, wanted.content) != (ends[0].outcome, ends[0].content):
        message = f"call {order.call!r} has another answer already"
        raise StoreError(ErrorCode.CONFLICT, message)


def cancelled_waits(waits: Iterable[ToolWaiting], reason: str, *, clock: Clock) -> list[ToolEnded]:
    """Return the ends of calls that wait no longer: to be committed in the same step."""
    content = TextPart(text=f"This call was cancelled while it waited for its answer: {reason}.")
    return [_ended(each, "cancelled", (content,), clock=clock) for each in waits]


async def end_when_due(
    waiting: ToolWaiting,
    *,
    recorder: SessionRecorder,
    recover: Callable[[], Awaitable[None]],
    clock: Clock,
) -> None:
    """Wait until the time of a call is up, and answer it unless it was answered meanwhile."""
    while True:
        seconds = ((waiting.until or 0) - clock.time_ms()) / 1000
        try:
            if seconds > 0:
                await clock.sleep(seconds)
            await recover()
            if all(each.id != waiting.id for each in recorder.waits()):
                return
            if waiting.otherwise is not None:
                ended = _ended(waiting, "ok", waiting.otherwise, clock=clock)
            else:
                ended = _ended(waiting, "timed_out", (TextPart(text=_TIME_IS_UP),), clock=clock)
            await recorder.commit([ended])
        except SessionError:
            return  # it is closed: the next holder answers
        except AgentError as error:
            if error.code is ErrorCode.FENCED:
                return
            await clock.sleep(_REST_SECONDS)
        else:
            return


def _ended(
    waiting: ToolWaiting,
    outcome: Literal["ok", "cancelled", "timed_out"],
    content: tuple[ResultContent, ...],
    *,
    clock: Clock,
) -> ToolEnded:
    return ToolEnded(
        **_stamp_of(waiting, clock)(),
        call_id=waiting.call_id,
        tool=waiting.tool,
        outcome=outcome,
        content=content,
    )


def _stamp_of(waiting: ToolWaiting, clock: Clock) -> Stamp:
    # That of the call: an answer may come while neither its query nor its turn runs.
    return Stamp(clock, query_id=waiting.query_id, turn_id=waiting.turn_id)
