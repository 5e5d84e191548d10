"""Prompts: from what a user says and wants to the input of a query, checked."""

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import PathInput
from haptera.agent.query_options import Prompt, QueryOptions, SendOptions
from haptera.kernel.blocks.tool_registry.foreign_types import (
    describe_type,
    parse_json,
    understood,
)
from haptera.kernel.blocks.tool_registry.registry import ToolRegistry
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import QueryId, new_message_id, new_query_id
from haptera.model.json_types import JsonObject, python_words, writable, writable_or_none
from haptera.model.late_names import late_module
from haptera.model.messages import Sender, UserMessage
from haptera.model.parts import MediaPart, check_content
from haptera.model.prompts import prompt_parts
from haptera.model.requests import OutputSchema
from haptera.options.checks import filled
from haptera.options.declarations import declared_options
from haptera.ports.runner import OutputSpec, QueryInput

_FENCE_BEGIN = re.compile(r"(?i)```(?:json)?")
_FENCE_END = "```"
_OF_ENGINE = frozenset(declared_options(QueryInput))
"""The options of a query that its runner looks at."""


def make_query(prompt: Prompt, send: SendOptions, given: Mapping[str, Any]) -> QueryInput:
    """Make the input of one query from its prompt and its checked options.

    Raises:
        ConfigError: CONFIG_INVALID when the prompt is empty, or when the output type or a tool
            cannot be used.

    """
    query_id = new_query_id()
    message = make_prompt(prompt, send, query_id)
    query = QueryInput(query_id=query_id, message=message, sender=message.sender)
    return with_options(query, given)


def with_options(query: QueryInput, given: Mapping[str, Any]) -> QueryInput:
    """Return a query with what its options say; what they do not say stays as it is.

    Settings among them are left out: what they come to depends on those of the session.

    Raises:
        ConfigError: CONFIG_INVALID when the output type or a tool cannot be used.

    """
    options: QueryOptions[Any] = filled(given, QueryOptions)
    wants_text = options.output_type is str and options.output_schema is None
    said = {
        "output": output_spec(options.output_type, options.output_schema),
        # `str` has no schema: it only says that `result.output` is the text of the answer.
        "wants_text": wants_text or None,
        "tools": None if options.tools is None else ToolRegistry(options.tools),
        "deps": options.deps,
    }
    for name in given.keys() & _OF_ENGINE:
        said[name] = _storable(given[name])
    return replace(query, **{name: value for name, value in said.items() if value is not None})


def _storable(value: object) -> object:
    """Return a value with text that a store can keep; an empty list says nothing, as None."""
    if isinstance(value, str):
        return writable(value)
    return tuple(map(_storable, value)) or None if isinstance(value, list | tuple) else value


async def with_attachments(
    message: UserMessage, options: SendOptions, *, cwd: PathInput
) -> UserMessage:
    """Return a prompt with its attachments, which are read now; relative paths are from `cwd`.

    Raises:
        ConfigError: CONFIG_INVALID naming one that is missing, too large or of no known type.

    """
    sources = options.attachments
    for source in sources:
        if not isinstance(source, str | bytes | os.PathLike | MediaPart):
            kind = type(source).__name__
            raise _no_attachment(f"{kind!r} is neither a path, a URL, bytes nor a part")
    read = [
        _checked_media(source)
        if isinstance(source, MediaPart)
        else await asyncio.to_thread(late.attachment_part, source, cwd=cwd)
        for source in sources
    ]
    return replace(message, parts=(*message.parts, *read)) if read else message


def _checked_media(part: MediaPart) -> MediaPart:
    try:
        return check_content(part)
    except ValueError as error:
        raise _no_attachment(str(error)) from error


def _no_attachment(reason: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, f"attachments: {reason}")


def make_prompt(prompt: Prompt, options: SendOptions, query_id: QueryId) -> UserMessage:
    """Make the user message of a prompt.

    Raises:
        ConfigError: CONFIG_INVALID when there is nothing in it, or something that cannot be said.

    """
    parts = prompt_parts(prompt, may_be_empty=bool(options.attachments))
    given = prompt.sender if isinstance(prompt, UserMessage) else None
    sender = _sender(options.sender or given)
    return UserMessage(id=new_message_id(), parts=parts, query_id=query_id, sender=sender)


