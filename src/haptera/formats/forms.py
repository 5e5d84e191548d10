"""Forms that several formats share: times, ids, arguments, media, results, fields of others."""

import base64
import datetime
import re
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from uuid import UUID, uuid5

import msgspec

from haptera.formats.values import SessionExport
from haptera.model.believed_values import LATEST, moment_of, summable_cost
from haptera.model.ids import CallId, SessionId, parse_session_id
from haptera.model.json_types import Json, JsonObject, is_too_deep
from haptera.model.messages import Message
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.model.usage import Usage

_LONGEST_COST = 60
_MOST = 2**53
"""The largest count that is believed."""
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_ID = 64
_DATA_URL = re.compile(r"data:(?P<mime>[\w.+-]+/[\w.+-]+)(?P<parameters>;[\w=.+;-]*+),(?P<data>.*)")
_NAMES = UUID("6f9b0b6e-6f0f-5c53-8a43-5d1f4f0a7c11")
"""Where UUIDs are derived from; any would do, as long as it stays the same."""
_REMINDER = re.compile(r"<system-reminder>\n(.*)\n</system-reminder>\n*", re.DOTALL)


def session_uuid(session_id: SessionId) -> str:
    """Return the session's id, or a UUID made from it where it is none."""
    return parse_session_id(session_id) or derived_uuid(session_id)


def derived_uuid(name: str) -> str:
    """Return a UUID that is always the same for a name."""
    return str(uuid5(_NAMES, name))


def json_line(value: Json) -> bytes:
    """Write a value as one line of JSON with its line end."""
    return msgspec.json.encode(value) + b"\n"


