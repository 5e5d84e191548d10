"""What an original schema and a fitted one accept, by jsonschema: values near every limit, judged.

`restored` reads the limits that stand in descriptions back into the schema. A limit that is neither
in the fitted schema nor in a description is then one that the original alone enforces.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from haptera.providers.json_schema import SchemaRepair, map_subschemas, resolve_reference

Schema = dict[str, Any]

_SAID = re.compile(r"\((\$?[a-zA-Z]+): ")
_PARTS = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else", "not")
_PLAIN: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -3,
    2.5,
    "",
    "b",
    "abcdef",
    "2024-05-01",
    "a@b.cd",
    [],
    ["b", "b"],
    {},
)
_MOST = 60
_DEEPEST = 4


def meaning(schema: Schema) -> Schema:
    """Return what an original schema means, in the dialect that jsonschema reads."""
    return SchemaRepair(_without_nullable(schema)).repaired()


def _without_nullable(schema: Any) -> Any:
    """Say `nullable` in the plainest way, whatever stands beside it: this or null."""
    if not isinstance(schema, dict):
        return schema
    return _or_null(map_subschemas(schema, "", lambda inner, _: _without_nullable(inner)))


def _or_null(node: Schema) -> Schema:
    """Take `nullable` from a schema, and let it accept null if that was true."""
    if not node.pop("nullable", False):
        return node
    # Definitions are found at the root only.
    kept: Schema = {name: node.pop(name) for name in ("$defs", "definitions") if name in node}
    return {"anyOf": [node, {"type": "null"}], **kept}


def validator(schema: Schema) -> Draft202012Validator:
    return Draft202012Validator(schema, format_checker=FormatChecker())


# What descriptions say


def said_limits(description: str) -> list[tuple[str, Any]]:
    """Return the limits that a description names, as `(keyword: JSON)`."""
    found = []
    for match in _SAID.finditer(description):
        try:
            value, end = json.JSONDecoder().raw_decode(description, match.end())
        except json.JSONDecodeError:
            continue
        if description[end : end + 1] == ")":
            found.append((match[1], value))
    return found


def restored(schema: Schema) -> Schema:
    """Return a fitted schema that enforces what its descriptions say, and has no `nullable`."""
    node = map_subschemas(
        schema, "", lambda inner, _: inner if isinstance(inner, bool) else restored(inner)
    )
    said: str = node.get("description", "")
    node = _or_null(node)
    parts: list[Schema] = []
    for keyword, value in said_limits(said):
        if not parts or keyword in parts[-1]:
            parts.append({})
        parts[-1][keyword] = value
    for part in parts:
        # These count the names beside them.
        if part.keys() & {"additionalProperties", "unevaluatedProperties"}:
            named = dict.fromkeys(schema.get("properties", {}), True)
            part["properties"] = named | part.get("properties", {})
    if parts:
        node["allOf"] = [*node.get("allOf", ()), *parts]
    return node


# Values near the limits


class Values:
    """Values for one schema: some that it accepts, and some just beyond each of its limits."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._judge = validator(root)

    def near_limits(self) -> list[Any]:
        return self._near(self._root, _DEEPEST)

    def _near(self, schema: Any, depth: int) -> list[Any]:
        facets = list(self._facets(schema, frozenset()))
        found: list[Any] = []
        for facet in facets:
            found += facet.get("enum", ())
            found += [facet["const"]] if "const" in facet else []
            found += _numbers(facet)
            found += _texts(facet)
        if depth:
            found += self._lists(facets, depth - 1)
            found += self._objects(facets, depth - 1)
        unique = {json.dumps(value): value for value in (*found, *_PLAIN)}
        # What is accepted comes first: it is what other values are varied around.
        judge = self._judge.evolve(schema=schema)
        return sorted(unique.values(), key=lambda value: not judge.is_valid(value))[:_MOST]

    def _facets(self, schema: Any, seen: frozenset[str]) -> Iterator[Schema]:
        """Yield every schema that has a say on the same value."""
        if not isinstance(schema, dict):
            return
        yield schema
        reference = schema.get("$ref")
        if reference is not None and reference not in seen:
            target = resolve_reference(self._root, reference, "")
            yield from self._facets(target, seen | {reference})
        inner = [part for keyword in _PARTS for part in schema.get(keyword, ())]
        inner += [schema[keyword] for keyword in _CONDITIONS if keyword in schema]
        inner += schema.get("dependentSchemas", {}).values()
        for part in inner:
            yield from self._facets(part, seen)

    def _lists(self, facets: list[Schema], depth: int) -> Iterator[Any]:
        places: list[list[Any]] = []
        others: list[Any] = []
        for facet in facets:
            for place, inner in enumerate(facet.get("prefixItems", ())):
                places += [[]] if place == len(places) else []
                places[place] += self._near(inner, depth)[:6]
            for keyword in ("items", "contains"):
                if keyword in facet:
                    others += self._near(facet[keyword], depth)[:8]
        if not places and not others:
            return
        base = [place[0] for place in places]
        for place, values in enumerate(places):
            for value in values:
                yield [*base[:place], value, *base[place + 1 :]]
        more = others or [None, "b"]
        yield from ([*base, value] for value in more)
        sizes = {f[word] for f in facets for word in ("minItems", "maxItems") if word in f}
        for size in {0, 1, 2, 3} | {size + step for size in sizes for step in (-1, 0, 1)}:
            yield [*base, *((more * 9)[: max(size - len(base), 0)])][: max(size, 0)]
            yield [more[0]] * max(size, 0)

    def _objects(self, facets: list[Schema], depth: int) -> Iterator[Any]:
        options: dict[str, list[Any]] = {}
        for facet in facets:
            for name, inner in facet.get("properties", {}).items():
                options.setdefault(name, []).extend(self._near(inner, depth)[:25])
            for name in facet.get("required", ()):
                options.setdefault(name, ["b", 1])
            for keyword in ("additionalProperties", "propertyNames", "unevaluatedProperties"):
                if isinstance(facet.get(keyword), dict):
                    options.setdefault("more", []).extend(self._near(facet[keyword], depth)[:8])
            for inner in facet.get("patternProperties", {}).values():
                options.setdefault("x-1", []).extend(self._near(inner, depth)[:8])
        if not options:
            return
        base = {name: values[0] for name, values in options.items()}
        needed = {name for facet in facets for name in facet.get("required", ())}
        least = {name: value for name, value in base.items() if name in needed}
        yield from ({}, base, least, base | {"extra": "b"})
        for name, values in options.items():
            yield {name: values[0]}
            yield {other: value for other, value in base.items() if other != name}
            for value in values:
                yield base | {name: value}
                yield least | {name: value}


def _numbers(facet: Schema) -> Iterator[Any]:
    words = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    for word in words:
        if word in facet:
            yield from (facet[word] + step for step in (-1, -0.5, 0, 0.5, 1))


def _texts(facet: Schema) -> Iterator[str]:
    for word in ("minLength", "maxLength"):
        if word in facet:
            yield from ("b" * max(facet[word] + step, 0) for step in (-1, 0, 1))
