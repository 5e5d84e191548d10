"""No limit is lost: the fitted schema enforces it, or a description in it says it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haptera.providers.schema_rules import RULES
from haptera.providers.schema_targets import check_schema
from haptera.providers.wire.protocol import SchemaTarget
from tests.fixtures_report import Report
from tests.providers.schema_oracle import Schema, Values, meaning, restored, validator

TARGETS: tuple[SchemaTarget, ...] = tuple(RULES)
NEVER_NARROWER: tuple[SchemaTarget, ...] = tuple(
    target for target, rules in RULES.items() if not (rules.is_closed or rules.requires_types)
)
"""Those that can say everything, so that what the original accepts is accepted, too."""


class Original:
    """A schema with values near its limits, and whether it accepts each."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        judge = validator(meaning(schema))
        values = Values(meaning(schema)).near_limits()
        self._judged = [(value, judge.is_valid(value)) for value in values]

    def lost(self, target: SchemaTarget) -> list[Any]:
        """Return values that break a limit of which the fitted schema says nothing."""
        return self.lost_by(self._fitted(target))

    def lost_by(self, fitted: Schema) -> list[Any]:
        told = validator(restored(fitted))
        return [value for value, is_right in self._judged if told.is_valid(value) > is_right]

    def forbidden(self, target: SchemaTarget) -> list[Any]:
        """Return values that the original accepts and the fitted schema does not."""
        told = validator(restored(self._fitted(target)))
        return [value for value, is_right in self._judged if told.is_valid(value) < is_right]

    def _fitted(self, target: SchemaTarget) -> Schema:
        verdict = check_schema(self._schema, target=target)
        # With nulls for what may be left out it is not sent: the next target is tried.
        is_sent = verdict.outcome != "refused" and not verdict.adds_nulls
        return verdict.schema if is_sent else meaning(self._schema)


def with_property(schema: Any) -> Schema:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"]}


