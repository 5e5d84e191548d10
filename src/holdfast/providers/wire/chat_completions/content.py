"""Lowers single parts to Chat Completions content: text, media, results of tools."""

from collections.abc import Iterable

from holdfast.providers.wire.chat_completions.dialects import Dialect
from holdfast.providers.wire.media import data_url, media_text
from holdfast.providers.wire.neutral_forms import reminder_text
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ReminderPart,
    TextPart,
    ToolResultPart,
)

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def lower_part(dialect: Dialect, part: Part) -> Iterable[JsonObject]:
    """Yield the content of a part of a user message; results are messages of their own."""
    if isinstance(part, TextPart | CompactionPart):
        if part.text:
            yield _text(part.text)
    elif isinstance(part, ReminderPart):
        if part.text:
            yield _text(reminder_text(part.text))
    elif isinstance(part, MediaPart):
        yield _media(dialect, part)


def as_content(pieces: list[JsonObject]) -> str | list[JsonObject]:
    """Join pieces that are nothing but text: every server reads a string."""
    if all(piece.keys() == {"type", "text"} for piece in pieces):
        return "\n\n".join(piece["text"] for piece in pieces)
    return pieces


def result_text(result: ToolResultPart) -> str:
    """Return a result as text; this protocol has no other place to say that a call failed."""
    text = result.text
    if not text:
        text = "(see below)" if result.content else "(no output)"
    if result.is_error:
        return f"[tool call {result.outcome.replace('_', ' ')}] {text}"
    return text


def content_of_results(dialect: Dialect, results: list[ToolResultPart]) -> list[JsonObject]:
    """Return the media of results: a tool's message holds text only, a user's may hold more."""
    pieces: list[JsonObject] = []
    for result in results:
        media = [part for part in result.content if isinstance(part, MediaPart)]
        if media:
            pieces.append(_text(f"From the tool {result.name} ({result.call_id}):"))
            pieces.extend(_media(dialect, part) for part in media)
    return pieces


def _media(dialect: Dialect, part: MediaPart) -> JsonObject:
    if part.mime.startswith("text/") and part.data is not None:
        text = media_text(part)
        return _text(f"{part.filename}:\n{text}" if part.filename else text)
    address = _address(dialect, part)
    if address is None:
        return _text(f"[{part.mime} left out: {part.filename or part.url or 'no content'}]")
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": address}}
    if part.mime in _AUDIO_FORMATS and part.data is not None:
        audio = {"data": part.data, "format": _AUDIO_FORMATS[part.mime]}
        return {"type": "input_audio", "input_audio": audio}
    return {"type": "file", "file": {"filename": part.filename or "file", "file_data": address}}


def _address(dialect: Dialect, part: MediaPart) -> str | None:
    """Return a URL for the content: its own, or one that holds it. Only images go by their own."""
    if part.data is not None:
        return data_url(part)
    return part.url if dialect.media_urls and part.mime.startswith("image/") else None


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}
