"""Tools from sources: a list that changes while a session lives takes effect with the next turn."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from haptera import Approve, ToolContext, tool
from haptera.kernel.blocks.tool_registry.tool import Tool
from haptera.model.requests import ModelRequest
from haptera.model.tools import ToolRules, ToolSpec
from haptera.ports.tools import OfferedTool
from haptera.testing import calls, says
from tests.scripted_agents import outcomes_in, playing


class Shelf:
    """A source whose list a test changes."""

    def __init__(self, *tools: OfferedTool) -> None:
        self._tools: Sequence[OfferedTool] = tools

    def tools(self) -> Sequence[OfferedTool]:
        return self._tools

    def offer(self, *tools: OfferedTool) -> None:
        self._tools = tools


class Remote:
    """A tool that is no Python function: it checks its arguments itself."""

    def __init__(self, name: str, *, approval: Any = "never") -> None:
        self.spec = ToolSpec(name=name, description="Far away.")
        self.rules = ToolRules(approval=approval)
        self.prepared: list[Any] = []
        self.ran: list[Any] = []

    def prepare(self, arguments: Any) -> Callable[[ToolContext], Awaitable[object]]:
        if "city" not in arguments:
            raise ValueError("a city is needed")
        self.prepared.append(arguments)

        async def run(_context: ToolContext) -> object:
            self.ran.append(arguments)
            return f"{self.spec.name} of {arguments['city']}"

        return run


@tool
async def look() -> str:
    """Look around."""
    return "seen"


@tool
async def taste() -> str:
    """Taste."""
    return "sweet"


def offered_in(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


async def test_a_list_that_changes_between_queries_is_offered_in_the_next() -> None:
    shelf = Shelf(look)
    async with playing([says("a"), says("b"), says("c")], tools=[shelf]) as (session, provider):
        await session.chat("one")
        shelf.offer(look, taste)
        await session.chat("two")
        shelf.offer()
        await session.chat("three")
    assert [offered_in(request) for request in provider.requests] == [
        ["look"],
        ["look", "taste"],
        [],
    ]


async def test_a_list_that_changes_during_a_turn_takes_effect_with_the_next_turn() -> None:
    """The calls of a turn run on what was offered in it, also when it is gone by then."""
    shelf = Shelf(look)

    async def replace_all() -> None:
        shelf.offer(taste)

    first = [*calls(("look", {}))]
    script: Any = [[replace_all, *first], calls(("look", {}), ("taste", {})), says("done")]
    async with playing(script, tools=[shelf]) as (session, provider):
        await session.chat("go")
    assert [offered_in(request) for request in provider.requests] == [
        ["look"],
        ["taste"],
        ["taste"],
    ]
    assert outcomes_in(provider.requests[1]) == [("look", "ok", "seen")]
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[2])] == ["ok", "error", "ok"]


async def test_functions_and_sources_are_offered_together_in_the_order_they_were_given() -> None:
    async with playing([says("a")], tools=[Shelf(taste), look]) as (session, provider):
        await session.chat("go")
    assert offered_in(provider.requests[0]) == ["look", "taste"]


async def test_a_name_belongs_to_the_source_that_was_given_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    intruder = Remote("look")
    shelf = Shelf(intruder, taste)
    script = [calls(("look", {})), says("done")]
    async with playing(script, tools=[look, shelf, Shelf(Remote("taste"))]) as (session, provider):
        await session.chat("go")
    assert offered_in(provider.requests[0]) == ["look", "taste"]
    assert outcomes_in(provider.requests[1]) == [("look", "ok", "seen")]
    assert intruder.prepared == []
    assert len(caplog.records) == 2, "said once for each, not once per turn"


async def test_a_tool_that_is_no_function_prepares_and_runs_its_calls_itself() -> None:
    weather = Remote("weather")
    script = [calls(("weather", {}), ("weather", {"city": "Oslo"})), says("done")]
    async with playing(script, tools=[Shelf(weather)]) as (session, provider):
        await session.chat("go")
    refused, answered = outcomes_in(provider.requests[1])
    assert (refused[1], "a city is needed" in refused[2]) == ("error", True)
    assert answered == ("weather", "ok", "weather of Oslo")
    assert weather.prepared == weather.ran == [{"city": "Oslo"}]


async def test_a_tool_of_a_source_is_asked_about_and_filtered_like_any_other() -> None:
    weather, asked = Remote("weather", approval="ask"), list[str]()

    async def approver(request: Any) -> Approve:
        asked.append(request.tool)
        return Approve()

    script = [calls(("weather", {"city": "Oslo"})), says("done"), says("without")]
    options = {"tools": [Shelf(weather)], "approver": approver}
    async with playing(script, **options) as (session, provider):
        await session.chat("go")
        await session.configure(denied_tools=["weather"])
        await session.chat("again")
    assert (asked, weather.ran) == (["weather"], [{"city": "Oslo"}])
    assert offered_in(provider.requests[2]) == []


async def test_a_tool_that_came_after_the_question_is_there_when_a_resting_query_goes_on() -> None:
    weather, shelf = Remote("weather", approval="ask"), Shelf()
    shelf.offer(weather)
    script = [calls(("weather", {"city": "Oslo"})), says("done")]
    async with playing(script, tools=[shelf]) as (session, _):
        rest = await session.chat("go")
        shelf.offer(weather, taste)
        await session.approve(rest.pending[0].id)
        await session.resume()
    assert weather.ran == [{"city": "Oslo"}]


def test_a_tool_made_of_a_function_is_an_offered_tool() -> None:
    offered: OfferedTool = look
    assert isinstance(offered, Tool)
