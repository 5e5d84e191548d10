"""Short ways to write messages by hand in tests."""

from typing import Any

from haptera import AssistantMessage, TextPart, ToolCallPart, ToolResultPart, UserMessage
from haptera.model.ids import CallId, MessageId
from haptera.model.parts import CompactionPart, Part


def user(*parts: Part | str, name: str = "u") -> UserMessage:
    """Return a user message of these parts; text may be given as it is."""
    return UserMessage(id=MessageId(name), parts=tuple(map(_as_part, parts)))


def assistant(*parts: Part | str, name: str = "a") -> AssistantMessage:
    """Return an assistant message of these parts."""
    return AssistantMessage(id=MessageId(name), parts=tuple(map(_as_part, parts)))


def compaction(text: str = "summary", name: str = "c") -> UserMessage:
    """Return the message that stands for everything before it."""
    return UserMessage(id=MessageId(name), parts=(CompactionPart(text=text),))


def call(call_id: str, tool: str = "look", **arguments: Any) -> ToolCallPart:
    """Return a tool call."""
    return ToolCallPart(call_id=CallId(call_id), name=tool, arguments=arguments)


def answer(call_id: str, text: str = "seen", tool: str = "look") -> ToolResultPart:
    """Return the result of a tool call."""
    return ToolResultPart(call_id=CallId(call_id), name=tool, content=(TextPart(text=text),))


def _as_part(value: Part | str) -> Part:
    return TextPart(text=value) if isinstance(value, str) else value
