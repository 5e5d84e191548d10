"""Reading an archive: every line checked before anything in it is used.

`check_archive` reads the whole file and keeps nothing; `archive_items` reads it again, item by
item. Together they are the two phases of an import: what fails, fails before anything is stored.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import msgspec

from haptera.formats.archive import (
    VERSION,
    ArchivedLog,
    ArchiveEnded,
    ArchiveEntryLine,
    ArchiveHeader,
    ArchiveLine,
    ArchiveLogLine,
    ContentEnded,
    ContentLine,
    LogEnded,
)
from haptera.formats.bounded_input import (
    ByteStream,
    bounded_lines,
    is_nested_deeper,
    refuse_costly_numbers,
    refused,
)
from haptera.formats.values import LIMITS, ImportLimits, ImportReport
from haptera.model.entry_bytes import decode_entry
from haptera.model.errors import AgentError, ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.history import HistoryEdited
from haptera.model.log.notes import ContextNoted
from haptera.model.log.queries import QueryStarted
from haptera.model.log.sessions import FORMAT_VERSION, SessionOpened
from haptera.model.log.turns import PartEnded
from haptera.model.own_name import FORMER_NAME

_LEVELS_AROUND = 10
"""How deep inside an entry the values of tools and providers begin, and a little more."""
_MOST_LOGS = 10_001
"""A session and the longest line of parents that a store reads."""


MOST_MISSING = 1_000
"""How many entries may be missing in all the logs of an archive."""
MOST_EDIT_WORK = 10_000_000
"""How many entries may stand before the edits of all logs, in all: each looks at all messages."""
MOST_UNANSWERED = 20_000
"""How many prompts of a log may follow each other: each joins those before it. As many notes."""
MOST_PARTS = 100_000
"""How many parts of answers may follow one prompt: answers in a row are joined, too."""


class LogBegun(NamedTuple):
    """The items that follow belong to this log."""

    session_id: SessionId


class Blob(NamedTuple):
    """A payload of the log; its name is the SHA-256 of its content, which was compared."""

    name: str
    content: bytes


ArchiveItem: TypeAlias = LogBegun | Entry | Blob


class ArchiveSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds, after every line of it was read and compared."""

    session_id: SessionId
    logs: tuple[SessionId, ...]
    entries: int
    blobs: int
    created: int
    redacted: bool
    report: ImportReport


class ImportedArchive(msgspec.Struct, frozen=True, kw_only=True):
    """An archive as a whole, as it was written: for those that fit into memory."""

    summary: ArchiveSummary
    logs: tuple[ArchivedLog, ...]


