"""Conversations for the tests of this folder, and one plain form in which all can be compared."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from haptera.formats.values import ImportedSession, SessionExport, TimedMessage
from haptera.model.ids import CallId, MessageId, SessionId
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
)
from haptera.model.usage import Usage

A_TIME = 1_790_000_000_000
A_SESSION = SessionId("01990a5c-0000-7000-8000-00000000a0b1")


class Said(NamedTuple):
    """Something that was said, whatever the message it is in."""

    by: str
    what: Any


def heard(messages: Iterable[Message], *, errors: bool = True) -> list[Said]:
    """Return what is said in a conversation, in order: texts, calls, results; blank text left out.

    A result is told by the number of its call, because ids are not kept by every format. With
    `errors` it says whether it is one, which not every format can.
    """
    said: list[Said] = []
    calls: dict[CallId, int] = {}
    count = 0
    for message in messages:
        by = "assistant" if isinstance(message, AssistantMessage) else "user"
        for part in message.parts:
            match part:
                case TextPart(text=text) if text.strip():
                    said.append(Said(by, text))
                case CompactionPart(text=text) if text.strip():
                    said.append(Said("summary", text))
                case ToolCallPart():
                    arguments = part.arguments if part.invalid is None else part.invalid
                    calls[part.call_id] = count
                    count += 1
                    said.append(Said("call", (part.name, arguments)))
                case ToolResultPart():
                    failed = part.is_error if errors else None
                    text = part.text if part.text.strip() else ""
                    said.append(Said("result", (calls.get(part.call_id), failed, text)))
                case _:
                    continue
    return said


def heard_of(session: SessionExport | ImportedSession, *, errors: bool = True) -> list[Said]:
    """Return what is said in a session."""
    return heard((each.message for each in session.messages), errors=errors)


def user(number: int, *parts: Part | str) -> UserMessage:
    """Make a user message; a text is a text part."""
    return UserMessage(id=MessageId(f"msg_{number:04}"), parts=_parts(parts))


def assistant(number: int, *parts: Part | str, provider: str = "anthropic") -> AssistantMessage:
    """Make an answer."""
    return AssistantMessage(
        id=MessageId(f"msg_{number:04}"),
        parts=_parts(parts),
        provider=provider,
        model="made-up-1",
        usage=Usage(input=12, output=7, cache_read=3),
    )


def _parts(parts: Iterable[Part | str]) -> tuple[Part, ...]:
    return tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)


def call(name: str, call_id: str, **arguments: Any) -> ToolCallPart:
    """Make a call."""
    return ToolCallPart(call_id=CallId(call_id), name=name, arguments=arguments)


def result(name: str, call_id: str, text: str, outcome: ToolOutcome = "ok") -> ToolResultPart:
    """Make the result of a call."""
    content = (TextPart(text=text),)
    return ToolResultPart(call_id=CallId(call_id), name=name, outcome=outcome, content=content)


def exported(*messages: Message, **facts: Any) -> SessionExport:
    """Make a session to be written, one message a second."""
    timed = [
        TimedMessage(message=message, time=A_TIME + 1000 * place)
        for place, message in enumerate(messages)
    ]
    known = {"session_id": A_SESSION, "created": A_TIME, "updated": A_TIME + 60_000}
    return SessionExport(messages=tuple(timed), **{**known, "model": "mock/made-up-1", **facts})


A_CONVERSATION: tuple[Message, ...] = (
    user(1, "How high is the Galdhøpiggen?\nAnd the Glittertind? 🏔"),
    assistant(
        2,
        ReasoningPart(text="I do not know by heart."),
        "I look both up.",
        call("look_up", "call_1", mountain="Galdhøpiggen", unit="m"),
        call("look_up", "call_2", mountain="Glittertind", options={"exact": True, "tries": [1, 2]}),
    ),
    user(
        3,
        result("look_up", "call_1", "2469 m"),
        result("look_up", "call_2", "the register is closed", "error"),
    ),
    assistant(4, "Galdhøpiggen is 2469 m high.", call("look_up", "call_1", mountain="Glittertind")),
    user(5, result("look_up", "call_1", "2452 m"), 'Thank you. <b>And</b> "Snøhetta"?'),
    assistant(6, "That one is 2286 m."),
)
"""Two calls at once, one of them failed, an id that is used again, and a prompt beside a result."""
