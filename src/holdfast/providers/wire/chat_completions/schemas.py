"""What a request says of the JSON Schema that the answer must meet."""

from collections.abc import Iterator

import msgspec

from holdfast.providers.wire.chat_completions.dialects import OutputMode
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.requests import OutputSchema

_REFUSED_KEYWORDS = frozenset(
    {
        "allOf",
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


def asks_for_schema_in_words(mode: OutputMode, wanted: OutputSchema | None) -> str:
    """Return the instruction for servers that cannot be given the schema itself.

    It names JSON in so many words, which such servers demand.
    """
    if wanted is None or mode == "json_schema":
        return ""
    schema = msgspec.json.encode(wanted.schema).decode()
    return f"Give the final answer as one JSON object that meets this JSON Schema: {schema}"


def is_strict_schema(schema: JsonObject) -> bool:
    """Whether strict mode accepts `schema`: closed objects whose properties are all required."""
    if schema.get("type") != "object" or "anyOf" in schema or "oneOf" in schema:
        return False
    return all(_is_strict(node) for node in _nodes(schema))


def _is_strict(node: JsonObject) -> bool:
    if _REFUSED_KEYWORDS & node.keys() or "oneOf" in node:
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
