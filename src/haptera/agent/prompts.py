"""Prompts: from what a user says and wants to the input of a query, checked."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import PathInput
from haptera.agent.outputs import wanted_output
from haptera.agent.query_options import Prompt, QueryOptions, SendOptions
from haptera.kernel.blocks.tool_registry.registry import ToolRegistry
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import QueryId, new_message_id, new_query_id
from haptera.model.json_types import python_words, writable, writable_or_none
from haptera.model.messages import Sender, UserMessage
from haptera.model.parts import MediaPart, check_content
from haptera.model.prompts import prompt_parts
from haptera.options.checks import filled
from haptera.options.declarations import declared_options
from haptera.ports.runner import QueryInput

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
    return with_options(query, given) if given else query


def with_options(query: QueryInput, given: Mapping[str, Any]) -> QueryInput:
    """Return a query with what its options say; what they do not say stays as it is.

    Settings among them are left out: what they come to depends on those of the session.

    Raises:
        ConfigError: CONFIG_INVALID when the output type or a tool cannot be used.

    """
    options: QueryOptions[Any] = filled(given, QueryOptions)
    output = wanted_output(options)
    wants_text = options.output_type is str and output is None
    settings = {
        "output": output,
        # `str` has no schema: it only says that `result.output` is the text of the answer.
        "wants_text": wants_text or None,
        "tools": None if options.tools is None else ToolRegistry(options.tools),
        "deps": options.deps,
    }
    for name in given.keys() & _OF_ENGINE:
        settings[name] = _storable(given[name])
    return replace(query, **{name: value for name, value in settings.items() if value is not None})


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
    sender = options.sender or (prompt.sender if isinstance(prompt, UserMessage) else None)
    sender = None if sender is None else _sender(sender)
    return UserMessage(id=new_message_id(), parts=parts, query_id=query_id, sender=sender)


def _sender(given: object) -> Sender:
    """Return who speaks, as a value of ours; plain values are fine, too."""
    try:
        # By way of plain values: a `Sender` is not checked when it is made, and one with a wrong
        # field could be stored but not be read back.
        sender = msgspec.convert(msgspec.to_builtins(given), Sender)
        return msgspec.structs.replace(sender, user_id=writable_or_none(sender.user_id))
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError, RecursionError) as error:
        message = f"the sender of a prompt is not valid: {python_words(str(error))}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, message) from error
