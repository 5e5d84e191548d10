"""Retries, fallbacks and timeouts of a whole query, against a clock that a test holds."""

import asyncio
from typing import Any

import pytest

from haptera import (
    AgentError,
    ErrorCode,
    ModelStep,
    RetryScheduled,
    RetrySettings,
    StatusChanged,
    TurnDiscarded,
    tool,
)
from haptera.model.errors import ProviderError, RequestError, error_with_code
from haptera.model.events import Busy, Idle, Retrying
from haptera.testing import (
    EventRecorder,
    FakeClock,
    Gate,
    LoopClock,
    ScriptedProvider,
    calls,
    run_seeded,
    says,
)
from haptera.testing.clocks import AutoClock
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import events_of, failure_of, playing, run_script, texts_in

STEADY = RetrySettings(jitter=0.0)
OVERLOADED = ProviderError(ErrorCode.OVERLOADED, "come back later", basis="status")
BROKEN = RequestError(ErrorCode.STREAM_INTERRUPTED, "the line went dead", basis="type")


def waits(clock: FakeClock, *, but: float = 1.0) -> list[float]:
    """Return the waits that were asked for, without those between two checkpoints."""
    return [seconds for seconds in clock.sleeps if seconds != but]


async def test_a_request_that_fails_for_a_while_is_repeated_and_its_result_is_the_same() -> None:
    clock = AutoClock()
    result, provider = await run_script(
        [OVERLOADED, OVERLOADED, says("fine")], clock=clock, retry=STEADY
    )
    assert (result.text, result.turns, len(provider.requests)) == ("fine", 1, 3)
    assert waits(clock) == [2.0, 4.0]
    assert provider.requests[0] == provider.requests[2]


async def test_five_retries_are_six_calls_and_the_last_error_is_raised() -> None:
    clock = AutoClock()
    last = ProviderError(ErrorCode.OVERLOADED, "the last one", basis="status")
    async with playing([*[OVERLOADED] * 5, last], clock=clock, retry=STEADY) as (session, _):
        error = await failure_of(session.chat("go"))
    assert (error.message, waits(clock)) == ("the last one", [2.0, 4.0, 8.0, 16.0, 30.0])


@pytest.mark.parametrize("code", [c for c in ErrorCode if not error_with_code(c, "x").retryable])
async def test_a_lasting_failure_is_not_repeated(code: ErrorCode) -> None:
    async with playing([error_with_code(code, "no", basis="code")]) as (session, provider):
        assert (await failure_of(session.chat("go"))).code is code
        assert len(provider.requests) == 1


async def test_an_unknown_exception_of_a_client_is_a_guess_and_not_repeated() -> None:
    async with playing([RuntimeError("what is this")]) as (session, _):
        error = await failure_of(session.chat("go"))
    assert (error.code, error.basis) == (ErrorCode.PROTOCOL, "fallback")


async def test_a_known_exception_of_a_client_is_classified_and_repeated() -> None:
    script: list[Step] = [ConnectionResetError("peer"), says("fine")]
    result, _ = await run_script(script, clock=AutoClock())
    assert result.text == "fine"


async def test_the_provider_s_own_wish_is_followed() -> None:
    clock = AutoClock()
    limited = ProviderError(ErrorCode.RATE_LIMITED, "slow", basis="status", retry_after=7.0)
    await run_script([limited, says("fine")], clock=clock)
    assert waits(clock) == [7.0]


async def test_a_wish_of_hours_is_an_account_limit_and_can_be_seen() -> None:
    clock = FakeClock()
    limited = ProviderError(ErrorCode.RATE_LIMITED, "used up", basis="status", retry_after=7200.0)
    async with playing([limited, says("fine")], clock=clock) as (session, _):
        asking = asyncio.ensure_future(session.chat("go"))
        await clock.until_sleeping()
        status = session.status
        assert isinstance(status, Retrying)
        assert (status.attempt, status.message, status.account_limited) == (1, "used up", True)
        assert status.next_at == clock.time_ms() + 60_000
        clock.advance(60)
        assert (await asking).text == "fine"
        assert session.status == Idle()


