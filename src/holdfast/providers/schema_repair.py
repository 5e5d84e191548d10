"""Brings a schema as people and libraries write it into one dialect: JSON Schema 2020-12.

Repairs what has one meaning only (OpenAPI's `nullable` and upper-case types, older drafts), and
refuses what has none. Knows no receiver.
"""

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.vocabulary.json_types import Json, JsonObject

TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE_SCHEMAS = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains"),
    *("propertyNames", "unevaluatedProperties", "unevaluatedItems"),
)
# The numbers that one vendor's interface definition has for types.
_NUMBERED_TYPES = dict(enumerate(("string", "number", "integer", "boolean", "array", "object"), 1))
_NUMBERED_TYPES[7] = "null"
_DEEPEST = 100


class SchemaRefusedError(Exception):
    """A schema cannot be used: where, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or 'the schema'}: {reason}")


def inside(path: str, *steps: str | int) -> str:
    """Go on from a path; names of properties are shown without the keyword before them."""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else ("." if path else "") + step
    return path


def subschemas(schema: JsonObject) -> Iterator[tuple[str, str | int | None, Json]]:
    """Yield the schemas directly inside one: keyword, name or place in it, and the schema."""
    for keyword in SCHEMA_MAPS:
        if isinstance(table := schema.get(keyword), dict):
            yield from ((keyword, name, inner) for name, inner in table.items())
    for keyword in SCHEMA_LISTS:
        if isinstance(items := schema.get(keyword), list):
            yield from ((keyword, place, inner) for place, inner in enumerate(items))
    for keyword in SINGLE_SCHEMAS:
        if keyword in schema:
            yield keyword, None, schema[keyword]


def with_subschemas(
    schema: JsonObject, path: str, change: Callable[[Json, str], Json]
) -> JsonObject:
    """Return a copy whose inner schemas were changed."""
    result: JsonObject = {}
    for keyword, value in schema.items():
        if keyword in SCHEMA_MAPS:
            shown = path if keyword == "properties" else inside(path, keyword)
            result[keyword] = {n: change(inner, inside(shown, n)) for n, inner in value.items()}
        elif keyword in SCHEMA_LISTS:
            shown = inside(path, keyword)
            result[keyword] = [change(inner, inside(shown, n)) for n, inner in enumerate(value)]
        elif keyword in SINGLE_SCHEMAS:
            result[keyword] = change(value, inside(path, keyword))
        else:
            result[keyword] = value
    return result


def resolved(root: JsonObject, reference: str, path: str) -> Json:
    """Return what a reference inside the schema points to."""
    if not reference.startswith("#"):
        raise SchemaRefusedError(path, f"refers to {reference!r}, outside of the schema")
    found: Json = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise SchemaRefusedError(path, f"refers to {reference!r}, which is not there")
        found = found[name]
    return found


class SchemaRepair:
    """Repairs one schema and keeps what it changed."""

    def __init__(self, root: JsonObject) -> None:
        self.changes: list[str] = []
        self._root = root

    def repaired(self) -> JsonObject:
        """Return the schema in one dialect; raises SchemaRefusedError for what means nothing."""
        return self._node(self._root, "", 0)

    def _node(self, schema: Json, path: str, depth: int) -> JsonObject:
        if depth > _DEEPEST:
            raise SchemaRefusedError(path, f"is nested more than {_DEEPEST} levels deep")
        if isinstance(schema, bool):
            self._note(path, f"{str(schema).lower()} written as an object")
            return {} if schema else {"not": {}}
        if not isinstance(schema, dict):
            raise SchemaRefusedError(path, "is not a schema")
        node = dict(schema)
        self._check_shape(node, path)
        self._repair_type(node, path)
        self._repair_drafts(node, path)
        self._check_reference(node, path)
        return with_subschemas(node, path, lambda inner, at: self._inner(inner, at, depth + 1))

    def _inner(self, schema: Json, path: str, depth: int) -> Json:
        if isinstance(schema, bool) and path.endswith("additionalProperties"):
            return schema
        return self._node(schema, path, depth)

    def _check_shape(self, node: JsonObject, path: str) -> None:
        wanted: tuple[tuple[tuple[str, ...], Any, str], ...] = (
            (SCHEMA_MAPS, dict, "an object"),
            ((*SCHEMA_LISTS, "enum"), list, "a list"),
            (("$ref", "pattern", "description", "format"), str, "a text"),
        )
        for keywords, kind, name in wanted:
            for keyword in keywords:
                if keyword in node and not isinstance(node[keyword], kind):
                    raise SchemaRefusedError(inside(path, keyword), f"must be {name}")
        for keyword in (*SCHEMA_LISTS, "enum"):
            if node.get(keyword) == [] and keyword != "prefixItems":
                raise SchemaRefusedError(inside(path, keyword), "is empty: nothing would fit")

    def _repair_type(self, node: JsonObject, path: str) -> None:
        if "type" in node:
            given = node["type"]
            types = [self._type_name(item, path) for item in _as_list(given)]
            node["type"] = types if isinstance(given, list) and len(types) != 1 else types[0]
            if node["type"] != given:
                self._note(path, f"type {given!r} written as {node['type']!r}")
        elif "properties" in node and not node.keys() & {"$ref", "allOf", "anyOf", "oneOf"}:
            node["type"] = "object"
            self._note(path, "type 'object' added")
        nullable = node.get("nullable")
        if isinstance(nullable, bool):
            del node["nullable"]
            if nullable:
                _allow_null(node)
            self._note(path, "nullable written as type 'null'")

    def _type_name(self, given: Json, path: str) -> str:
        name = _NUMBERED_TYPES.get(given) if type(given) is int else str(given).lower()
        if name not in TYPES:
            raise SchemaRefusedError(path, f"has the type {given!r}, which there is not")
        return name

    def _repair_drafts(self, node: JsonObject, path: str) -> None:
        for keyword, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(node.get(keyword), bool):
                if node.pop(keyword) and bound in node:
                    node[keyword] = node.pop(bound)
                self._note(path, f"{keyword} written as a number")
        if isinstance(node.get("items"), list):
            node["prefixItems"] = node.pop("items")
            self._note(path, "a list in items written as prefixItems")
        if "required" in node and not _is_list_of_names(node["required"]):
            if not isinstance(node["required"], bool):
                raise SchemaRefusedError(inside(path, "required"), "must be a list of names")
            del node["required"]
            self._note(path, "required beside a property left out: it belongs to the object")

    def _check_reference(self, node: JsonObject, path: str) -> None:
        if "$ref" in node:
            resolved(self._root, node["$ref"], path)

    def _note(self, path: str, change: str) -> None:
        self.changes.append(f"{path or 'the schema'}: {change}")


def _allow_null(node: JsonObject) -> None:
    if "type" in node:
        types = _as_list(node["type"])
        node["type"] = types if "null" in types else [*types, "null"]
        if "enum" in node and None not in node["enum"]:
            node["enum"] = [*node["enum"], None]
    elif "anyOf" in node:
        node["anyOf"] = [*node["anyOf"], {"type": "null"}]
    elif "$ref" in node:
        node["anyOf"] = [{"$ref": node.pop("$ref")}, {"type": "null"}]


def _as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


def _is_list_of_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
