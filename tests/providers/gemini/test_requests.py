"""Requests to Gemini: golden files, the grammar, and the vendor's own types."""

import json

import pytest
from msgspec.structs import replace

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.requests import ModelRequest, OutputSchema
from haptera.model.tools import ToolSpec
from haptera.providers.schema_targets import check_schema
from haptera.providers.wire.gemini import PROTOCOL
from haptera.providers.wire.gemini.dialects import (
    GEMINI_API,
    THINKING_RULES,
    VERTEX,
    thinking_config,
)
from haptera.providers.wire.gemini.messages import UNSIGNED
from haptera.providers.wire.gemini.request import RequestEncoder, encode_count
from tests.fixtures_wire import require_wire
from tests.providers.conversations import everything, user
from tests.providers.gemini.requests import REQUESTS, SEAL, encoded, own_history
from tests.providers.gemini.vendor_types import types
from tests.providers.grammar.gemini import RULES
from tests.providers.grammar.rules import breaches
from tests.providers.wire_goldens import check_golden


def body_of(name: str) -> JsonObject:
    request, dialect = REQUESTS[name]
    body: JsonObject = json.loads(encoded(request, dialect).body)
    return {"model": request.model} | body


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_what_its_golden_file_says(name: str) -> None:
    request, dialect = REQUESTS[name]
    check_golden("gemini", name, encoded(request, dialect))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_keeps_to_the_grammar(name: str) -> None:
    assert breaches(RULES, body_of(name)) == {}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_vendors_types_take_the_request(name: str) -> None:
    body = body_of(name)
    for content in body["contents"]:
        types.Content.model_validate(content)
    for tool in body.get("tools", ()):
        types.Tool.model_validate(tool)
    if "systemInstruction" in body:
        types.Content.model_validate(body["systemInstruction"])
    if "toolConfig" in body:
        types.ToolConfig.model_validate(body["toolConfig"])
    types.GenerationConfig.model_validate(body["generationConfig"])


def test_a_remembering_encoder_says_the_same_as_a_new_one() -> None:
    encoder = RequestEncoder()
    messages = own_history("gemini-3-pro-preview")
    for model in ("gemini-3-pro-preview", "gemini-2.5-flash"):
        for count in range(1, len(messages) + 1):
            request = ModelRequest(model=model, messages=messages[:count])
            assert encoder(request) == RequestEncoder()(request)
            assert encoder(request) == RequestEncoder()(request)


def test_a_call_of_another_model_gets_the_word_that_stands_for_a_signature() -> None:
    parts = body_of("other_model")["contents"][1]["parts"]
    signatures = [part.get("thoughtSignature") for part in parts if "functionCall" in part]
    assert signatures == [UNSIGNED, None]
    own = body_of("own_history")["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in own if "functionCall" in part] == [SEAL, None]


def test_tools_of_the_user_go_before_those_of_the_provider_where_both_cannot_be() -> None:
    request = everything("gemini-2.5-flash", betas={"google_search": True})
    tools = json.loads(RequestEncoder()(request).body)["tools"]
    assert [list(tool) for tool in tools] == [["functionDeclarations"]]


def test_tokens_are_counted_of_the_same_request() -> None:
    request = everything("gemini-2.5-pro")
    asked = json.loads(RequestEncoder()(request).body)
    counted = encode_count(request, GEMINI_API)
    assert counted.path == "v1beta/models/gemini-2.5-pro:countTokens"
    wrapped = json.loads(counted.body)["generateContentRequest"]
    assert wrapped == asked | {"model": "models/gemini-2.5-pro"}
    assert json.loads(encode_count(request, VERTEX).body) == asked
    assert PROTOCOL.decode_count is not None
    assert PROTOCOL.decode_count(b'{"totalTokens": 11}') == 11
    with pytest.raises(AgentError):
        PROTOCOL.decode_count(b"[]")


def test_a_model_with_a_path_of_its_own_keeps_it() -> None:
    request = ModelRequest(model="tunedModels/mine", messages=(user("Hi"),))
    assert RequestEncoder()(request).path.startswith("v1beta/tunedModels/mine:stream")


@pytest.mark.parametrize("row", THINKING_RULES, ids=lambda row: row.models)
def test_every_level_of_thinking_has_a_value_for_every_model_that_thinks(row: object) -> None:
    assert {*row.values} == {  # type: ignore[attr-defined]
        *("off", "minimal", "low", "medium", "high", "xhigh", "max"),
    }


def test_a_model_that_does_not_think_is_not_asked_to() -> None:
    assert thinking_config("gemini-2.0-flash", "high") is None
    assert thinking_config("gemini-2.5-flash", None) is None
    assert thinking_config("gemini-2.5-flash", "off") == {
        "thinkingBudget": 0,
        "includeThoughts": False,
    }


HARD: JsonObject = {
    "type": "object",
    "definitions": {"Node": {"type": "object", "properties": {"next": {"type": "string"}}}},
    "properties": {
        "node": {"$ref": "#/definitions/Node"},
        "kind": {"const": "a"},
        "size": {"type": ["integer", "null"], "exclusiveMinimum": 0},
        "either": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        "both": {"allOf": [{"type": "object", "properties": {"x": {"type": "string"}}}]},
        "tags": {"type": "array", "uniqueItems": True},
        "map": {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}},
        "anything": True,
    },
    "required": ["node", "gone"],
    "$schema": "https://json-schema.org/draft/2020-12/schema",
}


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-2.0-flash"])
def test_a_hard_schema_is_brought_into_a_form_that_is_accepted(model: str) -> None:
    tool = ToolSpec(name="hard", input_schema=HARD)
    request = ModelRequest(model=model, messages=(user("Hi"),), tools=(tool,))
    body = {"model": model} | json.loads(encoded(request).body)
    assert breaches(RULES, body) == {}
    for each in body["tools"]:
        types.Tool.model_validate(each)


