"""How a query ends: waiting for its work, judging it, and the entries that record its end."""

import asyncio

from haptera.kernel.blocks.error_classification import to_agent_error
from haptera.kernel.engine.query_scope import QueryScope
from haptera.model.errors import AgentError, ErrorCode, RequestError
from haptera.model.events import Event
from haptera.model.ids import QueryId
from haptera.model.log.queries import QueryEnded
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.tools import ToolEnded
from haptera.model.log.turns import TurnEnded
from haptera.model.parts import TextPart
from haptera.ports.runner import QueryOutcome
from haptera.system.clock import Clock, Stamp
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)

_STOP_SECONDS = 0.5
"""How long the work of a query that was stopped is waited for."""

_CUT_OFF = "the query was cut off before its end, and a new prompt came instead of a resume"
_CANCELLED = "This call was cancelled while it ran. It may or may not have taken effect."


async def until_over(
    worker: "asyncio.Task[QueryOutcome]", stopped: "asyncio.Future[None]", *, query_id: QueryId
) -> None:
    """Wait for the work of a query; once it was stopped, no longer than a moment."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timers: list[asyncio.TimerHandle] = []

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    def limit(_: object) -> None:
        timers.append(loop.call_later(_STOP_SECONDS, end))

    # The end of the work wakes the caller, not that it was stopped: what the work closes, such
    # as its connection, is closed before the caller records anything.
    worker.add_done_callback(end)
    stopped.add_done_callback(limit)
    try:
        await over
    finally:
        worker.remove_done_callback(end)
        stopped.remove_done_callback(limit)
        for timer in timers:
            timer.cancel()
    # Python cannot end a task that swallows its cancellation; waiting for it would hang the caller.
    if not worker.done():
        worker.add_done_callback(_forget)
        _logger.warning(
            "query %s was stopped, but a hook or provider that it waits for does not let itself "
            "be cancelled; it is left behind",
            query_id,
        )


def _forget(worker: "asyncio.Task[QueryOutcome]") -> None:
    """Take note of how work that was left behind ended: its query has ended otherwise."""
    # Retrieved, so that asyncio does not log an exception that nothing waited for.
    if not worker.cancelled():
        worker.exception()


def query_outcome(
    worker: "asyncio.Task[QueryOutcome]", stop_error: AgentError | None
) -> QueryOutcome:
    """Say how a query ended: by its own account, unless it was stopped from outside."""
    # Not done: it ignores its cancellation and was left behind.
    if not worker.done() or worker.cancelled():
        error = stop_error or _stopped_by_loop()
    elif (failure := worker.exception()) is None:
        return worker.result()
    else:
        error = to_agent_error(_first_of(failure))
        # A stopped query often fails because the recorder refuses; why it was stopped says more.
        if error.code is ErrorCode.ABORTED and stop_error is not None:
            error = stop_error
    aborted = error.code is ErrorCode.ABORTED
    return QueryOutcome(stop_reason="aborted" if aborted else "error", error=error)


def _stopped_by_loop() -> AgentError:
    return to_agent_error(asyncio.CancelledError("the event loop stopped the query"))


def _first_of(failure: BaseException) -> BaseException:
    """Return the first error of a group: calls that run side by side fail as one."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def closing_events(scope: QueryScope, outcome: QueryOutcome, *, rests: bool) -> list[Event]:
    """Return what is to be recorded before the end, so that the query is at rest.

    What was streamed is kept and marked as interrupted. A tool that was running is recorded as
    cancelled. Approvals that wait are cancelled, unless the query rests because of them. Commit it
    before the next wait: an answer that came in between would settle an approval twice.
    """
    out: list[Event] = []
    fold = scope.fold
    if fold.open_turn is not None:
        if scope.turn is not None:
            scope.turn.answer.close(out)
        message_id = fold.open_turn.started.message_id
        out.append(TurnEnded(**scope.turn_stamp(), message_id=message_id, interrupted=True))
    # A call that was started before, of an idempotent tool, may be asked about again.
    asked = fold.approvals.values() if rests else ()
    resting = {item.child.call_id if item.child else item.call_id for item in asked}
    out.extend(
        ToolEnded(
            **scope.turn_stamp(),
            call_id=call.part.call_id,
            tool=call.part.name,
            outcome="cancelled",
            content=(TextPart(text=_CANCELLED),),
        )
        for call in fold.calls.values()
        if call.state == "started" and call.part.call_id not in resting
    )
    if not rests:
        reason = f"the query ended: {outcome.stop_reason}"
        out.extend(scope.session.approvals.cancellations(reason))
    if scope.hooks is not None:
        scope.hooks.cut_off(out)
    return out


def ends_of_cut_off(fold: SessionFold, clock: Clock) -> list[QueryEnded]:
    """Return the ends of queries that have none, because their process stopped or its store failed.

    For a moment in which no query runs and a prompt comes. The open turn and its tool calls get no
    end here: what became of them is not known, and the conversation says so.
    """
    error = RequestError(ErrorCode.ABORTED, _CUT_OFF).report
    # A query whose prompt still waits, because the append of its start was torn, starts again.
    waiting = {item.message.query_id for item in fold.inputs.values()}
    return [
        QueryEnded(**Stamp(clock, query_id=query_id)(), stop_reason="aborted", error=error)
        for query_id in fold.unended
        if query_id not in waiting
    ]


def query_ended(scope: QueryScope, outcome: QueryOutcome, *, duration_ms: int) -> QueryEnded:
    """Return the terminal entry of a query."""
    return QueryEnded(
        **scope.stamp(),
        stop_reason=outcome.stop_reason,
        finish_reason=scope.finish_reason,
        usage=scope.usage,
        # Where no model was asked there is no cost, which is not a cost of 0.
        cost=scope.cost if scope.turns or scope.usage.total else None,
        turns=scope.turns,
        duration_ms=duration_ms,
        message_id=scope.turn.message_id if scope.turn else None,
        error=outcome.error.report if outcome.error else None,
        stop_detail=outcome.stop_detail,
        native_session_id=scope.fold.native.session_id if scope.session.native.live else None,
        resume=scope.resume,
    )
