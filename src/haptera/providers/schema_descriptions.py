"""Limits in descriptions: what a schema cannot enforce for a provider is told to its model.

A limit is written as `(keyword: value)`, the value in JSON. What the fitted schema enforces in any
case is not repeated.
"""

from collections.abc import Sequence
from itertools import combinations

import msgspec

from haptera.model.json_types import Json, JsonObject
from haptera.providers.json_schema import SchemaRefusedError, as_list, resolve_reference
from haptera.providers.schema_merging import resolve_root

_MAX_REFERENCES = 100


def add_limit(node: JsonObject, keyword: str, value: Json) -> None:
    """Write a limit behind the description of a schema."""
    add_words(node, f"({keyword}: {msgspec.json.encode(value).decode()})")


def add_words(node: JsonObject, words: str) -> None:
    """Write words behind the description of a schema, once."""
    description: str = node.get("description", "")
    if words not in description:
        node["description"] = f"{description} {words}".strip()


def written_out(value: Json, root: JsonObject) -> Json:
    """Return what a keyword holds, with the targets of references in their places.

    One that contains itself stays a reference, and so do those after the first hundred.
    """
    left = _MAX_REFERENCES

    def opened_in(value: Json, trail: tuple[str, ...]) -> Json:
        nonlocal left
        if isinstance(value, list):
            return [opened_in(item, trail) for item in value]
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref")
        if not isinstance(reference, str) or reference in trail or not left:
            return {name: opened_in(inner, trail) for name, inner in value.items()}
        left -= 1
        target = opened_in(resolve_reference(root, reference, ""), (*trail, reference))
        beside = {name: opened_in(inner, trail) for name, inner in value.items() if name != "$ref"}
        return {**beside, "allOf": [*beside.get("allOf", ()), target]} if beside else target

    return opened_in(value, ())


def are_exclusive(alternatives: Sequence[JsonObject], root: JsonObject) -> bool:
    """Whether no value can fit two of the alternatives, as far as their first level shows."""
    try:
        plain = [resolve_root(alternative, root) for alternative in alternatives]
    except SchemaRefusedError:
        return False
    return all(_exclude(first, second) for first, second in combinations(plain, 2))


def _exclude(first: JsonObject, second: JsonObject) -> bool:
    if _differ(first, second):
        return True
    if first.get("type") != "object" or second.get("type") != "object":
        return False
    ours, theirs = first.get("properties", {}), second.get("properties", {})
    for name in {*first.get("required", ())} & {*second.get("required", ())}:
        if name in ours and name in theirs and _differ(ours[name], theirs[name]):
            return True
    return _has_no_place(first, second) or _has_no_place(second, first)


def _differ(first: JsonObject, second: JsonObject) -> bool:
    """Whether two schemas have no type or no value in common."""
    types = [{*as_list(schema.get("type", []))} for schema in (first, second)]
    for kinds in types:
        if "number" in kinds:
            kinds.add("integer")
    if all(types) and not types[0] & types[1]:
        return True
    values = [schema.get("enum", [schema.get("const")]) for schema in (first, second)]
    is_listed = all(schema.keys() & {"enum", "const"} for schema in (first, second))
    return is_listed and not any(value in values[1] for value in values[0])


def _has_no_place(first: JsonObject, second: JsonObject) -> bool:
    """Whether one schema requires a property that the other refuses."""
    is_closed = first.get("additionalProperties") is False and "patternProperties" not in first
    return is_closed and not {*second.get("required", ())} <= first.get("properties", {}).keys()