def declared(schema: JsonObject, model: str = "gemini-2.5-flash") -> JsonObject:
    """Return the declaration of a tool with this schema, as it is sent."""
    tool = ToolSpec(name="hard", description="Try.", input_schema=schema)
    request = ModelRequest(model=model, messages=(user("Hi"),), tools=(tool,))
    declaration: JsonObject = json.loads(encoded(request).body)["tools"][0]
    found: JsonObject = declaration["functionDeclarations"][0]
    return found


def test_what_a_schema_says_in_other_words_is_kept() -> None:
    kept = declared(HARD)["parametersJsonSchema"]
    assert kept["properties"]["kind"] == {"enum": ["a"]}
    assert kept["properties"]["both"]["properties"] == {"x": {"type": "string"}}
    assert kept["properties"]["node"] == {"$ref": "#/$defs/Node"}
    assert kept["$defs"] == HARD["definitions"]
    assert kept["properties"]["size"] == {
        "type": ["integer", "null"],
        "description": "(exclusiveMinimum: 0)",
    }
    assert kept["properties"]["map"]["additionalProperties"] == {
        "type": "string",
        "description": "(minLength: 1)",
    }
    assert kept["description"] == '(required: ["gone"])'
    opened = declared(HARD, "gemini-2.0-flash")["parameters"]
    assert opened["properties"]["node"]["properties"] == {"next": {"type": "string"}}
    assert opened["properties"]["size"] == {
        "type": "integer",
        "nullable": True,
        "description": "(exclusiveMinimum: 0)",
    }
    assert opened["properties"]["either"] == {"type": "string", "nullable": True}
    assert opened["required"] == ["node"]


def test_schemas_that_must_both_hold_are_merged_with_the_narrower_limits() -> None:
    limits = {"allOf": [{"minimum": 3, "maximum": 9}, {"minimum": 5}], "type": "integer"}
    sent = declared({"type": "object", "properties": {"n": limits}})["parametersJsonSchema"]
    assert sent["properties"]["n"] == {"type": "integer", "minimum": 5, "maximum": 9}


def test_a_limit_that_is_not_enforced_is_said_in_the_description() -> None:
    code = {"type": "string", "description": "A code", "pattern": "^[A-Z]+$", "minLength": 2}
    output = OutputSchema(name="code", schema={"type": "object", "properties": {"code": code}})
    request = ModelRequest(model="gemini-2.5-flash", messages=(user("Hi"),), output_schema=output)
    for sent in (
        declared(output.schema)["parametersJsonSchema"],
        json.loads(encoded(request).body)["generationConfig"]["responseJsonSchema"],
    ):
        assert sent["properties"]["code"] == {
            "type": "string",
            "description": 'A code (pattern: "^[A-Z]+$") (minLength: 2)',
        }


def test_limits_of_an_object_without_properties_are_sent_as_well() -> None:
    schema: JsonObject = {"type": "object", "additionalProperties": {"type": "string"}}
    assert declared(schema)["parametersJsonSchema"] == schema | {"properties": {}}
    assert declared(schema, "gemini-2.0-flash") == {
        "name": "hard",
        "description": 'Try. (additionalProperties: {"type":"string"})',
    }
    request = ModelRequest(
        model="gemini-2.0-flash",
        messages=(user("Hi"),),
        output_schema=OutputSchema(name="texts", schema=schema),
    )
    body = json.loads(encoded(request).body)
    assert body["generationConfig"] == {"responseMimeType": "application/json"}
    assert "additionalProperties" in body["systemInstruction"]["parts"][0]["text"]
    for model in ("gemini-2.5-flash", "gemini-2.0-flash"):
        assert declared({"type": "object", "properties": {}}, model) == {
            "name": "hard",
            "description": "Try.",
        }


def test_a_recursive_schema_is_kept_where_references_are_understood() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    schema = {"$defs": {"node": node}, "properties": {"node": {"$ref": "#/$defs/node"}}}
    tool = ToolSpec(name="walk", input_schema={"type": "object", **schema})
    request = ModelRequest(model="gemini-2.5-flash", messages=(user("Hi"),), tools=(tool,))
    body = {"model": request.model} | json.loads(encoded(request).body)
    assert breaches(RULES, body) == {}
    with pytest.raises(AgentError) as caught:
        encoded(replace(request, model="gemini-2.0-flash"))
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-2.0-flash"])
def test_real_tool_schemas_are_accepted(model: str) -> None:
    lines = (require_wire() / "toolschemas" / "open.jsonl").read_text("utf-8").splitlines()
    schemas = [json.loads(line)["schema"] for line in lines]
    target = PROTOCOL.schema_targets(model).arguments
    verdicts = [check_schema(schema, target=target) for schema in schemas]
    tools = tuple(
        ToolSpec(name=f"t{index}", input_schema=schema)
        for index, (schema, verdict) in enumerate(zip(schemas, verdicts, strict=True))
        if verdict.outcome != "refused"
    )
    assert len(tools) >= len(schemas) * 9 // 10
    request = ModelRequest(model=model, messages=(user("Hi"),), tools=tools)
    body = {"model": model} | json.loads(encoded(request).body)
    assert breaches(RULES, body) == {}
