"""JSON Schema: walking, references, merging, and repair of what people and libraries write.

`SchemaRepair` rewrites a schema into one dialect, JSON Schema 2020-12. It repairs what has only one
meaning (OpenAPI's `nullable` and upper-case types, keywords of older drafts) and refuses what has
none. Nothing here depends on a provider; `schema_fitting` does that part.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from holdfast.vocabulary.json_types import Json, JsonObject

TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE_SCHEMAS = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains"),
    *("propertyNames", "unevaluatedProperties", "unevaluatedItems"),
)
# The numbers of the types in Google's interface definition.
_NUMBERED_TYPES = dict(enumerate(("string", "number", "integer", "boolean", "array", "object"), 1))
_NUMBERED_TYPES[7] = "null"
_MAX_DEPTH = 100


class SchemaRefusedError(Exception):
    """A schema cannot be used; the message says where and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or 'the schema'}: {reason}")


def path_to(path: str, *steps: str | int) -> str:
    """Extend a path, as `a.b[0]`."""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else ("." if path else "") + step
    return path


def subschemas(schema: JsonObject) -> Iterator[tuple[str, str | int | None, Json]]:
    """Yield the direct subschemas: the keyword, the name or index under it, and the subschema."""
    for keyword in SCHEMA_MAPS:
        if isinstance(table := schema.get(keyword), dict):
            yield from ((keyword, name, inner) for name, inner in table.items())
    for keyword in SCHEMA_LISTS:
        if isinstance(items := schema.get(keyword), list):
            yield from ((keyword, place, inner) for place, inner in enumerate(items))
    for keyword in SINGLE_SCHEMAS:
        if keyword in schema:
            yield keyword, None, schema[keyword]


def map_subschemas(
    schema: JsonObject,
    path: str,
    change: Callable[[Json, str], Json],
    *,
    kept: Collection[str] = (),
) -> JsonObject:
    """Return a copy in which `change(subschema, path)` replaces each direct subschema.

    What is under a keyword of `kept` stays as it is.
    """
    result: JsonObject = {}
    for keyword, value in schema.items():
        if keyword in kept:
            result[keyword] = value
        elif keyword in SCHEMA_MAPS:
            shown = path if keyword == "properties" else path_to(path, keyword)
            result[keyword] = {n: change(inner, path_to(shown, n)) for n, inner in value.items()}
        elif keyword in SCHEMA_LISTS:
            shown = path_to(path, keyword)
            result[keyword] = [change(inner, path_to(shown, n)) for n, inner in enumerate(value)]
        elif keyword in SINGLE_SCHEMAS:
            result[keyword] = change(value, path_to(path, keyword))
        else:
            result[keyword] = value
    return result


def resolve_reference(root: JsonObject, reference: str, path: str) -> Json:
    """Return the value that a reference inside the schema points to."""
    if not reference.startswith("#"):
        raise SchemaRefusedError(path, f"refers to {reference!r}, outside of the schema")
    found: Json = root
    for step in reference[1:].split("/")[1:]:
        # In this order (RFC 6901): `~01` stands for `~1`, not for a slash.
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise SchemaRefusedError(path, f"refers to {reference!r}, which is not there")
        found = found[name]
    return found


class SchemaRewriting:
    """Rewrites one schema, and lists what it changed and where."""

    def __init__(self, root: JsonObject) -> None:
        self.changes: list[str] = []
        self._root = root

    def _note(self, path: str, change: str) -> None:
        self.changes.append(f"{path or 'the schema'}: {change}")


