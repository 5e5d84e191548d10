"""Typed answers: the model gets the schema, its mistakes go back to it, within a limit."""

import json
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import msgspec
import pydantic
import pytest

from haptera import ConfigError, ErrorCode, Limits, Retry, ToolContext, tool
from haptera.agent.outputs import json_in
from haptera.testing import ScriptedProvider, calls, says
from tests.attacks.moments import others_run
from tests.scripted_agents import failure_of, outcomes_in, playing, run_script, texts_in


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


@pytest.mark.parametrize("kind", [list[City], int, City | None, Literal["a"], tuple[int, str]])
async def test_the_schema_for_the_model_is_an_object_and_the_value_comes_out_of_it(
    kind: Any,
) -> None:
    text = {
        list[City]: '[{"name":"a","people":0}]',
        int: "7",
        City | None: "null",
        Literal["a"]: '"a"',
        tuple[int, str]: '[1,"x"]',
    }[kind]
    for answer in (f'{{"value":{text}}}', text):
        result, provider = await run_script([says(answer)], {"output_type": kind})
        assert result.output == msgspec.json.decode(text, type=kind)
        sent = provider.requests[0].output_schema
        assert sent is not None
        assert (sent.schema["type"], list(sent.schema["properties"])) == ("object", ["value"])


async def test_a_number_keeps_the_digits_that_it_was_written_with() -> None:
    result, _ = await run_script(
        [says('{"value": 1.10000000000000000001}')], {"output_type": Decimal}
    )
    assert result.output == Decimal("1.10000000000000000001")


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"Paris"} I hope that helps.',
        'Here you are:\n\n```json\n{"name":"Paris"}\n```\nThat is {all}.',
        '<think>\nA {city}? "Rome"?\n</think>\n\n{"name":"Paris"}',
        'A city, thinks the server.</think>{"name":"Paris"}',
        '<think>x</think>```\n{"name":"Paris"}\n```',
        'The answer is {"name":"Paris"}.',
    ],
)
async def test_json_beside_other_words_is_read(text: str) -> None:
    result, _ = await run_script([says(text)], {"output_type": City})
    assert (result.output, result.text) == (City("Paris"), text)


@pytest.mark.parametrize("unit", ["{", "[", "```json", "</think>", '"', "<think>", "{} "])
def test_an_answer_without_json_is_read_in_time_in_proportion(unit: str) -> None:
    def seconds_of(count: int) -> float:
        text = "x" + unit * count
        begun = time.thread_time()
        assert len(list(json_in(text))) < 6
        return time.thread_time() - begun

    assert min(seconds_of(80_000) for _ in range(3)) < 0.2 + 40 * min(
        seconds_of(8_000) for _ in range(3)
    )


async def test_a_schema_that_refers_to_its_own_places_does_so_in_an_object_too() -> None:
    schema: dict[str, Any] = {
        "type": "array",
        "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}, {"$ref": "#/$defs/Name"}]},
        "$defs": {"Name": {"type": "string"}, "Same": {"$ref": "#/items"}},
    }
    answer = [1, ["a", [2]]]
    text = json.dumps({"value": answer})
    result, provider = await run_script([says(text)], {"output_schema": schema})
    assert result.output == answer
    sent = provider.requests[0].output_schema
    assert sent is not None
    assert sent.schema["$defs"]["Same"] == {"$ref": "#/properties/value/items"}
    jsonschema.validate({"value": answer}, sent.schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"value": [{}]}, sent.schema)


# Validators


async def test_a_validator_sends_what_it_says_to_the_model() -> None:
    def check(city: City) -> None:
        if city.name != "Paris":
            raise Retry(f"{city.name} is no capital of France.")

    script = [says('{"name":"Rome"}'), says('{"name":"Paris"}')]
    result, provider = await run_script(script, {"output_type": City, "output_validator": check})
    assert result.output == City("Paris")
    assert texts_in(provider.requests[1])[-1] == "Rome is no capital of France."


async def test_a_validator_may_wait_and_know_the_caller() -> None:
    async def check(context: ToolContext[set[str]], city: City) -> None:
        await others_run()
        assert context.session is not None
        if city.name not in context.deps:
            raise Retry("another one")

    script = [says('{"name":"Rome"}'), says('{"name":"Paris"}')]
    options = {"output_type": City, "output_validator": check, "deps": {"Paris"}}
    result, _ = await run_script(script, options)
    assert result.output == City("Paris")


