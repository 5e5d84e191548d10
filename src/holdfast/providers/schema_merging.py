"""Makes one schema of several that must all hold, or of several objects of which one must."""

from collections.abc import Sequence

from holdfast.providers.schema_repair import SchemaRefusedError, inside
from holdfast.vocabulary.json_types import Json, JsonObject

_LOWEST = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
_HIGHEST = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_WORDS = frozenset({"title", "description", "default", "examples", "$comment"})


def merged_all(schemas: Sequence[JsonObject], path: str) -> JsonObject:
    """Return one schema for several that must all hold; raises where they contradict."""
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
    if keyword in _WORDS:
        return first
    if keyword == "required":
        return list(dict.fromkeys([*first, *second]))
    if keyword in {"properties", "$defs", "definitions"}:
        return _both_tables(pair, inside(path, keyword))
    if keyword in _LOWEST | _HIGHEST:
        return min(pair) if keyword in _LOWEST else max(pair)
    if keyword == "enum" and (common := [value for value in first if value in second]):
        return common
    if keyword == "additionalProperties" and False in pair:
        return False
    raise SchemaRefusedError(path, f"two schemas that must both hold differ in {keyword}")


def _both_tables(pair: tuple[JsonObject, JsonObject], path: str) -> JsonObject:
    first, second = pair
    result = dict(first)
    for name, schema in second.items():
        result[name] = merged_all([result.get(name, {}), schema], inside(path, name))
    return result


def merged_alternatives(schemas: Sequence[JsonObject], path: str) -> JsonObject:
    """Return one object for several of which one must hold.

    It takes what any of them takes: only what all require is required.
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
