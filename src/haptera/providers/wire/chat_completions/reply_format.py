"""Chat Completions: what servers send, and how usage, finish reasons and errors are read.

Frames are decoded into typed structs. A frame with a field of the wrong type is decoded again,
leniently, without that field.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal

import msgspec

from haptera.model.errors import AgentError, ErrorCode, error_with_code
from haptera.model.json_types import Json, JsonObject
from haptera.model.stream_parts import FinishKind
from haptera.model.usage import Usage
from haptera.providers.wire.chat_completions.dialects import CostField
from haptera.providers.wire.failures import Failure, FailureRules, code_table, status_among
from haptera.providers.wire.lenient_decoding import (
    convert_leniently,
    cost_in_dollars,
    cost_in_ticks,
    decode_lenient,
    malformed,
)


class Function(msgspec.Struct, gc=False):
    """The function of a tool call, or a piece of it. Some servers send arguments as an object."""

    name: str | None = None
    arguments: str | JsonObject | list[Any] | None = None


class CustomTool(msgspec.Struct, gc=False):
    """The tool of a call whose input is free text, or a piece of it."""

    name: str | None = None
    input: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    """A tool call, or a piece of it; some servers leave out the index, some the id."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    custom: CustomTool | None = None
    extra_content: JsonObject | None = None
    """What the server wants back with the call, such as a signature."""


class Delta(msgspec.Struct, gc=False):
    """What a frame adds to the answer; a complete message has the same fields."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[JsonObject] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None
    annotations: list[Any] | None = None
    audio: JsonObject | None = None
    executed_tools: list[JsonObject] | None = None
    extra_content: JsonObject | None = None
    """What the server wants back with the message, such as a signature of its thoughts."""


class Choice(msgspec.Struct, gc=False):
    """One of the answers; only the one with index 0 is read."""

    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None
    """In place of `delta` if the server does not stream."""
    finish_reason: str | None = None
    logprobs: JsonObject | None = None
    usage: JsonObject | None = None
    error: Json = None
    """An error of this answer, from routers."""


class GroqExtras(msgspec.Struct, gc=False):
    """Groq's own field, which may hold the usage."""

    usage: JsonObject | None = None


class AnswerPiece(msgspec.Struct, gc=False):
    """One frame of a streamed answer, or a complete answer."""

    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: JsonObject | None = None
    x_groq: GroqExtras | None = None
    error: Json = None
    object: str | None = None
    """`error` for servers that send an error without an `error` field around it."""
    citations: list[Any] | None = None
    search_results: list[Any] | None = None


_END_MARK = b"[DONE]"
decode_piece = msgspec.json.Decoder(AnswerPiece).decode
"""Decodes one frame; raises one of `DECODE_ERRORS` for what `decode_unusual` is there for."""


def decode_unusual(data: bytes) -> AnswerPiece | None:
    """Decode a frame without its fields of the wrong type; None for the mark that ends a stream.

    Raises PROTOCOL for what is not a JSON object.
    """
    # The end mark is not JSON either and comes once, so it is looked for here and not before.
    if data.lstrip().startswith(_END_MARK):
        return None
    value = decode_lenient(data)
    # Google's compatible API wraps errors in a list.
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        raise malformed("sent a frame that is not a JSON object")
    return convert_leniently(value, AnswerPiece)


def is_error(piece: AnswerPiece) -> bool:
    """Whether a frame reports an error instead of an answer."""
    if piece.error is not None:
        return True
    return not piece.choices and piece.object == "error"


# Text and nothing else


class _TextDelta(msgspec.Struct, gc=False):
    """A `Delta` whose fields are null or absent, except for the text."""

    content: str
    reasoning_content: None = None
    reasoning: None = None
    reasoning_details: None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    annotations: None = None
    audio: None = None
    executed_tools: None = None


class _TextChoice(msgspec.Struct, gc=False):
    """A `Choice` that adds text and does not finish the answer."""

    delta: _TextDelta
    index: Literal[0] | None = 0
    finish_reason: Literal[""] | None = None
    logprobs: None = None
    usage: None = None
    error: None = None


class _TextPiece(msgspec.Struct, gc=False):
    """An `AnswerPiece` that holds one piece of text and nothing else."""

    choices: tuple[_TextChoice]
    usage: None = None
    x_groq: None = None
    error: None = None
    citations: None = None
    search_results: None = None


decode_text_piece = msgspec.json.Decoder(_TextPiece).decode
"""Decodes a frame that adds text and nothing else, as most frames of an answer do.

Raises one of `DECODE_ERRORS` for any other frame, so that no field has to be looked at.
"""


# Usage


