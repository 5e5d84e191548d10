"""Signatures: a plain typed function to a parameter type and its JSON Schema, once.

Parameters may be anything msgspec understands (structs, dataclasses, TypedDicts, unions, Annotated
constraints) and what `foreign_types` makes of other libraries' types.
"""

import functools
import inspect
import re
import typing
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args

import msgspec

from haptera.kernel.blocks.tool_registry.foreign_types import (
    TypeHint,
    describe_type,
    generic_origin,
    parse_value,
    understood,
)
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.ports.tools import ToolContext

_Field: TypeAlias = tuple[str, Any] | tuple[str, Any, Any]


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
        parsed: msgspec.Struct = parse_value(msgspec.to_builtins(arguments), self.parameters)
        return parsed


def name_of(function: Callable[..., object]) -> str:
    """Return what a function is called; an object that can be called is named after its class."""
    inner = function.func if isinstance(function, functools.partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def read_signature(function: Callable[..., object], *, tool: str) -> Signature:
    """Read the signature of a tool from its type hints and docstring.

    Raises:
        ConfigError: CONFIG_INVALID when a parameter cannot be described to a model.

    """
    summary, notes = _read_docstring(inspect.getdoc(written_function(function)) or "")
    fields: list[_Field] = []
    context_parameter = None
    for parameter in _parameters_of(function, tool=tool):
        if not is_context(parameter.annotation):
            fields.append(_field_of(parameter, notes.get(parameter.name), tool=tool))
        elif context_parameter is None:
            context_parameter = parameter.name
        else:
            raise _refusal(tool, f"parameter {parameter.name!r} is a second context")
    # A model that makes a parameter up is told so, and does not believe that it had an effect.
    parameters = msgspec.defstruct(
        "Arguments", fields, kw_only=True, forbid_unknown_fields=True, frozen=True
    )
    return Signature(
        parameters=parameters,
        schema=_schema_of(parameters, fields, tool=tool),
        description=summary,
        context_parameter=context_parameter,
    )


def written_function(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function behind a callable: the one that has the hints and the docstring."""
    if isinstance(function, functools.partial):
        return written_function(function.func)
    if inspect.isclass(function):
        return function.__init__
    return function if inspect.isroutine(function) else type(function).__call__


def _parameters_of(function: Callable[..., object], *, tool: str) -> list[inspect.Parameter]:
    """Return the parameters with their hints resolved."""
    try:
        hints = typing.get_type_hints(written_function(function), include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())
    except NameError as error:
        message = f"a type hint cannot be resolved: {error}; define it where the module can see it"
        raise _refusal(tool, message) from error
    except (TypeError, ValueError) as error:
        raise _refusal(tool, f"its signature cannot be read: {error}") from error
    if parameters and parameters[0].name == "self" and "self" not in hints:
        raise _refusal(tool, "it is a method without its object; give it as `object.method`")
    return [item.replace(annotation=hints.get(item.name, Any)) for item in parameters]


def is_context(hint: TypeHint) -> bool:
    """Whether a parameter is for the context, which may be optional or annotated."""
    if generic_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    kinds = get_args(hint) if generic_origin(hint) in (Union, UnionType) else (hint,)
    bare = {generic_origin(kind) or kind for kind in kinds} - {type(None)}
    return bare == {ToolContext}


def _field_of(parameter: inspect.Parameter, note: str | None, *, tool: str) -> _Field:
    """Make a field of a parameter; how it is called by name decides whether that can be."""
    name, hint, default = parameter.name, parameter.annotation, parameter.default
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise _refusal(tool, f"parameter {name!r} has no fixed shape; name each parameter")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise _refusal(tool, f"parameter {name!r} cannot be given by name")
    if name.startswith("__"):
        raise _refusal(tool, f"parameter {name!r} must not begin with two underscores")
    if hasattr(default, "metadata") and hasattr(default, "is_required"):
        # A field of pydantic's in the default's place says both: what fits, and what holds without.
        hint = Annotated[hint, default]
        default = parameter.empty if default.is_required() else default.get_default()
    try:
        described = understood(hint, note)
    except TypeError as error:
        raise _refusal(tool, f"parameter {name!r}: {error}") from error
    if default is parameter.empty:
        return (name, described)
    return (name, described, _default(default))


def _default(value: object) -> object:
    """Return a default as a struct field takes it.

    Mutable ones are made anew each time; what has no JSON is no part of the schema.
    """
    if isinstance(value, list | dict | set):
        kind = type(value)
        return msgspec.field(default_factory=lambda: kind(value))
    try:
        msgspec.json.encode(value)
    except TypeError:
        return msgspec.field(default_factory=lambda: value)
    return value


def _schema_of(parameters: type[msgspec.Struct], fields: list[_Field], *, tool: str) -> JsonObject:
    try:
        schema, components = describe_type(parameters)
    except TypeError as error:
        raise _refusal(tool, _blame(fields) or str(error)) from error
    # Its name is a longer one where a parameter is called `Arguments`, too.
    own: JsonObject = components.pop(schema["$ref"].removeprefix("#/$defs/"))
    own.pop("title", None)
    return {**own, "$defs": components} if components else own


def _blame(fields: list[_Field]) -> str | None:
    """Find the parameter that cannot be described, and say why."""
    for name, hint, *_ in fields:
        try:
            describe_type(hint)
        except TypeError as error:
            return f"parameter {name!r}: {error}"
    return None


def _refusal(tool: str, message: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, f"tool {tool!r}: {message}")


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its description and the notes of its Args section."""
    # A character that no docstring holds marks the heading, so that one `partition` splits there.
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
