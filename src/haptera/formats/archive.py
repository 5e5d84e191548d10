"""Our archive: whole logs and their payloads as lines of JSON, with checksums.

    {"type":"archive","haptera":1,"minor":0,"session":"<id>","created":…}
    {"type":"log","session":"<id>"}                 one log after the other, parents first
    {"type":"entry","entry":{…}}                    the bytes of the entry as they are stored
    {"type":"content","sha256":"…","data":"…"}      a payload, in pieces of base64
    {"type":"content.ended","sha256":"…","bytes":…,"of":"blob"}
    {"type":"log.ended","session":"<id>","entries":…,"sha256":"…"}
    {"type":"archive.ended","lines":…,"sha256":"…"}

Entries that are long, or more than one line, are payloads as well (`"of":"entry"`). The checksum of
a log covers its entries, the last one every byte before it. Writer and reader hold one line, or one
payload, at a time.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from haptera.model.entry_bytes import encode_entry
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry

VERSION = 1
"""A reader refuses a higher one."""
MINOR = 0
"""A reader passes over lines of kinds that a later one added."""

_LARGEST_LINE = 256 * 1024
# Three quarters of a line: base64 makes four bytes of three.
_PIECE = 192 * 1024
"""Of a payload before it is encoded."""

ContentOf: TypeAlias = Literal["blob", "entry"]


class _LineRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What all lines share: a `type`."""


class ArchiveHeader(_LineRecord, frozen=True, kw_only=True, tag="archive"):
    """The first line."""

    haptera: int = msgspec.field(default=VERSION)
    minor: int = MINOR
    session: SessionId
    """The session that was exported; the others are what it was forked from."""
    created: int = 0
    redacted: bool = False


class ArchiveLogLine(_LineRecord, frozen=True, kw_only=True, tag="log"):
    """A log begins."""

    session: SessionId


class ArchiveEntryLine(_LineRecord, frozen=True, kw_only=True, tag="entry"):
    """An entry, byte for byte."""

    entry: msgspec.Raw


class ContentLine(_LineRecord, frozen=True, kw_only=True, tag="content"):
    """A piece of a payload."""

    sha256: str
    data: str


class ContentEnded(_LineRecord, frozen=True, kw_only=True, tag="content.ended"):
    """A payload is complete."""

    sha256: str
    bytes: int
    of: ContentOf


class LogEnded(_LineRecord, frozen=True, kw_only=True, tag="log.ended"):
    """A log is complete."""

    session: SessionId
    entries: int
    sha256: str


class ArchiveEnded(_LineRecord, frozen=True, kw_only=True, tag="archive.ended"):
    """The last line."""

    lines: int
    sha256: str


ArchiveLine: TypeAlias = (
    ArchiveHeader
    | ArchiveLogLine
    | ArchiveEntryLine
    | ContentLine
    | ContentEnded
    | LogEnded
    | ArchiveEnded
)

_encoder = msgspec.json.Encoder()


class ArchivedLog(msgspec.Struct, frozen=True, kw_only=True):
    """One log as it is exported, and as it is read."""

    session_id: SessionId
    entries: Iterable[Entry]
    blobs: Iterable[bytes] = ()
    """The payloads that its messages name; a payload's name is its SHA-256."""


class ArchiveExport(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive is made from: a session's log, and those it was forked from before it."""

    session_id: SessionId
    logs: Iterable[ArchivedLog]
    created: int = 0
    redacted: bool = False


class ArchiveWriter:
    """Makes the lines of an archive one by one, for callers who read a log page by page.

    Owns the checksums and the order: `begin`, then for each log `begin_log`, `blob` and `entry` in
    any order, `end_log`, and at last `end`.
    """

    def __init__(self, session_id: SessionId, *, created: int = 0, redacted: bool = False) -> None:
        self._header = ArchiveHeader(session=session_id, created=created, redacted=redacted)
        self._digest = hashlib.sha256()
        self._lines = 0
        self._log = SessionId("")
        self._log_digest = hashlib.sha256()
        self._entries = 0

    def begin(self) -> bytes:
        """Return the header."""
        # Written in full and first: `omit_defaults` would leave out what a reader of any version
        # needs.
        fields = {"type": "archive", "haptera": VERSION, "minor": MINOR}
        return self._line({**fields, **msgspec.to_builtins(self._header)})

    def begin_log(self, session_id: SessionId) -> bytes:
        """Return the line that begins a log."""
        self._log, self._log_digest, self._entries = session_id, hashlib.sha256(), 0
        return self._line(ArchiveLogLine(session=session_id))

    def entry(self, entry: Entry) -> bytes:
        """Return the lines of an entry, which holds its stored bytes."""
        raw = encode_entry(entry)
        self._entries += 1
        self._log_digest.update(raw)
        self._log_digest.update(b"\n")
        if _fits_on_a_line(raw):
            return self._line(ArchiveEntryLine(entry=msgspec.Raw(raw)))
        return self._content(raw, "entry")

    def blob(self, content: bytes) -> bytes:
        """Return the lines of a payload."""
        return self._content(content, "blob")

    def end_log(self) -> bytes:
        """Return the line that ends a log."""
        digest = self._log_digest.hexdigest()
        return self._line(LogEnded(session=self._log, entries=self._entries, sha256=digest))

    def end(self) -> bytes:
        """Return the last line."""
        return self._line(ArchiveEnded(lines=self._lines, sha256=self._digest.hexdigest()))

    def _content(self, content: bytes, of: ContentOf) -> bytes:
        name = hashlib.sha256(content).hexdigest()
        pieces = [
            self._line(ContentLine(sha256=name, data=base64.b64encode(piece).decode()))
            for piece in _pieces(content)
        ]
        ended = self._line(ContentEnded(sha256=name, bytes=len(content), of=of))
        return b"".join([*pieces, ended])

    def _line(self, record: object) -> bytes:
        line = _encoder.encode(record) + b"\n"
        self._digest.update(line)
        self._lines += 1
        return line


def write_archive(export: ArchiveExport) -> Iterator[bytes]:
    """Write an archive."""
    writer = ArchiveWriter(export.session_id, created=export.created, redacted=export.redacted)
    yield writer.begin()
    for log in export.logs:
        yield writer.begin_log(log.session_id)
        for content in log.blobs:
            yield writer.blob(content)
        for entry in log.entries:
            yield writer.entry(entry)
        yield writer.end_log()
    yield writer.end()


def _fits_on_a_line(raw: bytes) -> bool:
    """Whether an entry can stand in a line as it is and come out of it as it was."""
    # Space around the braces would be lost when the line is decoded.
    is_bare = raw.startswith(b"{") and raw.endswith(b"}")
    return is_bare and len(raw) <= _LARGEST_LINE and b"\n" not in raw and b"\r" not in raw


def _pieces(content: bytes) -> Iterator[bytes]:
    for begin in range(0, len(content), _PIECE):
        yield content[begin : begin + _PIECE]
