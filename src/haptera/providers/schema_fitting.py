"""Schema fitting: rewrites a JSON Schema for a provider that accepts a part of the language only.

A limit that cannot be expressed is written into the description; a schema that cannot be expressed
at all is refused. Arguments are checked against the original schema afterwards, so a schema that
became wider here loses nothing.
"""

import re
from typing import TypeAlias

from haptera.model.json_types import Json, JsonObject
from haptera.providers.json_schema import (
    LIMITING_KEYWORDS,
    SchemaRefusedError,
    SchemaRewriting,
    as_list,
    is_limit,
    map_subschemas,
    or_null,
    path_to,
    references_in,
    resolve_reference,
)
from haptera.providers.schema_descriptions import (
    add_limit,
    add_words,
    are_exclusive,
    written_out,
)
from haptera.providers.schema_merging import dereferenced, merge_all, merge_apart
from haptera.providers.schema_rules import SchemaRules

Trail: TypeAlias = tuple[str, ...]
"""The references that are being written out: one that comes again has no end."""

_LONGEST_TRAIL = 100
"""How many references may lead from one to the next; each takes several calls."""
_MAX_MERGES = 20
# Definitions that refer to each other twice double with each level when they are written out.
_MAX_NODES = 20_000
_DEFINITIONS = ("$defs", "definitions")
_KINDS = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
"""Any of these says, here or further inside, of which type a value is."""
_ANY_VALUE = ({"type": "string"}, {"type": "number"}, {"type": "boolean"})
_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    # Before int: in Python a bool is one.
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (type(None), "null"),
    (dict, "object"),
    (list, "array"),
)


