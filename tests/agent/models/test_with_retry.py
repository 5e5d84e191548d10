"""with_retry: the retry policy for a program's own work."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import haptera.sync
from haptera import (
    AbortController,
    AgentError,
    ErrorCode,
    ProviderError,
    RequestError,
    RetrySettings,
    with_retry,
)
from haptera.agent.retrying import RetryNotice
from haptera.testing.clocks import AutoClock, FakeClock
from tests.scripted_agents import failure_of, tasks_left

BUSY = ProviderError(ErrorCode.OVERLOADED, "too much", basis="status")
STEADY = RetrySettings(max_retries=3, jitter=0.0)


def failing(*errors: Exception) -> Callable[[], Awaitable[str]]:
    """Return work that raises these in turn, and then succeeds."""
    left = list(errors)

    async def work() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return work


async def test_work_that_fails_in_a_way_that_may_pass_is_repeated() -> None:
    notices: list[RetryNotice] = []
    clock = AutoClock()
    work = failing(BUSY, ConnectionError("gone"))
    done = await with_retry(work, retry=STEADY, on_retry=notices.append, clock=clock)
    assert (done, clock.sleeps) == ("done", [2.0, 4.0])
    assert [(item.attempt, item.delay, item.error.code) for item in notices] == [
        (1, 2.0, ErrorCode.OVERLOADED),
        (2, 4.0, ErrorCode.NETWORK),
    ]


@pytest.mark.parametrize(
    "error",
    [ValueError("boom"), ProviderError(ErrorCode.AUTH, "no", basis="status"), KeyError("typo")],
)
async def test_what_may_not_pass_is_raised_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        await with_retry(failing(error), clock=AutoClock())
    assert caught.value is error


async def test_the_last_error_is_raised_when_no_repeat_is_left() -> None:
    errors = [ConnectionError(str(number)) for number in range(3)]
    with pytest.raises(ConnectionError) as caught:
        await with_retry(failing(*errors), retry=RetrySettings.QUICK, clock=AutoClock())
    assert caught.value is errors[2]


async def test_a_wait_that_an_error_asks_for_decides() -> None:
    clock = AutoClock()
    later = ProviderError(ErrorCode.RATE_LIMITED, "later", basis="status", retry_after=7.5)
    await with_retry(failing(later), clock=clock)
    assert clock.sleeps == [7.5]


async def test_an_async_on_retry_is_waited_for() -> None:
    told: list[int] = []

    async def tell(notice: RetryNotice) -> None:
        await asyncio.sleep(0)  # noqa: TID251 - let others run
        told.append(notice.attempt)

    await with_retry(failing(BUSY), on_retry=tell, clock=AutoClock())
    assert told == [1]


@pytest.mark.parametrize("in_thread", [False, True], ids=["here", "from a thread"])
async def test_a_signal_ends_the_wait(in_thread: bool) -> None:
    clock, controller = FakeClock(), AbortController()
    waiting = asyncio.ensure_future(
        with_retry(failing(BUSY), signal=controller.signal, clock=clock)
    )
    await clock.until_sleeping()
    if in_thread:
        await asyncio.to_thread(controller.abort, "enough")
    else:
        controller.abort("enough")
    error = await failure_of(waiting)
    assert (error.code, error.message) == (ErrorCode.ABORTED, "aborted: enough")
    assert (controller.signal.listener_count, tasks_left()) == (0, [])


async def test_a_signal_that_is_aborted_already_lets_nothing_begin() -> None:
    controller, ran = AbortController(), False
    controller.abort()

    async def work() -> None:
        nonlocal ran
        ran = True

    error = await failure_of(with_retry(work, signal=controller.signal))
    assert (error.code, ran) == (ErrorCode.ABORTED, False)


def test_blocking_work_is_repeated_in_the_same_way() -> None:
    left: list[AgentError] = [BUSY, RequestError(ErrorCode.NETWORK, "gone", basis="type")]
    clock = AutoClock()

    def work() -> str:
        if left:
            raise left.pop(0)
        return "done"

    assert haptera.sync.with_retry(work, retry=STEADY, clock=clock) == "done"
    assert clock.sleeps == [2.0, 4.0]
