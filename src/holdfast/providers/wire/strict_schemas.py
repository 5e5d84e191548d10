"""Tells whether OpenAI's strict mode takes a JSON Schema as it is."""

from collections.abc import Iterator

from holdfast.vocabulary.json_types import Json, JsonObject

_REFUSED_KEYWORDS = frozenset(
    {
        "allOf",
        "oneOf",
        "default",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
        "unevaluatedProperties",
        "contains",
        "uniqueItems",
        "prefixItems",
    }
)
"""Keywords that strict mode does not know."""


def is_strict_schema(schema: JsonObject) -> bool:
    """Whether strict mode accepts `schema`: closed objects whose properties are all required."""
    if schema.get("type") != "object" or "anyOf" in schema:
        return False
    return all(_is_strict(node) for node in _nodes(schema))


def _is_strict(node: JsonObject) -> bool:
    if _REFUSED_KEYWORDS & node.keys():
        return False
    if node.get("type") != "object" and "properties" not in node:
        return True
    required = node.get("required", [])
    return node.get("additionalProperties") is False and set(required) == set(
        node.get("properties", {})
    )


def _nodes(schema: Json) -> Iterator[JsonObject]:
    """Walk over every schema inside `schema`, itself first; values are not schemas."""
    if not isinstance(schema, dict):
        return
    yield schema
    for name in ("properties", "$defs", "definitions"):
        for inner in (schema.get(name) or {}).values():
            yield from _nodes(inner)
    for inner in schema.get("anyOf") or []:
        yield from _nodes(inner)
    yield from _nodes(schema.get("items"))
