"""JSON Schema: walking, limits, references, and repair of what people and libraries write.

`SchemaRepair` rewrites a schema into one dialect, JSON Schema 2020-12. It repairs what has only one
meaning (OpenAPI's `nullable` and upper-case types, keywords of older drafts) and refuses what has
none. Nothing here depends on a provider; `schema_fitting` does that part. `schema_merging` makes
one schema of several.
"""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from haptera.model.json_types import Json, JsonObject

TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE_SCHEMAS = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains"),
    *("propertyNames", "unevaluatedProperties", "unevaluatedItems"),
)
LIMITING_KEYWORDS = frozenset(
    {
        *("type", "enum", "const", "format", "pattern", "minLength", "maxLength", "multipleOf"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "contentEncoding"),
        *("contentMediaType", "prefixItems", "minItems", "maxItems", "uniqueItems"),
        *("minContains", "maxContains", "additionalItems", "required", "minProperties"),
        *("maxProperties", "properties", "patternProperties", "dependentRequired"),
        *("dependentSchemas", "dependencies", "anyOf", "oneOf", "allOf", *SINGLE_SCHEMAS),
    }
)
"""The keywords that can make a value wrong."""
_DECIDES_ON_NULL = frozenset(
    {"type", "enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "$ref"}
)
"""The keywords that can make null wrong: all others are about values of another type."""
_AT_LEAST = ("minLength", "minItems", "minProperties")
# The numbers of the types in Google's interface definition.
_NUMBERED_TYPES = dict(enumerate(("string", "number", "integer", "boolean", "array", "object"), 1))
_NUMBERED_TYPES[7] = "null"
_BOOLEANS: dict[bool, JsonObject] = {True: {}, False: {"not": {}}}
_DEFINITION = re.compile(r"#/(\$defs|definitions)/[^/]+")
# Everything that walks a schema is recursive, and Python's stack is not deep.
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


def as_list(value: Json) -> list[Json]:
    """Return a list as it is, and anything else as the only item of one."""
    return value if isinstance(value, list) else [value]


def is_limit(keyword: str, value: Json) -> bool:
    """Whether a keyword with this value can make a value wrong."""
    if keyword in {"not", "if", "contains"}:
        return True
    if keyword == "uniqueItems" or keyword in _AT_LEAST:
        return bool(value)
    # The schemas that accept anything, and tables and lists with nothing in them.
    return keyword in LIMITING_KEYWORDS and value is not True and value not in ({}, [])


def subschemas(schema: JsonObject) -> Iterator[tuple[str, str | int | None, Json]]:
    """Yield the direct subschemas: the keyword, the name or index under it, and the subschema."""
    for keyword in SCHEMA_MAPS:
        if isinstance(table := schema.get(keyword), dict):
            yield from ((keyword, name, inner) for name, inner in table.items())
    for keyword in SCHEMA_LISTS:
        if isinstance(items := schema.get(keyword), list):
            yield from ((keyword, index, inner) for index, inner in enumerate(items))
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


def resolve_reference(root: JsonObject, reference: str, path: str) -> JsonObject:
    """Return the schema that a reference inside the schema points to."""
    if not reference.startswith("#"):
        raise SchemaRefusedError(path, f"refers to {reference!r}, outside of the schema")
    anchor, *steps = reference[1:].split("/")
    # What a path leads to from an anchor has no meaning in JSON Schema.
    target: Json = root if not anchor else None if steps else _anchored(root, anchor)
    for step in steps:
        # In this order (RFC 6901): `~01` stands for `~1`, not for a slash.
        name = step.replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, dict) else None
    if target is None:
        raise SchemaRefusedError(path, f"refers to {reference!r}, which is not there")
    if isinstance(target, bool):
        return dict(_BOOLEANS[target])
    if not isinstance(target, dict):
        raise SchemaRefusedError(path, f"refers to {reference!r}, which is not a schema")
    return target


