"""Parts: the pieces a message is made of."""

import binascii
from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

import msgspec

from haptera.model.ids import CallId, PartId
from haptera.model.json_types import Json, JsonObject, Value, python_words


class _Part(Value, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What all parts share: immutable, keyword-only, tagged by `type`."""


class TextPart(_Part, frozen=True, kw_only=True, tag="text"):
    """Text of the user or the model."""

    text: str
    id: PartId | None = None
    native: JsonObject | None = None
    """What the provider attached and we do not model (citations, signatures)."""


class ReasoningPart(_Part, frozen=True, kw_only=True, tag="reasoning"):
    """What a model thought before it answered."""

    text: str
    id: PartId | None = None
    signature: str | None = None
    """The provider's seal; only the model that wrote it accepts it back."""
    native: JsonObject | None = None


class ToolCallPart(_Part, frozen=True, kw_only=True, tag="tool_call"):
    """A model's wish to run a tool."""

    call_id: CallId
    name: str
    arguments: Json = msgspec.field(default_factory=dict)
    id: PartId | None = None
    invalid: str | None = None
    """The raw argument text when it is not JSON; such a call is never run."""
    native: JsonObject | None = None


class MediaPart(_Part, frozen=True, kw_only=True, tag="media"):
    """An image, document or sound: exactly one of `data` (base64), `url` or `blob` is set."""

    mime: str
    filename: str | None = None
    data: str | None = None
    url: str | None = None
    blob: str | None = None
    """SHA-256 of content that the store keeps beside the log."""

    @property
    def has_one_content(self) -> bool:
        """Whether exactly one of the three is set."""
        return sum(item is not None for item in (self.data, self.url, self.blob)) == 1

    @property
    def is_readable(self) -> bool:
        """Whether `data`, if it is set, is base64 of something: providers refuse all else."""
        # Without `strict_mode`, characters outside of the alphabet would be ignored.
        try:
            return self.data is None or bool(binascii.a2b_base64(self.data, strict_mode=True))
        except ValueError:
            return False

    @property
    def data_url(self) -> str:
        """A `data:` URL that holds the content itself."""
        return f"data:{self.mime};base64,{self.data or ''}"

    @property
    def decoded_text(self) -> str:
        """The content of a medium that is text; data that is not base64 is returned as it is."""
        data = self.data or ""
        try:
            return binascii.a2b_base64(data, strict_mode=True).decode("utf-8", "replace")
        except ValueError:
            return data


ResultContent: TypeAlias = TextPart | MediaPart

ContentT = TypeVar("ContentT", bound=_Part)


def check_content(part: ContentT) -> ContentT:
    """Return a part that a program made by hand, with every field of the type it declares.

    Raises:
        ValueError: saying which field is not.

    """
    kind = type(part)
    try:
        # A struct does not check its fields when it is made.
        checked = msgspec.convert(msgspec.to_builtins(part), kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError(f"{kind.__name__} is not valid: {python_words(str(error))}") from error
    if isinstance(checked, MediaPart) and not checked.has_one_content:
        raise ValueError("MediaPart is not valid: exactly one of data, url and blob must be given")
    if isinstance(checked, MediaPart) and not checked.is_readable:
        raise ValueError("MediaPart is not valid: data must be base64 (RFC 4648, on one line)")
    return checked


ToolOutcome: TypeAlias = Literal[
    "ok", "error", "denied", "cancelled", "timed_out", "interrupted", "unknown"
]
"""How a tool call settled; the last two are only ever made at projection, never recorded."""


class ToolResultPart(_Part, frozen=True, kw_only=True, tag="tool_result"):
    """The answer to one tool call."""

    call_id: CallId
    name: str
    outcome: ToolOutcome = "ok"
    content: tuple[ResultContent, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether the model is told that the call did not succeed."""
        return self.outcome != "ok"

    @property
    def text(self) -> str:
        """The text of the result, media left out."""
        return text_of(self.content)


class ReminderPart(_Part, frozen=True, kw_only=True, tag="reminder"):
    """A note from the program to the model; recognised by its kind, never by its text."""

    text: str
    persisted: bool = False
    """Whether it is part of the history, or of one request only."""


class CompactionPart(_Part, frozen=True, kw_only=True, tag="compaction"):
    """What is sent instead of everything before it."""

    text: str
    id: PartId | None = None
    native: JsonObject | None = None


class ProviderPart(_Part, frozen=True, kw_only=True, tag="provider"):
    """Something a provider sent that we carry and replay to the same provider, but do not model."""

    provider: str
    model: str
    payload: JsonObject
    id: PartId | None = None


Part: TypeAlias = (
    TextPart
    | ReasoningPart
    | ToolCallPart
    | ToolResultPart
    | MediaPart
    | ReminderPart
    | CompactionPart
    | ProviderPart
)

PartKind: TypeAlias = Literal["text", "reasoning", "tool_call", "compaction", "provider"]
"""The kinds of parts that a model streams."""


def media_of(parts: tuple[Part, ...]) -> tuple[MediaPart, ...]:
    """Return the media that a user sent along; those inside results of tools are not."""
    return tuple(part for part in parts if isinstance(part, MediaPart))


def text_of(parts: Sequence[Part]) -> str:
    """Join the text parts, leaving everything else out."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def lines_of(parts: Sequence[Part]) -> str:
    """Join the text parts, each beginning on a new line, leaving everything else out."""
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def reminder_text(text: str) -> str:
    """Return a reminder as it is sent to a model."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


def argument_object(part: ToolCallPart) -> JsonObject:
    """Return a call's arguments as an object: servers and other programs take nothing else."""
    if part.invalid is not None:
        return {"invalid_json": part.invalid}
    return part.arguments if isinstance(part.arguments, dict) else {"value": part.arguments}