async def test_a_wait_is_announced_before_it_begins_and_the_status_follows() -> None:
    async with playing([OVERLOADED, says("fine")], clock=AutoClock(), retry=STEADY) as (session, _):
        events = await events_of(session)
    (scheduled,) = [event for event in events if isinstance(event, RetryScheduled)]
    assert (scheduled.attempt, scheduled.delay, scheduled.error.code) == (1, 2.0, "OVERLOADED")
    assert scheduled.next_at == scheduled.time + 2000
    statuses = [type(e.status) for e in events if isinstance(e, StatusChanged)]
    assert statuses == [Busy, Retrying, Busy]
    kinds = [event.kind for event in events]
    assert kinds.index("retry.scheduled") < kinds.index("session.status", 1)


async def test_a_wait_can_be_aborted() -> None:
    clock = FakeClock()
    async with playing([OVERLOADED], clock=clock) as (session, _):
        asking = asyncio.ensure_future(session.chat("go"))
        await clock.until_sleeping()
        session.abort()
        assert (await failure_of(asking)).code is ErrorCode.ABORTED
        assert session.status == Idle()


async def test_text_that_was_shown_before_a_failure_is_called_back() -> None:
    script: list[Step] = [[*says("wrong ", "half")[:4], OVERLOADED], says("right")]
    async with playing(script, clock=AutoClock()) as (session, provider):
        recorder = EventRecorder()
        async for event in session.stream("go"):
            recorder(event)
        (discarded,) = [e for e in recorder.events if isinstance(e, TurnDiscarded)]
        assert discarded.error is not None
        assert discarded.error.code is ErrorCode.OVERLOADED
        assert (recorder.text, session.messages[-1].text) == ("right", "right")
    assert texts_in(provider.requests[1]) == ["go"]


async def test_a_stream_that_breaks_off_has_a_budget_of_its_own() -> None:
    broken: Step = [*says("half")[:3], BROKEN]
    clock = AutoClock()
    async with playing([broken] * 3, clock=clock, retry=STEADY) as (session, provider):
        error = await failure_of(session.chat("go"))
        assert (error.code, len(provider.requests)) == (ErrorCode.STREAM_INTERRUPTED, 3)
        assert error.result is not None
        assert error.result.text == "half"


async def test_each_turn_has_its_own_budget() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    script: list[Step] = [OVERLOADED, OVERLOADED, calls(("look", {})), OVERLOADED, OVERLOADED]
    retry = RetrySettings(max_retries=2)
    result, _ = await run_script(
        [*script, says("fine")], tools=[look], clock=AutoClock(), retry=retry
    )
    assert result.text == "fine"


async def test_a_preset_can_be_chosen() -> None:
    clock = AutoClock()
    async with playing([OVERLOADED] * 4, clock=clock, retry=RetrySettings.NETWORK) as (session, _):
        await failure_of(session.chat("go"))
    assert len(waits(clock, but=-1)) == 3


# Fallbacks.


async def play_plan(
    primary: list[Step], *others: tuple[str, list[Step]], **options: Any
) -> tuple[Any, list[ScriptedProvider]]:
    providers = [ScriptedProvider(steps, provider=name) for name, steps in others]
    outcome: Any
    async with playing(primary, providers=providers, clock=AutoClock(), **options) as (session, _):
        try:
            outcome = await session.chat("go")
        except AgentError as error:
            outcome = error
        messages = [message.text for message in session.messages]
    for provider in providers:
        provider.check()
    return (outcome, messages), providers


NO_RETRY = RetrySettings(max_retries=0, interruption_retries=0)
REFUSED = ProviderError(ErrorCode.AUTH, "no", basis="status")


async def test_the_next_model_is_asked_when_the_first_fails() -> None:
    steps = [ModelStep(model="b/x"), ModelStep(model="c/y", thinking="high")]
    broken: Step = [*says("half")[:3], OVERLOADED]
    (result, messages), (b, c) = await play_plan(
        [broken],
        ("b", [REFUSED]),
        ("c", [says("from c")]),
        fallbacks=steps,
        retry=NO_RETRY,
        thinking="low",
    )
    assert (result.text, result.provider, result.model) == ("from c", "c", "y")
    assert messages == ["go", "from c"]
    assert [request.thinking for request in (*b.requests, *c.requests)] == ["low", "high"]
    assert texts_in(c.requests[0]) == ["go"]


