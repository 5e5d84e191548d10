"""Value fitting: the enums, types and nulls of one schema, in the form that a provider accepts.

`schema_fitting` does this for every schema inside a schema, and for objects and lists.
"""

from haptera.model.json_types import Json, JsonObject
from haptera.providers.json_schema import (
    LIMITING_KEYWORDS,
    SchemaRefusedError,
    SchemaRewriting,
    as_list,
    is_limit,
)
from haptera.providers.schema_descriptions import add_limit, add_words, written_out
from haptera.providers.schema_merging import merge_all
from haptera.providers.schema_rules import SchemaRules

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


def may_be(node: JsonObject, kind: str) -> bool:
    """Whether the type of a schema is this, or one of several types is."""
    return kind in as_list(node.get("type"))


def overwrite(node: JsonObject, content: JsonObject) -> None:
    """Give a schema another content; it stays the same object."""
    # A copy: the content may be the schema itself.
    made = dict(content)
    node.clear()
    node.update(made)


class ValueFitting(SchemaRewriting):
    """Rewrites the values and types of schemas for one set of rules, and lists the changes."""

    def __init__(self, root: JsonObject, rules: SchemaRules) -> None:
        super().__init__(root)
        self._rules = rules

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
            overwrite(node, merge_all([{"enum": [node.pop("const")]}, node], path))
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
        given = [value for value in node["enum"] if value is not None]
        # Gemini refuses an empty text among the values of an enum.
        values = [value for value in given if _type_of(value) in types and value != ""]
        if len(values) < len(given) or not values:
            node.setdefault("type", _types_of(node["enum"]))
            self._describe(node, "enum", value=node.pop("enum"), path=path)
        elif len(values) < len(node["enum"]):
            self._fit_null_in_enum(node, values, path)

    def _fit_null_in_enum(self, node: JsonObject, values: list[Json], path: str) -> None:
        """Write an enum without the null in it, which is a type of its own."""
        may_be_null = "type" not in node or may_be(node, "null")
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
        given = node.pop("type")
        types = [name for name in given if name != "null"]
        if "anyOf" in node:
            node["anyOf"] = _of_types(node["anyOf"], given, path)
        else:
            # An enum without null refuses it, whatever the types say.
            if "null" in given and None in node.get("enum", (None,)):
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


def _type_of(value: Json) -> str:
    return next(name for kind, name in _TYPE_NAMES if isinstance(value, kind))


def _types_of(values: list[Json]) -> Json:
    return _one_or_several([_type_of(value) for value in values])


def _one_or_several(types: list[str]) -> Json:
    names = list(dict.fromkeys(types))
    return names[0] if len(names) == 1 else names


def _of_types(alternatives: list[JsonObject], types: list[str], path: str) -> list[JsonObject]:
    """Return the alternatives that one of these types is possible for, each with its types."""
    found: list[JsonObject] = []
    for alternative in alternatives:
        try:
            merge_all([alternative, {"type": types}], path)
        except SchemaRefusedError:
            continue
        # Merged where the alternative is fitted, after its references.
        found.append({"allOf": [alternative, {"type": types}]})
    if not found:
        raise SchemaRefusedError(path, "has alternatives of other types than its own")
    return found
