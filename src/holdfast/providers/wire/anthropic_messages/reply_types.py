"""Anthropic Messages: the events of a reply, as far as we look into them."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from holdfast.vocabulary.json_types import Json, JsonObject


class _Tagged(msgspec.Struct, tag_field="type"):
    """What is told apart by its `type`; fields that we do not name are passed over."""


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
    """The seal of a thinking block."""

    signature: str = ""


class CitationsDelta(_Tagged, tag="citations_delta"):
    """One citation of the text it stands in."""

    citation: JsonObject = msgspec.field(default_factory=dict)


class CompactionDelta(_Tagged, tag="compaction_delta"):
    """The summary of a compaction, whole; None when it failed."""

    content: str | None = None
    encrypted_content: str | None = None
    signature: str | None = None


Delta: TypeAlias = (
    TextDelta | ThinkingDelta | InputJsonDelta | SignatureDelta | CitationsDelta | CompactionDelta
)


class CacheCreation(msgspec.Struct):
    """Tokens written to the prompt cache, by lifetime."""

    ephemeral_1h_input_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    """What the output tokens were spent on."""

    thinking_tokens: int | None = None


class WireUsage(msgspec.Struct):
    """Token counts; every field may be missing or null, and a later frame overrides an earlier."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None
    output_tokens_details: OutputDetails | None = None
    server_tool_use: Json = None
    iterations: Json = None


class MessageHead(msgspec.Struct):
    """The message as it begins."""

    id: str | None = None
    model: str = ""
    usage: WireUsage | None = None
    content: list[JsonObject] = []
    """Blocks that were there before the answer began, whole."""


class MessageTail(msgspec.Struct):
    """What is known of the message when it ends."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = None
    container: Json = None


class MessageStart(_Tagged, tag="message_start"):
    """The answer begins."""

    message: MessageHead = msgspec.field(default_factory=MessageHead)


class BlockStart(_Tagged, tag="content_block_start"):
    """A content block begins; what it holds depends on its type, and is often nothing yet."""

    index: int
    content_block: JsonObject


class BlockDelta(_Tagged, tag="content_block_delta"):
    """A content block grows."""

    index: int
    delta: Delta


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


class WholeMessage(MessageHead, tag_field="type", tag="message"):
    """The answer in one piece, from servers that do not stream."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = None
    container: Json = None


class Ping(_Tagged, tag="ping", gc=False):
    """A sign of life."""


class ErrorEvent(_Tagged, tag="error"):
    """The answer failed after its reply began."""

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
EVENT_TYPES = frozenset(
    str(event.__struct_config__.tag)
    for event in (
        MessageStart,
        BlockStart,
        BlockDelta,
        BlockStop,
        MessageDelta,
        MessageStop,
        WholeMessage,
        Ping,
        ErrorEvent,
    )
)
DELTA_TYPES = frozenset(
    str(delta.__struct_config__.tag)
    for delta in (
        TextDelta,
        ThinkingDelta,
        InputJsonDelta,
        SignatureDelta,
        CitationsDelta,
        CompactionDelta,
    )
)


def convert_event(value: JsonObject) -> ReplyEvent:
    """Make an event of JSON that was decoded otherwise; raises what `decode_event` would."""
    event: ReplyEvent = msgspec.convert(value, ReplyEvent)
    return event