class SchemaRepair(SchemaRewriting):
    """Repairs one schema and lists the changes."""

    def repaired(self) -> JsonObject:
        """Return the repaired schema; raises SchemaRefusedError for what has no meaning."""
        return self._node(self._root, "", 0)

    def _node(self, schema: Json, path: str, depth: int) -> JsonObject:
        if depth > _MAX_DEPTH:
            raise SchemaRefusedError(path, f"is nested more than {_MAX_DEPTH} levels deep")
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
        # A bool is the usual value here, and `schema_fitting` looks for `False`.
        is_plain = isinstance(node.get("additionalProperties"), bool)
        kept = ("additionalProperties",) if is_plain else ()
        return map_subschemas(
            node, path, lambda inner, at: self._node(inner, at, depth + 1), kept=kept
        )

    def _check_shape(self, node: JsonObject, path: str) -> None:
        wanted: tuple[tuple[tuple[str, ...], Any, str], ...] = (
            (SCHEMA_MAPS, dict, "an object"),
            ((*SCHEMA_LISTS, "enum"), list, "a list"),
            (("$ref", "pattern", "description", "format"), str, "a text"),
        )
        for keywords, kind, name in wanted:
            for keyword in keywords:
                if keyword in node and not isinstance(node[keyword], kind):
                    raise SchemaRefusedError(path_to(path, keyword), f"must be {name}")
        for keyword in (*SCHEMA_LISTS, "enum"):
            if node.get(keyword) == [] and keyword != "prefixItems":
                raise SchemaRefusedError(path_to(path, keyword), "is empty: nothing would fit")

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
            raise SchemaRefusedError(
                path, f"has the type {given!r}, which JSON Schema does not have"
            )
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
                raise SchemaRefusedError(path_to(path, "required"), "must be a list of names")
            del node["required"]
            self._note(path, "required beside a property left out: it belongs to the object")

    def _check_reference(self, node: JsonObject, path: str) -> None:
        if "$ref" in node:
            resolve_reference(self._root, node["$ref"], path)


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


# Merging


_UPPER_BOUNDS = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
_LOWER_BOUNDS = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment"})


def merge_all(schemas: Sequence[JsonObject], path: str) -> JsonObject:
    """Merge schemas that must all hold into one; raises SchemaRefusedError if they contradict."""
    result: JsonObject = {}
    for schema in schemas:
        for keyword, value in schema.items():
            if keyword not in result:
                result[keyword] = value
            elif result[keyword] != value:
                result[keyword] = _both(keyword, (result[keyword], value), path)
    return result


def _both(keyword: str, pair: tuple[Json, Json], path: str) -> Json:
    first, second = pair
    if keyword in _ANNOTATIONS:
        return first
    if keyword == "required":
        return list(dict.fromkeys([*first, *second]))
    if keyword in {"properties", "$defs", "definitions"}:
        return _both_tables(pair, path_to(path, keyword))
    if keyword in _UPPER_BOUNDS | _LOWER_BOUNDS:
        return min(pair) if keyword in _UPPER_BOUNDS else max(pair)
    if keyword == "enum" and (common := [value for value in first if value in second]):
        return common
    if keyword == "additionalProperties" and False in pair:
        return False
    raise SchemaRefusedError(path, f"two schemas that must both hold differ in {keyword}")


def _both_tables(pair: tuple[JsonObject, JsonObject], path: str) -> JsonObject:
    first, second = pair
    result = dict(first)
    for name, schema in second.items():
        result[name] = merge_all([result.get(name, {}), schema], path_to(path, name))
    return result


def merge_alternatives(schemas: Sequence[JsonObject], path: str) -> JsonObject:
    """Merge object schemas of which one must hold into one that accepts what any of them accepts.

    Only properties that all of them require are required.
    """
    properties: JsonObject = {}
    required: list[str] | None = None
    for schema in schemas:
        if schema.get("type") != "object":
            raise SchemaRefusedError(path, "has alternatives that are not all objects")
        for name, inner in schema.get("properties", {}).items():
            properties[name] = _either(properties.get(name), inner)
        names = schema.get("required", [])
        required = [name for name in required if name in names] if required is not None else names
    result: JsonObject = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    if all(schema.get("additionalProperties") is False for schema in schemas):
        result["additionalProperties"] = False
    return result


def _either(first: Json, second: Json) -> Json:
    if first is None or first == second:
        return second
    kinds = [*first["anyOf"]] if set(first) == {"anyOf"} else [first]
    return {"anyOf": kinds if second in kinds else [*kinds, second]}
