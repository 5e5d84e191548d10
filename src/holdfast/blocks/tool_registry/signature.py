"""Signatures: a plain typed function to a parameter type and its JSON Schema, once.

Parameters may be anything msgspec understands (structs, dataclasses, TypedDicts, unions, Annotated
constraints) and pydantic models, which are recognised by their methods and never imported.
"""

import inspect
import re
import typing
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import msgspec

from holdfast.ports.tool_context import ToolContext
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import Json, JsonObject

_CONSTRAINTS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool is called: what a model must send, and how it becomes arguments."""

    parameters: type[msgspec.Struct]
    schema: JsonObject
    description: str
    context_parameter: str | None = None

    def parse(self, arguments: JsonObject) -> msgspec.Struct:
        """Parse a model's arguments; raises `msgspec.ValidationError` naming what is wrong.

        What a tool gets is its own: it may change it without changing the conversation.
        """
        own = msgspec.to_builtins(arguments)
        return msgspec.convert(own, self.parameters, dec_hook=_decode_foreign)


def read_signature(function: Callable[..., object]) -> Signature:
    """Read the signature of a tool from its type hints and docstring.

    Raises:
        ConfigError: CONFIG_INVALID when a parameter cannot be described to a model.

    """
    summary, notes = _read_docstring(inspect.getdoc(function) or "")
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    context_parameter = None
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, Any)
        if hint is ToolContext:
            context_parameter = name
            continue
        _refuse_unnamed(function, parameter)
        described = _describe(hint, notes.get(name))
        required = parameter.default is inspect.Parameter.empty
        fields.append(
            (name, described) if required else (name, described, _default(parameter.default))
        )
    parameters = msgspec.defstruct(
        "Arguments", fields, kw_only=True, forbid_unknown_fields=True, frozen=True
    )
    return Signature(
        parameters=parameters,
        schema=_schema_of(function, parameters),
        description=summary,
        context_parameter=context_parameter,
    )


def _refuse_unnamed(function: Callable[..., object], parameter: inspect.Parameter) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"tool {function.__name__!r}: parameter {parameter.name!r} has no fixed shape; "
            "name each parameter",
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"tool {function.__name__!r}: parameter {parameter.name!r} cannot be given by name",
        )


def _default(value: object) -> object:
    """Return a default as a struct field takes it: mutable ones are made anew each time."""
    if isinstance(value, list | dict | set):
        kind = type(value)
        return msgspec.field(default_factory=lambda: kind(value))
    return value


def _schema_of(function: Callable[..., object], parameters: type[msgspec.Struct]) -> JsonObject:
    try:
        (schema,), components = msgspec.json.schema_components(
            [parameters], schema_hook=_foreign_schema, ref_template="#/$defs/{name}"
        )
    except (TypeError, NotImplementedError) as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"tool {function.__name__!r}: {error}"
        ) from error
    own: JsonObject = components.pop("Arguments", schema)
    own.pop("title", None)
    _lift_definitions(own, components)
    for component in tuple(components.values()):
        _lift_definitions(component, components)
    return {**own, "$defs": components} if components else own


def _lift_definitions(schema: Json, components: JsonObject) -> None:
    """Move definitions that a foreign schema brought along to the top, where references look."""
    if isinstance(schema, list):
        for item in schema:
            _lift_definitions(item, components)
    elif isinstance(schema, dict):
        components.update(schema.pop("$defs", {}))
        for item in schema.values():
            _lift_definitions(item, components)


def _describe(hint: Any, note: str | None) -> Any:  # noqa: ANN401 - a type hint is any value
    """Turn plain strings and foreign constraints inside Annotated into ones msgspec knows."""
    if get_origin(hint) is not Annotated:
        return Annotated[hint, msgspec.Meta(description=note)] if note else hint
    bare, *extras = get_args(hint)
    facts: dict[str, Any] = {"description": note} if note else {}
    known: list[Any] = []
    for extra in extras:
        if isinstance(extra, msgspec.Meta):
            known.append(extra)
        elif isinstance(extra, str):
            facts["description"] = extra
        else:
            facts |= _foreign_facts(extra)
    if facts:
        known.append(msgspec.Meta(**facts))
    return Annotated[(bare, *known)] if known else bare


def _foreign_facts(extra: object) -> dict[str, Any]:
    """Read constraints of other libraries by the names they share."""
    facts: dict[str, Any] = {}
    for source in (extra, *getattr(extra, "metadata", ())):
        for name in (*_CONSTRAINTS, "description"):
            value = getattr(source, name, None)
            if value is not None:
                facts[name] = value
    return facts


def _foreign_schema(kind: type) -> JsonObject:
    if hasattr(kind, "model_json_schema"):
        schema: JsonObject = kind.model_json_schema()
        return schema
    raise NotImplementedError(f"{kind.__name__} cannot be described to a model")


def _decode_foreign(kind: type, value: object) -> object:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise NotImplementedError(f"{kind.__name__} cannot be parsed")


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its description and the notes of its Args section."""
    before, _, section = re.sub(r"^Args:\s*$", "\0", text, flags=re.MULTILINE).partition("\0")
    notes: dict[str, str] = {}
    current = None
    for line in section.splitlines():
        if line.strip() and not line.startswith(" "):
            break
        if match := re.match(r"^ {1,8}(\w+)(?: \([^)]*\))?: (.*)$", line):
            current = match[1]
            notes[current] = match[2].strip()
        elif current and line.strip():
            notes[current] += " " + line.strip()
    return before.strip(), notes
