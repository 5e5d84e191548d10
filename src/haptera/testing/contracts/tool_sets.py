"""The contract of tool registries: what is offered, found, parsed and run."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from haptera.kernel.blocks.tool_registry.registry import (
    FunctionFailed,
    InvalidInput,
    NotFound,
    Ready,
    Resolution,
    Succeeded,
    ToolInput,
    ToolRegistryInterface,
    ToolSet,
)
from haptera.kernel.blocks.tool_registry.tool import AnyTool, as_tool, tool
from haptera.model.ids import CallId, new_session_id
from haptera.model.json_types import Json
from haptera.model.parts import TextPart, ToolCallPart
from haptera.ports.tools import ToolContext
from haptera.system.abort import AbortSignal
from haptera.testing.contracts.samples import run_contract
from haptera.testing.promises import Report, require, require_same

MakeRegistry: TypeAlias = Callable[[Sequence[ToolInput]], ToolRegistryInterface]


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def fail() -> str:
    """Fail."""
    raise LookupError("there is nothing")


class _Source:
    """A source whose list changes."""

    def __init__(self) -> None:
        self.offered: tuple[AnyTool, ...] = (as_tool(double),)

    def tools(self) -> tuple[AnyTool, ...]:
        """Return what can be called now."""
        return self.offered


def _resolve(tools: ToolSet, name: str, arguments: Json) -> Resolution:
    return tools.resolve(ToolCallPart(call_id=CallId("1"), name=name, arguments=arguments))


def _names(tools: ToolSet) -> list[str]:
    return [spec.name for spec in tools.wire_tools]


async def _run(resolution: Resolution) -> object:
    if not isinstance(resolution, Ready):
        require(condition=False, promise=f"the call is ready, not {resolution!r}")
        raise TypeError
    context = ToolContext(
        session_id=new_session_id(),
        call_id=CallId("1"),
        signal=AbortSignal(),
        report=lambda _: None,
    )
    return await resolution.run(context)


async def check_every_tool_is_offered_in_order(make: MakeRegistry) -> None:
    """The specifications are those of the tools, each name once."""
    offered = make([double, shout, fail]).current()
    require_same(_names(offered), ["double", "shout", "fail"], "every tool is offered, in order")
    schema = offered.wire_tools[0].input_schema
    require_same(sorted(schema["properties"]), ["number"], "with its parameters")


async def check_the_set_is_the_same_until_something_changes(make: MakeRegistry) -> None:
    """Specifications are made once, so that a provider can cache them."""
    registry = make([double, _Source()])
    require(registry.current() is registry.current(), "nothing changed, so the set is the same")


async def check_a_changed_source_counts_from_the_next_set_on(make: MakeRegistry) -> None:
    """The set of a turn does not change while its calls run."""
    source = _Source()
    registry = make([source])
    before = registry.current()
    source.offered = (as_tool(shout),)
    require_same(_names(before), ["double"], "a set that was returned does not change")
    require(isinstance(_resolve(before, "double", {"number": 1}), Ready), "its tools can be called")
    require_same(_names(registry.current()), ["shout"], "the next set has what is offered now")


async def check_of_two_tools_with_one_name_the_first_counts(make: MakeRegistry) -> None:
    """A source cannot replace a tool that was given."""
    source = _Source()
    source.offered = (tool(name="double")(shout),)
    offered = make([double, source]).current()
    require_same(_names(offered), ["double"], "each name is offered once")
    outcome = await _run(_resolve(offered, "double", {"number": 21}))
    require_same(outcome, Succeeded((TextPart(text="42"),)), "the first one runs")


async def check_a_call_is_found_parsed_and_run(make: MakeRegistry) -> None:
    """The result is content that a model can read."""
    outcome = await _run(_resolve(make([double]).current(), "double", {"number": 21}))
    require_same(outcome, Succeeded((TextPart(text="42"),)), "the result of the tool")


async def check_an_unknown_tool_is_not_found(make: MakeRegistry) -> None:
    """It is a resolution and no exception: the model is told."""
    require_same(_resolve(make([double]).current(), "triple", {}), NotFound("triple"), "not found")


async def check_arguments_that_do_not_fit_are_refused(make: MakeRegistry) -> None:
    """The tool does not run, and the message names what is wrong."""
    resolved = _resolve(make([double]).current(), "double", {"number": "many"})
    require(isinstance(resolved, InvalidInput), "arguments of a wrong type are refused")
    require("number" in getattr(resolved, "message", ""), "the message names the parameter")


async def check_a_tool_that_fails_is_a_result(make: MakeRegistry) -> None:
    """The model hears what the tool raised."""
    outcome = await _run(_resolve(make([fail]).current(), "fail", {}))
    require(isinstance(outcome, FunctionFailed), "a tool that raises has failed")
    require("there is nothing" in getattr(outcome, "message", ""), "the message says why")


async def check_calls_run_at_the_same_time(make: MakeRegistry) -> None:
    """Nothing of one call is seen by another."""
    offered = make([double]).current()
    ready = [_resolve(offered, "double", {"number": number}) for number in range(5)]
    outcomes = await asyncio.gather(*map(_run, ready))
    expected = [Succeeded((TextPart(text=str(2 * number)),)) for number in range(5)]
    require_same(outcomes, expected, "each call has its own result")


async def tool_registry_contract(make: MakeRegistry) -> Report:
    """Check a tool registry; `make` returns one that offers the functions and sources given."""
    return await run_contract(__name__, lambda: make)