TEXT = {"type": "string", "minLength": 2}
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
LIMITED: dict[str, Any] = {
    "bounds of two": {"allOf": [{"minimum": 3, "maximum": 9}, {"minimum": 5}], "type": "integer"},
    "exclusive bounds": {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 3},
    "multiple": {"type": "integer", "multipleOf": 3},
    "multiples of two": {"type": "integer", "allOf": [{"multipleOf": 2}, {"multipleOf": 3}]},
    "length": {"type": "string", "minLength": 2, "maxLength": 4},
    "pattern": {"type": "string", "pattern": "^a"},
    "two patterns": {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "f$"}]},
    "format": {"type": "string", "format": "email"},
    "enum of numbers": {"type": "integer", "enum": [1, 2]},
    "enum with null": {"enum": ["b", None]},
    "enum of truth values": {"type": "boolean", "enum": [True]},
    "enum that is empty text": {"type": "string", "enum": ["", "b"]},
    "const": {"const": 3},
    "types": {"type": ["string", "integer"], "minLength": 2, "minimum": 1},
    "types and alternatives": {
        "type": ["string", "integer"],
        "anyOf": [{"minLength": 2, "minimum": 1}, {"type": "null"}],
    },
    "null of one alternative": {"type": "string", "anyOf": [{"minLength": 2}, {"type": "null"}]},
    "limit beside null": {
        "description": "Size",
        "anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}],
    },
    "either and one of": {
        "anyOf": [{"type": "string"}, {"type": "integer"}],
        "oneOf": [{"minLength": 2}, {"minimum": 2}],
    },
    "one of those that overlap": {
        "oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 1}]
    },
    "not": {"type": "string", "not": {"minLength": 2}},
    "never": False,
    "condition": {"type": "string", "if": {"minLength": 2}, "then": {"pattern": "^a"}},
    "condition that always holds": {"if": {}, "then": {"type": "string"}},
    "two conditions": {
        "type": "string",
        "allOf": [
            {"if": {"minLength": 2}, "then": {"pattern": "^a"}},
            {"if": {"maxLength": 1}, "then": {"enum": ["b"]}},
        ],
    },
    "unique": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "sizes": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2},
    "items of two": {"type": "array", "allOf": [{"items": TEXT}, {"items": {"maxLength": 3}}]},
    "tuple": {"type": "array", "prefixItems": [TEXT, {"type": "integer"}]},
    "closed tuple": {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
    "open tuple": {"type": "array", "prefixItems": [{}], "items": {"type": "integer"}},
    "contains": {"type": "array", "items": TEXT, "contains": {"maxLength": 3}, "maxContains": 1},
    "closed": {**OBJECT, "additionalProperties": False},
    "map": {"type": "object", "additionalProperties": TEXT},
    "map by pattern": {
        "type": "object",
        "patternProperties": {"^x-": TEXT},
        "additionalProperties": False,
    },
    "names": {**OBJECT, "propertyNames": {"maxLength": 1}},
    "sizes of objects": {**OBJECT, "minProperties": 1, "maxProperties": 1},
    "needed names": {**OBJECT, "required": ["a", "gone"]},
    "dependent names": {**OBJECT, "dependentRequired": {"a": ["b"]}},
    "dependent schemas": {**OBJECT, "dependentSchemas": {"a": {"required": ["b"]}}},
    "alternatives of names": {**OBJECT, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "closed and more": {
        "allOf": [
            {**OBJECT, "additionalProperties": False},
            {"type": "object", "properties": {"c": {"type": "string"}}},
        ]
    },
    "map and more": {
        "allOf": [
            {"type": "object", "additionalProperties": TEXT},
            {"type": "object", "properties": {"c": {"maxLength": 3}}},
        ]
    },
}


def lost_anywhere(schema: Schema) -> dict[SchemaTarget, list[Any]]:
    """Return for each target the values that break a limit of which nothing is said."""
    original = Original(schema)
    return {target: values for target in TARGETS if (values := original.lost(target))}


@pytest.mark.parametrize("name", LIMITED)
def test_every_kind_of_limit_is_enforced_or_described(name: str) -> None:
    limited = LIMITED[name]
    assert lost_anywhere(with_property(limited)) == {}
    by_reference = with_property({"$ref": "#/definitions/x"})
    assert lost_anywhere(by_reference | {"definitions": {"x": limited}}) == {}
    by_anchor = with_property({"$ref": "#named"})
    assert (
        lost_anywhere(by_anchor | {"$defs": {"x": {"$anchor": "named", "allOf": [limited]}}}) == {}
    )
    beside = with_property({"$ref": "#/$defs/x", "description": "mine", **(limited or {})})
    assert lost_anywhere(beside | {"$defs": {"x": {"maxLength": 3, "minimum": 2}}}) == {}


@pytest.mark.parametrize("name", LIMITED)
def test_nothing_is_forbidden_that_the_original_accepts(name: str) -> None:
    original = Original(with_property(LIMITED[name]))
    for target in NEVER_NARROWER:
        assert original.forbidden(target) == [], target


@pytest.mark.parametrize("name", [name for name in LIMITED if LIMITED[name]])
def test_null_is_accepted_whatever_nullable_stands_beside(name: str) -> None:
    original = Original(with_property({**LIMITED[name], "nullable": True}))
    for target in NEVER_NARROWER:
        assert original.forbidden(target) == [], target
    for target in TARGETS:
        assert original.lost(target) == [], target


@pytest.mark.parametrize(
    ("name", "fitted"),
    [
        ("length", {"type": "string", "minLength": 2}),
        ("length", {"type": "string", "description": "(minLength: 2) (maxLength: 5)"}),
        ("pattern", {"type": "string"}),
        ("closed", OBJECT),
        ("one of those that overlap", {"anyOf": LIMITED["one of those that overlap"]["oneOf"]}),
        ("condition", {"type": "string", "description": '(then: {"pattern":"^a"})'}),
    ],
)
def test_a_limit_that_is_lost_is_noticed(name: str, fitted: Any) -> None:
    original = Original(with_property(LIMITED[name]))
    assert original.lost_by(with_property(fitted))
    assert original.lost_by(with_property(LIMITED[name])) == []


A, B = (
    {"type": "object", "properties": {"kind": {"const": name}, name: TEXT}, "required": [name]}
    for name in ("a", "b")
)
ROOTS: dict[str, Schema] = {
    "alternatives": {"anyOf": [A, B]},
    "one of": {"oneOf": [A | {"additionalProperties": False}, B | {"minProperties": 2}]},
    "alternatives of names": {
        **OBJECT,
        "anyOf": [{"required": ["a"]}, {"required": ["b"], "minProperties": 2}],
    },
    "both": {"allOf": [A | {"additionalProperties": False}, OBJECT | {"maxProperties": 1}]},
    "two conditions": {
        **OBJECT,
        "allOf": [
            {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
            {"if": {"required": ["b"]}, "then": {"minProperties": 2}},
        ],
    },
    "reference": {"$ref": "#/definitions/a", "maxProperties": 1, "definitions": {"a": A}},
    "references": {
        "oneOf": [{"$ref": "#/definitions/a"}, {"$ref": "#/definitions/b"}],
        "definitions": {"a": A, "b": B},
    },
}


@pytest.mark.parametrize("name", ROOTS)
def test_what_the_root_limits_is_enforced_or_described(name: str) -> None:
    assert lost_anywhere(ROOTS[name]) == {}


@pytest.mark.slow
def test_no_limit_of_a_real_schema_is_lost(wire: Path, report: Report) -> None:
    lines = (wire / "toolschemas" / "open.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {json.dumps(row["schema"]): row for row in map(json.loads, lines)}
    checked: Counter[str] = Counter()
    for row in rows.values():
        # One refers to another place, and has no meaning of its own.
        if check_schema(row["schema"], target="any").outcome == "refused":
            continue
        original = Original(row["schema"])
        for target in TARGETS:
            assert original.lost(target) == [], (row["id"], target)
            checked[target] += 1
        for target in NEVER_NARROWER:
            assert original.forbidden(target) == [], (row["id"], target)
    report(f"no limit of {checked['any']} real schemas is lost for any of {len(checked)} targets")
    assert checked["any"] >= len(rows) - 1


# Schemas of any combination

scalars = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(
            ["string", "integer", "number", ["string", "null"], ["string", "integer"]]
        ),
        "minimum": st.integers(0, 3),
        "maximum": st.integers(1, 4),
        "exclusiveMinimum": st.integers(0, 2),
        "multipleOf": st.sampled_from([2, 3]),
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(1, 4),
        "pattern": st.sampled_from(["^a", "f$", "^b*$"]),
        "enum": st.lists(st.sampled_from(["b", "abcdef", 2, 3, None]), min_size=1, unique=True),
        "description": st.just("mine"),
        "default": st.just("b"),
        "nullable": st.booleans(),
    },
)


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return schemas made of others."""
    several = st.lists(inner, min_size=1, max_size=2)
    tables = st.dictionaries(st.sampled_from("ab"), inner, min_size=1)
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": tables},
        optional={
            "required": st.lists(st.sampled_from("ab"), unique=True),
            "additionalProperties": st.booleans() | inner,
            "patternProperties": st.fixed_dictionaries({"^x": inner}),
            "propertyNames": st.just({"maxLength": 2}),
            "minProperties": st.integers(0, 2),
            "nullable": st.booleans(),
        },
    )
    lists = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner,
            "prefixItems": several,
            "contains": inner,
            "minItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
        },
    )
    mixed = st.fixed_dictionaries(
        {},
        optional={
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "$ref": st.sampled_from(["#/$defs/a", "#/definitions/a", "#named"]),
            "minLength": st.integers(0, 3),
            "maximum": st.integers(1, 4),
            "description": st.just("mine"),
            "nullable": st.booleans(),
        },
    )
    return objects | lists | mixed


schemas = st.recursive(scalars, combined, max_leaves=6)
objects = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("xy"), schemas)},
    optional={
        "required": st.lists(st.sampled_from("xy"), unique=True),
        "additionalProperties": st.booleans(),
        "maxProperties": st.integers(1, 2),
    },
)
several = st.lists(objects | st.just({"$ref": "#/definitions/object"}), min_size=1, max_size=2)
roots = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.fixed_dictionaries({"x": schemas})},
    optional={"required": st.just(["x"]), "allOf": several, "anyOf": several, "oneOf": several},
)
plain_definitions = st.sampled_from([TEXT, OBJECT, {"type": "integer", "maximum": 2}, {}])


@pytest.mark.slow
@given(root=roots, here=plain_definitions, there=plain_definitions)
@example(root=with_property(LIMITED["either and one of"]), here={}, there={})
def test_no_limit_is_lost_in_any_combination(root: Any, here: Any, there: Any) -> None:
    schema = {
        **root,
        "$defs": {"a": here, "b": {"$anchor": "named", **there}},
        "definitions": {"a": there, "object": OBJECT},
    }
    original = Original(schema)
    for target in TARGETS:
        assert original.lost(target) == [], target
    # Alternatives at the root are one object, in which a property is the same for all of them.
    if not root.keys() & {"anyOf", "oneOf"}:
        for target in NEVER_NARROWER:
            assert original.forbidden(target) == [], target
