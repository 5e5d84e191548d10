"""What is exchanged: a session to be written to a file, and one that was read from a file."""

import base64
from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec

from haptera.model.ids import SessionId, new_entry_id
from haptera.model.json_types import DEEPEST, JsonObject
from haptera.model.log.entry import UnknownEntry
from haptera.model.messages import Message
from haptera.model.usage import Usage
from haptera.model.vendors import Protocol


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all values of this module share: immutable, keyword-only."""


class TimedMessage(_Value, frozen=True, kw_only=True):
    """A message with what its session knows of it."""

    message: Message
    time: int = 0
    """Wall-clock milliseconds; 0 when it is unknown."""
    cost: Decimal | None = None
    """In US dollars; None when it is unknown."""


class SessionExport(_Value, frozen=True, kw_only=True):
    """A session as the formats of other programs need it: its conversation, not its log.

    `messages` is what `SessionFold.messages` gives: roles alternate, and every tool call has its
    result in the user message that follows. `contents` holds what `MediaPart.blob` names; a blob
    that is missing there is replaced by a line of text.
    """

    session_id: SessionId
    messages: tuple[TimedMessage, ...] = ()
    title: str | None = None
    cwd: str = ""
    model: str = ""
    """`provider/model`."""
    system_prompts: tuple[str, ...] = ()
    created: int = 0
    updated: int = 0
    usage: Usage = Usage()
    cost: Decimal | None = None
    contents: dict[str, bytes] = msgspec.field(default_factory=dict)
    protocols: dict[str, Protocol] = msgspec.field(default_factory=dict)
    """Which protocol each provider of the answers speaks, as far as it is known."""


WhyOpaque: TypeAlias = Literal["not conversation", "not understood", "another branch", "unreadable"]


class OpaqueRecord(_Value, frozen=True, kw_only=True):
    """A line of a file that is no message for us. Its bytes are kept as they were."""

    kind: str
    """The file's own word for it, such as `attachment`; empty when it is unreadable."""
    why: WhyOpaque
    place: int
    """The number of the line, or of the message in a document; 1 is the first."""
    raw: bytes
    after: int = 0
    """How many messages come before it."""
    time: int = 0


class ImportReport(_Value, frozen=True, kw_only=True):
    """What became of a file."""

    records: int = 0
    """Lines, or messages of a document."""
    messages: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    opaque: dict[str, int] = msgspec.field(default_factory=dict)
    """Records that are kept but are no messages, by their kind."""
    opaque_parts: dict[str, int] = msgspec.field(default_factory=dict)
    """Pieces of messages that are kept as provider parts without being understood, by kind."""
    warnings: tuple[str, ...] = ()


class ImportedSession(_Value, frozen=True, kw_only=True):
    """A session that was read from a file: untrusted content from which a new log can be written.

    Messages have new ids. Neighbours of one role are one message. Calls may be unanswered: the fold
    answers them. Nothing in it grants a permission.
    """

    format: str
    messages: tuple[TimedMessage, ...] = ()
    title: str | None = None
    cwd: str = ""
    """A folder of the machine that wrote the file: text to show, never a path to open."""
    model: str = ""
    system_prompts: tuple[str, ...] = ()
    created: int = 0
    updated: int = 0
    source_id: str = ""
    """The id that the session had where it comes from."""
    opaque: tuple[OpaqueRecord, ...] = ()
    report: ImportReport = ImportReport()


class ImportLimits(_Value, frozen=True, kw_only=True):
    """How much of a file is read before it is refused."""

    file_bytes: int = 1024 * 1024 * 1024
    document_bytes: int = 256 * 1024 * 1024
    """Of a file that is one JSON value and has to be held as a whole."""
    line_bytes: int = 64 * 1024 * 1024
    records: int = 5_000_000
    content_bytes: int = 256 * 1024 * 1024
    """Of one payload of an archive."""
    levels: int = DEEPEST
    """How deep JSON may be nested."""


LIMITS = ImportLimits()


def opaque_entry(record: OpaqueRecord, format_name: str, *, seq: int, time: int) -> UnknownEntry:
    """Make the log entry that keeps a record which is no message.

    Its kind is `imported.record`. No version gives it a meaning; it is there so that nothing of a
    file is lost.
    """
    try:
        content: JsonObject = {"text": record.raw.decode()}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(record.raw).decode()}
    entry_id = new_entry_id()
    stored = {
        "kind": "imported.record",
        "id": entry_id,
        "time": time,
        "seq": seq,
        "format": format_name,
        "record": record.kind,
        "why": record.why,
        "place": record.place,
        "after": record.after,
        **({"at": record.time} if record.time else {}),
        **content,
    }
    return UnknownEntry(
        id=entry_id,
        time=time,
        seq=seq,
        stored_kind="imported.record",
        raw=msgspec.Raw(msgspec.json.encode(stored)),
    )
