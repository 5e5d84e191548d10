"""Watchdogs: a query that fails the same way again and again, or makes no progress, is ended."""

import asyncio
from typing import Any

import pytest

from haptera import (
    AgentError,
    Approve,
    ErrorCode,
    ProviderError,
    RequestError,
    ToolContext,
    tool,
)
from haptera.model.parts import ReminderPart
from haptera.testing import FakeClock, calls, says
from haptera.testing.clocks import AutoClock
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of, make_agent, playing

BUSY = ProviderError(ErrorCode.OVERLOADED, "busy", basis="status")


@tool
def fetch(page: int) -> str:
    """Fetch a page."""
    raise ValueError("the server is gone")


@tool
def look() -> str:
    """Look."""
    return "seen"


def notes_in(request: Any) -> list[str]:
    last = request.messages[-1]
    return [part.text for part in last.parts if isinstance(part, ReminderPart)]


async def test_a_tool_that_fails_the_same_way_ends_the_query_after_a_warning() -> None:
    steps = []
    for page in range(4):
        steps += [calls(("fetch", {"page": page})), calls(("look", {}))]
    options: dict[str, Any] = {"watchdogs": {"repeated_errors": 3}, "loop_threshold": None}
    async with playing(steps[:-1], tools=[fetch, look], **options) as (session, provider):
        result = await session.chat("go")
    assert result.stop_reason == "loop"
    assert result.stop_detail == "fetch failed again and again: ValueError: the server is gone"
    warned = [place for place, request in enumerate(provider.requests) if notes_in(request)]
    assert warned == [5]
    assert "fetch" in notes_in(provider.requests[5])[0]


TOO_LONG = RequestError(ErrorCode.CONTEXT_LENGTH, "the prompt is too long")

NOT_ANSWERED: dict[str, list[Step]] = {
    "too long": [TOO_LONG, says("gist")],
    "failed": [BUSY],
    "without the calls that it promises": [says("Well.", finish="tool_calls")],
}


@pytest.mark.parametrize("kind", NOT_ANSWERED)
async def test_the_warning_is_in_the_request_that_is_answered(kind: str) -> None:
    failing: list[Step] = [calls(("fetch", {"page": page})) for page in range(3)]
    steps = [*failing, *NOT_ANSWERED[kind], calls(("look", {})), says("Done.")]
    options: dict[str, Any] = {"watchdogs": {"repeated_errors": 3}, "clock": AutoClock()}
    async with playing(steps, tools=[fetch, look], **options) as (session, provider):
        assert (await session.chat("go")).text.endswith("Done.")
    *_, answered, last = provider.requests
    assert "fetch" in "".join(notes_in(answered))
    assert notes_in(last) == []


@pytest.mark.parametrize("kind", NOT_ANSWERED)
async def test_reminders_and_a_required_tool_are_in_the_request_that_is_answered(kind: str) -> None:
    steps: list[Step] = [says("Hello."), *NOT_ANSWERED[kind], calls(("look", {})), says("Done.")]
    async with playing(steps, tools=[look], clock=AutoClock()) as (session, provider):
        await session.chat("word " * 400)
        await session.chat("go", reminders=["It is noon."], require_tool="look")
    *_, answered, last = provider.requests
    assert (notes_in(answered), answered.require_tool) == (["It is noon."], "look")
    assert (notes_in(last), last.require_tool) == ([], None)


async def test_a_success_of_the_tool_or_another_error_starts_the_count_again() -> None:
    outcomes = iter(["a", "a", None, "a", "a", "b", "b", "a"])

    @tool
    def shaky(number: int) -> str:
        """Fail at times."""
        if (error := next(outcomes)) is not None:
            raise ValueError(error)
        return "fine"

    steps = [calls(("shaky", {"number": number})) for number in range(8)]
    options: dict[str, Any] = {"watchdogs": {"repeated_errors": 3}}
    async with playing([*steps, says("Done.")], tools=[shaky], **options) as (session, provider):
        assert (await session.chat("go")).stop_reason == "complete"
    assert not any(notes_in(request) for request in provider.requests)


