"""Requests and histories that encoders are tried with: between them they use every option."""

from haptera.model.compaction_settings import CompactionSettings
from haptera.model.ids import CallId, MessageId
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
)
from haptera.model.requests import ModelRequest, OutputSchema
from haptera.model.tools import ToolSpec

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = "JVBERi0xLjQK"

WEATHER = ToolSpec(
    name="get_weather",
    description="Tell the weather of a city.",
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": ["integer", "null"]}},
        "required": ["city"],
        "additionalProperties": False,
        "$schema": "http://json-schema.org/draft-07/schema#",
    },
    input_examples=({"city": "Oslo", "days": 2},),
)
CLOCK = ToolSpec(name="clock")
ANSWER = OutputSchema(
    name="the answer",
    is_strict=True,
    schema={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


def user(*parts: Part | str) -> UserMessage:
    """Make a user message; a text stands for itself."""
    return UserMessage(id=MessageId("msg_u"), parts=tuple(map(_part, parts)))


def assistant(*parts: Part | str, model: str = "", provider: str = "") -> AssistantMessage:
    """Make an answer; a text stands for itself."""
    made = tuple(map(_part, parts))
    return AssistantMessage(id=MessageId("msg_a"), parts=made, model=model, provider=provider)


def _part(part: Part | str) -> Part:
    return TextPart(text=part) if isinstance(part, str) else part


def call(name: str, call_id: str, arguments: Json = None, **native: Json) -> ToolCallPart:
    """Make a tool call."""
    return ToolCallPart(
        call_id=CallId(call_id), name=name, arguments=arguments or {}, native=native or None
    )


def result(
    name: str, call_id: str, *content: str | MediaPart, outcome: ToolOutcome = "ok"
) -> ToolResultPart:
    """Make the result of a tool call."""
    made = tuple(TextPart(text=each) if isinstance(each, str) else each for each in content)
    return ToolResultPart(call_id=CallId(call_id), name=name, outcome=outcome, content=made)


def image() -> MediaPart:
    """Make a small image."""
    return MediaPart(mime="image/png", data=PIXEL, filename="dot.png")


def loop_history() -> tuple[Message, ...]:
    """Return a history as another provider would have left it: no ids, no seals."""
    return (
        user("Weather in Paris and the time?", image()),
        assistant(
            "I will look.",
            call("get_weather", "call_1", {"city": "Paris"}),
            call("clock", "call_2"),
        ),
        user(
            result("get_weather", "call_1", "sunny"),
            result("clock", "call_2", "no clock", outcome="error"),
            "Go on.",
        ),
        assistant("It is sunny."),
        user(
            CompactionPart(text="Earlier: small talk."), "Thanks.", ReminderPart(text="Be brief.")
        ),
    )


def everything(model: str, **changes: Json) -> ModelRequest:
    """Return a request that uses every option that protocols have a field for."""
    options: JsonObject = {
        "model": model,
        "messages": loop_history(),
        "system": ("Be kind.", "Be exact."),
        "tools": (WEATHER, CLOCK),
        "require_tool": "clock",
        "thinking": "high",
        "max_tokens": 500,
        "temperature": 0.5,
        "stop": ("END",),
        "seed": 7,
        "output_schema": ANSWER,
        "cache_ttl": "1h",
        "compaction": CompactionSettings(enabled=True, input_tokens=50_000),
        "parallel_tool_calls": False,
    }
    return ModelRequest(**(options | changes))
