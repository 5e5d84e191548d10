"""A tool that fails is repeated by the retry policy: with waits, by class of error, on record."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from haptera import ErrorCode, ProviderError, RetryScheduled, RetrySettings, ToolStarted, tool
from haptera.testing import calls, says
from haptera.testing.clocks import AutoClock
from tests.scripted_agents import events_of, make_agent, outcomes_in, playing

LATER = ProviderError(ErrorCode.RATE_LIMITED, "later", basis="status", retry_after=11.0)
NO_KEY = ProviderError(ErrorCode.AUTH, "no key", basis="status")


class Shaky:
    """A tool named `shaky` that raises some errors in turn, and then works."""

    def __init__(self, *errors: BaseException, retry: int = 2) -> None:
        self.errors = list(errors)
        self.runs = 0
        self.tool = tool(name="shaky", idempotent=True, retry=retry)(self._run)

    async def _run(self) -> str:
        """Fail a few times."""
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        return "fine"


async def repeats_of(shaky: Shaky, **options: Any) -> tuple[list[RetryScheduled], str, AutoClock]:
    """Let a model call the tool once; return its repeats, its outcome and the clock."""
    clock = AutoClock()
    script = [calls(("shaky", {}), ids=("call_1",)), says("done")]
    async with playing(script, tools=[shaky.tool], clock=clock, **options) as (session, provider):
        events = await events_of(session)
    ((_, outcome, _),) = outcomes_in(provider.requests[1])
    assert sum(isinstance(event, ToolStarted) for event in events) == 1
    return [event for event in events if isinstance(event, RetryScheduled)], outcome, clock


async def test_repeats_wait_as_the_policy_says_and_are_on_record() -> None:
    shaky = Shaky(ConnectionError("gone"), ConnectionError("gone again"))
    steady = RetrySettings(first_delay=3.0, factor=2.0, jitter=0.0)
    repeats, outcome, clock = await repeats_of(shaky, retry=steady)
    assert (outcome, shaky.runs) == ("ok", 3)
    assert [(item.attempt, item.delay) for item in repeats] == [(1, 3.0), (2, 6.0)]
    assert {(item.call_id, item.tool, item.error.code) for item in repeats} == {
        ("call_1", "shaky", ErrorCode.NETWORK)
    }
    assert [seconds for seconds in clock.sleeps if seconds in (3.0, 6.0)] == [3.0, 6.0]


@pytest.mark.parametrize(("chance", "delay"), [(0.0, 1.8), (1.0, 2.2)])
async def test_repeats_are_spread_by_chance(chance: float, delay: float) -> None:
    class Fixed:
        def random(self) -> float:
            return chance

    repeats, _, _ = await repeats_of(Shaky(ConnectionError("gone")), random=Fixed())
    assert [item.delay for item in repeats] == [pytest.approx(delay)]


async def test_a_wait_that_an_error_asks_for_is_kept() -> None:
    repeats, outcome, _ = await repeats_of(Shaky(LATER))
    assert ([item.delay for item in repeats], outcome) == ([11.0], "ok")


@pytest.mark.parametrize("known", [NO_KEY, KeyError("typo"), TypeError("no such argument")])
async def test_what_is_known_to_fail_again_is_not_repeated(known: BaseException) -> None:
    shaky = Shaky(known)
    repeats, outcome, _ = await repeats_of(shaky)
    assert (repeats, outcome, shaky.runs) == ([], "error", 1)


@pytest.mark.parametrize("make", [RuntimeError, ValueError, OSError])
async def test_what_nothing_is_known_of_is_repeated_because_the_tool_says_so(
    make: Callable[[str], Exception],
) -> None:
    shaky = Shaky(make("boom"))
    repeats, outcome, _ = await repeats_of(shaky)
    assert ([item.error.code for item in repeats], outcome) == ([ErrorCode.TOOL_FAILED], "ok")


async def test_a_tool_is_repeated_no_more_often_than_it_allows() -> None:
    shaky = Shaky(*[ConnectionError("gone")] * 9, retry=1)
    repeats, outcome, _ = await repeats_of(shaky, retry=RetrySettings(max_retries=5))
    assert (len(repeats), outcome, shaky.runs) == (1, "error", 2)


async def test_a_repeat_is_a_warning_in_the_log_without_what_the_tool_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "haptera")
    await repeats_of(Shaky(ConnectionError("a secret place")), retry=RetrySettings(jitter=0.0))
    assert [record.getMessage() for record in caplog.records] == [
        "tool shaky failed (NETWORK); retrying in 2.0 s, attempt 2"
    ]


async def test_a_log_with_such_repeats_is_read_back(tmp_path: Any) -> None:
    store, clock = f"sqlite:{tmp_path / 'chats.db'}", AutoClock()
    shaky = Shaky(ConnectionError("gone"))
    agent, _ = make_agent(
        [calls(("shaky", {})), says("done")], tools=[shaky.tool], store=store, clock=clock
    )
    async with agent, agent.session("ana") as session:
        await session.chat("go")
    reopened, _ = make_agent([], store=store)
    async with reopened, reopened.session("ana") as session:
        assert session.messages[-1].text == "done"


class UnprintableError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


async def test_an_error_that_cannot_be_printed_is_repeated_like_any_other() -> None:
    repeats, outcome, _ = await repeats_of(Shaky(UnprintableError()))
    assert ([item.error.message for item in repeats], outcome) == (["UnprintableError"], "ok")
