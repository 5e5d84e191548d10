"""Schema fitting: rewrites a JSON Schema for a provider that accepts a part of the language only.

A limit that cannot be expressed is written into the description; a schema that cannot be expressed
at all is refused. Arguments are checked against the original schema afterwards, so a schema that
became wider here loses nothing.
"""

import re

import msgspec

from holdfast.providers.json_schema import (
    SchemaRefusedError,
    SchemaRewriting,
    map_subschemas,
    merge_all,
    path_to,
    resolve_reference,
)
from holdfast.vocabulary.json_types import Json, JsonObject

_DESCRIBABLE = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"}
    | {"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "format", "default"}
    | {"minProperties", "maxProperties", "enum", "const"}
)
_MAX_MERGES = 20
_ANY_VALUE = ({"type": "string"}, {"type": "number"}, {"type": "boolean"})
_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    # Before int: in Python a bool is one.
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (type(None), "null"),
)


class SchemaRules(msgspec.Struct, frozen=True, kw_only=True):
    """What one target accepts."""

    keywords: frozenset[str] | None = None
    """None: all of JSON Schema. A limit in any other keyword is written into the description."""
    formats: dict[str, frozenset[str]] | None = None
    """By type; None: any format."""
    is_closed: bool = False
    """Every object must have `additionalProperties: false`."""
    requires_all_properties: bool = False
    """Every property must be required; an optional one becomes nullable."""
    inlines_references: bool = False
    """References are not supported; their targets are written out."""
    allows_recursion: bool = True
    references_stand_alone: bool = False
    """No other keyword may stand beside `$ref`."""
    requires_types: bool = False
    """Every schema must have a type, and every array `items`."""
    uses_nullable: bool = False
    """`nullable` replaces the type `null`, and a schema has a single type."""
    drops_empty: bool = False
    """Empty `properties` and `required` are left out, because they are refused."""
    drops: frozenset[str] = frozenset()
    """Keywords that are left out without being written into the description."""
    string_enums_only: bool = False
    scalar_enums_only: bool = False
    property_names: str | None = None
    output_is_object: bool = False
    """The root of an output schema must be an object, like that of arguments."""
    max_properties: int | None = None
    max_levels: int | None = None
    max_enum_values: int | None = None
    max_optional: int | None = None
    max_unions: int | None = None