def read_usage(reported: JsonObject | None) -> Usage:
    """Return a reported usage as inclusive totals with their breakdown.

    Prompt tokens include cached tokens at every server. Completion tokens include reasoning, except
    where the reported total shows that they do not.
    """
    if not reported:
        return Usage()
    prompt_details = _object(reported, "prompt_tokens_details")
    completion_details = _object(reported, "completion_tokens_details")
    prompt = _count(reported, "prompt_tokens")
    completion = _count(reported, "completion_tokens")
    reasoning = _first(
        _count(completion_details, "reasoning_tokens"), _count(reported, "reasoning_tokens")
    )
    # xAI counts reasoning beside the completion.
    if reasoning and _count(reported, "total_tokens") == prompt + completion + reasoning:
        completion += reasoning
    return Usage(
        input=prompt,
        output=completion,
        cache_read=_first(
            _count(prompt_details, "cached_tokens"),
            # DeepSeek's name for it.
            _count(reported, "prompt_cache_hit_tokens"),
            _count(reported, "cached_tokens"),
        ),
        cache_write=_count(prompt_details, "cache_write_tokens"),
        reasoning=reasoning,
    )


def read_cost(reported: JsonObject | None, field: CostField) -> Decimal | None:
    """Return the cost that the server reports, in US dollars; None if it reports none."""
    if not reported or field == "none":
        return None
    return cost_in_ticks(reported) if field == "usd_ticks" else cost_in_dollars(reported)


def _object(container: JsonObject, name: str) -> JsonObject:
    value = container.get(name)
    return value if isinstance(value, dict) else {}


def _count(container: JsonObject, name: str) -> int:
    value = container.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0


def _first(*counts: int) -> int:
    return next((count for count in counts if count), 0)


# Finish reasons

# Beside OpenAI's own: `eos` is Together's, `model_length` Mistral's, `sensitive` Z.ai's.
_FINISH_KINDS: dict[str, FinishKind] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "context_window",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "sensitive": "refusal",
}

_FAILED_REASONS = {
    "error": ErrorCode.SERVER_ERROR,
    "network_error": ErrorCode.SERVER_ERROR,
    "insufficient_system_resource": ErrorCode.OVERLOADED,
}
"""Finish reasons of an answer that the server did not complete."""


def finish_kind(reason: str, *, has_calls: bool, is_refused: bool) -> FinishKind:
    """Return why the model stopped.

    Some servers send `stop` after a required tool call or a refusal, so the content of the answer
    counts more than the reason.
    """
    kind = _FINISH_KINDS.get(reason.lower(), "other")
    if kind == "stop":
        if has_calls:
            return "tool_calls"
        return "refusal" if is_refused else "stop"
    if kind == "tool_calls" and not has_calls:
        return "stop"
    return kind


def failed_finish(reason: str) -> AgentError | None:
    """Return the error for a finish reason that is one, else None."""
    code = _FAILED_REASONS.get(reason.lower())
    if code is None:
        return None
    return error_with_code(code, f"The provider stopped its answer ({reason}).", basis="code")


# Errors

CODES = code_table(
    {
        ErrorCode.QUOTA: "insufficient_balance exceeded_current_quota_error",
        ErrorCode.OVERLOADED: "engine_overloaded_error server_overloaded",
        ErrorCode.MODEL_NOT_FOUND: "invalid_model model_decommissioned",
        ErrorCode.CONTEXT_LENGTH: "too_many_prompt_tokens",
        ErrorCode.CONTENT_FILTER: "moderation_blocked",
        ErrorCode.SERVER_ERROR: "internal_server_error",
    }
)


def _read(report: Json) -> Failure:
    """Read an error in any of the formats that servers use."""
    value = report[0] if isinstance(report, list) and report else report
    if not isinstance(value, dict):
        return Failure()
    error = value.get("error", value)
    details: JsonObject = error if isinstance(error, dict) else value
    codes = tuple(_codes(details))
    return Failure(
        codes=codes,
        message=error if isinstance(error, str) else _message(details),
        status=status_among(details.get("status_code"), *codes),
    )


def _message(details: JsonObject) -> str:
    reported = details.get("message") or details.get("detail") or details.get("msg") or ""
    message = reported if isinstance(reported, str) else msgspec.json.encode(reported).decode()
    metadata = details.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    # A router adds the message of the model's own server to its own.
    return f"{message}: {raw}" if isinstance(raw, str) and raw else message


def _codes(details: JsonObject) -> Iterator[str]:
    # Azure has the specific code one level deeper.
    inner = details.get("innererror")
    for container in (details, inner if isinstance(inner, dict) else {}):
        for name in ("code", "type"):
            code = container.get(name)
            if isinstance(code, str | int):
                yield str(code)


ERRORS = FailureRules(read=_read, codes=CODES)
