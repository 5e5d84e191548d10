"""Schemas in real requests: taken, taken with changes, or refused before anything is sent."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from haptera.model.errors import AgentError, ConfigError, ErrorCode
from haptera.model.requests import ModelRequest, OutputSchema
from haptera.model.tools import ToolSpec
from haptera.providers.schema_targets import SchemaAdapter, check_schema
from haptera.providers.wire.protocol import SchemaTargets
from tests.fixtures_report import Report
from tests.providers.conversations import user
from tests.providers.moving_targets import Target, targets

pytestmark = pytest.mark.slow

STRICT = SchemaTargets(arguments="openai", output=("openai_strict", "openai"))
CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"sum": {"type": "number"}},
    "required": ["sum"],
    "additionalProperties": False,
}
ODD: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "STRING"}}}


def asking(*tools: ToolSpec, output: dict[str, Any] | None = None) -> ModelRequest:
    return ModelRequest(
        model="m",
        messages=(user("Hi"),),
        tools=tools,
        output_schema=OutputSchema(name="answer", schema=output) if output else None,
    )


def output_of(schema: dict[str, Any], targets: SchemaTargets = STRICT) -> OutputSchema:
    output = SchemaAdapter().adapt(asking(output=schema), targets).output_schema
    assert output is not None
    return output


def test_a_request_whose_schemas_are_fine_is_the_same_object() -> None:
    request = asking(ToolSpec(name="add", input_schema=CLOSED))
    assert SchemaAdapter().adapt(request, STRICT) is request


def test_a_schema_is_looked_at_once_however_often_it_is_sent() -> None:
    adapter, tool = SchemaAdapter(), ToolSpec(name="odd", input_schema=ODD)
    first = adapter.adapt(asking(tool), STRICT)
    # Another tuple and another tool, as a history's names may make them, with the same schema.
    again = adapter.adapt(asking(replace(tool, name="other")), STRICT)
    assert first.tools[0].input_schema["properties"]["x"] == {"type": "string"}
    assert again.tools[0].input_schema is first.tools[0].input_schema
    request = asking(tool)
    assert adapter.adapt(request, STRICT).tools is adapter.adapt(request, STRICT).tools


@pytest.mark.parametrize(
    ("schema", "is_strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "additionalProperties": True}, True),
        ({**CLOSED, "required": []}, False),
        ({"type": "object", "additionalProperties": {"type": "string"}}, False),
        ({**CLOSED, "properties": {"sum": {"type": "object"}}}, False),
    ],
)
def test_an_answer_is_held_to_its_schema_where_that_changes_nothing_of_it(
    schema: dict[str, Any], is_strict: bool
) -> None:
    assert output_of(schema).is_strict is is_strict
    Draft202012Validator.check_schema(output_of(schema).schema)


def test_a_schema_that_no_provider_takes_is_refused_with_its_name_and_the_reason() -> None:
    broken = {"type": "object", "properties": {"x": {"type": "text"}}}
    with pytest.raises(ConfigError, match="schema of 'look' cannot be sent: x: has the type") as e:
        SchemaAdapter().adapt(asking(ToolSpec(name="look", input_schema=broken)), STRICT)
    assert e.value.code is ErrorCode.CONFIG_INVALID
    with pytest.raises(ConfigError, match="schema of 'answer' cannot be sent"):
        output_of(broken)


def real_schemas(wire: Path) -> list[dict[str, Any]]:
    lines = (wire / "toolschemas" / "open.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def outcome_of(target: Target, request: ModelRequest) -> str:
    """Return what becomes of a request with one real schema in it."""
    try:
        faults = await target.faults_of(request)
    except AgentError as error:
        assert error.code is ErrorCode.CONFIG_INVALID
        assert "cannot be sent: " in error.message
        return "refused with a reason"
    assert faults == []
    return "sent"


LIMITED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": "^a", "minLength": 2},
        "size": {"type": "integer", "allOf": [{"minimum": 3, "maximum": 9}, {"minimum": 5}]},
        "kind": {"$ref": "#/definitions/kind"},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
    },
    "required": ["code", "size", "kind", "pair"],
    "additionalProperties": False,
    "definitions": {"kind": {"oneOf": [{"const": "a"}, {"type": "null"}]}},
}


def is_inside(wanted: Any, value: Any) -> bool:
    """Whether a value is part of another one, also of a text that quotes it."""
    if value == wanted:
        return True
    if isinstance(value, str):
        return json.dumps(wanted, separators=(",", ":")) in value
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and any(is_inside(wanted, each) for each in value)


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
async def test_no_protocol_rewrites_a_schema_that_was_fitted(target: Target) -> None:
    rules = target.schema_targets
    plain = ModelRequest(model=target.model, messages=(user("Hi"),))
    tool = ToolSpec(name="tool", input_schema=LIMITED)
    fitted = check_schema(LIMITED, target=rules.arguments).schema
    assert is_inside(fitted, await target.sent(replace(plain, tools=(tool,))))
    answer = OutputSchema(name="answer", schema=LIMITED)
    wanted = SchemaAdapter().adapt(replace(plain, output_schema=answer), rules).output_schema
    assert wanted is not None
    assert is_inside(wanted.schema, await target.sent(replace(plain, output_schema=answer)))


@pytest.mark.timeout(120)
async def test_real_schemas_are_sent_to_every_provider_or_refused_with_a_reason(
    wire: Path, report: Report
) -> None:
    rows = real_schemas(wire)
    for target in targets():
        counts: Counter[str] = Counter()
        for row in rows:
            tool = ToolSpec(name="tool", input_schema=row["schema"])
            plain = ModelRequest(model=target.model, messages=(user("Hi"),))
            answer = OutputSchema(name="answer", schema=row["schema"])
            as_tool = await outcome_of(target, replace(plain, tools=(tool,)))
            as_answer = await outcome_of(target, replace(plain, output_schema=answer))
            counts[f"tool {as_tool}"] += 1
            counts[f"answer {as_answer}"] += 1
        listed = ", ".join(f"{count} as {kind}" for kind, count in sorted(counts.items()))
        report(f"{len(rows)} real schemas to {target.name}: {listed}")
        assert counts["tool refused with a reason"] < len(rows) // 20