def _anchored(root: JsonObject, name: str) -> JsonObject | None:
    """Return the schema that has this anchor."""
    waiting: list[Json] = [root]
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, dict):
            # The last is how drafts 6 and 7 write an anchor.
            anchors = (schema.get("$anchor"), schema.get("$dynamicAnchor"), schema.get("$id"))
            if name in anchors[:2] or anchors[2] == f"#{name}":
                return schema
            # Not repaired yet: a list of items is a tuple.
            waiting += [part for *_, inner in subschemas(schema) for part in as_list(inner)]
    return None


def references_in(schema: Json, *, without: Collection[str] = ()) -> Iterator[str]:
    """Yield the references in a schema, except those under the keywords of `without`."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for keyword, _, inner in subschemas(schema):
            if keyword not in without:
                yield from references_in(inner, without=without)


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

    def part(self, reference: str) -> JsonObject:
        """Return what a reference leads to, repaired: it may be where no schema is looked for."""
        return self._node(resolve_reference(self._root, reference, ""), reference, 0)

    def _node(self, schema: Json, path: str, depth: int) -> JsonObject:
        if depth > _MAX_DEPTH:
            raise SchemaRefusedError(path, f"is nested more than {_MAX_DEPTH} levels deep")
        if isinstance(schema, bool):
            self._note(path, f"{str(schema).lower()} written as an object")
            return dict(_BOOLEANS[schema])
        if not isinstance(schema, dict):
            raise SchemaRefusedError(path, "is not a schema")
        node = dict(schema)
        self._check_shape(node, path)
        node = self._repair_type(node, path)
        self._repair_drafts(node, path)
        self._check_reference(node, path)
        # A bool is the usual value here, and `schema_fitting` looks for `False`.
        is_plain = isinstance(node.get("additionalProperties"), bool)
        untouched = ("additionalProperties",) if is_plain else ()
        return map_subschemas(
            node, path, lambda inner, at: self._node(inner, at, depth + 1), kept=untouched
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

    def _repair_type(self, node: JsonObject, path: str) -> JsonObject:
        if "type" in node:
            declared = node["type"]
            types = [self._type_name(item, path) for item in as_list(declared)]
            node["type"] = types if isinstance(declared, list) and len(types) != 1 else types[0]
            if node["type"] != declared:
                self._note(path, f"type {declared!r} written as {node['type']!r}")
        elif "properties" in node and not node.keys() & {"$ref", "allOf", "anyOf", "oneOf"}:
            node["type"] = "object"
            self._note(path, "type 'object' added")
        nullable = node.get("nullable")
        if isinstance(nullable, bool):
            del node["nullable"]
            accepting = or_null(node) if nullable else node
            is_same = accepting is node
            self._note(path, "nullable left out" if is_same else "nullable written as type 'null'")
            return accepting
        return node

    def _type_name(self, given: Json, path: str) -> str:
        # Not `isinstance`: a bool is an int as well.
        name = _NUMBERED_TYPES.get(given) if type(given) is int else str(given).lower()
        if name not in TYPES:
            raise SchemaRefusedError(
                path, f"has the type {given!r}, which JSON Schema does not have"
            )
        return name

    def _repair_drafts(self, node: JsonObject, path: str) -> None:
        for keyword, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            # In draft 4 these are flags beside the bound.
            if isinstance(node.get(keyword), bool):
                if node.pop(keyword) and bound in node:
                    node[keyword] = node.pop(bound)
                self._note(path, f"{keyword} written as a number")
        # In drafts 6 and 7 this is an anchor.
        if isinstance(name := node.get("$id"), str) and name.startswith("#"):
            node["$anchor"] = node.pop("$id")[1:]
            self._note(path, f"$id {name!r} written as $anchor")
        # Before 2020-12 a list here is a tuple.
        if isinstance(node.get("items"), list):
            node["prefixItems"] = node.pop("items")
            self._note(path, "a list in items written as prefixItems")
        if "required" in node and not _is_list_of_names(node["required"]):
            # Draft 3 has a flag in each property.
            if not isinstance(node["required"], bool):
                raise SchemaRefusedError(path_to(path, "required"), "must be a list of names")
            del node["required"]
            self._note(path, "required beside a property left out: it belongs to the object")

    def _check_reference(self, node: JsonObject, path: str) -> None:
        if "$ref" in node:
            resolve_reference(self._root, node["$ref"], path)


def or_null(schema: JsonObject) -> JsonObject:
    """Return a schema that also accepts null: the same one if it says that it does."""
    deciding = schema.keys() & _DECIDES_ON_NULL
    if all(_lets_null_in(keyword, schema[keyword]) for keyword in deciding):
        return schema
    if deciding == {"type"}:
        return {**schema, "type": [*as_list(schema["type"]), "null"]}
    if deciding == {"anyOf"}:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    # Each of several limits may refuse null, and some cannot be widened, so all that limits a value
    # becomes an alternative. What describes it stays, and so do definitions, which are referred to
    # by their place.
    moved = LIMITING_KEYWORDS | {"$ref"}
    limits = {name: value for name, value in schema.items() if name in moved}
    others = {name: value for name, value in schema.items() if name not in moved}
    return {**others, "anyOf": [limits, {"type": "null"}]}


def _lets_null_in(keyword: str, value: Json) -> bool:
    """Whether a keyword surely accepts null; what others stand for is not looked into."""
    match keyword:
        case "type":
            return "null" in as_list(value)
        case "enum":
            return None in value
        case "const":
            return value is None
        case "anyOf":
            return any(isinstance(part, dict) and part.get("type") == "null" for part in value)
    return False


def _is_list_of_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


class DefinitionMove(SchemaRewriting):
    """Moves what references lead to into the tables of definitions that a provider reads.

    A reference to any other place would lead nowhere once that place is rewritten. Without tables,
    all places stay that repair left, and what has an anchor is moved: few receivers look for
    anchors. `given` is the schema before its repair, which has the places that references name.
    """

    def __init__(self, root: JsonObject, tables: Collection[str] | None, given: JsonObject) -> None:
        super().__init__(root)
        self._given = given
        self._tables = tables
        self._definitions: JsonObject = dict(root.get("$defs", {}))
        self._names: dict[str, str] = {}

    def moved(self) -> JsonObject:
        """Return the schema with its references to the root and to definitions only."""
        waiting = [self._root]
        while waiting:
            for reference in references_in(waiting.pop()):
                if reference != "#" and reference not in self._names:
                    waiting += self._move(reference)
        left_out = {"definitions"} - {*(self._tables or ("definitions",))}
        if not self._names and not self._root.keys() & left_out:
            return self._root
        whole = {name: value for name, value in self._root.items() if name not in left_out}
        if self._definitions:
            whole["$defs"] = self._definitions
        renamed: JsonObject = self._renamed(whole)
        return renamed

    def _move(self, reference: str) -> list[JsonObject]:
        if self._stays(reference):
            return []
        if resolve_reference(self._given, reference, "") is self._given:
            self._names[reference] = "#"
            self._note("", f"{reference!r} written as '#'")
            return []
        target = SchemaRepair(self._given).part(reference)
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", reference.rpartition("/")[2])
        # Two tables may have different definitions of one name.
        while self._definitions.get(name, target) != target:
            name += "_"
        self._definitions[name] = target
        self._names[reference] = f"#/$defs/{name}"
        self._note("", f"{reference!r} moved to $defs")
        return [target]

    def _stays(self, reference: str) -> bool:
        if self._tables is None:
            return reference.startswith("#/") and self._is_in_place(reference)
        match = _DEFINITION.fullmatch(reference)
        return match is not None and match[1] in self._tables

    def _is_in_place(self, reference: str) -> bool:
        try:
            resolve_reference(self._root, reference, "")
        except SchemaRefusedError:
            return False
        return True

    def _renamed(self, schema: Json) -> Json:
        if not isinstance(schema, dict):
            return schema
        # Nothing refers to an anchor any more, and what was moved is a copy: it would stand twice.
        node = {name: value for name, value in schema.items() if name != "$anchor"}
        if "$ref" in node:
            node["$ref"] = self._names.get(node["$ref"], node["$ref"])
        return map_subschemas(node, "", lambda inner, _: self._renamed(inner))
