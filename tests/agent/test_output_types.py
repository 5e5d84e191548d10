"""Typed answers: the model gets the schema, its mistakes go back to it, within a limit."""

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from haptera import ConfigError, ErrorCode, Limits, tool
from haptera.testing import calls, says
from tests.scripted_agents import failure_of, playing, run_script, texts_in


class City(msgspec.Struct):
    name: str
    people: int = 0


@dataclass
class Point:
    x: int


class Named(TypedDict):
    name: str


class Street(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (City, '{"name":"Paris","people":2}', City("Paris", 2)),
        (Point, '{"x":3}', Point(3)),
        (Named, '{"name":"a"}', {"name": "a"}),
        (Street, '{"name":"Rue"}', Street(name="Rue")),
        (list[City], '[{"name":"a"}]', [City("a")]),
        (int, "7", 7),
        (dict[str, int], '{"a":1}', {"a": 1}),
        (City, '```json\n{"name":"Paris"}\n```', City("Paris")),
        (City, '\n```\n{"name":"Paris"}\n```\n', City("Paris")),
        (City, '```JSON {"name":"Paris"}```', City("Paris")),
        (int | None, "null", None),
        (list[Street], '[{"name":"Rue"}]', [Street(name="Rue")]),
        (Street | None, "null", None),
        (Street | str, '"Rue"', "Rue"),
    ],
    ids=str,
)
async def test_an_answer_becomes_the_type_that_was_asked_for(
    kind: Any, text: str, value: Any
) -> None:
    result, provider = await run_script([says(text)], {"output_type": kind})
    assert result.output == value
    assert result.text == text
    schema = provider.requests[0].output_schema
    assert schema is not None
    assert "$ref" not in schema.schema


@pytest.mark.parametrize(("kind", "output"), [(str, "hello"), (None, None)])
async def test_plain_text_needs_no_schema(kind: Any, output: str | None) -> None:
    result, provider = await run_script([says("hello")], {"output_type": kind})
    assert (result.output, provider.requests[0].output_schema) == (output, None)


@pytest.mark.parametrize(
    ("kind", "wrong", "named"),
    [
        (City, '{"people":1}', "name"),
        (City, "Paris", "malformed"),
        (Street, '{"name":"x"}', "name"),
    ],
)
async def test_a_mistake_goes_back_to_the_model(kind: Any, wrong: str, named: str) -> None:
    right = '{"name":"Paris"}'
    result, provider = await run_script([says(wrong), says(right)], {"output_type": kind})
    assert getattr(result.output, "name", None) == "Paris"
    asked = texts_in(provider.requests[1])
    assert asked[:2] == ["go", wrong]
    assert named in asked[2]
    assert provider.requests[1].output_schema == provider.requests[0].output_schema


async def test_after_two_repairs_it_is_an_error_that_keeps_the_answer() -> None:
    async with playing([says("no"), says("nope"), says("never")]) as (session, _):
        error = await failure_of(session.chat("go", output_type=City))
        assert (error.code, "City" in error.message) == (ErrorCode.OUTPUT_INVALID, True)
        assert error.result is not None
        assert (error.result.text, error.result.output) == ("never", None)


async def test_tools_may_be_used_before_the_answer() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "Paris"

    script = [calls(("look", {})), says('{"name":"Paris"}')]
    result, _ = await run_script(script, {"output_type": City}, tools=[look])
    assert result.output == City("Paris")


async def test_an_answer_that_was_cut_off_is_not_parsed() -> None:
    result, _ = await run_script([says('{"name":', finish="length")], {"output_type": City})
    assert (result.stop_reason, result.output) == ("max_tokens", None)


async def test_a_mistake_on_the_last_turn_is_not_repaired() -> None:
    async with playing([says("no"), says("nope")], limits=Limits(turns=2)) as (session, _):
        result = await session.chat("go", output_type=City)
        output: City | None = result.output
        assert (result.stop_reason, output) == ("limit", None)
        assert session.messages[-1].text == "nope"


@pytest.mark.parametrize("kind", [object(), complex, 7])
async def test_a_type_that_cannot_be_described_is_refused_before_anything_is_sent(
    kind: Any,
) -> None:
    async with playing([]) as (session, _):
        with pytest.raises(ConfigError) as caught:
            session.stream("go", output_type=kind)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


async def test_a_constraint_on_the_answer_holds() -> None:
    kind = Annotated[int, pydantic.Field(ge=3)]
    result, _ = await run_script([says("1"), says("4")], {"output_type": kind})
    assert result.output == 4


class Moody(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def refuse(cls, value: str) -> str:
        if value != "Paris":
            raise KeyError(value)
        return value


async def test_a_type_that_raises_anything_refuses_the_answer() -> None:
    script = [says('{"name":"Rome"}'), says('{"name":"Paris"}')]
    result, provider = await run_script(script, {"output_type": Moody})
    assert result.output == Moody(name="Paris")
    assert "Rome" in texts_in(provider.requests[1])[-1]


async def test_an_answer_by_call_that_never_fits_is_an_error_after_two_repairs() -> None:
    async with playing([calls(("City", {"people": n})) for n in range(3)]) as (session, _):
        error = await failure_of(session.chat("go", output_type=City))
    assert (error.code, "City" in error.message) == (ErrorCode.OUTPUT_INVALID, True)


async def test_a_tool_of_the_answer_s_name_is_a_tool() -> None:
    @tool(name="City")
    async def look_up(name: str) -> str:
        """Look a city up."""
        return f"{name} is there"

    script = [calls(("City", {"name": "Rome"})), says('{"name":"Paris"}')]
    result, _ = await run_script(script, {"output_type": City}, tools=[look_up])
    assert result.output == City("Paris")


CITY: dict[str, Any] = {"type": "object", "required": ["name"], "properties": {"name": {}}}


async def test_an_answer_that_matches_a_schema_becomes_plain_values_or_a_type() -> None:
    answer = [says('{"name":"Paris"}')]
    result, provider = await run_script(answer, {"output_schema": CITY})
    assert result.output == {"name": "Paris"}
    sent = provider.requests[0].output_schema
    assert sent is not None
    assert (sent.name, sent.schema) == ("answer", CITY)
    typed, _ = await run_script(answer, {"output_schema": CITY, "output_type": City})
    assert typed.output == City("Paris")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": 7}, "output_schema is not a JSON Schema: 7 is not valid"),
        ({"type": "objekt"}, "output_schema is not a JSON Schema: 'objekt' is not valid"),
    ],
)
async def test_a_schema_that_is_none_is_refused_before_anything_is_asked(
    schema: dict[str, Any], told: str
) -> None:
    async with playing([]) as (session, provider):
        error = await failure_of(session.chat("go", output_schema=schema))
    assert (error.code, provider.requests) == (ErrorCode.CONFIG_INVALID, [])
    assert error.message.startswith(told)


async def test_what_a_schema_refers_to_elsewhere_is_not_fetched() -> None:
    schema = {"$ref": "http://127.0.0.1:9/schema.json"}
    async with playing([says("{}")] * 3) as (session, _):
        error = await failure_of(session.chat("go", output_schema=schema))
    assert error.code is ErrorCode.OUTPUT_INVALID
    assert "Unresolvable" in error.message
