"""A transcript: a conversation written down for a model that was not part of it."""

from collections.abc import Sequence

import msgspec

from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

LONGEST_RESULT = 2_000
"""Characters of a call or a result where a model is not shown all of it."""


def transcript_of(messages: Sequence[Message], *, most: int | None = None) -> list[str]:
    """Write each message down that says something, without reasoning and reminders.

    A call and a result have at most so many characters, if `most` says how many.
    """
    return [text for message in messages if (text := _message_text(message, most))]


def _message_text(message: Message, most: int | None) -> str:
    lines = [line for part in message.parts if (line := part_text(part, most=most)).strip()]
    speaker = "Assistant" if isinstance(message, AssistantMessage) else "User"
    return f"{speaker}: " + "\n".join(lines) if lines else ""


def part_text(part: Part, *, most: int | None = None) -> str:
    """Write a part down; nothing for one that is not for another model."""
    match part:
        case TextPart(text=text) | CompactionPart(text=text):
            return text
        case ToolCallPart(name=name, arguments=arguments):
            encoded = msgspec.json.encode(arguments).decode()
            return f"[called {name}: {without_middle(encoded, most)}]"
        case ToolResultPart(name=name, outcome=outcome, content=content):
            shown = "\n".join(text for each in content if (text := part_text(each)))
            return f"[{name}: {outcome}: {without_middle(shown, most)}]"
        case MediaPart(mime=mime, filename=filename):
            return f"[{filename or mime}]"
        case _:
            return ""


def without_middle(text: str, most: int | None) -> str:
    """Return a text without its middle when it is too long: its end matters more."""
    if most is None or len(text) <= most:
        return text
    # A quarter is from the start, the rest from the end; `start - most` is negative.
    start = most // 4
    return f"{text[:start]}\n[… {len(text) - most} characters left out …]\n{text[start - most :]}"
