"""How a query ends: waiting for its work, judging it, and what it has added."""

import asyncio
from collections.abc import Collection

from haptera.kernel.blocks.error_classification import to_agent_error
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import QueryId
from haptera.model.json_types import JsonObject
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import ProviderPart
from haptera.ports.runner import QueryOutcome
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)

_STOP_SECONDS = 0.5
"""How long the work of a query that was stopped is waited for."""


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


def text_of_answer(answer: AssistantMessage) -> str:
    """Return what the model said; where it only refused, the words it refused with."""
    return answer.text or "".join(
        _refusal_in(part.payload) for part in answer.parts if isinstance(part, ProviderPart)
    )


def _refusal_in(payload: JsonObject) -> str:
    """Find a refusal in an opaque part: providers put it on the part, or into its content."""
    objects = [payload, *(item for item in payload.get("content") or () if isinstance(item, dict))]
    return "".join(str(each.get("refusal") or "") for each in objects)


def added_by(own: Collection[QueryId | None], messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the tail of a conversation that the queries of these ids added."""
    first = len(messages)
    # From the end, so that a long conversation is not looked through after every query.
    while first and messages[first - 1].query_id in own:
        first -= 1
    return messages[first:]
