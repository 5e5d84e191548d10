"""The registry: finds a tool, parses its input exactly once, and runs it whatever its colour."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from haptera import AbortController, ConfigError, ErrorCode, MediaPart, TextPart, ToolContext, tool
from haptera.kernel.blocks.tool_registry import registry as registry_module
from haptera.kernel.blocks.tool_registry.registry import (
    FunctionFailed,
    InvalidInput,
    NotFound,
    Ready,
    Succeeded,
    ToolInput,
    ToolRegistry,
    ToolSet,
)
from haptera.kernel.blocks.tool_registry.running import image
from haptera.model.ids import CallId, SessionId
from haptera.model.parts import ToolCallPart
from haptera.ports.tools import OutputTransform
from tests.messages_by_hand import call


class Money(pydantic.BaseModel):
    amount: int = pydantic.Field(ge=0)


@dataclass
class Place:
    lat: float


parses = 0


class Counted(pydantic.BaseModel):
    value: int

    @pydantic.field_validator("value")
    @classmethod
    def count(cls, value: int) -> int:
        global parses  # noqa: PLW0603 - a counter is the point
        parses += 1
        return value


def a_context(seen: list[Any] | None = None) -> ToolContext:
    return ToolContext(
        session_id=SessionId("s"),
        call_id=CallId("1"),
        signal=AbortController().signal,
        report=(seen if seen is not None else []).append,
    )


def offered(*tools: ToolInput) -> ToolSet:
    return ToolRegistry(tools).current()


async def run(
    function: Callable[..., object],
    transform: OutputTransform | None = None,
    **arguments: Any,
) -> Succeeded | FunctionFailed:
    made = tool(function)
    resolution = offered(made).resolve(call("1", made.name, **arguments))
    assert isinstance(resolution, Ready), resolution
    outcome = await resolution.run(a_context(), transform=transform)
    assert isinstance(outcome, Succeeded | FunctionFailed)
    return outcome


async def text_of(function: Callable[..., object], **arguments: Any) -> str:
    outcome = await run(function, **arguments)
    assert isinstance(outcome, Succeeded), outcome
    (part,) = outcome.content
    assert isinstance(part, TextPart)
    return part.text


# Finding and parsing.


def look(path: str, depth: int = 1) -> str:
    """Look at a path."""
    return f"{path}:{depth}"


def test_a_known_tool_with_good_input_is_ready() -> None:
    resolution = offered(look).resolve(call("1", "look", path="a"))
    assert isinstance(resolution, Ready)
    assert (resolution.tool.spec.name, resolution.arguments) == ("look", {"path": "a"})


def test_an_unknown_tool_is_not_found() -> None:
    assert offered(look).resolve(call("1", "other")) == NotFound("other")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "path"),
        ({"path": 7}, "path"),
        ({"path": "a", "depth": "deep"}, "depth"),
        ({"path": "a", "else": 1}, "else"),
        ({"path": None}, "path"),
    ],
)
def test_input_that_does_not_fit_names_the_field(arguments: dict[str, Any], named: str) -> None:
    resolution = offered(look).resolve(call("1", "look", **arguments))
    assert isinstance(resolution, InvalidInput)
    assert named in resolution.message


def test_a_model_of_pydantic_s_refuses_what_does_not_fit() -> None:
    @tool
    def pay(money: Money) -> None:
        """Pay."""

    resolution = offered(pay).resolve(call("1", "pay", money={"amount": -1}))
    assert isinstance(resolution, InvalidInput)
    assert "amount" in resolution.message


def test_a_constraint_refuses_what_does_not_fit() -> None:
    @tool
    def draw(sides: Annotated[int, msgspec.Meta(ge=3)]) -> None:
        """Draw."""

    assert isinstance(offered(draw).resolve(call("1", "draw", sides=2)), InvalidInput)


def test_arguments_that_were_not_json_are_invalid_input() -> None:
    broken = ToolCallPart(call_id=CallId("1"), name="look", invalid='{"path": ')
    assert isinstance(offered(look).resolve(broken), InvalidInput)


def test_other_arguments_can_be_given_in_place_of_the_model_s() -> None:
    broken = ToolCallPart(call_id=CallId("1"), name="look", invalid='{"path": ')
    resolution = offered(look).resolve(broken, arguments={"path": "b"})
    assert isinstance(resolution, Ready)


async def test_input_is_parsed_once_however_often_it_runs() -> None:
    global parses  # noqa: PLW0603 - a plain function counts
    parses = 0

    @tool
    def show(item: Counted) -> int:
        """Show."""
        return item.value

    resolution = offered(show).resolve(call("1", "show", item={"value": 3}))
    assert isinstance(resolution, Ready)
    await resolution.run(a_context())
    await resolution.run(a_context())
    assert parses == 1


def test_schemas_are_made_once_and_shared() -> None:
    registry = ToolRegistry([look])
    tools = registry.current()
    assert registry.current().wire_tools is tools.wire_tools
    assert tools.view(allowed=["look"]).wire_tools[0] is tools.wire_tools[0]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="look") as caught:
        ToolRegistry([look, tool(look)])
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_what_is_not_a_tool_is_refused() -> None:
    nonsense: Any = "look"
    with pytest.raises(ConfigError) as caught:
        ToolRegistry([nonsense])
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_the_registry_knows_nothing_of_approvals_and_conversations() -> None:
    source = inspect.getsource(registry_module)
    assert "Approv" not in source
    assert "blocks.conversation" not in source


# Filtering.


def taste() -> None:
    """Taste."""


def smell() -> None:
    """Smell."""


@pytest.mark.parametrize(
    ("allowed", "denied", "left"),
    [
        (None, (), ["look", "taste", "smell"]),
        (["taste"], (), ["taste"]),
        ([], (), []),
        (None, ["look"], ["taste", "smell"]),
        (["look", "taste"], ["look"], ["taste"]),
        (["taste", "no such tool"], ["nor this"], ["taste"]),
        (["smell", "look"], (), ["look", "smell"]),
    ],
)
def test_a_view_keeps_what_is_allowed_and_not_denied(
    allowed: list[str] | None, denied: list[str], left: list[str]
) -> None:
    view = offered(look, taste, smell).view(allowed, denied)
    assert [spec.name for spec in view.wire_tools] == left
    assert len(view) == len(left)


def test_what_a_view_left_out_is_not_found() -> None:
    view = offered(look, taste).view(denied=["look"])
    assert view.resolve(call("1", "look", path="a")) == NotFound("look")


# Running.


async def test_a_coroutine_runs_in_the_loop() -> None:
    async def where() -> str:
        return str(asyncio.current_task() is not None)

    assert await text_of(where) == "True"


async def test_a_plain_function_runs_in_a_thread_of_its_own() -> None:
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await text_of(where) == "false"


async def test_a_plain_function_that_waits_does_not_hold_up_the_loop() -> None:
    release, entered = threading.Event(), threading.Event()

    def wait() -> str:
        entered.set()
        release.wait(10)
        return "done"

    task = asyncio.ensure_future(run(wait))
    while not entered.is_set():
        await asyncio.wait({task}, timeout=0.001)
    release.set()
    assert await task == Succeeded((TextPart(text="done"),))


async def test_a_generator_reports_what_it_yields_and_returns_its_result() -> None:
    def count(to: int) -> Generator[int, None, str]:
        yield from range(to)
        return "counted"

    seen: list[Any] = []
    ready = offered(count).resolve(call("1", "count", to=3))
    assert isinstance(ready, Ready)
    outcome = await ready.run(a_context(seen))
    assert (outcome, seen) == (Succeeded((TextPart(text="counted"),)), [0, 1, 2])


async def test_the_last_value_of_an_async_generator_is_its_result() -> None:
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    seen: list[Any] = []
    ready = offered(count).resolve(call("1", "count", to=3))
    assert isinstance(ready, Ready)
    outcome = await ready.run(a_context(seen))
    assert (outcome, seen) == (Succeeded((TextPart(text="2"),)), [0, 1])


async def test_an_async_generator_that_yields_nothing_has_no_result() -> None:
    async def silent() -> AsyncIterator[int]:
        return
        yield 1

    assert await run(silent) == Succeeded(())


async def test_a_tool_that_asks_for_it_gets_the_context() -> None:
    async def whoami(context: ToolContext) -> str:
        context.progress("half")
        return f"{context.session_id} {context.call_id} {context.signal.aborted}"

    seen: list[Any] = []
    ready = offered(whoami).resolve(call("1", "whoami"))
    assert isinstance(ready, Ready)
    assert await ready.run(a_context(seen)) == Succeeded((TextPart(text="s 1 False"),))
    assert seen == ["half"]


async def test_a_method_can_be_a_tool() -> None:
    class Shop:
        stock = 3

        def count(self, minus: int) -> int:
            return self.stock - minus

    assert await text_of(Shop().count, minus=1) == "2"


async def test_parameters_arrive_as_the_types_they_were_declared_as() -> None:
    def kinds(place: Place, money: Money) -> str:
        return f"{type(place).__name__} {type(money).__name__}"

    assert await text_of(kinds, place={"lat": 1.5}, money={"amount": 2}) == "Place Money"


# What a tool returns.


@dataclass
class Weather:
    celsius: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (3, "3"),
        (True, "true"),
        ({"b": 1, "a": [None]}, '{"b":1,"a":[null]}'),
        ([1, 2], "[1,2]"),
        ([], "[]"),
        (Weather(3), '{"celsius":3}'),
        (Money(amount=4), '{"amount":4}'),
        ([Money(amount=4)], '[{"amount":4}]'),
        (Path("a/b"), '"a/b"'),
    ],
    ids=repr,
)
async def test_what_is_not_text_becomes_json(value: object, text: str) -> None:
    async def give() -> object:
        return value

    assert await text_of(give) == text


async def test_nothing_is_no_content() -> None:
    async def nothing() -> None:
        """Do it."""

    assert await run(nothing) == Succeeded(())


async def test_media_stays_media() -> None:
    async def photo() -> object:
        return [TextPart(text="here"), image(b"png", "image/png")]

    outcome = await run(photo)
    assert isinstance(outcome, Succeeded)
    assert outcome.content == (
        TextPart(text="here"),
        MediaPart(mime="image/png", data="cG5n"),
    )


async def test_a_transform_sees_the_name_and_the_raw_output_before_it_is_encoded() -> None:
    seen: list[tuple[str, object]] = []

    def shorten(name: str, value: object) -> object:
        seen.append((name, value))
        return {"short": True}

    async def long() -> object:
        return {"long": [1, 2, 3]}

    outcome = await run(long, shorten)
    assert seen == [("long", {"long": [1, 2, 3]})]
    assert isinstance(outcome, Succeeded)
    assert outcome.content[0] == TextPart(text='{"short":true}')


# What a tool raises.


async def test_a_tool_that_raises_fails_with_the_name_and_text_of_the_error() -> None:
    def fail() -> None:
        raise KeyError("missing")

    outcome = await run(fail)
    assert isinstance(outcome, FunctionFailed)
    assert (outcome.message, type(outcome.error)) == ("KeyError: 'missing'", KeyError)


async def test_a_transform_that_raises_fails_the_call() -> None:
    async def fine() -> str:
        return "x"

    def broken(_name: str, _value: object) -> object:
        raise ValueError("no")

    outcome = await run(fine, broken)
    assert isinstance(outcome, FunctionFailed)
    assert (outcome.message, type(outcome.error)) == ("ValueError: no", ValueError)


async def test_a_plain_function_that_runs_out_fails_and_does_not_hang() -> None:
    def first() -> str:
        nothing: Iterator[str] = iter(())
        return next(nothing)

    outcome = await run(first)
    assert isinstance(outcome, FunctionFailed)
    assert "StopIteration" in outcome.message


async def test_a_plain_function_that_exits_fails_and_does_not_end_the_program() -> None:
    def leave() -> None:
        raise SystemExit(2)

    outcome = await run(leave)
    assert isinstance(outcome, FunctionFailed)
    assert "SystemExit" in outcome.message


async def test_a_value_that_cannot_be_encoded_fails_the_call() -> None:
    circle: list[Any] = []
    circle.append(circle)

    async def endless() -> object:
        return circle

    assert isinstance(await run(endless), FunctionFailed)


async def test_a_cancelled_run_is_not_a_failure() -> None:
    started = asyncio.Event()

    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(run(forever))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