class SchemaFitting(SchemaRewriting):
    """Rewrites one repaired schema for one set of rules, and lists the changes."""

    def __init__(self, root: JsonObject, rules: SchemaRules) -> None:
        super().__init__(root)
        self._rules = rules
        self.adds_nulls = False
        """Whether an optional property became a nullable one."""
        self._nodes = 0
        self._finite: set[str] = set()

    def fitted(self) -> JsonObject:
        """Return a schema that meets the rules; raises SchemaRefusedError if there is none."""
        return self._node(self._root, "", ())

    def _node(self, schema: JsonObject, path: str, trail: Trail) -> JsonObject:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise SchemaRefusedError("", "is too large with its references written out")
        node = dict(schema)
        # References and allOf come first: they may bring keywords that all later steps look at.
        if "$ref" in node:
            trail = self._follow_reference(node, path, trail)
        trail = self._fit_combinations(node, path, trail)
        if "$ref" in node and self._rules.references_stand_alone:
            return self._reference_alone(node, path)
        self._fit_values(node, path)
        self._fit_types(node, path)
        self._fit_object(node, path)
        self._fit_list(node, path)
        self._drop_keywords(node, path)
        result = map_subschemas(node, path, lambda inner, at: self._inner(inner, at, trail))
        return self._finished(result, path)

    def _inner(self, schema: Json, path: str, trail: Trail) -> Json:
        # Only `additionalProperties` is a bool here: repair has written all others as objects.
        if isinstance(schema, bool):
            return schema
        return self._node(schema, path, trail)

    # References

    def _follow_reference(self, node: JsonObject, path: str, trail: Trail) -> Trail:
        """Check a reference for recursion; write out its target where the rules want that."""
        reference = node["$ref"]
        if reference in trail and not self._rules.allows_recursion:
            raise _recursion(reference, path)
        _check_length(trail, path)
        if self._rules.inlines_references:
            _overwrite(node, dereferenced(node, self._root, path))
            self._note(path, f"{reference!r} written out")
            trail = (*trail, reference)
            return self._follow_reference(node, path, trail) if "$ref" in node else trail
        if not self._rules.allows_recursion:
            self._refuse_recursion(reference, path, (*trail, reference))
        return trail

    def _opened(self, schema: JsonObject, path: str, trail: Trail) -> tuple[JsonObject, Trail]:
        """Return a schema with the references at its root written out, and which these are."""
        written: Trail = ()
        while "$ref" in schema and schema["$ref"] not in trail:
            if schema["$ref"] in written:
                raise SchemaRefusedError(path, f"{schema['$ref']!r} leads to itself")
            written = (*written, schema["$ref"])
            schema = dereferenced(schema, self._root, path)
        if "$ref" in schema and not self._rules.allows_recursion:
            raise _recursion(schema["$ref"], path)
        return schema, written

    def _refuse_recursion(self, reference: str, path: str, trail: Trail) -> None:
        _check_length(trail, path)
        target = resolve_reference(self._root, reference, path)
        for inner in references_in(target, without=_DEFINITIONS):
            if inner in trail:
                raise _recursion(inner, path)
            # Each definition is walked once. Otherwise those that share others take exponential
            # time.
            if inner not in self._finite:
                self._refuse_recursion(inner, path, (*trail, inner))
        self._finite.add(reference)

    def _reference_alone(self, node: JsonObject, path: str) -> JsonObject:
        """Return a reference with nothing beside it; what has to be said stands around it."""
        target = resolve_reference(self._root, node["$ref"], path)
        around: JsonObject = {name: node[name] for name in ("description",) if name in node}
        for keyword, value in node.items():
            if self._is_told(keyword, value) and target.get(keyword) != value:
                self._describe(around, keyword, value=value, path=path)
        definitions = {name: node[name] for name in _DEFINITIONS if name in node}
        if node.keys() - definitions.keys() - {"$ref"}:
            self._note(path, "nothing left beside the reference")
        reference: JsonObject = {"$ref": node["$ref"]}
        # A description must not stand beside the reference, so it stands around an anyOf of one.
        reference = {**around, "anyOf": [reference]} if around else reference
        # Definitions begin a trail of their own: they are not inside the reference beside them.
        tables = map_subschemas(definitions, path, lambda inner, at: self._inner(inner, at, ()))
        return reference | tables

    # Combinations

    def _fit_combinations(self, node: JsonObject, path: str, trail: Trail) -> Trail:
        """Say allOf and oneOf in other words; returns the trail with what was written out."""
        for keyword in ("anyOf", "oneOf"):
            # A single alternative must hold. Beside other limits it is an odd way to say so.
            if self._rules.uses_nullable and len(node.get(keyword, ())) == 1:
                node["allOf"] = [*node.get("allOf", ()), *node.pop(keyword)]
        trail = self._fit_all_of(node, path, trail)
        if "oneOf" in node and not self._accepts("oneOf"):
            self._fit_one_of(node, path)
        if "anyOf" in node and "type" in node and self._says_limits_only(node["anyOf"]):
            self._describe(node, "anyOf", value=node.pop("anyOf"), path=path)
        return trail

    def _fit_all_of(self, node: JsonObject, path: str, trail: Trail) -> Trail:
        apart: list[JsonObject] = []
        inner = trail
        for _ in range(_MAX_MERGES):
            if "allOf" not in node or self._accepts("allOf"):
                break
            parts, written = self._opened_parts(node, path, trail)
            merged, left = merge_apart([node, *parts], path)
            _overwrite(node, merged)
            apart += left
            inner += written
            self._note(path, "allOf written as one schema")
        else:
            raise SchemaRefusedError(path, "has an allOf inside an allOf without end")
        if apart:
            self._describe(node, "allOf", value=apart, path=path)
        return inner

    def _opened_parts(
        self, node: JsonObject, path: str, trail: Trail
    ) -> tuple[list[JsonObject], Trail]:
        """Take the allOf from a schema; returns its parts and which references they were."""
        parts = node.pop("allOf")
        is_one_reference = len(parts) == 1 and "$ref" in parts[0] and "$ref" not in node
        if is_one_reference and self._rules.references_stand_alone:
            return parts, ()
        opened_parts: list[JsonObject] = []
        written: Trail = ()
        for part in parts:
            whole, names = self._opened(part, path, trail)
            opened_parts.append(whole)
            written += names
        return opened_parts, written

    def _fit_one_of(self, node: JsonObject, path: str) -> None:
        alternatives = node.pop("oneOf")
        if "anyOf" in node or not are_exclusive(alternatives, self._root):
            self._describe(node, "oneOf", value=alternatives, path=path)
        node.setdefault("anyOf", alternatives)
        self._note(path, "oneOf written as anyOf")

    def _says_limits_only(self, alternatives: list[JsonObject]) -> bool:
        """Whether an alternative is no schema of its own, but a limit to what is beside it.

        A closed schema must name its type in every alternative, and is refused otherwise.
        """
        is_wanted = self._rules.keywords is not None and not self._rules.is_closed
        return is_wanted and any(not part.keys() & _KINDS for part in alternatives)

    # Objects and lists

    def _fit_object(self, node: JsonObject, path: str) -> None:
        if "patternProperties" in node and not self._accepts("patternProperties"):
            self._fit_patterns(node, path)
        if not _may_be(node, "object"):
            return
        properties = node.get("properties", {})
        self._check_names(properties, path)
        if self._rules.is_closed:
            self._close(node, path)
        required = node.get("required", [])
        missing = [name for name in required if name not in properties]
        if missing and self._rules.keywords is not None:
            self._fit_missing(node, missing, path)
        if self._rules.requires_all_properties:
            self._require_all(node, path)

    def _fit_patterns(self, node: JsonObject, path: str) -> None:
        """Let a property whose name meets a pattern be one that is not named."""
        others = node.get("additionalProperties", True)
        if self._rules.is_closed or not is_limit("additionalProperties", others):
            return
        self._describe(node, "additionalProperties", value=others, path=path)
        kinds = [*node["patternProperties"].values(), *([others] if others else [])]
        node["additionalProperties"] = _any_of(kinds)

    def _fit_missing(self, node: JsonObject, missing: list[str], path: str) -> None:
        """Take names that are no properties out of those that are required."""
        if self._rules.is_closed:
            raise SchemaRefusedError(
                path, f"requires {missing[0]!r}, which is not among its properties"
            )
        without = frozenset(missing)
        node["required"] = [name for name in node["required"] if name not in without]
        self._describe(node, "required", value=missing, path=path)

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
        required = node.get("required", [])
        for name, schema in properties.items():
            if name not in required:
                properties[name] = or_null(schema)
                self.adds_nulls |= properties[name] != schema
                self._note(path_to(path, name), "required, and null where it would be left out")
        everything = [*required, *(name for name in properties if name not in required)]
        if node.get("required") != everything:
            self._note(path, "exactly its properties named as required")
        node["properties"] = properties
        node["required"] = everything

    def _fit_list(self, node: JsonObject, path: str) -> None:
        if "prefixItems" in node and not self._accepts("prefixItems"):
            self._fit_tuple(node, path)
        if self._rules.requires_types and _may_be(node, "array"):
            node.setdefault("items", {})

    def _fit_tuple(self, node: JsonObject, path: str) -> None:
        first, others = node.pop("prefixItems"), node.pop("items", {})
        kinds = [schema for schema in first if schema]
        if others == {"not": {}}:
            node["maxItems"] = min(len(first), node.get("maxItems", len(first)))
        elif others:
            kinds.append(others)
        node["items"] = _any_of(kinds)
        # Items of one kind are of that kind at every place.
        if any(kind != kinds[0] for kind in kinds):
            self._describe(node, "prefixItems", value=first, path=path)
            if is_limit("items", others):
                self._describe(node, "items", value=others, path=path)
        self._note(path, "prefixItems written as items of any of these kinds")

    def _drop_keywords(self, node: JsonObject, path: str) -> None:
        for keyword in list(node):
            if not self._accepts(keyword):
                value = node.pop(keyword)
                if self._is_told(keyword, value):
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
        self._fit_late_enum(node, path)
        if self._rules.drops_empty:
            for keyword in ("properties", "required"):
                if keyword in node and not node[keyword]:
                    del node[keyword]
                    self._note(path, f"empty {keyword} left out")
        return node

    def _accepts(self, keyword: str) -> bool:
        return self._rules.keywords is None or keyword in self._rules.keywords

    def _is_told(self, keyword: str, value: Json) -> bool:
        """Whether a keyword is written into the description where it is not accepted."""
        is_told = keyword == "default" or is_limit(keyword, value)
        return is_told and keyword not in self._rules.drops

    def _describe(self, node: JsonObject, keyword: str, *, value: Json, path: str) -> None:
        """Write a limit into the description, because its keyword is not accepted."""
        # Definitions are not sent where references are not understood.
        inlines = self._rules.inlines_references
        add_limit(node, keyword, written_out(value, self._root) if inlines else value)
        self._note(path, f"{keyword} said in the description")

    # Values

    def _fit_values(self, node: JsonObject, path: str) -> None:
        if "const" in node and not self._accepts("const"):
            # Merged, because an enum may stand beside the const: only their common value is left
            # then.
            _overwrite(node, merge_all([{"enum": [node.pop("const")]}, node], path))
            self._note(path, "const written as enum")
        values = node.get("enum")
        if values is None:
            return
        has_objects = any(isinstance(value, dict | list) for value in values)
        if has_objects and (self._rules.scalar_enums_only or self._rules.requires_types):
            raise SchemaRefusedError(path, "has an enum with objects or lists in it")
        if "type" not in node and self._rules.requires_types:
            node["type"] = _types_of(values)
            self._note(path, f"type {node['type']!r} added")
        if self._rules.enum_types is not None:
            self._fit_enum(node, self._rules.enum_types, path)

    def _fit_enum(self, node: JsonObject, types: frozenset[str], path: str) -> None:
        not_null = [value for value in node["enum"] if value is not None]
        # Gemini refuses an empty text among the values of an enum.
        values = [value for value in not_null if _type_of(value) in types and value != ""]
        if len(values) < len(not_null) or not values:
            node.setdefault("type", _types_of(node["enum"]))
            self._describe(node, "enum", value=node.pop("enum"), path=path)
        elif len(values) < len(node["enum"]):
            self._fit_null_in_enum(node, values, path)

    def _fit_null_in_enum(self, node: JsonObject, values: list[Json], path: str) -> None:
        """Write an enum without the null in it, which is a type of its own."""
        may_be_null = "type" not in node or _may_be(node, "null")
        if self._rules.uses_nullable or not may_be_null:
            node["enum"] = values
        # The keyword is in use, and a schema has it only once.
        elif "anyOf" in node:
            self._describe(node, "enum", value=node.pop("enum"), path=path)
        else:
            del node["enum"]
            types = as_list(node.pop("type", _types_of(values)))
            named = [name for name in types if name != "null"]
            kind: JsonObject = {"type": _one_or_several(named), "enum": values}
            node["anyOf"] = [kind, {"type": "null"}]
        self._note(path, "null written apart from the enum")

    def _fit_late_enum(self, node: JsonObject, path: str) -> None:
        """Describe an enum whose type, which is known only now, may have none."""
        allowed = self._rules.enum_types
        is_checked = allowed is not None and self._rules.requires_types and "enum" in node
        if is_checked and node.get("type") not in (allowed or ()):
            self._describe(node, "enum", value=node.pop("enum"), path=path)

    # Types

    def _fit_types(self, node: JsonObject, path: str) -> None:
        if self._rules.uses_nullable and isinstance(node.get("type"), list):
            self._split_types(node, path)
        if self._rules.requires_types and not node.keys() & {"type", "anyOf", "$ref"}:
            self._type_anything(node, path)

    def _split_types(self, node: JsonObject, path: str) -> None:
        names = node.pop("type")
        types = [name for name in names if name != "null"]
        if "anyOf" in node:
            node["anyOf"] = _of_types(node["anyOf"], names, path)
        else:
            # An enum without null refuses it, whatever the types say.
            if "null" in names and None in node.get("enum", (None,)):
                node["nullable"] = True
            if len(types) == 1:
                node["type"] = types[0]
            else:
                node["anyOf"] = [{"type": name} for name in types]
        self._note(path, "several types written as nullable and anyOf")

    def _type_anything(self, node: JsonObject, path: str) -> None:
        if self._rules.is_closed:
            raise SchemaRefusedError(
                path, "accepts any value, but the provider needs a type for every value"
            )
        node["anyOf"] = [dict(kind) for kind in _ANY_VALUE]
        self._note(path, "any value written as a text, a number or a truth value")

    def _without_null_option(self, node: JsonObject, path: str) -> JsonObject:
        """Write an alternative `null` as `nullable`, and a single alternative without `anyOf`."""
        others = [part for part in node["anyOf"] if part.get("type") != "null"]
        rest = {name: value for name, value in node.items() if name != "anyOf"}
        if not others:
            return merge_all([rest, {"type": "null"}], path)
        if len(others) < len(node["anyOf"]):
            # Beside a type, null is possible only if that says so.
            rest |= {} if "type" in rest else {"nullable": True}
            self._note(path, "type 'null' written as nullable")
        if len(others) > 1 or rest.keys() & LIMITING_KEYWORDS:
            return {**rest, "anyOf": others}
        merged = merge_all([rest, others[0]], path)
        if "description" in others[0]:
            add_words(merged, others[0]["description"])
        return merged


