"""Prompts: from what a user says and wants to the input of a query, checked."""

import asyncio
import os
import re
from typing import Any

import msgspec
from msgspec.structs import replace

from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import PathInput
from haptera.agent.query_options import Prompt, QueryOptions, ResumeOptions, SendOptions
from haptera.kernel.blocks.tool_registry.foreign_types import (
    describe_type,
    parse_json,
    understood,
)
from haptera.kernel.blocks.tool_registry.registry import ToolRegistry
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import QueryId, new_message_id, new_query_id
from haptera.model.json_types import JsonObject, python_words, writable, writable_or_none
from haptera.model.messages import Sender, UserMessage
from haptera.model.parts import MediaPart, check_content
from haptera.model.prompts import prompt_parts
from haptera.model.requests import OutputSchema
from haptera.ports.runner import OutputSpec, QueryInput

_FENCE_BEGIN = re.compile(r"(?i)```(?:json)?")
_FENCE_END = "```"


def make_query(prompt: Prompt, options: QueryOptions[Any]) -> QueryInput:
    """Make the input of one query from its prompt and its checked options.

    Raises:
        ConfigError: CONFIG_INVALID when the prompt is empty, or when the output type or a tool
            cannot be used.

    """
    query_id = new_query_id()
    message = make_prompt(prompt, options, query_id)
    query = QueryInput(query_id=query_id, message=message, sender=message.sender)
    return with_options(query, options)


def with_options(query: QueryInput, options: ResumeOptions[Any]) -> QueryInput:
    """Return a query with what its options say; what they do not say stays as it is.

    Settings among them are left out: what they come to depends on those of the session.

    Raises:
        ConfigError: CONFIG_INVALID when the output type or a tool cannot be used.

    """
    tools, require_tool = options["tools"], options["require_tool"]
    said = {
        # None stands for "not said" in all of these, so that a resumed query keeps what it was
        # told.
        "reminders": tuple(map(writable, options["reminders"])) or None,
        "require_tool": require_tool and writable(require_tool),
        "transform": options["transform"],
        "output": output_spec(options["output_type"]),
        # `str` has no schema: it only says that `result.output` is the text of the answer.
        "wants_text": options["output_type"] is str or None,
        "timeout": options["timeout"],
        "tools": None if tools is None else ToolRegistry(tools),
        "deps": options["deps"],
    }
    return replace(query, **{name: value for name, value in said.items() if value is not None})


async def with_attachments(
    message: UserMessage, options: SendOptions, *, cwd: PathInput
) -> UserMessage:
    """Return a prompt with its attachments, which are read now; relative paths are from `cwd`.

    Raises:
        ConfigError: CONFIG_INVALID naming one that is missing, too large or of no known type.

    """
    sources = options["attachments"]
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
    parts = prompt_parts(prompt, may_be_empty=bool(options["attachments"]))
    given = prompt.sender if isinstance(prompt, UserMessage) else None
    sender = _sender(options["sender"] or given)
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


def output_spec(output_type: object) -> OutputSpec | None:
    """Return what an answer of this type needs; None when plain text is fine.

    Raises:
        ConfigError: CONFIG_INVALID when the type cannot be described to a model.

    """
    if output_type is None or output_type is str:
        return None
    # The characters and the length that OpenAI takes as the name of a schema.
    name = re.sub(r"[^A-Za-z0-9_-]", "_", getattr(output_type, "__name__", "answer"))[:64]
    try:
        kind = understood(output_type)
        described, components = describe_type(kind)
    except TypeError as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"output_type {output_type!r}: {error}"
        ) from error
    except RecursionError as error:  # also its `repr` would go too deep
        raise ConfigError(ErrorCode.CONFIG_INVALID, "output_type is nested too deeply") from error

    def parse(text: str) -> object:
        try:
            return parse_json(_bare(text), kind)
        except Exception as error:  # a type of the user's may raise anything
            raise ValueError(str(error)) from error

    schema = OutputSchema(name=name, schema=_inlined(described, components))
    return OutputSpec(schema=schema, parse=parse)


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
