"""Retry decisions as a table: what is repeated, after how long, and when it is given up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import AgentError, ErrorCode, RetrySettings
from haptera.kernel.blocks.retry_policy import FailureCount, GiveUp, RetryAfter, decide_retry
from haptera.model.errors import RETRYABLE_CODES, error_with_code

STEADY = 0.5
"""The chance that changes nothing."""


def failure(
    code: ErrorCode = ErrorCode.OVERLOADED, *, retry_after: float | None = None
) -> AgentError:
    return error_with_code(code, "it failed", basis="status", retry_after=retry_after)


def waits(settings: RetrySettings, error: AgentError, *, jitter: float = STEADY) -> list[float]:
    """Return the waits before each repeat, until it is given up."""
    count, found = FailureCount(), list[float]()
    while True:
        count = count.after(error)
        decision = decide_retry(error, count, settings, jitter=jitter)
        if isinstance(decision, GiveUp):
            return found
        found.append(decision.seconds)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_only_failures_that_may_pass_are_repeated(code: ErrorCode) -> None:
    count = FailureCount().after(failure(code))
    decision = decide_retry(failure(code), count, RetrySettings(), jitter=STEADY)
    assert isinstance(decision, RetryAfter) is (code in RETRYABLE_CODES)


def test_a_guess_is_never_repeated() -> None:
    guess = error_with_code(ErrorCode.NETWORK, "who knows", basis="fallback")
    assert guess.retryable
    assert waits(RetrySettings(), guess) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (RetrySettings(), [2, 4, 8, 16, 30]),
        (
            RetrySettings.RATE_LIMIT,
            [5, 7.5, 11.25, 16.875, 25.3125, 37.96875, 56.953125, 60, 60, 60],
        ),
        (RetrySettings.NETWORK, [1, 2, 4]),
        (RetrySettings(max_retries=0), []),
        (RetrySettings(max_retries=1), [2]),
        (RetrySettings(max_retries=3, first_delay=0.1, factor=2), [0.1, 0.2, 0.4]),
        (RetrySettings(max_retries=2, first_delay=0), [0, 0]),
    ],
)
def test_waits_grow_by_a_factor_up_to_the_longest(
    settings: RetrySettings, expected: list[float]
) -> None:
    assert waits(settings, failure()) == pytest.approx(expected)


def test_a_time_that_is_over_is_not_waited_for() -> None:
    error = failure(ErrorCode.RATE_LIMITED, retry_after=-5)
    assert waits(RetrySettings(max_retries=1), error) == [2]


def test_five_retries_are_six_calls() -> None:
    assert len(waits(RetrySettings(max_retries=5), failure())) + 1 == 6


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 5))
def test_chance_spreads_a_wait_by_a_tenth_at_most(jitter: float, attempt: int) -> None:
    plain = waits(RetrySettings(), failure())[attempt - 1]
    spread = waits(RetrySettings(), failure(), jitter=jitter)[attempt - 1]
    assert plain * 0.9 <= spread <= plain * 1.1


@pytest.mark.parametrize(("jitter", "first"), [(0.0, 1.8), (0.5, 2.0), (1.0, 2.2)])
def test_the_spread_is_even(jitter: float, first: float) -> None:
    assert waits(RetrySettings(), failure(), jitter=jitter)[0] == pytest.approx(first)


@pytest.mark.parametrize(
    ("asked", "waited", "limited"),
    [(0.0, 0.0, False), (7.0, 7.0, False), (60.0, 60.0, False), (61.0, 60.0, True)],
)
def test_a_provider_s_own_wish_is_followed_up_to_a_minute(
    asked: float, waited: float, limited: bool
) -> None:
    error = failure(ErrorCode.RATE_LIMITED, retry_after=asked)
    decision = decide_retry(error, FailureCount(failures=1), RetrySettings(), jitter=0.0)
    assert decision == RetryAfter(waited, limited)


def test_a_wish_of_days_is_an_account_limit_and_never_slept_through() -> None:
    error = failure(ErrorCode.RATE_LIMITED, retry_after=2**31 / 1000)
    assert waits(RetrySettings(), error) == [60.0] * 5


def test_a_stream_that_breaks_off_has_a_budget_and_a_wait_of_its_own() -> None:
    broken = failure(ErrorCode.STREAM_INTERRUPTED)
    settings = RetrySettings(interruption_retries=3, interruption_delay=7.0)
    assert waits(settings, broken) == pytest.approx([7.0, 7.0, 7.0])


def test_the_two_budgets_do_not_eat_from_each_other() -> None:
    settings = RetrySettings(max_retries=1, interruption_retries=1)
    count = FailureCount()
    for error in (failure(), failure(ErrorCode.STREAM_INTERRUPTED)):
        count = count.after(error)
        assert isinstance(decide_retry(error, count, settings, jitter=STEADY), RetryAfter)
    assert (count.failures, count.interruptions) == (1, 1)
    for error in (failure(), failure(ErrorCode.STREAM_INTERRUPTED)):
        assert isinstance(decide_retry(error, count.after(error), settings, jitter=STEADY), GiveUp)