def _check_length(trail: Trail, path: str) -> None:
    if len(trail) > _LONGEST_TRAIL:
        raise SchemaRefusedError(path, f"leads through more than {_LONGEST_TRAIL} references")


def _recursion(reference: str, path: str) -> SchemaRefusedError:
    return SchemaRefusedError(
        path, f"{reference!r} contains itself, which the provider does not support"
    )


def _any_of(kinds: list[JsonObject]) -> JsonObject:
    """Return a schema for what fits any of several; without any, one that everything fits."""
    unique = [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
    return {"anyOf": unique} if len(unique) > 1 else next(iter(unique), {})


def _may_be(node: JsonObject, kind: str) -> bool:
    """Whether the type of a schema is this, or one of several types is."""
    return kind in as_list(node.get("type"))


def _overwrite(node: JsonObject, content: JsonObject) -> None:
    """Give a schema another content; it stays the same object."""
    # A copy: the content may be the schema itself.
    copy = dict(content)
    node.clear()
    node.update(copy)


def _type_of(value: Json) -> str:
    return next(name for kind, name in _TYPE_NAMES if isinstance(value, kind))


def _types_of(values: list[Json]) -> Json:
    return _one_or_several([_type_of(value) for value in values])


def _one_or_several(types: list[str]) -> Json:
    names = list(dict.fromkeys(types))
    return names[0] if len(names) == 1 else names


def _of_types(alternatives: list[JsonObject], types: list[str], path: str) -> list[JsonObject]:
    """Return the alternatives that one of these types is possible for, each with its types."""
    possible: list[JsonObject] = []
    for alternative in alternatives:
        try:
            merge_all([alternative, {"type": types}], path)
        except SchemaRefusedError:
            continue
        # Merged where the alternative is fitted, after its references.
        possible.append({"allOf": [alternative, {"type": types}]})
    if not possible:
        raise SchemaRefusedError(path, "has alternatives of other types than its own")
    return possible
