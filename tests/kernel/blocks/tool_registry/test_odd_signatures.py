"""Odd signatures: whatever can be called with typed parameters is a tool, or is refused by name."""

import functools
from collections.abc import Callable
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from haptera import ConfigError, ErrorCode, ToolContext, tool
from haptera.kernel.blocks.tool_registry.registry import InvalidInput, Ready, ToolRegistry
from tests.case_names import stable_name
from tests.kernel.blocks.tool_registry.test_registry import a_context
from tests.messages_by_hand import call

AtLeastThree = Annotated[int, pydantic.Field(ge=3)]


class Colour(Enum):
    RED = "red"


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    colour: Colour
    day: date


@pydantic.dataclasses.dataclass
class Size:
    metres: int = pydantic.Field(ge=3)


class Greeter:
    """Says something."""

    def __call__(self, name: str) -> str:
        """Greet a person."""
        return f"hello {name}"

    def shout(self, name: str) -> str:
        """Greet loudly."""
        return name.upper()


def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


def _takes(hint: Any, **default: Any) -> Callable[..., object]:
    """Make a function with one parameter `x` of a type, which gives back what it got."""

    def give(x: Any) -> object:
        """Give it back."""
        return repr(x)

    give.__annotations__["x"] = hint
    give.__defaults__ = tuple(default.values()) or None
    return give


async def _call(function: Callable[..., object], **arguments: Any) -> str:
    made = tool(function)
    resolution = ToolRegistry([made]).current().resolve(call("1", made.name, **arguments))
    if isinstance(resolution, InvalidInput):
        return f"refused: {resolution.message}"
    assert isinstance(resolution, Ready)
    outcome = await resolution.run(a_context())
    return "".join(getattr(part, "text", "") for part in getattr(outcome, "content", ()))


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (list[AtLeastThree], [3, 1]),
        (AtLeastThree | None, 1),
        (Annotated[int | None, pydantic.Field(ge=3)], 1),
        (dict[str, AtLeastThree], {"a": 1}),
        (tuple[AtLeastThree, ...], [1]),
        (list[list[AtLeastThree] | None], [[1]]),
        (Size, {"metres": 1}),
    ],
    ids=stable_name,
)
async def test_a_constraint_holds_wherever_it_stands(hint: Any, value: Any) -> None:
    assert "3" in await _call(_takes(hint), x=value)
    assert (await _call(_takes(hint), x=value)).startswith("refused")
    assert '"minimum":3' in msgspec.json.encode(tool(_takes(hint)).spec.input_schema).decode()


@pytest.mark.parametrize(
    ("hint", "value", "got"),
    [
        (Annotated[int | None, pydantic.Field(ge=3)], None, "None"),
        (Cat | Dog, {"kind": "dog"}, "Dog(kind='dog')"),
        (list[Cat | Dog], [{"kind": "cat"}], "[Cat(kind='cat', lives=9)]"),
        (Annotated[Cat | Dog, "a pet"], {"kind": "cat"}, "Cat(kind='cat', lives=9)"),
        (Cat | str, "tom", "'tom'"),
        (Cat | Dog | None, None, "None"),
        (Size, {"metres": 3}, "Size(metres=3)"),
        (Strict, {"colour": "red", "day": "2020-01-01"}, None),
        (Path, "/tmp/x", "PosixPath('/tmp/x')"),
        (dict[int, str], {"1": "a"}, "{1: 'a'}"),
        (object, {"a": [1]}, "{'a': [1]}"),
    ],
    ids=stable_name,
)
async def test_types_of_other_libraries_arrive_as_what_they_are(
    hint: Any, value: Any, got: str | None
) -> None:
    text = await _call(_takes(hint), x=value)
    assert text == got if got else text.startswith("Strict(colour=<Colour.RED")


async def test_a_path_is_text() -> None:
    assert (await _call(_takes(Path), x=7)).startswith("refused")


async def test_a_default_that_has_no_json_is_used_and_not_described() -> None:
    function = _takes(Cat, x=Cat(kind="cat", lives=1))
    assert await _call(function) == "Cat(kind='cat', lives=1)"
    assert "default" not in tool(function).spec.input_schema["properties"]["x"]


async def test_a_field_that_is_the_default_gives_the_bounds_and_the_default_value() -> None:
    field = pydantic.Field(4, ge=3, description="how many")
    function = _takes(int, x=field)
    assert [await _call(function), await _call(function, x=5)] == ["4", "5"]
    assert (await _call(function, x=1)).startswith("refused")
    described = tool(function).spec.input_schema["properties"]["x"]
    assert described == {
        "type": "integer",
        "minimum": 3,
        "default": 4,
        "description": "how many",
    }
    assert (await _call(_takes(int, x=pydantic.Field(ge=3)))).startswith("refused")


@pytest.mark.parametrize("hint", [ToolContext, ToolContext | None, Annotated[ToolContext, "it"]])
async def test_the_context_may_be_optional_or_annotated(hint: Any) -> None:
    function = _takes(hint, x=None)
    assert "ToolContext object" in await _call(function)
    assert tool(function).spec.input_schema["properties"] == {}


@pytest.mark.parametrize(
    ("function", "name", "arguments", "description", "text"),
    [
        (Greeter(), "Greeter", {"name": "ana"}, "Greet a person.", "hello ana"),
        (Greeter().shout, "shout", {"name": "ana"}, "Greet loudly.", "ANA"),
        (functools.partial(add, 1), "add", {"y": 2}, "Add two numbers.", "3"),
        (functools.partial(add, y=5), "add", {"x": 2}, "Add two numbers.", "7"),
    ],
    ids=stable_name,
)
async def test_whatever_can_be_called_can_be_a_tool(
    function: Any, name: str, arguments: Any, description: str, text: str
) -> None:
    made = tool(function)
    assert (made.name, made.spec.description) == (name, description)
    assert await _call(function, **arguments) == text


def _two_contexts(one: ToolContext, two: ToolContext) -> None: ...


def _underscored(__x: int) -> None: ...  # noqa: PYI063 - the odd name is the point


def _unresolved(x: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - there is none


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (_unresolved, "Missing"),
        (_two_contexts, "two"),
        (_underscored, "__x"),
        (Greeter.shout, "method"),
        (int, "signature"),
        (_takes(Callable[[int], str]), "'x'"),
        (_takes(complex), "'x': complex"),
        (_takes(Cat | Greeter), "'x'"),
    ],
    ids=stable_name,
)
def test_what_cannot_be_a_tool_is_refused_with_what_is_wrong(function: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        tool(function)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
