"""Merging of JSON Schemas: several that must all hold become one, alternatives become a wider one.

No limit is lost. What cannot be written as one keyword, such as two patterns, stays apart in
`allOf`, and `unsaid` returns what a merger of alternatives does not enforce.
"""

import math
from collections.abc import Sequence

from haptera.model.json_types import Json, JsonObject
from haptera.providers.json_schema import (
    LIMITING_KEYWORDS,
    SCHEMA_MAPS,
    SchemaRefusedError,
    as_list,
    is_limit,
    map_subschemas,
    path_to,
    resolve_reference,
)

_UPPER_BOUNDS = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
_LOWER_BOUNDS = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_CONDITIONS = frozenset({"if", "then", "else"})
_CONTAINED = frozenset({"contains", "minContains", "maxContains"})
_ITEMS = frozenset({"items", "prefixItems"})
_MEMBERS = frozenset({"properties", "patternProperties", "additionalProperties"})
_UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})


class _ApartError(Exception):
    """Two values of a keyword cannot be written as one."""


def merge_all(schemas: Sequence[JsonObject], path: str) -> JsonObject:
    """Merge schemas that must all hold into one; raises SchemaRefusedError if they contradict.

    What cannot be merged is in its `allOf`.
    """
    merged, apart = merge_apart(schemas, path)
    return {**merged, "allOf": [*merged.get("allOf", ()), *apart]} if apart else merged


def merge_apart(schemas: Sequence[JsonObject], path: str) -> tuple[JsonObject, list[JsonObject]]:
    """Merge schemas that must all hold; returns what cannot be merged beside the merged schema."""
    if sum(map(bool, schemas)) <= 1:
        return dict(next(filter(None, schemas), {})), []
    merged, *others = schemas
    apart: list[JsonObject] = []
    for other in others:
        # What `unevaluated…` counts would change with the keywords that come beside it.
        if other.keys() & _UNEVALUATED:
            apart.append(other)
            continue
        separate = _kept_together(merged, other)
        joined = {name: value for name, value in other.items() if name not in separate}
        merged = _joined((merged, joined), path, separate=separate)
        if separate:
            apart.append(separate)
    return merged, apart


def dereferenced(schema: JsonObject, root: JsonObject, path: str) -> JsonObject:
    """Return a schema that is a reference with its target, which may be a reference again."""
    beside = {name: value for name, value in schema.items() if name != "$ref"}
    # What stands beside a reference holds as well; of two descriptions its own is nearer.
    return merge_all([beside, resolve_reference(root, schema["$ref"], path)], path)


def resolve_root(schema: JsonObject, root: JsonObject) -> JsonObject:
    """Return a schema with the references at its own root resolved."""
    seen: set[str] = set()
    while "$ref" in schema:
        reference = schema["$ref"]
        if reference in seen:
            raise SchemaRefusedError("", f"{reference!r} leads to itself")
        seen.add(reference)
        schema = dereferenced(schema, root, "")
    return schema


def _kept_together(first: JsonObject, second: JsonObject) -> JsonObject:
    """Return the keywords of `second` that mean something else beside those of `first`."""
    apart: JsonObject = {}
    for group in (_CONDITIONS, _CONTAINED, _ITEMS, _MEMBERS):
        ours, theirs = _of_group(first, group), _of_group(second, group)
        if ours and theirs and ours != theirs and _is_inseparable(group, first, second):
            apart |= theirs
    return apart


def _of_group(schema: JsonObject, group: frozenset[str]) -> JsonObject:
    return {name: schema[name] for name in schema if name in group}


def _is_inseparable(group: frozenset[str], first: JsonObject, second: JsonObject) -> bool:
    if group is _ITEMS:
        return "prefixItems" in first or "prefixItems" in second
    if group is not _MEMBERS:
        return True
    both = (first, second)
    is_limited = any(schema.get("additionalProperties", True) is not True for schema in both)
    if is_limited and any("patternProperties" in schema for schema in both):
        return True
    required = {name for schema in both for name in schema.get("required", ())}
    return any(required & _refused_names(*pair) for pair in (both, both[::-1]))


def _refused_names(schema: JsonObject, other: JsonObject) -> set[str]:
    """Return the properties of `schema` that `other` has no place for."""
    if other.get("additionalProperties") is not False:
        return set()
    return {*schema.get("properties", {})} - {*other.get("properties", {})}


def _joined(pair: tuple[JsonObject, JsonObject], path: str, *, separate: JsonObject) -> JsonObject:
    """Return both schemas as one; what proves to be inseparable is put into `separate`."""
    first, second = pair
    result = _under_limits_of(second, first, path)
    for keyword, value in _under_limits_of(first, second, path).items():
        if keyword not in result or result[keyword] == value:
            result[keyword] = value
            continue
        try:
            result[keyword] = _both(keyword, (result[keyword], value), path)
        except _ApartError:
            separate[keyword] = value
    # Beside a const, an enum says only whether the const is possible at all.
    if "const" in result and result["const"] not in result.pop("enum", [result["const"]]):
        raise _differing(path, "enum and const")
    return result


