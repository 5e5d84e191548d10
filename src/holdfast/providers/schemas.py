"""Checks a JSON Schema before it is sent: taken as it is, taken with changes, or refused.

Every change and every refusal is told. Pure: plain values in, a verdict out.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from holdfast.providers.schema_fitting import SchemaFitting
from holdfast.providers.schema_merging import merged_all, merged_alternatives
from holdfast.providers.schema_repair import (
    SchemaRefusedError,
    SchemaRepair,
    resolved,
    subschemas,
)
from holdfast.providers.schema_rules import RULES, SchemaRules, SchemaTarget
from holdfast.vocabulary.json_types import Json, JsonObject

Purpose: TypeAlias = Literal["arguments", "output"]
"""What a schema is for: the arguments of a tool, or the answer."""

_COMBINATORS = ("anyOf", "oneOf", "allOf")
_NOT_AT_ROOT = ("enum", "const", "not")


class SchemaVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a schema."""

    outcome: Literal["accepted", "adapted", "refused"]
    schema: JsonObject = {}
    """What to send; empty when refused."""
    changes: tuple[str, ...] = ()
    """What was changed, each with its place in the schema."""
    reason: str = ""
    """Why it was refused, with the place."""
    adds_nulls: bool = False
    """Whether an answer may hold nulls that the original does not take; they can be taken out."""


def check_schema(
    schema: JsonObject, *, target: SchemaTarget, purpose: Purpose = "arguments"
) -> SchemaVerdict:
    """Say whether `target` takes a schema, and in which form. The schema is not changed."""
    rules = RULES[target]
    try:
        repair = SchemaRepair(schema)
        repaired = repair.repaired()
        changes = repair.changes
        if purpose == "arguments" or rules.output_is_object:
            repaired = _object_at_root(repaired, changes)
        if purpose == "output" and rules.is_closed:
            _refuse_open_object(repaired)
        fitting = SchemaFitting(repaired, rules)
        fitted = fitting.fitted()
        _refuse_too_much(fitted, rules)
    except SchemaRefusedError as error:
        return SchemaVerdict(outcome="refused", reason=str(error))
    told = tuple(dict.fromkeys([*changes, *fitting.changes]))
    return SchemaVerdict(
        outcome="adapted" if fitted != schema else "accepted",
        schema=fitted,
        changes=told if fitted != schema else (),
        adds_nulls=fitting.adds_nulls,
    )


def without_added_nulls(value: Json, schema: JsonObject, *, root: JsonObject | None = None) -> Json:
    """Leave out the nulls that stand where the original schema lets a property be left out.

    Undoes in an answer what a strict receiver made of optional properties.
    """
    root = schema if root is None else root
    schema = _alternative(schema, value, root)
    if isinstance(value, list):
        items = schema.get("items")
        kind = items if isinstance(items, dict) else {}
        return [without_added_nulls(item, kind, root=root) for item in value]
    if not isinstance(value, Mapping):
        return value
    properties, required = schema.get("properties", {}), schema.get("required", ())
    return {
        name: without_added_nulls(inner, properties.get(name, {}), root=root)
        for name, inner in value.items()
        if inner is not None
        or name in required
        or name not in properties
        or _takes_null(properties[name], root)
    }


def _alternative(schema: JsonObject, value: Json, root: JsonObject) -> JsonObject:
    """Return what a schema says of a value, through references and alternatives."""
    while "$ref" in schema:
        schema = resolved(root, schema["$ref"], "")
    if not isinstance(value, Mapping):
        return schema
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        inner = _alternative(part, value, root)
        if value.keys() <= inner.get("properties", {}).keys():
            return inner
    return schema


def _takes_null(schema: Json, root: JsonObject) -> bool:
    if not isinstance(schema, dict) or not schema:
        return True
    if "$ref" in schema:
        return _takes_null(resolved(root, schema["$ref"], ""), root)
    types = schema.get("type")
    if types == "null" or schema.get("nullable") or (isinstance(types, list) and "null" in types):
        return True
    if None in schema.get("enum", ()):
        return True
    return any(
        _takes_null(part, root) for key in ("anyOf", "oneOf") for part in schema.get(key, ())
    )


def _object_at_root(schema: JsonObject, changes: list[str]) -> JsonObject:
    """Bring the root into the one form that every receiver of arguments takes: a plain object."""
    whole = dict(schema)
    seen: set[str] = set()
    while "$ref" in whole:
        reference = whole.pop("$ref")
        if reference in seen:
            raise SchemaRefusedError("", f"{reference!r} leads to itself")
        seen.add(reference)
        whole = resolved(schema, reference, "") | whole
        changes.append(f"the schema: {reference!r} written out at the root")
    for keyword in _COMBINATORS:
        if keyword in whole:
            whole = _without_combinator(whole, keyword, schema)
            changes.append(f"the schema: {keyword} at the root written as one object")
    for keyword in _NOT_AT_ROOT:
        if keyword in whole:
            raise SchemaRefusedError("", f"has {keyword} at its root")
    if not whole.keys() - {"$schema", "title", "description", "$defs", "definitions"}:
        whole |= {"type": "object", "properties": {}}
        changes.append("the schema: type 'object' added")
    if whole.get("type") != "object":
        raise SchemaRefusedError("", f"is of type {whole.get('type')!r} and must be an object")
    if "properties" not in whole:
        whole["properties"] = {}
        changes.append("the schema: no properties written as such")
    return whole


def _without_combinator(whole: JsonObject, keyword: str, root: JsonObject) -> JsonObject:
    parts = [
        resolved(root, part["$ref"], "") if "$ref" in part else part for part in whole[keyword]
    ]
    rest = {name: value for name, value in whole.items() if name != keyword}
    if keyword == "allOf":
        return merged_all([rest, *parts], "")
    alternatives = [{"type": "object", **part} if "properties" in rest else part for part in parts]
    return merged_all([rest, merged_alternatives(alternatives, "")], "")


def _refuse_open_object(schema: JsonObject) -> None:
    """Refuse an answer that may be any object: nothing would be left of it once it is closed."""
    is_named = bool(schema.get("properties")) or schema.get("additionalProperties") is False
    if schema.get("type") == "object" and not is_named:
        raise SchemaRefusedError("", "takes any object, and all properties must be named")


class _Counts:
    """How much of everything a schema holds."""

    def __init__(self) -> None:
        self.properties = 0
        self.optional = 0
        self.unions = 0
        self.enum_values = 0
        self.levels = 0

    def count(self, schema: Json, level: int = 1) -> None:
        if not isinstance(schema, dict):
            return
        properties = schema.get("properties", {})
        self.properties += len(properties)
        self.optional += len(properties.keys() - set(schema.get("required", ())))
        self.unions += "anyOf" in schema or isinstance(schema.get("type"), list)
        self.enum_values += len(schema.get("enum", ()))
        if properties:
            self.levels = max(self.levels, level)
        for _, _, inner in subschemas(schema):
            self.count(inner, level + bool(properties))


def _refuse_too_much(schema: JsonObject, rules: SchemaRules) -> None:
    counts = _Counts()
    counts.count(schema)
    limits = (
        (counts.properties, rules.most_properties, "properties"),
        (counts.levels, rules.most_levels, "levels of objects"),
        (counts.enum_values, rules.most_enum_values, "values in enums"),
        (counts.optional, rules.most_optional, "properties that may be left out"),
        (counts.unions, rules.most_unions, "values of several types"),
    )
    for count, most, what in limits:
        if most is not None and count > most:
            raise SchemaRefusedError("", f"has {count} {what}, and at most {most} are taken")
