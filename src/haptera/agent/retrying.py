"""with_retry: the retry policy for any async work of a program, not only for model calls."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import msgspec

from haptera.access.assembly import late
from haptera.kernel.blocks.error_classification import to_agent_error
from haptera.kernel.blocks.retry_policy import FailureCount, GiveUp, decide_retry
from haptera.model.errors import AgentError, ErrorCode, RequestError
from haptera.model.settings import RetrySettings
from haptera.system.abort import AbortSignal, until_aborted
from haptera.system.clock import Clock, Random, SystemClock
from haptera.system.owned_tasks import OwnedTasks

ValueT = TypeVar("ValueT")


class RetryNotice(msgspec.Struct, frozen=True, kw_only=True):
    """What `on_retry` gets before each wait."""

    attempt: int
    """The number of the call that failed; 1 is the first."""
    delay: float
    """Seconds until the next one."""
    error: AgentError
    """Why it failed, classified."""
    account_limited: bool = False
    """Whether the provider asked for more time than a passing limit would need."""


OnRetry: TypeAlias = Callable[[RetryNotice], object]


async def with_retry(
    work: Callable[[], Awaitable[ValueT]],
    *,
    retry: RetrySettings | None = None,
    on_retry: OnRetry | None = None,
    signal: AbortSignal | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
) -> ValueT:
    """Await `work()`, and again when it fails in a way that may pass.

    What it raises is classified as errors of providers are: only codes that are retryable are
    repeated, and never a guess. A `retry_after` of the error decides the wait. `on_retry`, async or
    not, is called before each wait. Without `retry` the defaults of `RetrySettings`
    hold; presets are its attributes. `clock` and `random` are for tests.

    Raises:
        RequestError: ABORTED when `signal` says stop, before a call or while it waits.
        Exception: what the last call raised, when it is not repeated.

    """
    rules, time = retry or RetrySettings(), clock or SystemClock()
    chance = random or late.Random()
    attempt, failures = 1, FailureCount()
    while True:
        _refuse_if_aborted(signal)
        try:
            return await work()
        # A cancellation is no `Exception`: it ends the work and is never repeated.
        except Exception as raised:
            error = to_agent_error(raised)
            failures = failures.after(error)
            decision = decide_retry(error, failures, rules, jitter=chance.random())
            if isinstance(decision, GiveUp):
                raise
        notice = RetryNotice(
            attempt=attempt,
            delay=decision.seconds,
            error=error,
            account_limited=decision.account_limited,
        )
        waiting = on_retry(notice) if on_retry is not None else None
        if inspect.isawaitable(waiting):
            await waiting
        await _wait(time, decision.seconds, signal)
        attempt += 1


async def _wait(clock: Clock, seconds: float, signal: AbortSignal | None) -> None:
    """Wait, unless the signal says stop first."""
    if signal is None:
        await clock.sleep(seconds)
        return
    # Two tasks, because a signal may be aborted in any thread while the clock is waited for. The
    # one that is not done is cancelled when the block ends.
    async with OwnedTasks() as tasks:
        pause = tasks.start(clock.sleep(seconds), name="haptera-retry-pause")
        stopped = tasks.start(until_aborted(signal), name="haptera-retry-stopped")
        await asyncio.wait({pause, stopped}, return_when=asyncio.FIRST_COMPLETED)
    _refuse_if_aborted(signal)


def _refuse_if_aborted(signal: AbortSignal | None) -> None:
    if signal is not None and signal.aborted:
        reason = f": {signal.reason}" if signal.reason else ""
        raise RequestError(ErrorCode.ABORTED, f"aborted{reason}")
