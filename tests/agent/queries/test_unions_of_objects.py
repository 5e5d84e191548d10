"""Unions of dataclasses, TypedDicts and structs, as answers and as arguments of tools."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Meta

from haptera import ErrorCode, tool
from haptera.testing import calls, says
from tests.scripted_agents import failure_of, outcomes_in, playing, run_script


@dataclass
class Cat:
    name: str
    lives: int = 9


@dataclass
class Dog:
    name: str
    breed: str = "mixed"


class Plane(TypedDict):
    wings: int
    pilot: NotRequired[str]


class Car(TypedDict):
    wheels: int


class Square(msgspec.Struct):
    side: float


class Circle(msgspec.Struct):
    radius: float


class Pilot(pydantic.BaseModel):
    licence: str


@dataclass
class Shelter:
    city: str
    pets: list[Cat | Dog] = field(default_factory=list)
    spare: Annotated[Cat | Dog | None, Meta(description="A pet that waits.")] = None


class Garage(TypedDict):
    best: Plane | Car
    note: NotRequired[str]


class Drawing(msgspec.Struct, rename="camel"):
    first_shape: Square | Circle
    title: str = "untitled"


FITS: list[tuple[Any, str, object]] = [
    (Cat | Dog, '{"name":"Tom","lives":3}', Cat("Tom", 3)),
    (Cat | Dog, '{"name":"Rex","breed":"husky"}', Dog("Rex", "husky")),
    (Cat | Dog, '{"name":"Kim"}', Cat("Kim")),
    (Dog | Cat, '{"name":"Kim"}', Dog("Kim")),
    (Plane | Car, '{"wings":2,"pilot":"Amy"}', {"wings": 2, "pilot": "Amy"}),
    (Plane | Car, '{"wheels":4}', {"wheels": 4}),
    (Square | Circle, '{"side":2}', Square(2.0)),
    (Square | Circle, '{"radius":1}', Circle(1.0)),
    (Cat | Square | Car, '{"wheels":3}', {"wheels": 3}),
    (Cat | Square | None, "null", None),
    (Cat | Square | str | int, '"neither"', "neither"),
    (Cat | Square | str | int, "7", 7),
    (list[Cat | Dog], '[{"name":"a"},{"name":"b","breed":"c"}]', [Cat("a"), Dog("b", "c")]),
    (dict[str, Square | Circle], '{"x":{"radius":2}}', {"x": Circle(2.0)}),
    (Pilot | Square, '{"licence":"A1"}', Pilot(licence="A1")),
    (Pilot | Square, '{"side":1}', Square(1.0)),
    (
        Shelter,
        '{"city":"Oslo","pets":[{"name":"Rex","breed":"x"}],"spare":{"name":"T","lives":1}}',
        Shelter("Oslo", [Dog("Rex", "x")], Cat("T", 1)),
    ),
    (Shelter, '{"city":"Oslo"}', Shelter("Oslo")),
    (Garage, '{"best":{"wheels":4}}', {"best": {"wheels": 4}}),
    (Drawing, '{"firstShape":{"radius":1}}', Drawing(first_shape=Circle(1.0))),
    (
        list[Shelter] | Drawing,
        '[{"city":"Oslo","spare":{"name":"Rex","breed":"x"}}]',
        [Shelter("Oslo", [], Dog("Rex", "x"))],
    ),
]


@pytest.mark.parametrize(("kind", "text", "value"), FITS, ids=str)
async def test_an_answer_is_the_member_that_fits_best(kind: Any, text: str, value: object) -> None:
    result, provider = await run_script([says(text)], {"output_type": kind})
    assert (result.output, type(result.output)) == (value, type(value))
    assert provider.requests[0].output_schema is not None


@pytest.mark.parametrize(("kind", "text", "value"), FITS, ids=str)
async def test_an_argument_is_the_member_that_fits_best(
    kind: Any, text: str, value: object
) -> None:
    got: list[object] = []

    async def take(thing: Any, count: int = 1) -> str:
        """Take a thing."""
        got.append(thing)
        return "taken"

    take.__annotations__["thing"] = kind
    script = [calls(("take", f'{{"thing":{text}}}')), says("done")]
    await run_script(script, tools=[tool(take)])
    assert (got, type(got[0])) == ([value], type(value))


async def test_a_value_that_fits_no_member_gets_an_error_for_each_member() -> None:
    @tool
    async def adopt(pet: Square | Circle) -> str:
        """Adopt a pet."""
        return "adopted"

    script = [calls(("adopt", {"pet": {"legs": 4}})), says("sorry")]
    _, provider = await run_script(script, tools=[adopt])
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert outcome == "error"
    assert "Square (Object missing required field `side`)" in text
    assert "Circle (Object missing required field `radius`)" in text
    assert "$.pet" in text


async def test_the_schema_of_such_a_union_names_every_member() -> None:
    @tool
    async def adopt(pet: Cat | Dog) -> str:
        """Adopt a pet."""
        return "adopted"

    schema = adopt.spec.input_schema
    references = [item["$ref"] for item in schema["properties"]["pet"]["anyOf"]]
    assert references == ["#/$defs/Cat", "#/$defs/Dog"]
    assert set(schema["$defs"]) == {"Cat", "Dog"}


class Leaf(msgspec.Struct):
    value: int


class Tree(msgspec.Struct):
    left: "Tree | Leaf"


class Fork(msgspec.Struct):
    left: "Tree | Fork"


async def test_a_type_may_come_back_to_itself_through_such_a_union() -> None:
    answer = says('{"left":{"left":{"value":1}}}')
    result, provider = await run_script([answer], {"output_type": Tree})
    assert result.output == Tree(Tree(Leaf(1)))
    schema = provider.requests[0].output_schema
    assert schema is not None
    assert schema.schema["$defs"].keys() == {"Tree", "Leaf"}


async def test_types_that_come_back_to_each_other_are_tried_a_bounded_number_of_times() -> None:
    text = '"bad"'
    for _ in range(30):
        text = f'{{"left":{text}}}'
    async with playing([says(text)]) as (session, _):
        error = await failure_of(session.chat("go", output_type=Fork, output_attempts=1))
    assert error.code is ErrorCode.OUTPUT_INVALID
    assert "fits none of these" in error.message