class SchemaFitting(SchemaRewriting):
    """Rewrites one repaired schema for one set of rules, and lists the changes."""

    def __init__(self, root: JsonObject, rules: SchemaRules) -> None:
        super().__init__(root)
        self.adds_nulls = False
        """Whether an optional property became a nullable one."""
        self._rules = rules

    def fitted(self) -> JsonObject:
        """Return a schema that meets the rules; raises SchemaRefusedError if there is none."""
        return self._node(self._root, "", ())

    def _node(self, schema: JsonObject, path: str, trail: tuple[str, ...]) -> JsonObject:
        node = dict(schema)
        if "$ref" in node:
            trail = self._follow_reference(node, path, trail)
        self._fit_combinations(node, path)
        if "$ref" in node and self._rules.references_stand_alone:
            return self._reference_alone(node, path)
        self._fit_values(node, path)
        self._fit_types(node, path)
        self._fit_object(node, path)
        self._fit_list(node, path)
        self._drop_keywords(node, path)
        result = map_subschemas(node, path, lambda inner, at: self._inner(inner, at, trail))
        return self._finished(result, path)

    def _inner(self, schema: Json, path: str, trail: tuple[str, ...]) -> Json:
        if isinstance(schema, bool):
            return schema
        return self._node(schema, path, trail)

    def _follow_reference(
        self, node: JsonObject, path: str, trail: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Check a reference for recursion; write out its target where the rules want that."""
        reference = node["$ref"]
        # `trail` holds the references that are being written out: one that comes again has no end.
        if reference in trail and not self._rules.allows_recursion:
            raise SchemaRefusedError(
                path, f"{reference!r} contains itself, which the provider does not support"
            )
        if self._rules.inlines_references:
            target: JsonObject = resolve_reference(self._root, node.pop("$ref"), path)
            beside = dict(node)
            # What stands beside a reference overrides its target, as a description mostly does.
            node.update(target | beside)
            self._note(path, f"{reference!r} written out")
            trail = (*trail, reference)
            return self._follow_reference(node, path, trail) if "$ref" in node else trail
        if not self._rules.allows_recursion:
            self._refuse_recursion(reference, path, (*trail, reference))
        return trail

    def _refuse_recursion(self, reference: str, path: str, trail: tuple[str, ...]) -> None:
        for inner in _references_in(resolve_reference(self._root, reference, path)):
            if inner in trail:
                raise SchemaRefusedError(
                    path, f"{inner!r} contains itself, which the provider does not support"
                )
            self._refuse_recursion(inner, path, (*trail, inner))

    def _reference_alone(self, node: JsonObject, path: str) -> JsonObject:
        definitions: JsonObject = {
            name: node[name] for name in ("$defs", "definitions") if name in node
        }
        if node.keys() - definitions.keys() - {"$ref"}:
            self._note(path, "what stood beside the reference left out")
        kept: JsonObject = {"$ref": node["$ref"], **definitions}
        return map_subschemas(kept, path, lambda inner, at: self._inner(inner, at, ()))

    def _fit_combinations(self, node: JsonObject, path: str) -> None:
        if "oneOf" in node and not self._accepts("oneOf"):
            node["anyOf"] = [*node.get("anyOf", ()), *node.pop("oneOf")]
            self._note(path, "oneOf written as anyOf")
        for _ in range(_MAX_MERGES):
            if "allOf" not in node or self._accepts("allOf"):
                return
            self._fit_all_of(node, path)
        raise SchemaRefusedError(path, "has an allOf inside an allOf without end")

    def _fit_all_of(self, node: JsonObject, path: str) -> None:
        parts = node.pop("allOf")
        if len(parts) == 1 and "$ref" in parts[0] and self._rules.references_stand_alone:
            for name in node.keys() - {"$defs", "definitions"}:
                del node[name]
            node["$ref"] = parts[0]["$ref"]
            self._note(path, "allOf of one reference written as the reference alone")
            return
        node.update(merge_all([node, *(self._opened(part, path) for part in parts)], path))
        self._note(path, "allOf written as one schema")

    def _opened(self, schema: JsonObject, path: str) -> JsonObject:
        """Return a schema with the references at its root resolved."""
        seen: set[str] = set()
        while "$ref" in schema:
            if schema["$ref"] in seen:
                raise SchemaRefusedError(path, f"{schema['$ref']!r} leads to itself")
            seen.add(schema["$ref"])
            beside = {name: value for name, value in schema.items() if name != "$ref"}
            schema = resolve_reference(self._root, schema["$ref"], path) | beside
        return schema

    def _fit_values(self, node: JsonObject, path: str) -> None:
        if "const" in node and not self._accepts("const"):
            node["enum"] = [node.pop("const")]
            self._note(path, "const written as enum")
        values = node.get("enum")
        if values is None:
            return
        if "type" not in node and self._rules.requires_types:
            node["type"] = _types_of(values, path)
            self._note(path, f"type {node['type']!r} added")
        if self._rules.scalar_enums_only and any(isinstance(v, dict | list) for v in values):
            raise SchemaRefusedError(path, "has an enum with objects or lists in it")
        if self._rules.string_enums_only:
            self._fit_string_enum(node, path)

    def _fit_string_enum(self, node: JsonObject, path: str) -> None:
        # Gemini refuses an empty text among the values of an enum.
        texts = [value for value in node["enum"] if isinstance(value, str) and value]
        rest = [value for value in node["enum"] if value not in texts and value is not None]
        if rest or not texts:
            self._describe(node, "enum", value=node.pop("enum"), path=path)
        elif texts != node["enum"]:
            node["enum"] = texts

    def _fit_types(self, node: JsonObject, path: str) -> None:
        types = node.get("type")
        if self._rules.uses_nullable and isinstance(types, list):
            self._split_types(node, path)
        if self._rules.requires_types and not node.keys() & {"type", "anyOf", "$ref"}:
            self._type_anything(node, path)

    def _split_types(self, node: JsonObject, path: str) -> None:
        given = node.pop("type")
        types = [name for name in given if name != "null"]
        if "null" in given:
            node["nullable"] = True
        if len(types) == 1:
            node["type"] = types[0]
        elif types:
            node["anyOf"] = [{"type": name} for name in types]
        self._note(path, "several types written as nullable and anyOf")

    def _type_anything(self, node: JsonObject, path: str) -> None:
        if self._rules.is_closed:
            raise SchemaRefusedError(
                path, "accepts any value, but the provider needs a type for every value"
            )
        node["anyOf"] = [dict(kind) for kind in _ANY_VALUE]
        self._note(path, "any value written as a text, a number or a truth value")

    def _fit_object(self, node: JsonObject, path: str) -> None:
        if not _may_be(node, "object"):
            return
        properties = node.get("properties", {})
        self._check_names(properties, path)
        if self._rules.is_closed:
            self._close(node, path)
        required = node.get("required", [])
        if self._rules.requires_all_properties:
            self._require_all(node, path)
        elif self._rules.keywords is not None and not set(required) <= properties.keys():
            node["required"] = [name for name in required if name in properties]
            self._note(path, "required names that are no properties left out")

    def _check_names(self, properties: JsonObject, path: str) -> None:
        pattern = self._rules.property_names
        for name in properties:
            if pattern is not None and re.fullmatch(pattern, name) is None:
                raise SchemaRefusedError(
                    path, f"has a property named {name!r}; names must be like {pattern}"
                )

    def _close(self, node: JsonObject, path: str) -> None:
        others = node.get("additionalProperties")
        if node.get("patternProperties") or isinstance(others, dict):
            raise SchemaRefusedError(
                path,
                "accepts properties of any name, but the provider needs every property to be named",
            )
        # At the root it is a tool without arguments.
        if not node.get("properties") and others is not False and path:
            raise SchemaRefusedError(
                path, "accepts any object, but the provider needs every property to be named"
            )
        if others is not False:
            self._note(path, "closed: properties that are not named are refused")
        node.setdefault("properties", {})
        node["additionalProperties"] = False

    def _require_all(self, node: JsonObject, path: str) -> None:
        properties = dict(node["properties"])
        required = [name for name in node.get("required", ()) if name in properties]
        for name, schema in properties.items():
            if name not in required:
                properties[name] = _or_null(schema)
                self.adds_nulls |= properties[name] != schema
                self._note(path_to(path, name), "required, and null where it would be left out")
        everything = [*required, *(name for name in properties if name not in required)]
        if node.get("required") != everything:
            self._note(path, "exactly its properties named as required")
        node["properties"] = properties
        node["required"] = everything

    def _fit_list(self, node: JsonObject, path: str) -> None:
        if not self._rules.requires_types or not _may_be(node, "array"):
            return
        if "prefixItems" in node:
            kinds = [schema for schema in node.pop("prefixItems") if schema]
            if isinstance(node.get("items"), dict) and node["items"]:
                kinds.append(node["items"])
            unique = [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
            node["items"] = unique[0] if len(unique) == 1 else {"anyOf": unique}
            self._note(path, "prefixItems written as items of any of these kinds")
        if not isinstance(node.get("items"), dict):
            node["items"] = {}

    def _drop_keywords(self, node: JsonObject, path: str) -> None:
        for keyword in list(node):
            if not self._accepts(keyword):
                value = node.pop(keyword)
                if keyword in _DESCRIBABLE and keyword not in self._rules.drops:
                    self._describe(node, keyword, value=value, path=path)
                else:
                    self._note(path, f"{keyword} left out")
        formats = self._rules.formats
        if formats is not None and "format" in node:
            kind = node.get("type")
            allowed = formats.get(kind, frozenset()) if isinstance(kind, str) else frozenset()
            if node["format"] not in allowed:
                self._describe(node, "format", value=node.pop("format"), path=path)

    def _finished(self, node: JsonObject, path: str) -> JsonObject:
        """Finish a schema whose subschemas already meet the rules."""
        if self._rules.uses_nullable and "anyOf" in node:
            node = self._without_null_option(node, path)
        if self._rules.string_enums_only and "enum" in node and node.get("type") != "string":
            self._describe(node, "enum", value=node.pop("enum"), path=path)
        if self._rules.drops_empty:
            for keyword in ("properties", "required"):
                if keyword in node and not node[keyword]:
                    del node[keyword]
                    self._note(path, f"empty {keyword} left out")
        return node

    def _without_null_option(self, node: JsonObject, path: str) -> JsonObject:
        """Write an alternative `null` as `nullable`, and a single alternative without `anyOf`."""
        others = [part for part in node["anyOf"] if part.get("type") != "null"]
        if not others:
            return {**{name: node[name] for name in node if name != "anyOf"}, "type": "null"}
        if len(others) < len(node["anyOf"]):
            node = {**node, "nullable": True, "anyOf": others}
            self._note(path, "type 'null' written as nullable")
        if len(others) > 1:
            return node
        rest = {name: value for name, value in node.items() if name != "anyOf"}
        return merge_all([rest, others[0]], path)

    def _describe(self, node: JsonObject, keyword: str, *, value: Json, path: str) -> None:
        """Write a limit into the description, because its keyword is not accepted."""
        words = f"({keyword}: {msgspec.json.encode(value).decode()})"
        node["description"] = f"{node.get('description', '')} {words}".strip()
        self._note(path, f"{keyword} said in the description")

    def _accepts(self, keyword: str) -> bool:
        return self._rules.keywords is None or keyword in self._rules.keywords


def _references_in(schema: Json) -> set[str]:
    """Return all references in a schema, except those in definitions."""
    if isinstance(schema, list):
        return {found for item in schema for found in _references_in(item)}
    if not isinstance(schema, dict):
        return set()
    found = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
    for keyword, value in schema.items():
        if keyword not in {"$defs", "definitions", "enum", "const", "default", "examples"}:
            found |= _references_in(value)
    return found


def _or_null(schema: JsonObject) -> JsonObject:
    """Return a schema that also accepts null."""
    # Another type would not do here: null is not among the values.
    if "enum" in schema or "const" in schema or "type" not in schema:
        if any(part.get("type") == "null" for part in schema.get("anyOf", ())):
            return schema
        if None in schema.get("enum", ()):
            return schema
        return {"anyOf": [schema, {"type": "null"}]}
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema if "null" in types else {**schema, "type": [*types, "null"]}


def _may_be(node: JsonObject, kind: str) -> bool:
    types = node.get("type")
    return types == kind or (isinstance(types, list) and kind in types)


def _types_of(values: list[Json], path: str) -> Json:
    names: list[str] = []
    for value in values:
        name = next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), None)
        if name is None:
            raise SchemaRefusedError(path, "has an enum with objects or lists in it")
        if name not in names:
            names.append(name)
    return names[0] if len(names) == 1 else names
