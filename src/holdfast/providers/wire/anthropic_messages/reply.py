"""Anthropic Messages: the decoder of one reply."""

from collections.abc import Sequence
from typing import TypeVar, assert_never

import msgspec

from holdfast.providers.wire.anthropic_messages.errors import ERRORS
from holdfast.providers.wire.anthropic_messages.reply_blocks import (
    Block,
    implied_block,
    open_block,
)
from holdfast.providers.wire.anthropic_messages.reply_types import (
    DELTA_TYPES,
    EVENT_TYPES,
    BlockDelta,
    BlockStart,
    BlockStop,
    Delta,
    ErrorEvent,
    MessageDelta,
    MessageHead,
    MessageStart,
    MessageStop,
    MessageTail,
    Ping,
    ReplyEvent,
    TextDelta,
    WholeMessage,
    WireUsage,
    convert_event,
    decode_event,
)
from holdfast.providers.wire.failures import text_of
from holdfast.providers.wire.lenient_json import UNREADABLE, decode_lenient
from holdfast.providers.wire.protocol import Frame
from holdfast.providers.wire.what_fits import keep_what_fits
from holdfast.vocabulary.errors import ErrorCode, ProviderError, RequestError
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.stream_parts import (
    FinishKind,
    PartDelta,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from holdfast.vocabulary.usage import Usage

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


_AROUND: dict[str, type[MessageStart | MessageDelta | WholeMessage]] = {
    "message_start": MessageStart,
    "message_delta": MessageDelta,
    "message": WholeMessage,
}
"""What stands around an answer: an odd count in it does not spoil the answer."""
_WHOLE = -1
"""The place of a block that does not grow."""


class MessagesDecoder:
    """Decodes the frames of one reply; see `Decoder` for what it promises."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._text_keys: dict[int, str] = {}
        self._is_open = False
        self._is_finished = False
        self._usage = WireUsage()
        self._tail = MessageTail()
        self._native: JsonObject = {}
        self._block_count = 0

    def feed(self, frames: Sequence[Frame], out: list[StreamPart]) -> None:
        """Decode `frames`."""
        text_keys = self._text_keys
        for frame in frames:
            if self._is_finished:
                return
            try:
                event: ReplyEvent | None = decode_event(frame.data)
            except UNREADABLE:
                event = _decode_unusual(frame)
            # Nearly every frame is a text delta.
            if type(event) is BlockDelta and type(event.delta) is TextDelta:
                key = text_keys.get(event.index)
                if key is not None and event.delta.text:
                    out.append(PartDelta(key=key, text=event.delta.text))
                    continue
            if event is not None:
                self._take(event, out)

    def finish(self, out: list[StreamPart]) -> None:  # noqa: ARG002 - nothing is left to give
        """Take note that the body ended."""
        if not self._is_finished:
            raise RequestError(
                ErrorCode.STREAM_INTERRUPTED, "the answer ended before message_stop", basis="type"
            )

    def resume(self) -> str | None:
        """Say that nothing is kept of a reply that broke off."""
        return None

    def _take(self, event: ReplyEvent, out: list[StreamPart]) -> None:
        match event:
            case BlockDelta(index=index, delta=delta):
                self._grow(index, delta, out)
            case BlockStart(index=index, content_block=block):
                self._open_block(index, block, out)
            case BlockStop(index=index):
                self._close_block(index, out)
            case MessageStart(message=head):
                self._open(head, out)
            case MessageDelta():
                self._note_end(event)
            case MessageStop():
                self._finish(out)
            case WholeMessage():
                self._open(event, out)
                _override(self._tail, event)
                self._finish(out)
            case ErrorEvent(error=error, request_id=request_id):
                raise ERRORS.error_in_stream({"error": error, "request_id": request_id})
            case Ping():
                pass
            case _:
                assert_never(event)

    def _open(self, head: MessageHead, out: list[StreamPart]) -> None:
        if self._block_count:
            # Two answers in one body: the first was cut off, and what it gave cannot be unsaid.
            raise RequestError(
                ErrorCode.STREAM_INTERRUPTED, "the provider began its answer again", basis="type"
            )
        _override(self._usage, head.usage)
        if not self._is_open:
            self._is_open = True
            out.append(StreamOpened(model=head.model, response_id=head.id))
        for block in head.content:
            self._open_block(_WHOLE, block, out)
            self._close_block(_WHOLE, out)

    def _open_block(self, index: int, block: JsonObject, out: list[StreamPart]) -> None:
        if index in self._blocks:
            self._close_block(index, out)
        # A key of its own for every block, should a provider use an index twice.
        key = str(self._block_count)
        self._block_count += 1
        opened = self._blocks[index] = open_block(key, block, out)
        if block.get("type") == "text":
            self._text_keys[index] = opened.key
        elif block.get("type") == "fallback":
            to = block.get("to")
            self._native["model"] = to.get("model") if isinstance(to, dict) else None

    def _grow(self, index: int, delta: Delta, out: list[StreamPart]) -> None:
        block = self._blocks.get(index)
        if block is None:
            head = implied_block(delta)
            if head is None:
                return
            self._open_block(index, head, out)
            block = self._blocks[index]
        block.take(delta, out)

    def _close_block(self, index: int, out: list[StreamPart]) -> None:
        self._text_keys.pop(index, None)
        if block := self._blocks.pop(index, None):
            block.close(out)

    def _note_end(self, event: MessageDelta) -> None:
        _override(self._usage, event.usage)
        _override(self._tail, event.delta)
        if event.context_management is not None:
            self._native["context_management"] = event.context_management

    def _finish(self, out: list[StreamPart]) -> None:
        for index, block in list(self._blocks.items()):
            # A call that was not closed was cut off: left open, it never becomes a call.
            if not block.is_call:
                self._close_block(index, out)
        reason = self._tail.stop_reason
        if not reason:
            raise RequestError(
                ErrorCode.STREAM_INTERRUPTED, "the answer ended without a stop reason", basis="type"
            )
        self._is_finished = True
        out.append(
            StreamFinished(
                kind=FINISH_KINDS.get(reason, "other"),
                reason=reason,
                usage=_usage(self._usage),
                native=self._finish_native(),
            )
        )

    def _finish_native(self) -> JsonObject | None:
        tail, usage = self._tail, self._usage
        native = self._native | {
            "stop_sequence": tail.stop_sequence,
            "stop_details": tail.stop_details,
            "container": tail.container,
            "server_tool_use": usage.server_tool_use,
            "iterations": usage.iterations,
        }
        return {name: value for name, value in native.items() if value is not None} or None


def _decode_unusual(frame: Frame) -> ReplyEvent | None:
    """Decode a frame that is not exactly what we know; None when it is to be passed over."""
    if frame.data.strip() in {b"", b"[DONE]"}:
        return None
    if frame.event == "error":
        raise ERRORS.error_in_stream(_report(frame.data))
    value = decode_lenient(frame.data)
    if not isinstance(value, dict):
        return None
    # An event without a name is called `message`, which is also the type of a whole answer.
    kind = text_of(value.get("type")) or ("" if frame.event == "message" else frame.event)
    if kind == "error" or (kind not in EVENT_TYPES and value.get("error")):
        raise ERRORS.error_in_stream(value)
    delta = value.get("delta")
    is_known = kind in EVENT_TYPES and not (
        kind == "content_block_delta"
        and isinstance(delta, dict)
        and text_of(delta.get("type")) not in DELTA_TYPES
    )
    if not is_known:
        return None
    said = {name: _without_nulls(part) for name, part in _without_nulls(value).items()}
    try:
        return convert_event({**said, "type": kind})
    except msgspec.ValidationError as error:
        if (frame_kind := _AROUND.get(str(kind))) is not None:
            return keep_what_fits(said, frame_kind)
        raise ProviderError(
            ErrorCode.PROTOCOL, f"the provider sent a malformed {kind}: {error}", basis="type"
        ) from error


def _report(data: bytes) -> JsonObject:
    """Return what an event of the name `error` says, in whatever form."""
    try:
        value = decode_lenient(data)
    except ProviderError:
        value = data.decode("utf-8", "replace").strip()
    if isinstance(value, dict) and value.get("error"):
        return value
    return {"error": value}


def _without_nulls(value: Json) -> Json:
    """Leave out the fields that hold nothing: most servers that send them mean absent."""
    if not isinstance(value, dict):
        return value
    return {name: part for name, part in value.items() if part is not None}


OverriddenT = TypeVar("OverriddenT", WireUsage, MessageTail)


def _override(known: OverriddenT, later: OverriddenT | WholeMessage | None) -> None:
    """Take over what a later frame says."""
    for name in type(known).__struct_fields__:
        value = getattr(later, name, None)
        if value is not None:
            setattr(known, name, value)


def _usage(wire: WireUsage) -> Usage:
    """Return inclusive totals; the provider counts cached tokens beside its input, not in it."""
    read = wire.cache_read_input_tokens or 0
    written = wire.cache_creation_input_tokens or 0
    written_1h = (wire.cache_creation and wire.cache_creation.ephemeral_1h_input_tokens) or 0
    details = wire.output_tokens_details
    return Usage(
        input=(wire.input_tokens or 0) + read + written,
        output=wire.output_tokens or 0,
        cache_read=read,
        cache_write=written,
        cache_write_1h=min(written, written_1h),
        reasoning=(details and details.thinking_tokens) or 0,
    )