def _sender(given: object) -> Sender | None:
    """Return who speaks, as a value of ours; plain values are fine, too."""
    if given is None:
        return None
    try:
        # By way of plain values: a `Sender` is not checked when it is made, and one with a wrong
        # field could be stored but not be read back.
        sender = msgspec.convert(msgspec.to_builtins(given), Sender)
        return msgspec.structs.replace(sender, user_id=writable_or_none(sender.user_id))
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError, RecursionError) as error:
        told = f"the sender of a prompt is not valid: {python_words(str(error))}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, told) from error


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
    kind, name, described = _described(output_type)

    def parse(text: str) -> object:
        try:
            return parse_json(_bare(text), kind)
        except Exception as error:  # a type of the user's may raise anything
            raise ValueError(str(error)) from error

    return OutputSpec(schema=OutputSchema(name=name, schema=described), parse=parse)


def _spec_of_schema(schema: JsonObject, output_type: object) -> OutputSpec:
    """Return what an answer needs that must match a schema, and then becomes of a type."""
    kind = Any if output_type is None else _described(output_type)[0]
    fault = schema_check(schema)

    def parse(text: str) -> object:
        bare = _bare(text)
        try:
            wrong = fault(parse_json(bare, Any))
            value = None if wrong else parse_json(bare, kind)
        except Exception as error:  # a schema may refer to what is not there
            raise ValueError(str(error)) from error
        if wrong:
            raise ValueError(wrong)
        return value

    return OutputSpec(
        schema=OutputSchema(name=_name_of(schema.get("title")), schema=schema), parse=parse
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
        told = "output_schema needs the package jsonschema: pip install jsonschema"
        raise ConfigError(ErrorCode.CONFIG_MISSING, told) from error
    kind = jsonschema.validators.validator_for(schema)
    try:
        msgspec.json.encode(schema)  # a model must be told of it
        kind.check_schema(schema)
    except (TypeError, ValueError, jsonschema.SchemaError) as error:
        told = f"{of} is not a JSON Schema: {getattr(error, 'message', error)}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, told) from error
    # With a registry of its own it fetches nothing that a schema refers to.
    checker = kind(schema, registry=late_module("referencing").Registry())

    def fault(value: object) -> str | None:
        wrong = jsonschema.exceptions.best_match(checker.iter_errors(value))
        return None if wrong is None else f"{wrong.json_path}: {wrong.message}"

    return fault


def _described(output_type: object) -> tuple[Any, str, JsonObject]:
    """Return a type as it is understood, its name for a model, and its schema."""
    try:
        kind = understood(output_type)
        described, components = describe_type(kind)
    except TypeError as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"output_type {output_type!r}: {error}"
        ) from error
    except RecursionError as error:  # also its `repr` would go too deep
        raise ConfigError(ErrorCode.CONFIG_INVALID, "output_type is nested too deeply") from error
    name = _name_of(getattr(output_type, "__name__", None))
    return kind, name, _inlined(described, components)


def _name_of(told: object) -> str:
    """Return the name of a schema, in the characters and the length that OpenAI takes."""
    name = told if isinstance(told, str) and told else "answer"
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def _inlined(described: JsonObject, components: JsonObject) -> JsonObject:
    """Put the type itself at the top, where providers want it, and its parts into `$defs`."""
    reference = described.get("$ref", "")
    own = reference.removeprefix("#/$defs/")
    top = components.get(own, described)
    # A type that refers to itself is needed in `$defs`, too.
    if own and reference not in msgspec.json.encode(components).decode():
        components = {key: value for key, value in components.items() if key != own}
    return {**top, "$defs": components} if components else top


def _bare(text: str) -> str:
    """Return JSON text without the fence that some models put around it."""
    # Not one pattern for both ends: with blanks on either side it takes cubic time.
    bare = text.strip()
    begin = _FENCE_BEGIN.match(bare)
    if begin is None or not bare.endswith(_FENCE_END, begin.end()):
        return text
    return bare[begin.end() : -len(_FENCE_END)].strip()
