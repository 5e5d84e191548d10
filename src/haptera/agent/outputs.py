"""Outputs: what an answer of a type needs, from the schema for the model to the value.

The schema that a model gets is always an object, because most providers want one: another type is
the field `value` of one. Answers are read with and without it.
"""

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from haptera.agent.query_options import QueryOptions
from haptera.kernel.blocks.tool_registry.foreign_types import (
    TypeHint,
    describe_type,
    parse_json,
    understood,
    with_parts,
)
from haptera.kernel.blocks.tool_registry.running import call_function
from haptera.kernel.blocks.tool_registry.signature import is_context, written_function
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import Json, JsonObject
from haptera.model.late_names import late_module
from haptera.model.requests import OutputSchema
from haptera.ports.runner import OutputSpec
from haptera.ports.tools import ToolContext

WRAPPER = "value"
"""The field that holds what is no object."""
_OF_ROOT = ("$schema", "$id", "$defs", "definitions")
_FENCE = re.compile(r"(?i)```(?:json)?")
_THINKING, _THOUGHT = "<think>", "</think>"


def wanted_output(options: QueryOptions[Any]) -> OutputSpec | None:
    """Return what an answer must be by the options of its query; None when any text is fine.

    Raises:
        ConfigError: CONFIG_INVALID when the type cannot be described to a model, the schema is
            none, or the validator cannot be called.

    """
    spec = output_spec(options.output_type, options.output_schema)
    if options.output_validator is not None:
        checks = _checking(options.output_validator)
        plain = OutputSpec(schema=None, hint=str, parse=lambda text: text)
        spec = replace(spec or plain, check=checks)
    return spec and replace(spec, attempts=options.output_attempts)


def output_spec(output_type: object, schema: JsonObject | None = None) -> OutputSpec | None:
    """Return what an answer of this type needs, or of this schema; None when plain text is fine.

    Raises:
        ConfigError: CONFIG_INVALID when the type cannot be described to a model, or the schema is
            none.

    """
    if schema is not None:
        return _spec_of_schema(schema, None if output_type is str else output_type)
    if output_type is None or output_type is str:
        return None
    kind, described = _described(output_type)
    name = _name_of(getattr(output_type, "__name__", None))
    is_wrapped = not _is_object(described)
    if is_wrapped:
        # As a field of a struct, so that what the type refers to is described beside it.
        described = _described(msgspec.defstruct("Answer", [(WRAPPER, kind)]))[1]
        described.pop("title", None)
        name = _name_of(None)
    return OutputSpec(
        schema=OutputSchema(name=name, schema=described),
        hint=output_type,
        parse=partial(_parsed, partial(_read, kind), is_wrapped=is_wrapped),
        is_wrapped=is_wrapped,
    )


def _spec_of_schema(schema: JsonObject, output_type: object) -> OutputSpec:
    """Return what an answer needs that must match a schema, and then becomes of a type."""
    kind = Any if output_type is None else _described(output_type)[0]
    fault = schema_check(schema)

    def read(text: str) -> object:
        try:
            wrong = fault(parse_json(text, Any))
        except Exception as error:  # a schema may refer to what is not there
            raise ValueError(str(error)) from error
        if wrong:
            raise ValueError(wrong)
        return _read(kind, text)

    is_wrapped = not _is_object(schema)
    sent = _wrapped(schema) if is_wrapped else schema
    return OutputSpec(
        schema=OutputSchema(name=_name_of(schema.get("title")), schema=sent),
        hint=Any if output_type is None else output_type,
        parse=partial(_parsed, read, is_wrapped=is_wrapped),
        is_wrapped=is_wrapped,
    )


def schema_check(
    schema: JsonObject, *, of: str = "output_schema"
) -> Callable[[object], str | None]:
    """Return what says why a value does not match a JSON Schema; None if it does.

    Raises:
        ConfigError: CONFIG_INVALID when it is no schema, CONFIG_MISSING without `jsonschema`.

    """
    try:
        jsonschema = late_module("jsonschema")  # slow to load, and needed only here
    except ImportError as error:
        message = "output_schema needs the package jsonschema: pip install jsonschema"
        raise ConfigError(ErrorCode.CONFIG_MISSING, message) from error
    kind = jsonschema.validators.validator_for(schema)
    try:
        msgspec.json.encode(schema)  # a model must be told of it
        kind.check_schema(schema)
    except (TypeError, ValueError, jsonschema.SchemaError) as error:
        message = f"{of} is not a JSON Schema: {getattr(error, 'message', error)}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, message) from error
    # With a registry of its own it fetches nothing that a schema refers to.
    checker = kind(schema, registry=late_module("referencing").Registry())

    def fault(value: object) -> str | None:
        wrong = jsonschema.exceptions.best_match(checker.iter_errors(value))
        return None if wrong is None else f"{wrong.json_path}: {wrong.message}"

    return fault


# Schemas


def _described(output_type: object) -> tuple[Any, JsonObject]:
    """Return a type as it is understood, and its schema."""
    try:
        kind = understood(output_type)
        described, components = describe_type(kind)
    except TypeError as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"output_type {output_type!r}: {error}"
        ) from error
    except RecursionError as error:  # also its `repr` would go too deep
        raise ConfigError(ErrorCode.CONFIG_INVALID, "output_type is nested too deeply") from error
    return kind, _inlined(described, components)


def _name_of(written: object) -> str:
    """Return the name of a schema, in the characters and the length that OpenAI takes."""
    name = written if isinstance(written, str) and written else "answer"
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def _inlined(described: JsonObject, components: JsonObject) -> JsonObject:
    """Put the type itself at the top, where providers want it, and its parts into `$defs`."""
    reference = described.get("$ref", "")
    own = reference.removeprefix("#/$defs/")
    top = dict(components.get(own, described))
    # A type that refers to itself is needed in `$defs`, too.
    if own and reference not in msgspec.json.encode(components).decode():
        components = {key: value for key, value in components.items() if key != own}
    return {**top, "$defs": components} if components else top


