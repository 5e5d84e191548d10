"""A fixed set of requests whose encoding is kept in golden/; run as a module to write it anew."""

import json
from pathlib import Path

import msgspec
from msgspec.structs import replace

from haptera.model.compaction_settings import CompactionSettings
from haptera.model.ids import CallId, MessageId
from haptera.model.json_types import JsonObject
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.model.requests import ModelRequest, OutputSchema
from haptera.model.tools import ToolSpec
from haptera.providers.schema_targets import SchemaAdapter
from haptera.providers.wire.anthropic_messages import PROTOCOL
from haptera.providers.wire.protocol import WireRequest

GOLDEN = Path(__file__).parent / "golden"
MODEL = "claude-sonnet-5"

WEATHER = ToolSpec(
    name="weather",
    description="Tell the weather of a city.",
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
    input_examples=({"city": "Oslo"},),
)
NOW = ToolSpec(name="now")
CITY = OutputSchema(
    name="city",
    schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "people": {"type": "integer", "minimum": 0},
            "twins": {"type": "array", "items": {"type": "object", "properties": {"name": {}}}},
        },
        "required": ["name"],
    },
)


def user(*parts: Part) -> UserMessage:
    """Make a message of the user."""
    return UserMessage(id=MessageId("msg_u"), parts=parts)


def assistant(*parts: Part) -> AssistantMessage:
    """Make a message of the model."""
    return AssistantMessage(id=MessageId("msg_a"), parts=parts, provider="anthropic", model=MODEL)


CONVERSATION: tuple[Message, ...] = (
    user(
        ReminderPart(text="The project is called Tern.", persisted=True),
        ReminderPart(text="It is Monday.", persisted=True),
        TextPart(text="What is in these, and how is the weather?"),
        MediaPart(mime="image/png", data="iVBORw0KGgo="),
        MediaPart(mime="image/jpeg", url="https://example.org/a.jpg"),
        MediaPart(mime="application/pdf", data="JVBERi0xLjQ=", filename="report.pdf"),
        MediaPart(mime="application/pdf", url="https://example.org/b.pdf"),
        MediaPart(mime="text/plain", data="R3LDvMOfZQ==", filename="notes.txt"),
    ),
    assistant(
        ReasoningPart(text="Look first.", signature="c2VhbA=="),
        ReasoningPart(text="Cut off, so without a seal."),
        ProviderPart(
            provider="anthropic",
            model=MODEL,
            payload={"type": "redacted_thinking", "data": "b3BhcXVl"},
        ),
        TextPart(
            text="A chart.",
            native={
                "citations": [
                    {
                        "type": "char_location",
                        "cited_text": "chart",
                        "document_index": 0,
                        "document_title": "report.pdf",
                        "start_char_index": 0,
                        "end_char_index": 5,
                    }
                ]
            },
        ),
        ToolCallPart(
            call_id=CallId("toolu_1"),
            name="weather",
            arguments={"city": "Oslo"},
            native={"caller": {"type": "direct"}},
        ),
        ToolCallPart(call_id=CallId("toolu_2"), name="now", invalid='{"zone": '),
        ToolCallPart(call_id=CallId("toolu_3"), name="now"),
    ),
    user(
        TextPart(text="Shorter, please."),
        ToolResultPart(
            call_id=CallId("toolu_1"),
            name="weather",
            content=(
                TextPart(text="Rain."),
                MediaPart(mime="image/png", data="iVBORw0KGgo="),
            ),
        ),
        ToolResultPart(call_id=CallId("toolu_2"), name="now", outcome="timed_out"),
        ToolResultPart(call_id=CallId("toolu_3"), name="now", content=(TextPart(text="Noon"),)),
        ReminderPart(text="Answer in one line."),
    ),
)

FULL = ModelRequest(
    model=MODEL,
    messages=CONVERSATION,
    system=("You are terse.", "You know the sea."),
    tools=(NOW, WEATHER),
    thinking="high",
    cache_ttl="1h",
)

REQUESTS: dict[str, ModelRequest] = {
    "plain": ModelRequest(model=MODEL, messages=(user(TextPart(text="Hello")),)),
    "conversation": FULL,
    "short_lived_cache": replace(FULL, cache_ttl="5m", thinking=None, messages=CONVERSATION[:1]),
    "budget_thinking": replace(FULL, model="claude-haiku-4-5", cache_ttl=None, thinking="medium"),
    "sampling": ModelRequest(
        model="claude-haiku-4-5",
        messages=(user(TextPart(text="Hello")),),
        max_tokens=100,
        temperature=0.2,
        stop=("END", " "),
        seed=7,
    ),
    "forced_tool": replace(
        FULL, messages=CONVERSATION[:1], require_tool="weather", parallel_tool_calls=False
    ),
    "provider_compacts": ModelRequest(
        model="claude-sonnet-4-6",
        messages=(
            assistant(CompactionPart(text="They greeted.", native={"signature": "c2VhbA=="})),
            user(TextPart(text="Go on")),
        ),
        thinking="max",
        compaction=CompactionSettings(enabled=True, input_tokens=60_000, pause_after=True),
        betas={"context-management-2025-06-27": True, "context-1m-2025-08-07": True},
    ),
    "provider_does_not_compact": ModelRequest(
        model="claude-sonnet-4-6",
        messages=(
            user(TextPart(text="Hi")),
            assistant(CompactionPart(text="They greeted.", native={"signature": "c2VhbA=="})),
            user(TextPart(text="Go on")),
        ),
        system=("Be kind.",),
        cache_ttl="1h",
        betas={"prompt-caching-scope-2026-01-05": True},
    ),
    "schema": replace(
        FULL, messages=CONVERSATION[:1], tools=(), thinking="low", output_schema=CITY
    ),
    "schema_by_tool": replace(
        FULL,
        model="claude-3-7-sonnet-20250219",
        messages=CONVERSATION[:1],
        thinking="low",
        output_schema=CITY,
    ),
}


def golden(wire: WireRequest) -> JsonObject:
    """Return an encoded request as it is kept."""
    return {
        "path": wire.path,
        "headers": wire.headers,
        "body": msgspec.json.decode(wire.body),
    }


def fitted(request: ModelRequest) -> ModelRequest:
    """Return a request with schemas as the client fits them."""
    return SchemaAdapter().adapt(request, PROTOCOL.schema_targets(request.model))


def encoded() -> dict[str, JsonObject]:
    """Return all requests, encoded; the last one asks for a count only."""
    made = {
        name: golden(PROTOCOL.new_encoder()(fitted(request))) for name, request in REQUESTS.items()
    }
    assert PROTOCOL.encode_count is not None
    return made | {"count": golden(PROTOCOL.encode_count(FULL))}


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, request in encoded().items():
        text = json.dumps(request, indent=2, ensure_ascii=False)
        (GOLDEN / f"{name}.json").write_text(text + "\n", encoding="utf-8")