async def test_a_fallback_is_called_twice_unless_it_says_otherwise() -> None:
    steps: list[ModelStep | str] = [
        "b/x",
        ModelStep(model="c/y", max_attempts=1),
        ModelStep(model="d/z", max_attempts=0),
    ]
    (error, messages), providers = await play_plan(
        [REFUSED],
        ("b", [OVERLOADED] * 2),
        ("c", [OVERLOADED]),
        ("d", [OVERLOADED] * 2),
        fallbacks=steps,
    )
    assert (error.code, messages) == (ErrorCode.OVERLOADED, ["go"])
    assert [len(provider.requests) for provider in providers] == [2, 1, 2]


@pytest.mark.parametrize("code", [ErrorCode.BAD_REQUEST, ErrorCode.CONTENT_FILTER])
async def test_a_request_that_no_model_would_take_is_not_handed_on(code: ErrorCode) -> None:
    (error, _), (b,) = await play_plan(
        [error_with_code(code, "no", basis="status")], ("b", []), fallbacks=["b/x"]
    )
    assert (error.code, b.requests) == (code, [])


async def test_the_last_error_of_a_plan_tells_of_those_before_it() -> None:
    (error, _), _ = await play_plan(
        [OVERLOADED], ("b", [REFUSED]), fallbacks=["b/x"], retry=NO_RETRY
    )
    assert error.code is ErrorCode.AUTH
    assert error.__notes__ == [f"before it, scripted/one: {OVERLOADED.message}"]


async def test_the_next_turn_begins_with_the_first_model_again() -> None:
    (_, messages), _ = await play_plan([REFUSED], ("b", [says("b")]), fallbacks=["b/x"])
    assert messages == ["go", "b"]


# Timeouts, in virtual time.


def in_virtual_time(
    steps: list[Step], query: dict[str, Any], **options: Any
) -> tuple[Any, float, int]:
    """Return how a query came out, when that was, and how many requests it took."""

    async def play() -> tuple[Any, float, int]:
        clock = LoopClock()
        async with playing(steps, clock=clock, **options) as (session, provider):
            outcome: Any
            try:
                outcome = (await session.chat("go", **query)).text
            except AgentError as error:
                outcome = (
                    error.code.value,
                    error.retryable,
                    error.result.text if error.result else "",
                )
            return outcome, clock.now(), len(provider.requests)

    return run_seeded(play, seed=11)


def silent() -> Step:
    return [*says("so far")[:3], Gate()]


def test_a_timeout_cuts_one_attempt_and_is_repeated() -> None:
    outcome, when, requests = in_virtual_time(
        [silent(), says("fine")], {"timeout": 5}, retry=STEADY
    )
    assert (outcome, requests) == ("fine", 2)
    assert when == pytest.approx(7.0, abs=0.1)


def test_a_timeout_of_every_attempt_is_raised() -> None:
    outcome, when, requests = in_virtual_time(
        [silent()] * 2, {"timeout": 5}, retry=RetrySettings(max_retries=1, jitter=0)
    )
    assert (outcome, requests) == (("TIMEOUT", True, "so far"), 2)
    assert when == pytest.approx(12.0, abs=0.1)


@pytest.mark.parametrize("timeout", [0, None, 3600])
def test_no_timeout_is_none(timeout: float | None) -> None:
    outcome, _, _ = in_virtual_time([says("fine")], {"timeout": timeout, "total_timeout": timeout})
    assert outcome == "fine"


def test_a_total_timeout_cuts_the_whole_query_and_is_not_repeated() -> None:
    outcome, when, requests = in_virtual_time([silent()], {"total_timeout": 9})
    assert (outcome, requests) == (("TIMEOUT", True, "so far"), 1)
    assert when == pytest.approx(9.0, abs=0.1)


def test_a_total_timeout_during_a_wait_ends_it_at_once() -> None:
    outcome, when, requests = in_virtual_time([OVERLOADED], {"total_timeout": 1.5}, retry=STEADY)
    assert (outcome, requests) == (("TIMEOUT", True, ""), 1)
    assert when == pytest.approx(1.5, abs=0.1)