async def test_what_a_validator_returns_takes_the_place_of_the_output() -> None:
    options = {"output_type": list[int], "output_validator": sorted}
    result, _ = await run_script([says("[3,1,2]")], options)
    assert result.output == [1, 2, 3]


async def test_a_validator_checks_plain_text_and_answers_by_call() -> None:
    def check(value: object) -> None:
        if value in ("no", City("Rome")):
            raise Retry("not this")

    result, provider = await run_script(
        [says("no"), says("yes")], {"output_type": str, "output_validator": check}
    )
    assert (result.output, provider.requests[0].output_schema) == ("yes", None)
    script = [calls(("City", {"name": "Rome"})), calls(("City", {"name": "Paris"}))]
    result, provider = await run_script(script, {"output_type": City, "output_validator": check})
    assert result.output == City("Paris")
    assert outcomes_in(provider.requests[1])[0][1:] == ("error", "not this")


async def test_a_validator_that_fails_ends_the_query() -> None:
    def check(city: City) -> None:
        raise KeyError(city.name)

    async with playing([says('{"name":"Rome"}')]) as (session, _):
        error = await failure_of(session.chat("go", output_type=City, output_validator=check))
    assert error.code is ErrorCode.HOOK_FAILED
    assert "output_validator raised KeyError: 'Rome'" in error.message
    assert isinstance(error.__cause__, KeyError)


def _two(first: int, second: int) -> None:
    del first, second


@pytest.mark.parametrize("validator", [lambda: None, _two, 3, int.__or__])
async def test_a_validator_that_does_not_take_one_value_is_refused(validator: Any) -> None:
    async with playing([]) as (session, _):
        with pytest.raises(ConfigError, match="output_validator"):
            session.stream("go", output_type=City, output_validator=validator)


# Attempts


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_each_model_answers_as_often_as_it_may(attempts: int) -> None:
    wrong = [says(f'{{"people":{number}}}') for number in range(attempts)]
    async with playing(wrong) as (session, provider):
        chat = session.chat("go", output_type=City, output_attempts=attempts)
        error = await failure_of(chat)
    assert len(provider.requests) == attempts
    assert (error.code, error.retryable) == (ErrorCode.OUTPUT_INVALID, False)
    assert "missing required field `name`" in error.message
    assert f"the last answer: '{{\"people\":{attempts - 1}}}'" in error.message
    assert error.result is not None
    assert error.result.text == f'{{"people":{attempts - 1}}}'


async def test_the_error_of_an_answer_by_call_has_its_text() -> None:
    async with playing([calls(("City", {"people": 3}))]) as (session, _):
        error = await failure_of(session.chat("go", output_type=City, output_attempts=1))
    assert '{"people":3}' in error.message


async def test_fallbacks_are_asked_after_the_last_attempt_and_know_what_was_wrong() -> None:
    other = ScriptedProvider([says('{"name":3}'), says('{"name":"Paris"}')], provider="other")
    script = [says("no"), calls(("City", {"people": 1}))]
    options: dict[str, Any] = {"fallbacks": ["other/two"], "providers": [other]}
    query = {"output_type": City, "output_attempts": 2}
    result, provider = await run_script(script, query, **options)
    assert (result.output, result.provider, result.turns) == (City("Paris"), "other", 4)
    assert len(provider.requests) == len(other.requests) == 2
    assert other.requests[0].output_schema == provider.requests[0].output_schema
    other.check()


async def test_when_no_fallback_gives_the_output_the_error_names_every_model() -> None:
    other = ScriptedProvider([says("neither")], provider="other")
    options: dict[str, Any] = {"fallbacks": ["other/two"], "providers": [other]}
    async with playing([says("no")], **options) as (session, _):
        error = await failure_of(session.chat("go", output_type=City, output_attempts=1))
    assert (error.code, error.provider) == (ErrorCode.OUTPUT_INVALID, "other")
    assert "neither" in error.message
    assert [note.partition(":")[0] for note in error.__notes__] == ["before it, scripted/one"]
    assert "'no'" in error.__notes__[0]
