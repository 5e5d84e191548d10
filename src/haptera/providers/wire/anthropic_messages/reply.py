"""Anthropic Messages: the decoder of one reply."""

from collections.abc import Sequence
from typing import TypeVar, assert_never

import msgspec

from haptera.model.errors import ProviderError
from haptera.model.json_types import Json, JsonObject
from haptera.model.stream_parts import (
    PartDelta,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.providers.wire.anthropic_messages.reply_assembly import (
    ReplyBlock,
    implied_block,
    open_block,
)
from haptera.providers.wire.anthropic_messages.reply_format import (
    DELTA_TYPES,
    ERRORS,
    EVENT_TYPES,
    FINISH_KINDS,
    BlockDelta,
    BlockStart,
    BlockStop,
    ContentDelta,
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
    read_context_tokens,
    read_usage,
)
from haptera.providers.wire.lenient_decoding import (
    DECODE_ERRORS,
    as_text,
    convert_leniently,
    cut_off,
    decode_lenient,
    malformed,
)
from haptera.providers.wire.protocol import Frame

_ENVELOPES: dict[str, type[MessageStart | MessageDelta | WholeMessage]] = {
    "message_start": MessageStart,
    "message_delta": MessageDelta,
    "message": WholeMessage,
}
"""Events around the content. A malformed field in them is left out; the answer is still used."""
_COMPLETE = -1
"""The index of a block that arrives complete."""


class MessagesDecoder:
    """Decodes the frames of one reply; implements `Decoder`."""

    def __init__(self) -> None:
        self._blocks: dict[int, ReplyBlock] = {}
        self._text_keys: dict[int, str] = {}
        """The part keys of open text blocks, by index: most frames are text deltas."""
        self._is_open = False
        self._is_finished = False
        self._usage = WireUsage()
        self._tail = MessageTail()
        self._native: JsonObject = {}
        self._block_count = 0

    def feed(self, frames: Sequence[Frame], out: list[StreamPart]) -> None:
        """Decode `frames` and append their parts to `out`."""
        if self._is_finished:
            return
        text_keys = self._text_keys
        for frame in frames:
            try:
                event: ReplyEvent | None = decode_event(frame.data)
            except DECODE_ERRORS:
                event = _decode_unusual(frame)
            if type(event) is BlockDelta and type(delta := event.delta) is TextDelta:
                key = text_keys.get(event.index)
                # Nearly every event is such a delta, so it is handled here without a call.
                if key is not None and delta.text:
                    out.append(PartDelta(key, delta.text))
                    continue
            if event is not None:
                self._take(event, out)
                if self._is_finished:
                    return

    def finish(self) -> Sequence[StreamPart]:
        """Raise STREAM_INTERRUPTED unless `message_stop` was received; no parts are left."""
        if not self._is_finished:
            raise cut_off("the answer ended before message_stop")
        return ()

    def resume(self) -> str | None:
        """Return None: the provider does not keep a reply that broke off."""
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

    def _open(self, head: MessageHead | WholeMessage, out: list[StreamPart]) -> None:
        if self._block_count:
            # A second answer in one body: the first was cut off, and its parts are out already.
            raise cut_off("the provider started its answer a second time")
        _override(self._usage, head.usage)
        # Some gateways send `message_start` twice before any content.
        if not self._is_open:
            self._is_open = True
            out.append(StreamOpened(model=head.model, response_id=head.id))
        for block in head.content:
            self._open_block(_COMPLETE, block, out)
            self._close_block(_COMPLETE, out)

    def _open_block(self, index: int, block: JsonObject, out: list[StreamPart]) -> None:
        # The block before it at this index was never stopped.
        if index in self._blocks:
            self._close_block(index, out)
        # Not the index as key, because a provider may use an index twice.
        key = str(self._block_count)
        self._block_count += 1
        opened = self._blocks[index] = open_block(key, block, out)
        if block.get("type") == "text":
            self._text_keys[index] = opened.key
        elif block.get("type") == "fallback":
            # Another model has answered in place of the one that was asked.
            to = block.get("to")
            self._native["model"] = to.get("model") if isinstance(to, dict) else None

    def _grow(self, index: int, delta: ContentDelta, out: list[StreamPart]) -> None:
        block = self._blocks.get(index)
        if block is None:
            head = implied_block(delta)
            if head is None:
                return
            self._open_block(index, head, out)
            block = self._blocks[index]
        if text := block.take(delta):
            out.append(PartDelta(key=block.key, text=text))

    def _close_block(self, index: int, out: list[StreamPart]) -> None:
        self._text_keys.pop(index, None)
        if block := self._blocks.pop(index, None):
            block.close(out)

    def _note_end(self, event: MessageDelta) -> None:
        # The counts of `message_start` are provisional: gateways send zeros there, and the real
        # ones here.
        _override(self._usage, event.usage)
        _override(self._tail, event.delta)
        if event.context_management is not None:
            self._native["context_management"] = event.context_management

    def _finish(self, out: list[StreamPart]) -> None:
        for index, block in list(self._blocks.items()):
            # A call that was not closed was cut off. It is left open, so that it is never run.
            if not block.is_call:
                self._close_block(index, out)
        reason = self._tail.stop_reason
        if not reason:
            raise cut_off("the answer ended without a stop reason")
        self._is_finished = True
        out.append(
            StreamFinished(
                kind=FINISH_KINDS.get(reason, "other"),
                reason=reason,
                usage=read_usage(self._usage),
                context_tokens=read_context_tokens(self._usage),
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
    """Decode a frame that is not a known event as declared; None if it is to be ignored."""
    # OpenRouter ends a stream in this protocol with the mark of another one.
    if frame.data.strip() in {b"", b"[DONE]"}:
        return None
    if frame.event == "error":
        raise ERRORS.error_in_stream(_report(frame.data))
    value = decode_lenient(frame.data)
    if not isinstance(value, dict):
        return None
    # The event name defaults to `message`, which is also the type of a complete answer.
    kind = as_text(value.get("type")) or ("" if frame.event == "message" else frame.event)
    if kind == "error" or (kind not in EVENT_TYPES and value.get("error")):
        raise ERRORS.error_in_stream(value)
    delta = value.get("delta")
    is_known = kind in EVENT_TYPES and not (
        kind == "content_block_delta"
        and isinstance(delta, dict)
        and as_text(delta.get("type")) not in DELTA_TYPES
    )
    if not is_known:
        return None
    fields = {name: _without_nulls(part) for name, part in _without_nulls(value).items()}
    try:
        return convert_event({**fields, "type": kind})
    except msgspec.ValidationError as error:
        if (frame_kind := _ENVELOPES.get(str(kind))) is not None:
            return convert_leniently(fields, frame_kind)
        raise malformed(f"sent a malformed {kind}: {error}") from error


def _report(data: bytes) -> JsonObject:
    """Return the error report of an `error` event, in whatever form it came."""
    try:
        value = decode_lenient(data)
    except ProviderError:
        value = data.decode("utf-8", "replace").strip()
    if isinstance(value, dict) and value.get("error"):
        return value
    return {"error": value}


def _without_nulls(value: Json) -> Json:
    """Leave out null fields: most servers that send them mean that the field is absent."""
    if not isinstance(value, dict):
        return value
    return {name: part for name, part in value.items() if part is not None}


OverriddenT = TypeVar("OverriddenT", WireUsage, MessageTail)


def _override(known: OverriddenT, later: OverriddenT | WholeMessage | None) -> None:
    """Copy the fields that a later event sets."""
    for name in type(known).__struct_fields__:
        value = getattr(later, name, None)
        if value is not None:
            setattr(known, name, value)
