"""The time of a query counts from its submission, and a TIMEOUT says what it was waiting for."""

import asyncio

from haptera import Agent, ErrorCode, RequestError, RetrySettings, tool
from haptera.model.errors import ProviderError
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, says
from haptera.testing.clocks import AutoClock
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of, playing

REFUSED = RequestError(ErrorCode.NETWORK, "connection refused", basis="type")
STEADY = RetrySettings(jitter=0.0)


async def test_the_duration_of_a_query_counts_its_wait_in_the_queue() -> None:
    clock, gate = FakeClock(), Gate()
    async with playing([[gate, says("one")], says("two")], clock=clock) as (session, _):
        first = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        second = asyncio.ensure_future(session.chat("on"))
        while not session.view().pending:
            await asyncio.sleep(0)  # noqa: TID251 - let it come to the queue
        clock.advance(5)
        gate.open()
        assert (await first).duration_ms == 5000
        assert (await second).duration_ms == 5000


async def test_a_query_that_times_out_in_the_queue_says_so() -> None:
    clock, gate = FakeClock(), Gate()
    async with playing([[gate, says("one")]], clock=clock) as (session, _):
        first = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        second = asyncio.ensure_future(session.chat("on", total_timeout=3))
        await clock.until_sleeping(1)
        while not session.view().pending:
            await asyncio.sleep(0)  # noqa: TID251 - let it come to the queue
        clock.advance(3)
        error = await failure_of(second)
        assert error.code is ErrorCode.TIMEOUT
        assert error.message == "the query took longer than 3 s while it waited in the queue"
        assert error.result is not None
        assert (error.result.stop_reason, error.result.duration_ms) == ("error", 3000)
        gate.open()
        assert (await first).text == "one"


async def test_a_query_that_times_out_between_retries_names_what_was_retried() -> None:
    clock = FakeClock()
    async with playing([REFUSED, REFUSED], clock=clock, retry=STEADY) as (session, provider):
        asked = asyncio.ensure_future(session.chat("go", total_timeout=5))
        await clock.until_sleeping(2)
        clock.advance(2)
        while len(provider.requests) < 2:
            await asyncio.sleep(0)  # noqa: TID251 - let it come to the second attempt
        await clock.until_sleeping(2)
        clock.advance(3)
        error = await failure_of(asked)
        assert error.code is ErrorCode.TIMEOUT
        assert error.message == (
            "the query took longer than 5 s while NETWORK: connection refused was being retried"
        )


async def test_a_query_that_times_out_inside_a_repeated_attempt_names_what_was_retried() -> None:
    clock, gate = FakeClock(), Gate()
    async with playing([REFUSED, [gate]], clock=clock, retry=STEADY) as (session, _):
        asked = asyncio.ensure_future(session.chat("go", total_timeout=5))
        await clock.until_sleeping(2)
        clock.advance(2)
        await gate.reached.wait()
        clock.advance(3)
        assert (
            "while NETWORK: connection refused was being retried"
            in (await failure_of(asked)).message
        )


async def test_a_query_that_times_out_on_a_fallback_names_what_came_before() -> None:
    clock, gate = FakeClock(), Gate()
    denied = ProviderError(ErrorCode.AUTH, "no key", basis="status")
    options = {"clock": clock, "fallbacks": ["scripted/two"]}
    async with playing([denied, [gate]], **options) as (session, _):
        asked = asyncio.ensure_future(session.chat("go", total_timeout=5))
        await gate.reached.wait()
        clock.advance(5)
        assert "after scripted/one failed with AUTH: no key" in (await failure_of(asked)).message


async def test_trouble_that_is_over_is_not_named() -> None:
    clock, gate = AutoClock(), Gate()
    provider = ScriptedProvider([REFUSED, says("fine"), [gate]])
    agent = Agent("scripted/one", providers=[provider], clock=clock, retry=STEADY, environment={})
    async with agent, agent.session() as session:
        await session.chat("go")
        asked = asyncio.ensure_future(session.chat("on", total_timeout=5))
        await gate.reached.wait()
        clock.advance(5)
        assert (await failure_of(asked)).message == "the query took longer than 5 s"


async def test_on_a_clock_without_waits_a_time_limit_is_over_when_the_waits_add_up_to_it() -> None:
    provider = ScriptedProvider([says("at once"), REFUSED, REFUSED, REFUSED])
    clock = AutoClock()
    agent = Agent("scripted/one", providers=[provider], clock=clock, retry=STEADY, environment={})
    async with agent, agent.session() as session:
        assert (await session.chat("go", total_timeout=5)).text == "at once"
        error = await failure_of(session.chat("on", total_timeout=5))
    assert error.code is ErrorCode.TIMEOUT
    assert clock.sleeps == [2.0, 4.0]


async def test_a_query_that_times_out_while_a_tool_is_repeated_names_the_tool_and_the_code() -> (
    None
):
    @tool(idempotent=True, retry=1)
    async def fetch() -> str:
        """Fetch something."""
        raise ConnectionError("what it said")

    clock, script = FakeClock(), [calls(("fetch", {}))]
    async with playing(script, clock=clock, retry=STEADY, tools=[fetch]) as (session, _):
        asked = asyncio.ensure_future(session.chat("go", total_timeout=1))
        await clock.until_sleeping(2)
        clock.advance(1)
        assert (await failure_of(asked)).message == (
            "the query took longer than 1 s while tool fetch was being retried after NETWORK"
        )


async def test_a_tool_that_is_no_longer_repeated_is_not_named() -> None:
    tries = iter(range(9))

    @tool(idempotent=True, retry=1)
    async def fetch() -> str:
        """Fetch something."""
        if next(tries) == 0:
            raise ConnectionError
        return "fetched"

    clock, gate = FakeClock(), Gate()
    script: list[Step] = [calls(("fetch", {})), [gate]]
    async with playing(script, clock=clock, retry=STEADY, tools=[fetch]) as (session, _):
        asked = asyncio.ensure_future(session.chat("go", total_timeout=5))
        await clock.until_sleeping(2)
        clock.advance(2)
        await gate.reached.wait()
        clock.advance(3)
        assert (await failure_of(asked)).message == "the query took longer than 5 s"
