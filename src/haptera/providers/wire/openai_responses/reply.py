"""OpenAI Responses: the decoder of one reply.

Text is read from the deltas, because the final `output` may be empty. A done event or the final
`output` is used only for what the deltas did not contain. A server that answers with one JSON body
instead of a stream is decoded as one frame.
"""

from collections.abc import Sequence

import msgspec

from haptera.formats.lenient_json import id_text
from haptera.kernel.blocks.stream_processor.aggregators import MANY_PIECES
from haptera.model.errors import ErrorCode, RequestError
from haptera.model.json_types import JsonObject
from haptera.model.stream_parts import (
    FinishKind,
    PartDelta,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.providers.wire.lenient_decoding import (
    DECODE_ERRORS,
    as_text,
    cut_off,
    decode_object_as,
)
from haptera.providers.wire.openai_responses.reply_assembly import OutputItems, Piece, PieceKind
from haptera.providers.wire.openai_responses.reply_format import (
    ERRORS,
    TEXT_DELTAS,
    Event,
    decode_event,
    decode_text_delta,
    read_cost,
    read_object,
    read_usage,
)
from haptera.providers.wire.protocol import Frame

_INCOMPLETE: dict[str, FinishKind] = {"max_output_tokens": "length", "content_filter": "refusal"}


class ResponsesDecoder:
    """Decodes one reply; implements `Decoder`.

    `response_id` and `sequence_number` are those of the last event that has them.
    """

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.sequence_number: int | None = None
        self._seen: int | None = None
        """The last event before the connection broke; events up to it are not decoded again."""
        self._items = OutputItems()
        self._piece: Piece | None = None
        """The piece that the last event added text to. Most events are more text for it."""
        self._piece_position: tuple[object, ...] = ()
        """Where that event said the piece is."""
        self._is_background = False
        self._is_open = False
        self._model = ""
        self._opened_as = ""
        """The name of the model as the opening has it."""
        self._is_finished = False

    def feed(self, frames: Sequence[Frame], out: list[StreamPart]) -> None:
        """Decode `frames` and append their parts to `out`."""
        self._items.out = out
        for frame in frames:
            if self._is_finished:
                break
            if (piece := self._piece) is not None:
                try:
                    more = decode_text_delta(frame.data)
                except DECODE_ERRORS:
                    pass
                else:
                    position = (type(more), more.output_index, more.item_id, more.index)
                    if position == self._piece_position and (text := more.delta):
                        if (number := more.sequence_number) is not None:
                            self.sequence_number = number
                        # As in `GrowingText.add`, without the call: the way of every delta.
                        piece.words.pieces.append(text)
                        piece.words.length += len(text)
                        out.append(PartDelta(piece.key, text))
                        continue
            self._take_frame(frame)
        if self._piece is not None and len(self._piece.words.pieces) > MANY_PIECES:
            self._piece.words.compact()

    def finish(self) -> Sequence[StreamPart]:
        """Raise STREAM_INTERRUPTED unless the response has ended; no parts are left."""
        if not self._is_finished:
            raise cut_off("the stream ended before the response did")
        return ()

    def resume(self) -> str | None:
        """Return where the rest of the reply is; the provider keeps background responses only."""
        if not self._is_background or self._is_finished or self.response_id is None:
            return None
        # The short way for deltas does not compare numbers, and what comes now may be a repetition.
        self._seen, self._piece = self.sequence_number, None
        after = "" if self._seen is None else f"&starting_after={self._seen}"
        return f"/{self.response_id}?stream=true{after}"

    def _take_frame(self, frame: Frame) -> None:
        """Decode a frame that may hold any event."""
        try:
            event = decode_event(frame.data)
        except DECODE_ERRORS:
            if frame.data == b"[DONE]":
                return
            event = decode_object_as(frame.data, Event)
        if event.type in {"", "error"} or frame.event == "error":
            event = _completed_event(event, frame)
        if (number := event.sequence_number) is not None:
            # Events from before the connection broke may be sent again.
            if self._seen is not None and number <= self._seen:
                return
            self.sequence_number = number
        self._react(event)

    def _react(self, event: Event) -> None:
        self._piece = None
        if (source := _PIECES.get(event.type)) is not None:
            self._on_piece(event, source)
            return
        match event.type.removeprefix("response."):
            case "function_call_arguments.delta" | "function_call_arguments.done":
                self._on_arguments(event, "function_call")
            case "custom_tool_call_input.delta" | "custom_tool_call_input.done":
                self._on_arguments(event, "custom_tool_call")
            case "output_item.added":
                self._on_item_added(event)
            case "output_item.done":
                self._on_item_done(event)
            case "created" | "queued" | "in_progress":
                self._note_response(read_object(event.response))
                # Without content there is time to wait for an event that names the model.
                if self._model and not self._is_open:
                    self._open()
            case "completed" | "done" | "incomplete" | "failed" | "cancelled":
                self._on_response_ended(event)

    # Pieces and calls

    def _on_piece(self, event: Event, source: "_Source") -> None:
        if not self._is_open:
            self._open()
        item = self._items.item_of(event, source.item)
        index = event.summary_index if source.letter == "s" else event.content_index
        piece = self._items.piece_of(item, f"{source.letter}{index or 0}", source.kind)
        text = event.delta or piece.rest_of(event.text or event.refusal)
        self._items.add_text(item, piece, text)
        # After a reconnection each event has to be compared with those that were seen, so the short
        # way is closed.
        if piece.is_open and not item.is_closed and self._seen is None:
            kind = TEXT_DELTAS.get(event.type)
            self._piece = piece
            self._piece_position = (kind, event.output_index, event.item_id, index)

    def _on_arguments(self, event: Event, kind: str) -> None:
        item = self._items.item_of(event, kind)
        if event.delta or not item.length:
            self._items.add_arguments(item, event.delta or event.arguments or event.input)

    # Items

    def _on_item_added(self, event: Event) -> None:
        if not self._is_open:
            self._open()
        if value := read_object(event.item):
            self._items.add(value, event.output_index)

    def _on_item_done(self, event: Event) -> None:
        if not self._is_open:
            self._open()
        value = read_object(event.item)
        if not value:
            return
        name = id_text(value.get("id")) or id_text(value.get("call_id")) or None
        probe = Event(output_index=event.output_index, item_id=name)
        self._items.end(self._items.item_of(probe, id_text(value.get("type"))), value)

    # The response

    def _on_response_ended(self, event: Event) -> None:
        response = read_object(event.response)
        status = as_text(response.get("status")) or event.type.removeprefix("response.")
        self._note_response(response)
        if not self._is_open:
            self._open()
        if status == "failed" or response.get("error"):
            raise ERRORS.error_in_stream(response)
        if status == "cancelled":
            raise RequestError(ErrorCode.ABORTED, "the response was cancelled at the provider")
        self._items.end_all(response.get("output"))
        self._is_finished = True
        self._items.out.append(self._finished(status, response))

    def _note_response(self, response: JsonObject) -> None:
        self.response_id = id_text(response.get("id")) or self.response_id
        self._model = self._model or as_text(response.get("model"))
        if response.get("store") is True:
            self._items.kept_as = self.response_id
        self._is_background = self._is_background or response.get("background") is True

    def _open(self) -> None:
        self._is_open, self._opened_as = True, self._model
        self._items.out.append(StreamOpened(model=self._model, response_id=self.response_id))

    def _finished(self, status: str, response: JsonObject) -> StreamFinished:
        details = response.get("incomplete_details")
        reason = as_text(details.get("reason")) if isinstance(details, dict) else ""
        native: JsonObject = {"response_id": self.response_id}
        if self._items.refusals:
            native["refusal"] = "".join(self._items.refusals)
        return StreamFinished(
            kind=self._kind_of(status, reason),
            reason=f"{status}:{reason}" if reason else status,
            usage=read_usage(response),
            cost=read_cost(response),
            native=native,
            model="" if self._opened_as else self._model,
        )

    def _kind_of(self, status: str, reason: str) -> FinishKind:
        if self._items.refusals:
            return "refusal"
        if status == "incomplete":
            return _INCOMPLETE.get(reason, "other")
        if status != "completed":
            return "other"
        return "tool_calls" if self._items.has_calls else "stop"


def _completed_event(event: Event, frame: Frame) -> Event:
    """Return an event whose type is missing in the data; raises the error that it may report.

    The type may be the name of the server-sent event, or the frame may be a complete response.
    """
    if not event.type and frame.event.startswith("response."):
        event.type = frame.event
    if event.type and event.type != "error" and frame.event != "error":
        return event
    value = read_object(frame.data)
    if value.get("object") == "response" or "output" in value:
        status = as_text(value.get("status"))
        # Any other status is an end, and `_on_response_ended` reads which.
        name = status if status in {"queued", "in_progress"} else "completed"
        return Event(type=f"response.{name}", response=msgspec.Raw(frame.data))
    if value.get("error") or "error" in {event.type, frame.event}:
        raise ERRORS.error_in_stream(value)
    return event


class _Source(msgspec.Struct, frozen=True):
    """Where the text of an event belongs: the type of its item, the list in it, its kind."""

    item: str
    letter: str
    kind: PieceKind


_SOURCES = {
    "output_text": _Source("message", "c", "text"),
    "refusal": _Source("message", "c", "refusal"),
    "reasoning_summary_text": _Source("reasoning", "s", "reasoning"),
    "reasoning_text": _Source("reasoning", "c", "reasoning"),
    # The first name of the same event; some servers still use it.
    "reasoning": _Source("reasoning", "c", "reasoning"),
}
_PIECES = {
    f"response.{name}.{end}": source
    for name, source in _SOURCES.items()
    for end in ("delta", "done")
}
