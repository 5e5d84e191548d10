"""RetryPolicy: decides whether something that failed is repeated, and when. Does not wait.

A module of its own because it is a block, which programs may use without the engine.
"""

from typing import TypeAlias

import msgspec

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.settings import RetrySettings


class RetryAfter(msgspec.Struct, frozen=True):
    """Wait this long, then ask again."""

    seconds: float
    account_limited: bool = False
    """Whether the provider asked for more time than a passing limit would need."""


class GiveUp(msgspec.Struct, frozen=True):
    """Do not ask again."""

    reason: str


RetryDecision: TypeAlias = RetryAfter | GiveUp


class FailureCount(msgspec.Struct, frozen=True):
    """How often a turn has failed so far, by budget."""

    failures: int = 0
    interruptions: int = 0

    def after(self, error: AgentError) -> "FailureCount":
        """Return the count with one more failure."""
        if error.code is ErrorCode.STREAM_INTERRUPTED:
            return FailureCount(self.failures, self.interruptions + 1)
        return FailureCount(self.failures + 1, self.interruptions)


def decide_retry(
    error: AgentError, count: FailureCount, settings: RetrySettings, *, jitter: float
) -> RetryDecision:
    """Judge a failure; `count` includes it, `jitter` is chance from 0 to 1.

    A guess is never repeated.
    """
    if not error.retryable or error.basis == "fallback":
        return GiveUp(f"{error.code} may not go away by asking again")
    return decide_wait(error, count, settings, jitter=jitter)


def decide_wait(
    error: AgentError, count: FailureCount, settings: RetrySettings, *, jitter: float
) -> RetryDecision:
    """Say how long to wait before a repeat that is worth it, or that no repeat is left.

    A stream that broke off has its own budget and a fixed wait.
    """
    if error.code is ErrorCode.STREAM_INTERRUPTED:
        if count.interruptions > settings.interruption_retries:
            return GiveUp(f"the stream broke off {count.interruptions} times")
        return RetryAfter(_spread(settings.interruption_delay, settings, jitter))
    if count.failures > settings.max_retries:
        return GiveUp(f"failed {count.failures} times")
    # As the provider says, and not spread: a wait made shorter by chance would be refused again.
    if error.retry_after is not None and error.retry_after >= 0:
        limited = error.retry_after > settings.longest_retry_after
        return RetryAfter(min(error.retry_after, settings.longest_retry_after), limited)
    wait = settings.first_delay * settings.factor ** (count.failures - 1)
    return RetryAfter(_spread(min(wait, settings.longest_delay), settings, jitter))


def _spread(seconds: float, settings: RetrySettings, jitter: float) -> float:
    """Make a wait shorter or longer by chance, so that many clients do not come back at once."""
    return seconds * (1 + settings.jitter * (2 * jitter - 1))
