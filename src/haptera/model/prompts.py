"""Prompts as they are given: checked, and as the parts of a message."""

from collections.abc import Sequence

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import writable
from haptera.model.messages import UserMessage
from haptera.model.parts import MediaPart, Part, ReminderPart, TextPart, check_content

_PROMPT_PARTS = (TextPart, MediaPart, ReminderPart)
"""What a user can say; everything else is a model's, or the runtime's answer to it."""


def prompt_parts(prompt: object, *, may_be_empty: bool = False) -> tuple[Part, ...]:
    """Return the parts of a prompt, which is text, a message or a list of parts.

    Raises:
        ConfigError: CONFIG_INVALID when there is nothing in it, or something that cannot be said.

    """
    if isinstance(prompt, str):
        parts: tuple[Part, ...] = (TextPart(text=prompt),)
    else:
        items = prompt.parts if isinstance(prompt, UserMessage) else prompt
        if isinstance(items, bytes | bytearray) or not isinstance(items, Sequence):
            kind = type(prompt).__name__
            raise _no_prompt(f"a prompt must be text or a list of parts, not {kind}")
        parts = tuple(map(_prompt_part, items))
    says_something = any(not isinstance(part, TextPart) or part.text.strip() for part in parts)
    if not says_something and not may_be_empty:
        raise _no_prompt("Empty prompt: there is nothing to send")
    return tuple(
        msgspec.structs.replace(part, text=writable(part.text))
        if isinstance(part, TextPart | ReminderPart)
        else part
        for part in parts
    )


def _prompt_part(part: object) -> Part:
    if not isinstance(part, _PROMPT_PARTS):
        kind = type(part).__name__
        raise _no_prompt(
            f"a list as a prompt has parts, such as TextPart(text='Hello'), not {kind}"
        )
    try:
        return check_content(part)
    except ValueError as error:
        raise _no_prompt(f"a prompt cannot hold this: {error}") from error


def _no_prompt(message: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, message)