async def test_without_a_limit_errors_may_be_repeated() -> None:
    steps = [calls(("fetch", {"page": page})) for page in range(10)]
    options: dict[str, Any] = {"watchdogs": {"repeated_errors": None}}
    async with playing([*steps, says("Done.")], tools=[fetch], **options) as (session, _):
        assert (await session.chat("go")).text == "Done."


async def test_a_provider_that_fails_in_many_turns_in_a_row_is_not_asked_again() -> None:
    steps: list[Any] = []
    for _ in range(3):
        steps += [BUSY, calls(("look", {}))]
    options: dict[str, Any] = {"watchdogs": {"repeated_errors": 3}, "loop_threshold": None}
    agent, provider = make_agent(steps[:-1], tools=[look], clock=AutoClock(), **options)
    async with agent, agent.session() as session:
        error = await failure_of(session.chat("go"))
    assert error.code is ErrorCode.OVERLOADED
    assert any("several turns in a row" in note for note in error.__notes__)
    assert len(provider.requests) == 5


async def test_a_provider_may_fail_often_in_one_turn() -> None:
    options: dict[str, Any] = {"watchdogs": {"repeated_errors": 2}, "clock": AutoClock()}
    async with playing([BUSY, BUSY, BUSY, says("There.")], **options) as (session, _):
        assert (await session.chat("go")).text == "There."


class Waiting:
    """A tool that waits for ever, and reports progress when it is told to."""

    def __init__(self) -> None:
        self.context: ToolContext[Any] | None = None
        self.started = asyncio.Event()
        self.tool = tool(name="wait")(self._wait)

    async def _wait(self, context: ToolContext[Any]) -> str:
        """Wait."""
        self.context = context
        self.started.set()
        await asyncio.Event().wait()
        return "never"


async def advance(clock: FakeClock, seconds: float, *, times: int) -> None:
    for _ in range(times):
        await clock.until_sleeping()
        clock.advance(seconds)


async def test_a_query_without_progress_ends_with_what_it_has() -> None:
    clock, waiting = FakeClock(), Waiting()
    options: dict[str, Any] = {"watchdogs": {"idle_seconds": 40}, "clock": clock}
    async with playing([calls(("wait", {}))], tools=[waiting.tool], **options) as (session, _):
        running = asyncio.ensure_future(session.chat("go"))
        await waiting.started.wait()
        for reports in (0, 1, 2):
            if reports:
                assert waiting.context is not None
                waiting.context.progress("half done")
            await advance(clock, 10, times=3)
            assert not running.done()
        while not running.done():
            await advance(clock, 10, times=clock.sleeping)
            await asyncio.wait([running], timeout=0)
        result = await running
        assert result.stop_reason == "limit"
        assert result.stop_detail == "idle_seconds=40: there was no progress"
        assert session.messages[-1].parts[0].outcome == "cancelled"  # type: ignore[union-attr]
        assert session.unfinished.query_id is None


async def test_waiting_for_a_person_is_no_lack_of_progress() -> None:
    clock, answered = FakeClock(), asyncio.Event()

    async def approver(_request: Any) -> Approve:
        await answered.wait()
        return Approve()

    @tool(approval="ask")
    def work() -> str:
        """Work."""
        return "worked"

    options: dict[str, Any] = {
        "watchdogs": {"idle_seconds": 4},
        "clock": clock,
        "tools": [work],
        "approver": approver,
    }
    async with playing([calls(("work", {})), says("Done.")], **options) as (session, _):
        running = asyncio.ensure_future(session.chat("go"))
        await advance(clock, 1, times=20)
        answered.set()
        assert (await running).text == "Done."


async def test_an_abort_goes_before_the_watchdog() -> None:
    waiting = Waiting()
    options: dict[str, Any] = {"watchdogs": {"idle_seconds": 40}}
    async with playing([calls(("wait", {}))], tools=[waiting.tool], **options) as (session, _):
        running = asyncio.ensure_future(session.chat("go"))
        await waiting.started.wait()
        session.abort()
        with pytest.raises(AgentError) as caught:
            await running
        assert caught.value.code is ErrorCode.ABORTED
