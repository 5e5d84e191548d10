"""Requests that between them use every option and every part, for golden files and the grammar."""

from base64 import b64encode
from typing import Any

from haptera.model.compaction_settings import CompactionSettings
from haptera.model.ids import CallId, MessageId
from haptera.model.messages import AssistantMessage, UserMessage
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
from haptera.model.settings import Timeouts
from haptera.model.tools import ToolSpec
from haptera.providers.history import adapt_history
from haptera.providers.schema_targets import SchemaAdapter
from haptera.providers.wire import chat_completions
from haptera.providers.wire.chat_completions.dialects import Dialect
from haptera.providers.wire.protocol import WireRequest

MODELS = {
    "openai": "gpt-5",
    "azure": "my-gpt-5",
    "openrouter": "anthropic/claude-sonnet-4.5",
    "groq": "openai/gpt-oss-120b",
    "deepseek": "deepseek-v4-pro",
    "mistral": "mistral-small-latest",
    "xai": "grok-4.3",
    "cohere": "command-a-reasoning-08-2025",
    "together": "Qwen/Qwen3-235B",
    "fireworks": "accounts/fireworks/models/kimi-k2",
    "vllm": "Qwen/Qwen3-8B",
    "lmstudio": "openai/gpt-oss-20b",
    "llamacpp": "qwen3",
    "ollama": "qwen3",
    "compatible": "some-model",
}

SEEING_MODELS = {
    "openai": "gpt-4o-audio-preview",
    "groq": "meta-llama/llama-4-scout-17b-16e-instruct",
    "deepseek": "deepseek-flash",
    "cohere": "command-a-vision-07-2025",
    "lmstudio": "google/gemma-3-4b",
}
"""Models that take more than text, where those above do not."""

ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
    input_examples=({"a": 1, "b": 2},),
)
LOOK = ToolSpec(name="look", description="Take a picture.")
ANSWER = OutputSchema(
    name="answer",
    schema={
        "type": "object",
        "properties": {"sum": {"type": "number"}},
        "required": ["sum"],
        "additionalProperties": False,
    },
)


def user(*parts: Part | str) -> UserMessage:
    """Return a user message; strings are text."""
    made = tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)
    return UserMessage(id=MessageId("msg_u"), parts=made)


def assistant(*parts: Part | str, **fields: Any) -> AssistantMessage:
    """Return an assistant message; strings are text."""
    made = tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)
    return AssistantMessage(id=MessageId("msg_a"), parts=made, **fields)


def call(call_id: str, name: str = "add", **fields: Any) -> ToolCallPart:
    """Return a tool call."""
    return ToolCallPart(call_id=CallId(call_id), name=name, **fields)


def result(call_id: str, *content: TextPart | MediaPart, **fields: Any) -> ToolResultPart:
    """Return the answer to a tool call."""
    return ToolResultPart(
        call_id=CallId(call_id), name=fields.pop("name", "add"), content=content, **fields
    )


def media(mime: str, **fields: Any) -> MediaPart:
    """Return media with a little content."""
    if not fields.keys() & {"url", "blob"}:
        fields["data"] = b64encode(b"content").decode()
    return MediaPart(mime=mime, **fields)


def everything(dialect: Dialect) -> ModelRequest:
    """Return a request that sets every option."""
    return ModelRequest(
        model=MODELS[dialect.name],
        messages=(user("What is 1 + 2?", ReminderPart(text="Be quick.")),),
        system=("You add numbers.", "You are brief."),
        tools=(ADD, LOOK),
        require_tool="add",
        thinking="high",
        max_tokens=1000,
        temperature=0.5,
        stop=("END",),
        seed=7,
        output_schema=ANSWER,
        cache_ttl="1h",
        compaction=CompactionSettings(enabled=True, input_tokens=1000),
        betas={"store": True, "logprobs": False, "safe_prompt": True, "other-vendor-2025": True},
        timeouts=Timeouts(connect=1.0),
        parallel_tool_calls=False,
    )


def tool_loop(dialect: Dialect) -> ModelRequest:
    """Return a request in the middle of a loop, with a history that the same model wrote."""
    model = MODELS[dialect.name]
    details = [{"type": "reasoning.text", "text": "Add, then look.", "signature": "seal"}]
    sealed = {"type": "reasoning_details", "reasoning_details": [{"type": "reasoning.encrypted"}]}
    thought = ReasoningPart(
        text="Add, then look.",
        native={"field": "reasoning_content", "reasoning_details": details},
    )
    picture = media("image/png")
    said = assistant(
        thought,
        "Let me see.",
        call("Abcdef123", arguments={"a": 1, "b": 2}, native={"extra_content": {"seal": "x"}}),
        call("toolu_0123456789012345678901234567890123456789", "look"),
        call("functions.add:2", invalid='{"a": 1'),
        ProviderPart(provider=dialect.name, model=model, payload=sealed),
        provider=dialect.name,
        model=model,
    )
    answers = user(
        result("Abcdef123", TextPart(text="3")),
        result("toolu_0123456789012345678901234567890123456789", picture, name="look"),
        result("functions.add:2", outcome="error"),
        "and hurry",
        ReminderPart(text="Two files changed."),
    )
    refused = ProviderPart(
        provider=dialect.name, model=model, payload={"type": "refusal", "refusal": "I won't."}
    )
    return ModelRequest(
        model=model,
        messages=(
            user("Break in."),
            assistant(refused, provider=dialect.name, model=model),
            user("Then add, and look."),
            said,
            answers,
        ),
        tools=(ADD, LOOK),
        thinking="medium",
        cache_ttl="5m",
    )


def attachments(dialect: Dialect) -> ModelRequest:
    """Return a request with all sorts of media, after a compaction, where the model spoke last."""
    return ModelRequest(
        model=SEEING_MODELS.get(dialect.name, MODELS[dialect.name]),
        messages=(
            user(CompactionPart(text="They were looking at files.")),
            user(
                "Look:",
                media("image/png"),
                media("image/jpeg", url="https://example.org/a.jpg"),
                media("application/pdf", filename="a.pdf"),
                media("application/pdf", url="https://example.org/b.pdf"),
                media("audio/wav"),
                media("text/plain", filename="a.txt"),
                media("video/mp4"),
                media("image/png", blob="0" * 64),
            ),
            assistant("I see"),
            assistant("a file."),
        ),
        thinking="off",
        output_schema=OutputSchema(name="any", schema={"type": "object"}),
    )


EXAMPLES = {"everything": everything, "tool_loop": tool_loop, "attachments": attachments}


def encode(dialect: Dialect, request: ModelRequest, *, provider: str | None = None) -> WireRequest:
    """Encode a request as the client does: the history is adapted first."""
    protocol = chat_completions.protocol_for(dialect)
    adapted = adapt_history(request, provider=provider or dialect.name, rules=protocol.history)
    fitted = SchemaAdapter().adapt(adapted.request, protocol.schema_targets(request.model))
    return protocol.new_encoder()(fitted)
