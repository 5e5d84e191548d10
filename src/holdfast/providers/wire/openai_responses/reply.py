"""Decodes the events of an OpenAI Responses reply into stream parts.

Text comes from the deltas, because the final `output` can be empty; a done event or the final
`output` is taken for it only where no delta came. A server that answers with one JSON body instead
of a stream is read as one frame.
"""

from collections.abc import Sequence

import msgspec

from holdfast.providers.wire.failures import text_of
from holdfast.providers.wire.lenient_json import word_of
from holdfast.providers.wire.openai_responses.errors import ERRORS
from holdfast.providers.wire.openai_responses.reply_items import OutputItems, PieceKind
from holdfast.providers.wire.openai_responses.reply_types import (
    Event,
    cost_of,
    read_any,
    read_event,
    usage_of,
)
from holdfast.providers.wire.protocol import Frame
from holdfast.vocabulary.errors import ErrorCode, RequestError
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.stream_parts import FinishKind, StreamFinished, StreamOpened, StreamPart

_INCOMPLETE: dict[str, FinishKind] = {"max_output_tokens": "length", "content_filter": "refusal"}


class ResponsesDecoder:
    """Holds what one reply has said so far."""

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.sequence_number: int | None = None
        self._seen: int | None = None
        """The last event before a connection broke; those up to it are not taken again."""
        self._items = OutputItems()
        self._is_background = False
        self._is_open = False
        self._is_finished = False

    def feed(self, frames: Sequence[Frame], out: list[StreamPart]) -> None:
        """Decode `frames` and append their parts to `out`."""
        self._items.out = out
        for frame in frames:
            if self._is_finished or frame.data == b"[DONE]":
                continue
            event = self._read(frame)
            if (number := event.sequence_number) is not None:
                if self._seen is not None and number <= self._seen:
                    continue
                self.sequence_number = number
            if (source := _PIECES.get(event.type)) is not None:
                self._on_piece(event, source)
            else:
                self._react(event)

    def finish(self, out: list[StreamPart]) -> None:  # noqa: ARG002
        """Take note that the body ended."""
        if not self._is_finished:
            words = "the stream ended before the response did"
            raise RequestError(ErrorCode.STREAM_INTERRUPTED, words, basis="type")

    def resume(self) -> str | None:
        """Say where the rest of a broken reply is; only what runs in the background is kept."""
        if not self._is_background or self._is_finished or self.response_id is None:
            return None
        self._seen = self.sequence_number
        after = "" if self._seen is None else f"&starting_after={self._seen}"
        return f"/{self.response_id}?stream=true{after}"

    def _read(self, frame: Frame) -> Event:
        event = read_event(frame.data)
        if not event.type and frame.event.startswith("response."):
            event.type = frame.event
        if event.type and event.type != "error" and frame.event != "error":
            return event
        value = read_any(frame.data)
        if value.get("object") == "response" or "output" in value:
            return Event(type="response.completed", response=msgspec.Raw(frame.data))
        if value.get("error") or "error" in {event.type, frame.event}:
            raise ERRORS.error_in_stream(value)
        return event

    def _react(self, event: Event) -> None:
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
                self._open(read_any(event.response))
            case "completed" | "done" | "incomplete" | "failed" | "cancelled":
                self._on_response_ended(event)

    # Pieces and calls

    def _on_piece(self, event: Event, source: "_Source") -> None:
        if not self._is_open:
            self._open({})
        item = self._items.item_of(event, source.item)
        index = (event.summary_index if source.letter == "s" else event.content_index) or 0
        piece = self._items.piece_of(item, f"{source.letter}{index}", source.kind)
        text = event.delta or piece.rest_of(event.text or event.refusal)
        self._items.say(item, piece, text)

    def _on_arguments(self, event: Event, kind: str) -> None:
        item = self._items.item_of(event, kind)
        if event.delta or not item.length:
            self._items.argue(item, event.delta or event.arguments or event.input)

    # Items

    def _on_item_added(self, event: Event) -> None:
        if not self._is_open:
            self._open({})
        if value := read_any(event.item):
            self._items.add(value, event.output_index)

    def _on_item_done(self, event: Event) -> None:
        if not self._is_open:
            self._open({})
        value = read_any(event.item)
        if not value:
            return
        name = word_of(value.get("id")) or word_of(value.get("call_id")) or None
        probe = Event(output_index=event.output_index, item_id=name)
        self._items.end(self._items.item_of(probe, word_of(value.get("type"))), value)

    # The response

    def _on_response_ended(self, event: Event) -> None:
        response = read_any(event.response)
        status = text_of(response.get("status")) or event.type.removeprefix("response.")
        self._open(response)
        if status == "failed" or response.get("error"):
            raise ERRORS.error_in_stream(response)
        if status == "cancelled":
            raise RequestError(ErrorCode.ABORTED, "the response was cancelled at the provider")
        self._items.end_all(response.get("output"))
        self._is_finished = True
        self._items.out.append(self._finished(status, response))

    def _open(self, response: JsonObject) -> None:
        self.response_id = word_of(response.get("id")) or self.response_id
        if response.get("store") is True:
            self._items.kept_as = self.response_id
        self._is_background = self._is_background or response.get("background") is True
        if not self._is_open:
            self._is_open = True
            model = text_of(response.get("model"))
            self._items.out.append(StreamOpened(model=model, response_id=self.response_id))

    def _finished(self, status: str, response: JsonObject) -> StreamFinished:
        details = response.get("incomplete_details")
        reason = text_of(details.get("reason")) if isinstance(details, dict) else ""
        native: JsonObject = {"response_id": self.response_id}
        if self._items.refusals:
            native["refusal"] = "".join(self._items.refusals)
        return StreamFinished(
            kind=self._kind_of(status, reason),
            reason=f"{status}:{reason}" if reason else status,
            usage=usage_of(response),
            cost=cost_of(response),
            native=native,
        )

    def _kind_of(self, status: str, reason: str) -> FinishKind:
        if self._items.refusals:
            return "refusal"
        if status == "incomplete":
            return _INCOMPLETE.get(reason, "other")
        if status != "completed":
            return "other"
        return "tool_calls" if self._items.has_calls else "stop"


class _Source(msgspec.Struct, frozen=True):
    """Where a piece of text belongs: the type of its item, its place there, its kind."""

    item: str
    letter: str
    kind: PieceKind


_SOURCES = {
    "output_text": _Source("message", "c", "text"),
    "refusal": _Source("message", "c", "refusal"),
    "reasoning_summary_text": _Source("reasoning", "s", "reasoning"),
    "reasoning_text": _Source("reasoning", "c", "reasoning"),
    # What the same was called at first; some servers still do.
    "reasoning": _Source("reasoning", "c", "reasoning"),
}
_PIECES = {
    f"response.{name}.{end}": source
    for name, source in _SOURCES.items()
    for end in ("delta", "done")
}
