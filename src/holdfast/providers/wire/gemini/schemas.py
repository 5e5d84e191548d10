"""Brings a JSON Schema into the form that a Gemini model accepts.

From 2.5 on models take a large part of JSON Schema. Older ones take a subset of OpenAPI's: without
references, without types that are lists, and with `nullable` instead of a type `null`.
"""

import re

from holdfast.vocabulary.json_types import Json, JsonObject

_KNOWN = frozenset(
    {
        *("$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum"),
        *("items", "prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf"),
        *("properties", "additionalProperties", "required", "propertyOrdering"),
    }
)
_KNOWN_TO_OLDER = frozenset(
    {
        *("type", "format", "title", "description", "enum", "items", "minItems", "maxItems"),
        *("minimum", "maximum", "anyOf", "properties", "required", "nullable", "pattern"),
        *("minLength", "maxLength", "minProperties", "maxProperties", "propertyOrdering"),
    }
)
_FORMATS = frozenset({"enum", "date-time", "int32", "int64", "float", "double"})
_OLDER = re.compile(r"gemini-(1|2\.0)|gemma|learnlm")
_DEEPEST = 12


def takes_json_schema(model: str) -> bool:
    """Whether `model` takes JSON Schema rather than the older subset."""
    return _OLDER.search(model) is None


def json_schema(schema: JsonObject) -> JsonObject:
    """Return `schema` without keywords that are refused; `const` and `allOf` are rewritten."""
    narrowed: JsonObject = _narrowed(_with_definitions_renamed(schema))
    return narrowed


def _with_definitions_renamed(schema: JsonObject) -> JsonObject:
    if "definitions" not in schema:
        return schema
    definitions = {**schema["definitions"], **schema.get("$defs", {})}
    renamed = {name: value for name, value in schema.items() if name != "definitions"}
    moved: JsonObject = _with_references_renamed(renamed | {"$defs": definitions})
    return moved


def _with_references_renamed(value: Json) -> Json:
    if isinstance(value, list):
        return [_with_references_renamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: each.replace("#/definitions/", "#/$defs/")
        if name == "$ref" and isinstance(each, str)
        else _with_references_renamed(each)
        for name, each in value.items()
    }


def _narrowed(schema: Json) -> Json:
    if not isinstance(schema, dict):
        # `true` and `false` are schemas, too: anything, and (as near as we get) anything.
        return {} if isinstance(schema, bool) else schema
    narrowed: JsonObject = {}
    for name, value in _rewritten(schema).items():
        if name in {"properties", "$defs"} and isinstance(value, dict):
            narrowed[name] = {key: _narrowed(each) for key, each in value.items()}
        elif name in {"anyOf", "oneOf", "prefixItems"} and isinstance(value, list):
            narrowed[name] = [_narrowed(each) for each in value]
        elif name == "items":
            narrowed[name] = _narrowed(value)
        elif name == "additionalProperties":
            narrowed[name] = value if isinstance(value, bool) else _narrowed(value)
        elif name in _KNOWN:
            narrowed[name] = value
    return narrowed


def _rewritten(schema: JsonObject) -> JsonObject:
    """Say with known keywords what unknown ones said."""
    rewritten = dict(schema)
    if not isinstance(rewritten.get("type", ""), str | list):
        # Seen in the wild: the number of an enumeration. No type is better than a wrong one.
        del rewritten["type"]
    if "const" in rewritten:
        rewritten["enum"] = [rewritten.pop("const")]
    for part in rewritten.pop("allOf", ()):
        if isinstance(part, dict):
            rewritten = _merged(rewritten, _rewritten(part))
    return rewritten


def _merged(first: JsonObject, second: JsonObject) -> JsonObject:
    merged = {**second, **first}
    for name in ("properties", "$defs"):
        if name in first or name in second:
            merged[name] = {**second.get(name, {}), **first.get(name, {})}
    if "required" in first or "required" in second:
        merged["required"] = sorted({*first.get("required", ()), *second.get("required", ())})
    return merged


def openapi_schema(schema: JsonObject) -> JsonObject:
    """Return `schema` in the subset that older models take; references are written out."""
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    return _opened(schema, definitions, 0)


def _opened(schema: Json, definitions: JsonObject, depth: int) -> JsonObject:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {"type": "object"}
    if isinstance(reference := schema.get("$ref"), str):
        target = definitions.get(reference.rpartition("/")[2], {})
        rest = {name: value for name, value in schema.items() if name != "$ref"}
        return _opened(_merged(rest, target), definitions, depth + 1)
    plain = _with_plain_type(_rewritten(schema))
    opened: JsonObject = {}
    for name, value in plain.items():
        if name == "properties" and isinstance(value, dict):
            opened[name] = {
                key: _opened(each, definitions, depth + 1) for key, each in value.items()
            }
        elif name == "items":
            opened[name] = _opened(value, definitions, depth + 1)
        elif name == "anyOf" and isinstance(value, list):
            opened[name] = [_opened(each, definitions, depth + 1) for each in value]
        elif name in _KNOWN_TO_OLDER and not (name == "format" and value not in _FORMATS):
            opened[name] = value
    return _completed(opened)


def _with_plain_type(schema: JsonObject) -> JsonObject:
    """Write a list of types, and a type `null`, the way that is understood."""
    plain = dict(schema)
    options = plain.pop("oneOf", None) or plain.pop("anyOf", None)
    if isinstance(types := plain.get("type"), list):
        others = [each for each in types if each != "null"]
        plain["nullable"] = len(others) < len(types)
        plain["type"] = others[0] if len(others) == 1 else None
        if len(others) > 1:
            options = [{"type": each} for each in others]
    if isinstance(options, list):
        others = [each for each in options if each != {"type": "null"}]
        if len(others) < len(options):
            plain["nullable"] = True
        plain = _merged(plain, others[0]) if len(others) == 1 else plain | {"anyOf": others}
    return {name: value for name, value in plain.items() if value is not None}


def _completed(schema: JsonObject) -> JsonObject:
    """Add what is demanded: texts in an enum, items of an array, required names that exist."""
    if "properties" in schema or "required" in schema:
        schema["type"] = "object"
    if "enum" in schema:
        schema["enum"] = [str(each) for each in schema["enum"] if each is not None]
        schema["type"] = "string"
    if schema.get("type") == "array" and "items" not in schema:
        schema["items"] = {"type": "string"}
    if schema.get("nullable") is False:
        del schema["nullable"]
    if "required" in schema:
        known = schema.get("properties", {})
        schema["required"] = [name for name in schema["required"] if name in known]
        if not schema["required"]:
            del schema["required"]
    if schema.get("type") == "object" and not schema.get("properties"):
        schema.pop("properties", None)
    return schema