def _under_limits_of(other: JsonObject, schema: JsonObject, path: str) -> JsonObject:
    """Return `schema` with its properties limited by `additionalProperties` of the other schema."""
    beyond = other.get("additionalProperties", True)
    # Beside patterns, no schema comes here whose properties are limited.
    if beyond is True or "properties" not in schema or "patternProperties" in other:
        return dict(schema)
    named = other.get("properties", {})
    refused = _refused_names(schema, other)
    properties = {
        name: inner if name in named else merge_all([inner, beyond], path_to(path, name))
        for name, inner in schema["properties"].items()
        if name not in refused
    }
    return {**schema, "properties": properties}


def _both(keyword: str, pair: tuple[Json, Json], path: str) -> Json:
    if keyword in SCHEMA_MAPS:
        return _both_tables(pair, path_to(path, keyword))
    if keyword in {"items", "additionalProperties", "propertyNames"}:
        return _both_schemas(pair, path_to(path, keyword))
    if keyword in {"type", "enum", "const"}:
        return _both_choices(keyword, pair, path)
    if keyword in LIMITING_KEYWORDS or keyword == "$ref":
        return _both_limits(keyword, pair)
    # An annotation, such as a description: the outermost is the nearest.
    return pair[0]


def _both_limits(keyword: str, pair: tuple[Json, Json]) -> Json:
    first, second = pair
    if keyword in _UPPER_BOUNDS | _LOWER_BOUNDS and _are_numbers(pair):
        return min(pair) if keyword in _UPPER_BOUNDS else max(pair)
    if keyword in {"required", "allOf"}:
        return [*first, *(item for item in second if item not in first)]
    if keyword == "uniqueItems":
        return first or second
    if keyword == "multipleOf" and all(isinstance(value, int) for value in pair):
        return math.lcm(first, second)
    raise _ApartError


def _are_numbers(values: tuple[Json, ...]) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _both_tables(pair: tuple[JsonObject, JsonObject], path: str) -> JsonObject:
    first, second = pair
    result = dict(first)
    for name, schema in second.items():
        result[name] = _both_schemas((result.get(name, {}), schema), path_to(path, name))
    return result


def _both_schemas(pair: tuple[Json, Json], path: str) -> Json:
    if any(schema is False for schema in pair):
        return False
    merged = [schema for schema in pair if schema is not True]
    return merge_all(merged, path) if merged else True


def _both_choices(keyword: str, pair: tuple[Json, Json], path: str) -> Json:
    first, second = (as_list(value) for value in pair)
    common = [value for value in first if value in second]
    if keyword == "type":
        # An integer is a number as well.
        for ours, theirs in ((first, second), (second, first)):
            if "integer" in ours and "number" in theirs and "integer" not in theirs:
                common.append("integer")
    # Equal consts were taken over before, so these two differ.
    if not common or keyword == "const":
        raise _differing(path, keyword)
    return common if keyword == "enum" or len(common) > 1 else common[0]


def _differing(path: str, what: str) -> SchemaRefusedError:
    return SchemaRefusedError(path, f"two schemas that must both hold differ in {what}")


# Alternatives


def merge_alternatives(schemas: Sequence[JsonObject]) -> JsonObject:
    """Merge object schemas of which one must hold into one that accepts what any of them accepts.

    Only properties that all of them require are required.
    """
    properties: JsonObject = {}
    required: list[str] | None = None
    is_closed = all(schema.get("additionalProperties") is False for schema in schemas)
    for schema in schemas:
        if schema.get("type") != "object":
            raise SchemaRefusedError("", "has alternatives that are not all objects")
        for name, inner in schema.get("properties", {}).items():
            properties[name] = _either(properties.get(name), inner)
        names = schema.get("required", [])
        required = [name for name in required if name in names] if required is not None else names
    result: JsonObject = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    if is_closed and not any("patternProperties" in schema for schema in schemas):
        result["additionalProperties"] = False
    return result


def _either(first: Json, second: Json) -> Json:
    if first is None or first == second:
        return second
    kinds = [*first["anyOf"]] if set(first) == {"anyOf"} else [first]
    return {"anyOf": kinds if second in kinds else [*kinds, second]}


def unsaid(alternatives: Sequence[JsonObject], merged: JsonObject) -> list[JsonObject]:
    """Return of each alternative the limits that the merged schema does not enforce."""
    return [_beyond(alternative, merged) for alternative in alternatives]


def _beyond(alternative: JsonObject, merged: JsonObject) -> JsonObject:
    ours, theirs = alternative.get("properties", {}), merged["properties"]
    left: JsonObject = {
        keyword: value
        for keyword, value in alternative.items()
        if keyword not in {"type", "properties", "required"}
        and is_limit(keyword, value)
        and merged.get(keyword) != value
    }
    # A closed schema refuses what the others name.
    if alternative.get("additionalProperties") is False and {*ours} != {*theirs}:
        left["additionalProperties"] = False
    common = merged.get("required", ())
    if names := [name for name in alternative.get("required", ()) if name not in common]:
        left["required"] = names
    # This keyword counts the names beside it.
    counts_names = "additionalProperties" in left
    properties: JsonObject = {}
    for name, schema in ours.items():
        is_enforced = theirs[name] == schema
        if counts_names or not is_enforced:
            properties[name] = {} if is_enforced else _limits_of(schema)
    return {"properties": properties, **left} if properties else left


def _limits_of(schema: Json) -> Json:
    """Return a schema without its annotations."""
    if not isinstance(schema, dict):
        return schema
    limits = {n: value for n, value in schema.items() if n in LIMITING_KEYWORDS or n == "$ref"}
    return map_subschemas(limits, "", lambda inner, _: _limits_of(inner))