def read_archive(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedArchive:
    """Read an archive as a whole; its entries have the bytes that they were exported with.

    Raises:
        StoreError: CORRUPT when something is missing or was changed, VERSION_UNSUPPORTED when a
            newer version wrote it.
        ConfigError: CONFIG_INVALID when it is no archive, or exceeds a limit.

    """
    reading = _Reading(limits)
    logs: list[tuple[SessionId, list[Entry], list[bytes]]] = []
    for item in reading.items(stream):
        match item:
            case LogBegun(session_id=session_id):
                logs.append((session_id, [], []))
            case Blob(content=content):
                logs[-1][2].append(content)
            case Entry():
                logs[-1][1].append(item)
    return ImportedArchive(
        summary=reading.summary(),
        logs=tuple(
            ArchivedLog(session_id=name, entries=tuple(entries), blobs=tuple(blobs))
            for name, entries, blobs in logs
        ),
    )


def check_archive(stream: ByteStream) -> ArchiveSummary:
    """Read an archive to its end and say what is in it; raises what `read_archive` does."""
    reading = _Reading(LIMITS)
    for _item in reading.items(stream):
        pass
    return reading.summary()


def archive_items(stream: ByteStream) -> Iterator[ArchiveItem]:
    """Yield what is in an archive, in order; whether it is whole is known only at the end."""
    return _Reading(LIMITS).items(stream)


class _Reading:
    """One pass over an archive. Owns what has been seen and compared so far."""

    def __init__(self, limits: ImportLimits) -> None:
        self._limits = limits
        self._header: ArchiveHeader | None = None
        self._ended = False
        self._logs: dict[SessionId, None] = {}
        self._open: SessionId | None = None
        self._log_digest = hashlib.sha256()
        self._log_entries = 0
        self._last_seq = self._missing = self._edited = 0
        self._notes = self._unanswered = self._parts = 0
        self._complete: set[SessionId] = set()
        self._content: list[bytes] = []
        self._content_size = 0
        self._content_name = ""
        self._counts = {"entries": 0, "blobs": 0, "lines": 0, "unknown": 0}
        self._opaque: dict[str, int] = {}

    def summary(self) -> ArchiveSummary:
        header = self._header
        if header is None:
            raise refused("this is no archive of Haptera: it is empty")
        later = self._counts["unknown"]
        notice = f"{later} lines are of kinds that a later version added; they are passed over"
        return ArchiveSummary(
            session_id=header.session,
            logs=tuple(self._logs),
            entries=self._counts["entries"],
            blobs=self._counts["blobs"],
            created=header.created,
            redacted=header.redacted,
            report=ImportReport(
                records=self._counts["lines"],
                opaque=self._opaque,
                warnings=(notice,) if later else (),
            ),
        )

    def items(self, stream: ByteStream) -> Iterator[ArchiveItem]:
        digest = hashlib.sha256()
        for number, raw in bounded_lines(stream, self._limits):
            if self._ended:
                raise _corrupt(f"there is something after the end, in line {number}")
            line = self._parse(raw, number)
            if isinstance(line, ArchiveEnded):
                self._end(line, digest.hexdigest())
            else:
                yield from self._take(line, number)
            self._counts["lines"] += 1
            # After the line was taken: the checksum of the last line covers what comes before it.
            digest.update(raw)
            digest.update(b"\n")
        if not self._ended:
            # Raises for an empty file, which is no archive at all.
            self.summary()
            raise _corrupt("its end is missing")
        if self._header is not None and self._header.session not in self._logs:
            raise _corrupt("the log of its session is missing")

    def _parse(self, raw: bytes, number: int) -> ArchiveLine | None:
        if self._header is None:
            self._header = _header_of(raw)
            return self._header
        try:
            line: ArchiveLine = _decoder.decode(raw)
        except msgspec.ValidationError as error:
            if _is_later(raw):
                self._counts["unknown"] += 1
                return None
            raise _corrupt(f"line {number} is not valid: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _corrupt(f"line {number} is not JSON: {error}") from error
        return line

    def _take(self, line: ArchiveLine | None, number: int) -> Iterator[ArchiveItem]:
        if isinstance(line, ArchiveLogLine):
            yield self._begin_log(line)
        elif isinstance(line, LogEnded):
            self._end_log(line)
        elif isinstance(line, ContentLine):
            self._add_content(line, number)
        elif isinstance(line, ArchiveEntryLine):
            yield self._entry(bytes(line.entry), number)
        elif isinstance(line, ContentEnded):
            content = self._end_content(line, number)
            if line.of == "entry":
                yield self._entry(content, number)
            else:
                self._counts["blobs"] += 1
                yield Blob(line.sha256, content)
        # What is left is a header, which only the first line may be.
        elif line is not None and self._counts["lines"]:
            raise _corrupt(f"line {number} begins another archive")

    def _begin_log(self, line: ArchiveLogLine) -> LogBegun:
        if self._open is not None or line.session in self._logs:
            raise _corrupt(f"the log of session {line.session} begins in another one, or twice")
        if len(self._logs) >= _MOST_LOGS:
            raise refused(f"the archive has more than {_MOST_LOGS:,} logs")
        self._logs[line.session] = None
        self._open, self._log_digest = line.session, hashlib.sha256()
        self._log_entries = self._last_seq = 0
        return LogBegun(line.session)

    def _entry(self, raw: bytes, number: int) -> Entry:
        if self._open is None or self._content:
            raise _corrupt(f"the entry in line {number} belongs to no log")
        refuse_costly_numbers(raw, f"line {number}")
        if is_nested_deeper(raw, self._limits.levels + _LEVELS_AROUND):
            raise refused(f"line {number} is nested deeper than {self._limits.levels} levels")
        try:
            entry = decode_entry(raw)
        except AgentError as error:
            raise _corrupt(f"line {number}: {error.message}") from error
        self._log_entries += 1
        self._counts["entries"] += 1
        self._check_entry(entry, number)
        self._log_digest.update(raw)
        self._log_digest.update(b"\n")
        return entry

    def _check_work(self, entry: Entry, number: int) -> None:
        """Refuse entries that together cost far more to fold than each of them."""
        if isinstance(entry, HistoryEdited):
            self._edited += entry.seq
            if self._edited > MOST_EDIT_WORK:
                raise _corrupt(f"line {number} edits a history that was edited too often")
        elif isinstance(entry, PartEnded):
            self._unanswered = 0
            self._parts += 1
        elif isinstance(entry, QueryStarted):
            self._parts = 0
            self._unanswered += 1
        self._notes += isinstance(entry, ContextNoted)
        if self._parts > MOST_PARTS:
            raise _corrupt(f"more than {MOST_PARTS:,} parts of answers come before line {number}")
        if max(self._unanswered, self._notes) > MOST_UNANSWERED:
            raise _corrupt(
                f"more than {MOST_UNANSWERED:,} prompts or notes come before line {number}"
            )

    def _check_entry(self, entry: Entry, number: int) -> None:
        """Refuse an entry that no store would have given out."""
        if not self._last_seq < entry.seq <= self._limits.records:
            raise _corrupt(f"line {number} has entry {entry.seq} after entry {self._last_seq}")
        # What is missing is filled entry by entry when the log is stored.
        self._missing += entry.seq - self._last_seq - 1
        if self._missing > MOST_MISSING:
            raise _corrupt(f"more than {MOST_MISSING:,} entries are missing before line {number}")
        self._check_work(entry, number)
        self._last_seq = entry.seq
        # Whose session it is, and which parent it has, cannot be replaced in an entry that is
        # opaque.
        if isinstance(entry, UnknownEntry) and entry.kind == _OPENING:
            raise _unsupported(f"line {number} is of a later version", FORMAT_VERSION)
        if entry.seq == 1 and not isinstance(entry, SessionOpened):
            raise _corrupt(f"the log in line {number} does not begin with its opening")
        if isinstance(entry, UnknownEntry):
            kind = entry.kind if len(entry.kind) <= _LONGEST_KIND else "?"
            self._opaque[kind] = self._opaque.get(kind, 0) + 1
        elif isinstance(entry, SessionOpened):
            self._check_opening(entry, number)

    def _check_opening(self, entry: SessionOpened, number: int) -> None:
        if entry.seq != 1 or entry.session_id != self._open:
            raise _corrupt(f"line {number} opens session {entry.session_id} in another one's log")
        if entry.format > FORMAT_VERSION:
            raise _unsupported(f"its log has format {entry.format}", FORMAT_VERSION)
        if entry.parent is not None and entry.parent not in self._complete:
            raise _corrupt(f"the log of session {entry.parent}, a parent, does not come before")

    def _add_content(self, line: ContentLine, number: int) -> None:
        if self._content and line.sha256 != self._content_name:
            raise _corrupt(f"line {number} belongs to another payload than the one before it")
        try:
            piece = base64.b64decode(line.data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise _corrupt(f"the payload in line {number} is not base64") from error
        self._content_size += len(piece)
        if self._content_size > self._limits.content_bytes:
            limit = self._limits.content_bytes
            raise refused(f"the payload in line {number} has more than {limit:,} bytes")
        self._content_name = line.sha256
        self._content.append(piece)

    def _end_content(self, line: ContentEnded, number: int) -> bytes:
        content = b"".join(self._content)
        self._content, self._content_size = [], 0
        is_whole = len(content) == line.bytes and self._open is not None
        if not is_whole or hashlib.sha256(content).hexdigest() != line.sha256:
            raise _corrupt(f"the payload that ends in line {number} does not match its checksum")
        return content

    def _end_log(self, line: LogEnded) -> None:
        is_whole = line.entries == self._log_entries and not self._content
        is_same = self._log_digest.hexdigest() == line.sha256
        if line.session != self._open or not is_whole or not is_same:
            raise _corrupt(f"the log of session {line.session} does not match its checksum")
        if not self._log_entries:
            raise _corrupt(f"the log of session {line.session} is empty")
        self._complete.add(line.session)
        self._open = None

    def _end(self, line: ArchiveEnded, digest: str) -> None:
        if self._open is not None or line.lines != self._counts["lines"] or line.sha256 != digest:
            raise _corrupt("it does not match its checksum")
        self._ended = True


_decoder = msgspec.json.Decoder(ArchiveLine)
_LONGEST_KIND = 100
_OPENING = "session.opened"


class _AnyHeader(msgspec.Struct, frozen=True):
    """What the header of any version has."""

    type: str
    haptera: int | None = None
    former: int | None = msgspec.field(name=FORMER_NAME, default=None)
    """What `haptera` was called in archives that were written before the project had its name."""

    @property
    def version(self) -> int | None:
        return self.former if self.haptera is None else self.haptera


class _AnyLine(msgspec.Struct, frozen=True):
    type: str


def _header_of(raw: bytes) -> ArchiveHeader:
    try:
        header = msgspec.json.decode(raw, type=_AnyHeader)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused("this is no archive of Haptera: its first line is no header") from error
    version = header.version
    if header.type != "archive" or version is None:
        raise refused("this is no archive of Haptera: its first line is no header")
    if version > VERSION:
        raise _unsupported(f"it has version {version}", VERSION)
    try:
        return msgspec.json.decode(raw, type=ArchiveHeader)
    except msgspec.ValidationError as error:
        raise _corrupt(f"its header is not valid: {error}") from error


_KNOWN = frozenset(
    {"archive", "log", "entry", "content", "content.ended", "log.ended", "archive.ended"}
)


def _is_later(raw: bytes) -> bool:
    """Whether a line is of a kind that this version does not know."""
    try:
        return msgspec.json.decode(raw, type=_AnyLine).type not in _KNOWN
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _corrupt(message: str) -> StoreError:
    return StoreError(ErrorCode.CORRUPT, f"the archive is damaged: {message}")


def _unsupported(message: str, newest: int) -> StoreError:
    return StoreError(
        ErrorCode.VERSION_UNSUPPORTED,
        f"the archive cannot be read: {message}, and this version reads up to {newest}",
    )
