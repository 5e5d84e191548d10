"""opencode's parts: texts, reasoning, files and tools with their state, to our parts and back."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from haptera.formats.forms import (
    UniqueCallIds,
    call_from,
    media_from_url,
    object_in,
    result_as_text,
    stand_in,
    text_in,
    tool_name,
    with_content,
)
from haptera.formats.message_builder import MessageBuilder
from haptera.formats.values import SessionExport
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ReasoningPart,
    ReminderPart,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    argument_object,
)

_SILENT = frozenset({"step-start", "step-finish"})
"""Parts that say when a turn began and what it used; the message says so, too."""


class Settled(NamedTuple):
    """What a part of an answer is for us: something said, and the result of a tool."""

    said: list[Part]
    results: list[ToolResultPart]


class PartWriter:
    """Writes parts as opencode keeps them. Owns the ids of calls across the conversation."""

    def __init__(self, export: SessionExport) -> None:
        self._export = export
        self._ids = UniqueCallIds()

    def said(self, part: Part) -> Iterator[JsonObject]:
        """Yield the part of a user message."""
        match part:
            case TextPart(text=text) if text:
                yield {"type": "text", "text": text}
            case ReminderPart(text=text) if text:
                yield {"type": "text", "text": text, "synthetic": True}
            case MediaPart():
                yield self._file(part) or {"type": "text", "text": stand_in(part)}
            case _:
                return

    def answered(
        self, part: Part, results: Mapping[CallId, ToolResultPart], time: int
    ) -> Iterator[JsonObject]:
        """Yield the part of an answer; a call has its result in it."""
        times = {"start": time, "end": time}
        match part:
            case TextPart(text=text) | CompactionPart(text=text) if text:
                yield {"type": "text", "text": text, "time": times}
            case ReasoningPart(text=text) if text:
                yield {"type": "reasoning", "text": text, "time": times}
            case ToolCallPart():
                state = self._state(part, results.get(part.call_id), times)
                call_id = self._ids.of_call(part.call_id)
                yield {"type": "tool", "callID": call_id, "tool": tool_name(part.name)} | {
                    "state": state
                }
            case _:
                return

    def _state(
        self, call: ToolCallPart, result: ToolResultPart | None, times: JsonObject
    ) -> JsonObject:
        state: JsonObject = {"input": argument_object(call), "time": times}
        if result is None:
            return {**state, "status": "error", "error": "There is no result of this call."}
        if result.is_error:
            return {**state, "status": "error", "error": result_as_text(result)}
        files = [
            each
            for piece in result.content
            if isinstance(piece, MediaPart) and (each := self._file(piece)) is not None
        ]
        texts = [
            piece.text if isinstance(piece, TextPart) else stand_in(piece)
            for piece in result.content
            if isinstance(piece, TextPart) or self._file(piece) is None
        ]
        return {
            **state,
            "status": "completed",
            "output": "".join(texts),
            "title": call.name,
            "metadata": {},
            **({"attachments": files} if files else {}),
        }

    def _file(self, part: MediaPart) -> JsonObject | None:
        part = with_content(part, self._export)
        where = part.url or (part.data_url if part.data and part.is_readable else None)
        if where is None:
            return None
        named = {"filename": part.filename} if part.filename else {}
        return {"type": "file", "mime": part.mime, "url": where, **named}


def read_said_part(part: JsonObject, builder: MessageBuilder) -> Part:
    """Return a part of a user message."""
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        if part.get("synthetic") is True:
            return ReminderPart(text=part["text"], persisted=True)
        return TextPart(text=part["text"])
    if kind == "file" and (media := _media_of(part)) is not None:
        return media
    return builder.opaque_part(part)


def read_answer_part(part: JsonObject, builder: MessageBuilder) -> Settled:
    """Return what a part of an answer is for us."""
    match text_in(part, "type"):
        case "text" if isinstance(part.get("text"), str):
            return Settled([TextPart(text=part["text"])], [])
        case "reasoning" if isinstance(part.get("text"), str):
            return Settled([ReasoningPart(text=part["text"])], [])
        case "tool" if text_in(part, "callID") and text_in(part, "tool"):
            return _tool_of(part)
        case kind if kind in _SILENT:
            return Settled([], [])
        case _:
            return Settled([builder.opaque_part(part)], [])


def _tool_of(part: JsonObject) -> Settled:
    name, state = text_in(part, "tool"), object_in(part, "state")
    call = call_from(text_in(part, "callID"), name, _arguments_of(state))
    content: list[ResultContent] = []
    match state.get("status"):
        case "completed":
            media = map(_media_of, objects_in(state.get("attachments")))
            content = [TextPart(text=text_in(state, "output")), *filter(None, media)]
            result = ToolResultPart(call_id=call.call_id, name=name, content=tuple(content))
        case "error":
            content = [TextPart(text=text_in(state, "error"))]
            result = ToolResultPart(
                call_id=call.call_id, name=name, outcome="error", content=tuple(content)
            )
        case _:
            return Settled([call], [])  # it was still to be settled
    return Settled([call], [result])


def _arguments_of(state: JsonObject) -> Json:
    return state.get("input", {})


def _media_of(part: JsonObject) -> MediaPart | None:
    mime, name = text_in(part, "mime"), text_in(part, "filename") or None
    return media_from_url(text_in(part, "url"), mime=mime, filename=name)
