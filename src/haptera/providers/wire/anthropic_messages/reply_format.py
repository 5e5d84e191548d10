"""Anthropic Messages: the events of a reply, and how its usage and errors are read."""

from collections.abc import Callable
from typing import TypeAlias, get_args

import msgspec

from haptera.model.errors import ErrorCode
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.stream_parts import FinishKind
from haptera.model.usage import Usage
from haptera.providers.wire.failures import Failure, FailureRules, code_table, error_object
from haptera.providers.wire.lenient_decoding import as_text, convert_leniently


class _Tagged(msgspec.Struct, tag_field="type"):
    """Types that differ in their `type` field; fields that are not declared are ignored."""


class TextDelta(_Tagged, tag="text_delta", gc=False):
    """More text."""

    text: str = ""


class ThinkingDelta(_Tagged, tag="thinking_delta", gc=False):
    """More thinking."""

    thinking: str = ""


class InputJsonDelta(_Tagged, tag="input_json_delta", gc=False):
    """More of a tool call's arguments."""

    partial_json: str = ""


class SignatureDelta(_Tagged, tag="signature_delta", gc=False):
    """The signature of a thinking block."""

    signature: str = ""


class CitationsDelta(_Tagged, tag="citations_delta"):
    """One citation of a text block."""

    citation: JsonObject = msgspec.field(default_factory=dict)


class CompactionDelta(_Tagged, tag="compaction_delta"):
    """The summary of a compaction, complete; `content` is None if it failed."""

    content: str | None = None
    encrypted_content: str | None = None
    signature: str | None = None


ContentDelta: TypeAlias = (
    TextDelta | ThinkingDelta | InputJsonDelta | SignatureDelta | CitationsDelta | CompactionDelta
)


class CacheCreation(msgspec.Struct):
    """Tokens written to the prompt cache, by lifetime."""

    ephemeral_1h_input_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    """What the output tokens were spent on."""

    thinking_tokens: int | None = None


class WireUsage(msgspec.Struct):
    """Token counts; any may be missing or null, and a later event overrides an earlier one."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None
    output_tokens_details: OutputDetails | None = None
    server_tool_use: Json = None
    iterations: Json = None


class MessageHead(msgspec.Struct):
    """The message at its start."""

    id: str | None = None
    model: str = ""
    usage: WireUsage | None = None
    content: list[JsonObject] = []
    """Complete blocks that the message already has at its start."""


class MessageTail(msgspec.Struct):
    """What is known at the end of the message."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = None
    container: Json = None


class MessageStart(_Tagged, tag="message_start"):
    """The answer begins."""

    message: MessageHead = msgspec.field(default_factory=MessageHead)


class BlockStart(_Tagged, tag="content_block_start"):
    """A content block begins; it is often still empty."""

    index: int
    content_block: JsonObject


class BlockDelta(_Tagged, tag="content_block_delta", gc=False):
    """A content block grows."""

    index: int
    delta: ContentDelta


class BlockStop(_Tagged, tag="content_block_stop", gc=False):
    """A content block is complete."""

    index: int


class MessageDelta(_Tagged, tag="message_delta"):
    """Why the answer ends, and what it used."""

    delta: MessageTail = msgspec.field(default_factory=MessageTail)
    usage: WireUsage | None = None
    context_management: Json = None


class MessageStop(_Tagged, tag="message_stop", gc=False):
    """The answer is complete."""


class WholeMessage(_Tagged, tag="message"):
    """The complete answer, from servers that do not stream."""

    id: str | None = None
    model: str = ""
    usage: WireUsage | None = None
    content: list[JsonObject] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = None
    container: Json = None


class Ping(_Tagged, tag="ping", gc=False):
    """A keep-alive."""


class ErrorEvent(_Tagged, tag="error"):
    """The answer failed after the reply had begun."""

    error: JsonObject
    request_id: str | None = None


ReplyEvent: TypeAlias = (
    MessageStart
    | BlockStart
    | BlockDelta
    | BlockStop
    | MessageDelta
    | MessageStop
    | WholeMessage
    | Ping
    | ErrorEvent
)

decode_event: Callable[[bytes], ReplyEvent] = msgspec.json.Decoder(ReplyEvent).decode
EVENT_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in get_args(ReplyEvent))
DELTA_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in get_args(ContentDelta))


def convert_event(value: JsonObject) -> ReplyEvent:
    """Convert decoded JSON to an event; raises msgspec.ValidationError, as `decode_event` does."""
    event: ReplyEvent = msgspec.convert(value, ReplyEvent)
    return event


# Usage and finish reasons

FINISH_KINDS: dict[str, FinishKind] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_window",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "compaction",
}


def read_usage(wire: WireUsage) -> Usage:
    """Return inclusive totals; the provider does not count cached tokens as input."""
    read = wire.cache_read_input_tokens or 0
    written = wire.cache_creation_input_tokens or 0
    written_1h = (wire.cache_creation and wire.cache_creation.ephemeral_1h_input_tokens) or 0
    details = wire.output_tokens_details
    return Usage(
        input=(wire.input_tokens or 0) + read + written,
        output=wire.output_tokens or 0,
        cache_read=read,
        cache_write=written,
        # Never more than all that was written, whatever a gateway reports.
        cache_write_1h=min(written, written_1h),
        reasoning=(details and details.thinking_tokens) or 0,
    )


def read_context_tokens(wire: WireUsage) -> int | None:
    """Return the tokens of the last round, where the totals are the sum of several; else None.

    A server's own tools let the model answer in rounds, and every round counts the whole
    conversation again. Where the rounds are not listed, 0: it is not known.
    """
    rounds = objects_in(wire.iterations)
    answers = [row for row in rounds if row.get("type") == "message"]
    if answers and len(rounds) > 1:
        return max(0, read_usage(convert_leniently(answers[-1], WireUsage)).total)
    if rounds:
        return None
    used = wire.server_tool_use
    has_rounds = isinstance(used, dict) and any(isinstance(n, int) and n for n in used.values())
    return 0 if has_rounds else None


# Errors

_SPEND_LIMIT = "spend_limit"
CODES = code_table({ErrorCode.QUOTA: _SPEND_LIMIT})


def _read(report: Json) -> Failure:
    error = error_object(report)
    details = error.get("details")
    detail = as_text(details.get("error_code")) if isinstance(details, dict) else ""
    kind = as_text(error.get("type"))
    return Failure(
        # The code of a spend limit contains the name of the limit.
        codes=(_SPEND_LIMIT, kind) if _SPEND_LIMIT in detail else (kind,) if kind else (),
        message=as_text(error.get("message")),
        request_id=as_text(report.get("request_id")) or None if isinstance(report, dict) else None,
    )


ERRORS = FailureRules(read=_read, codes=CODES)
