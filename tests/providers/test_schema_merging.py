"""Several schemas that must all hold become one, or contradict each other."""

from typing import Any

import pytest

from haptera.providers.json_schema import SchemaRefusedError
from haptera.providers.schema_merging import merge_all, merge_alternatives
from haptera.providers.schema_targets import check_schema


def test_limits_of_both_hold() -> None:
    first = {"type": "integer", "minimum": 1, "maximum": 9, "description": "mine"}
    second = {"type": "integer", "minimum": 3, "maximum": 5, "description": "yours", "title": "t"}
    assert merge_all([first, second], "") == {
        "type": "integer",
        "minimum": 3,
        "maximum": 5,
        "description": "mine",
        "title": "t",
    }


def test_objects_have_the_properties_of_both() -> None:
    first = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
    second = {
        "properties": {"a": {"maxLength": 3}, "b": {}},
        "required": ["b", "a"],
        "additionalProperties": False,
    }
    assert merge_all([first | {"additionalProperties": True}, second], "") == {
        "properties": {"a": {"type": "string", "maxLength": 3}, "b": {}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_of_two_enums_the_common_values_stay() -> None:
    assert merge_all([{"enum": [1, 2]}, {"enum": [2, 3]}], "") == {"enum": [2]}


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ({"type": ["string", "null"]}, {"type": "string"}, {"type": "string"}),
        ({"type": "number"}, {"type": ["integer", "null"]}, {"type": "integer"}),
        ({"enum": [1, 2]}, {"const": 2}, {"const": 2}),
        ({"multipleOf": 4}, {"multipleOf": 6}, {"multipleOf": 12}),
        ({"uniqueItems": False}, {"uniqueItems": True}, {"uniqueItems": True}),
        ({"items": {"minLength": 1}}, {"items": {"minLength": 2}}, {"items": {"minLength": 2}}),
    ],
)
def test_what_both_accept_is_accepted(first: Any, second: Any, merged: Any) -> None:
    assert merge_all([first, second], "") == merged
    assert merge_all([second, first], "") == merged


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"pattern": "x"}, {"pattern": "y"}),
        ({"not": {"minimum": 1}}, {"not": {"maximum": 1}}),
        ({"if": {"minimum": 1}, "then": False}, {"if": {"maximum": 1}, "then": {"const": 0}}),
        ({"contains": {"minimum": 1}}, {"contains": {"maximum": 1}, "maxContains": 2}),
        ({"prefixItems": [{}]}, {"items": {"type": "string"}}),
        ({"anyOf": [{"minimum": 1}]}, {"anyOf": [{"maximum": 1}]}),
        ({"$ref": "#/a"}, {"$ref": "#/b"}),
        ({"minimum": 1}, {"minimum": "a"}),
        (
            {"patternProperties": {"x": {}}, "additionalProperties": False},
            {"properties": {"a": {}}},
        ),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"properties": {"b": {}}, "unevaluatedProperties": False},
        ),
    ],
)
def test_what_cannot_be_one_keyword_stays_apart(first: Any, second: Any) -> None:
    assert merge_all([first, second], "") == {**first, "allOf": [second]}


def test_properties_that_another_schema_refuses_are_left_out() -> None:
    closed = {"properties": {"a": {"type": "string"}}, "additionalProperties": False}
    more = {"properties": {"a": {"minLength": 1}, "b": {}}}
    both = {"properties": {"a": {"type": "string", "minLength": 1}}, "additionalProperties": False}
    assert merge_all([closed, more], "") == both
    assert merge_all([more, closed], "") == both
    # Nothing could fit. It is told as it is, because some who write this mean something else.
    needed = {**more, "required": ["b"]}
    assert merge_all([closed, needed], "") == {
        **closed,
        "required": ["b"],
        "allOf": [{"properties": more["properties"]}],
    }


def test_properties_are_limited_by_what_another_schema_says_of_all_others() -> None:
    texts = {"additionalProperties": {"type": "string"}}
    named = {"properties": {"a": {"minLength": 1}}}
    assert merge_all([texts, named], "") == {
        "properties": {"a": {"minLength": 1, "type": "string"}},
        "additionalProperties": {"type": "string"},
    }


@pytest.mark.parametrize(
    "pair",
    [
        ({"type": "string"}, {"type": "integer"}),
        ({"enum": [1]}, {"enum": [2]}),
        ({"const": 1}, {"const": 2}),
        ({"const": 1}, {"enum": [2]}),
        ({"properties": {"a": {"type": "null"}}}, {"properties": {"a": {"type": "string"}}}),
    ],
)
def test_a_contradiction_is_refused(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    with pytest.raises(SchemaRefusedError, match="two schemas that must both hold differ in"):
        merge_all(pair, "")


def test_an_alternative_more_is_added_once() -> None:
    kinds: list[dict[str, Any]] = [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]
    objects = [{"type": "object", "properties": {"a": kind}} for kind in (*kinds, kinds[1])]
    assert merge_alternatives(objects)["properties"] == {"a": {"anyOf": kinds}}


def with_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "additionalProperties": False,
        "$defs": {
            "text": {"type": "string"},
            "short": {"allOf": [{"$ref": "#/$defs/text"}, {"maxLength": 3}]},
            "loop": {"allOf": [{"$ref": "#/$defs/loop"}]},
            "ring": {"$ref": "#/$defs/ring"},
        },
    }


def test_all_of_one_reference_is_that_reference() -> None:
    schema = with_definitions({"allOf": [{"$ref": "#/$defs/text"}], "title": "Mine"})
    del schema["$defs"]["short"], schema["$defs"]["loop"], schema["$defs"]["ring"]
    verdict = check_schema(schema, target="openai_strict")
    assert verdict.schema["properties"]["x"] == {"$ref": "#/$defs/text"}


def test_all_of_inside_all_of_is_one_schema() -> None:
    schema = with_definitions({"allOf": [{"$ref": "#/$defs/short"}, {"minLength": 1}]})
    verdict = check_schema(schema, target="gemini")
    assert verdict.schema["properties"]["x"] == {"type": "string", "maxLength": 3, "minLength": 1}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("loop", "x: has an allOf inside an allOf without end"),
        ("ring", "'#/$defs/ring' leads to itself"),
    ],
)
def test_what_leads_to_itself_is_refused(name: str, reason: str) -> None:
    schema = with_definitions({"allOf": [{"$ref": f"#/$defs/{name}"}, {"minLength": 1}]})
    assert reason in check_schema(schema, target="gemini").reason


def test_old_ways_of_writing_are_repaired() -> None:
    schema = with_definitions({"$ref": "#/$defs/text", "nullable": True, "required": True})
    verdict = check_schema(schema, target="any")
    expected = {"anyOf": [{"$ref": "#/$defs/text"}, {"type": "null"}]}
    assert verdict.schema["properties"]["x"] == expected
    schema = with_definitions({"anyOf": [{"type": "string"}], "nullable": True})
    verdict = check_schema(schema, target="any")
    assert verdict.schema["properties"]["x"]["anyOf"][-1] == {"type": "null"}
    schema = with_definitions({"properties": {"a": {}}})
    assert check_schema(schema, target="any").schema["properties"]["x"]["type"] == "object"
