"""Anthropic Messages: a JSON Schema in the subset that constrained answers allow.

What is left out here (lengths, ranges, patterns) is still checked when the answer is read.
"""

from holdfast.vocabulary.json_types import Json, JsonObject

_NOT_ALLOWED = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "patternProperties",
    }
)
_NAMED_SCHEMAS = frozenset({"properties", "$defs", "definitions"})
_NOT_SCHEMAS = frozenset({"enum", "const", "default", "examples", "required"})


def constrained(schema: JsonObject) -> JsonObject:
    """Return `schema` without keywords that are not allowed, its objects closed."""
    made: JsonObject = {}
    for keyword, value in schema.items():
        if keyword in _NOT_ALLOWED or (keyword == "minItems" and value not in {0, 1}):
            continue
        if keyword in _NAMED_SCHEMAS and isinstance(value, dict):
            made[keyword] = {name: _subschema(item) for name, item in value.items()}
        else:
            made[keyword] = value if keyword in _NOT_SCHEMAS else _subschema(value)
    if made.get("type") == "object" or "properties" in made:
        made["additionalProperties"] = False
    return made


def _subschema(value: Json) -> Json:
    if isinstance(value, dict):
        return constrained(value)
    return [_subschema(item) for item in value] if isinstance(value, list) else value