def _is_object(schema: JsonObject) -> bool:
    """Whether every value of a schema surely is an object."""
    definitions = schema.get("$defs")
    definitions = definitions if isinstance(definitions, dict) else {}
    names: set[object] = set()
    # A definition may be another name of one; a circle of names says nothing.
    while (reference := schema.get("$ref")) is not None and reference not in names:
        names.add(reference)
        schema = definitions.get(str(reference).removeprefix("#/$defs/"), {})
    if "type" in schema:
        return bool(schema["type"] == "object")
    parts = schema.get("allOf", ())
    return "properties" in schema or any(
        isinstance(part, dict) and part.get("type") == "object" for part in parts
    )


def _wrapped(schema: JsonObject) -> JsonObject:
    """Return the schema of an object that holds what another schema describes."""
    inner = {name: value for name, value in schema.items() if name not in _OF_ROOT}
    around = {name: _moved(schema[name]) for name in _OF_ROOT if name in schema}
    return {
        "type": "object",
        "properties": {WRAPPER: _moved(inner)},
        "required": [WRAPPER],
        "additionalProperties": False,
        **around,
    }


def _moved(schema: Json) -> Json:
    """Return a schema whose references lead to where its parts are in the wrapper."""
    if not isinstance(schema, dict):
        return schema
    moved = with_parts(schema, _moved)
    reference = moved.get("$ref")
    stays = ("#/$defs/", "#/definitions/")
    # Not an anchor, which is found wherever it is.
    if (
        isinstance(reference, str)
        and re.match("#(/|$)", reference)
        and not reference.startswith(stays)
    ):
        moved["$ref"] = f"#/properties/{WRAPPER}{reference[1:]}"
    return moved


# Answers


def _read(kind: TypeHint, text: str) -> object:
    try:
        return parse_json(text, kind)
    except Exception as error:  # a type of the user's may raise anything
        raise ValueError(str(error)) from error


def _parsed(read: Callable[[str], object], text: str, *, is_wrapped: bool) -> object:
    """Return the value in an answer.

    Raises:
        ValueError: saying what is wrong.

    """
    fault: ValueError | None = None
    for candidate in json_in(text):
        try:
            fields = msgspec.json.decode(candidate)
        except ValueError as error:
            fault = fault or ValueError(str(error))
            continue
        is_told = False
        forms = [candidate]
        if is_wrapped and isinstance(fields, dict) and WRAPPER in fields:
            # As it was written: a number may have more digits than a float.
            raw = msgspec.json.decode(candidate, type=dict[str, msgspec.Raw])
            forms = [bytes(raw[WRAPPER]).decode(), candidate]
        for form in forms:
            try:
                return read(form)
            except ValueError as error:
                # What is wrong with the first JSON that there is.
                if not is_told:
                    fault, is_told = error, True
    raise fault or ValueError("it is empty")


def json_in(text: str) -> Iterator[str]:
    """Yield what may be the JSON of an answer: all of it, or what is before or after other words.

    Each place is read once, so that an answer of any kind takes time in proportion to its length.
    """
    rest = _after_thoughts(text).strip()
    yield rest
    fence = _FENCE.search(rest)
    places = [0, -1 if fence is None else fence.end(), rest.find("{"), rest.find("[")]
    decoder = late_module("json").JSONDecoder()
    for place in dict.fromkeys(place for place in places if place >= 0):
        begin = len(rest) - len(rest[place:].lstrip())
        try:
            _, end = decoder.raw_decode(rest, begin)
        except (ValueError, RecursionError):
            continue
        if end - begin < len(rest):
            yield rest[begin:end]


def _after_thoughts(text: str) -> str:
    """Return an answer without what the model thought aloud before it."""
    text = text.lstrip()
    if text.startswith(_THINKING) or (text and text[0] not in '{["'):
        # Some servers leave the beginning out.
        before, end, after = text.partition(_THOUGHT)
        return after if end else before.removeprefix(_THINKING)
    return text


# Validators


def _checking(
    function: Callable[..., object],
) -> Callable[[object, ToolContext[Any]], Any]:
    """Return a validator as it is called: with a value and a context, which it may not want.

    What it returns takes the value's place, unless it returns None.

    Raises:
        ConfigError: CONFIG_INVALID when it does not take one value.

    """
    try:
        hints = typing.get_type_hints(written_function(function))
        parameters = list(inspect.signature(function).parameters.values())
    except (NameError, TypeError, ValueError) as error:
        raise _no_validator(f"its signature cannot be read: {error}") from error
    contexts = [item for item in parameters if is_context(hints.get(item.name, Any))]
    values = [item for item in parameters if item not in contexts]
    required = [item for item in values if item.default is item.empty]
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [item for item in required if item.kind not in fixed]
    if not values or len(needed) > 1 or len(contexts) > 1:
        raise _no_validator("it must take the output, and may take a ToolContext beside it")
    value_name = (needed or values)[0].name

    async def validate(value: object, context: ToolContext[Any]) -> object:
        positional: list[object] = []
        named: dict[str, object] = {}
        for item in parameters:
            if item.name == value_name or item in contexts:
                content = value if item.name == value_name else context
                if item.kind is item.KEYWORD_ONLY:
                    named[item.name] = content
                else:
                    positional.append(content)
        returned = await call_function(partial(function, *positional), named, context)
        return value if returned is None else returned

    return validate


def _no_validator(reason: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, f"output_validator: {reason}")