def iso_time(milliseconds: int) -> str:
    """Write a time as `2026-01-31T12:00:00.000Z`."""
    return moment_of(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds_of(value: Json) -> int:
    """Read a time that is an ISO text or a number of milliseconds; 0 for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if 0 <= value <= LATEST else 0
    if not isinstance(value, str):
        return 0
    try:
        moment = datetime.datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return max(0, round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        return 0


def text_in(value: Json, *names: str) -> str:
    """Return the first of an object's fields that is a text; empty if there is none."""
    if isinstance(value, dict):
        for name in names:
            if isinstance(value.get(name), str):
                return str(value[name])
    return ""


def object_in(value: Json, name: str) -> JsonObject:
    """Return a field that is an object; an empty one if it is not."""
    inner = value.get(name) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def number_in(value: Json, name: str) -> int:
    """Return a count of something, which is never below zero; 0 if it is none."""
    number = value.get(name) if isinstance(value, dict) else None
    # A bool is an int in Python, and no count.
    if isinstance(number, bool) or not isinstance(number, int):
        return 0
    return min(max(0, number), _MOST)


def cost_in(value: Json, name: str) -> Decimal | None:
    """Return a sum of money; None if it is none."""
    return known_cost(value.get(name)) if isinstance(value, dict) else None


def known_cost(found: Json) -> Decimal | None:
    """Return a value as a sum of money that can be added to others; None if it is none."""
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    # Through text: `Decimal(0.1)` has 55 digits.
    text = str(found)
    try:
        cost = Decimal(text) if len(text) <= _LONGEST_COST else None
    except InvalidOperation:
        return None
    return summable_cost(cost)


def split_usage(*, fresh: int, read: int, written: int, output: int, reasoning: int = 0) -> Usage:
    """Make usage from numbers that do not overlap, except that output includes reasoning."""
    return Usage(
        input=fresh + read + written,
        output=output,
        cache_read=read,
        cache_write=written,
        reasoning=min(reasoning, output),
    )


def without_reminder_tags(text: str) -> str:
    """Return the note itself, where a file marks a text as one."""
    match = _REMINDER.fullmatch(text)
    return match[1] if match else text


def leaves_out(_message: Message, part: Part) -> bool:
    """Whether a part has no place in a file of opencode or pi: empty texts, and provider parts."""
    match part:
        case TextPart(text=text) | CompactionPart(text=text) | ReminderPart(text=text):
            return not text
        case ReasoningPart(text=text):
            return not text
        case ProviderPart():
            return True
        case _:
            return False


def call_from(call_id: str, name: str, arguments: Json) -> ToolCallPart:
    """Make a call from its arguments; the opposite of `argument_object`."""
    if isinstance(arguments, dict) and list(arguments) == ["invalid_json"]:
        raw = arguments["invalid_json"]
        if isinstance(raw, str):
            return ToolCallPart(call_id=CallId(call_id), name=name, invalid=raw)
    return ToolCallPart(call_id=CallId(call_id), name=name, arguments=arguments)


def call_from_text(call_id: str, name: str, arguments: Json) -> ToolCallPart:
    """Make a call from arguments that are JSON in a text."""
    if not isinstance(arguments, str):
        return call_from(call_id, name, arguments if arguments is not None else {})
    try:
        value = msgspec.json.decode(arguments) if arguments else {}
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        value = None
    if value is None or is_too_deep(value):
        return ToolCallPart(call_id=CallId(call_id), name=name, invalid=arguments)
    return call_from(call_id, name, value)


def value_content(value: Json) -> tuple[TextPart, ...]:
    """Return the content of a result that is any value: a text as it is, others as JSON."""
    if value is None or value == "":
        return ()
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return (TextPart(text=text),)


def result_as_text(part: ToolResultPart) -> str:
    """Return a result as text alone; one that says nothing says how it ended."""
    pieces = [
        piece.text if isinstance(piece, TextPart) else stand_in(piece) for piece in part.content
    ]
    text = "".join(pieces)
    return text if text.strip() or not part.is_error else part.outcome.replace("_", " ")


def tool_name(name: str) -> str:
    """Return a name that every API takes in a history."""
    return _NOT_IN_IDS.sub("_", name)[:_LONGEST_ID] or "tool"


class UniqueCallIds:
    """Gives every call of a conversation an id that no other has, in a form that all APIs take.

    Providers use ids again from answer to answer; other programs take an id for unique.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The last number that was tried for an id: those before it are used."""
        self._now: dict[str, str] = {}

    def of_call(self, call_id: str) -> str:
        """Return the id of a call that is being written."""
        plain = _NOT_IN_IDS.sub("_", call_id)[:_LONGEST_ID] or "call"
        # One that another begins with is no good: Claude Code loses a result to `call_1_2`.
        call_name = plain
        while call_name in self._used:
            number = self._numbers[plain] = self._numbers.get(plain, 1) + 1
            call_name = _made_id(f"{plain}/{number}")
        self._used.add(call_name)
        self._now[call_id] = call_name
        return call_name

    def of_result(self, call_id: str) -> str:
        """Return the id of the last call that had this one."""
        return self._now.get(call_id) or self.of_call(call_id)


def _made_id(seed: str) -> str:
    return f"call_{sha256(seed.encode()).hexdigest()[:24]}"


def with_content(part: MediaPart, export: SessionExport) -> MediaPart:
    """Return a medium with its data in place of the name of a blob, if the export has it."""
    content = export.contents.get(part.blob) if part.blob else None
    if content is None:
        return part
    return MediaPart(
        mime=part.mime, filename=part.filename, data=base64.b64encode(content).decode()
    )


def stand_in(part: MediaPart) -> str:
    """Return a line of text that says what is not shown."""
    name = f" {part.filename}" if part.filename else ""
    where = f" at {part.url}" if part.url else ""
    return f"[{part.mime}{name}{where}: not part of this file]"


def media_from_url(url: str, *, mime: str = "", filename: str | None = None) -> MediaPart | None:
    """Make a medium from a `data:` or web URL; None for any other, such as a local file's."""
    match = _DATA_URL.fullmatch(url)
    if match and match["parameters"].endswith(";base64"):
        return media_from_data(match["data"], mime=match["mime"], filename=filename)
    if url.startswith(("https://", "http://")):
        return MediaPart(mime=mime or "application/octet-stream", filename=filename, url=url)
    return None


def media_from_data(data: str, *, mime: str, filename: str | None = None) -> MediaPart | None:
    """Make a medium from base64; None if it is not base64 of something."""
    part = MediaPart(mime=mime or "application/octet-stream", filename=filename, data=data)
    return part if part.is_readable else None
