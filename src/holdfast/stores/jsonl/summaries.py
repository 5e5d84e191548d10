"""Summaries of logs, kept up to date by reading only what was appended since the last look.

They are a cache: a summary that does not fit its file any more is made anew, and `index.json`
only spares a new process the first reading.
"""

import bisect
import contextlib
import os
import zlib
from pathlib import Path

import msgspec

from holdfast.ports.session_store import SessionRecord
from holdfast.stores.append_rules import updated_record
from holdfast.stores.jsonl.content_files import finder_in
from holdfast.stores.jsonl.folder import SessionFolder
from holdfast.stores.jsonl.lease_file import read_lease
from holdfast.stores.jsonl.lines import LogLine
from holdfast.stores.jsonl.log_file import read_from
from holdfast.stores.jsonl.scan import LogScan, scan_log
from holdfast.stores.private_files import FILE_MODE, read_or_empty
from holdfast.stores.stored_records import FindBlob, from_stored_body
from holdfast.vocabulary.commands import CommandId
from holdfast.vocabulary.errors import StoreError
from holdfast.vocabulary.ids import SessionId, parse_session_id

_LANDMARK_DISTANCE = 256
_SAVE_AFTER = 100


class LogSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a log up to `end`."""

    inode: int = 0
    size: int = 0
    modified: int = 0
    end: int = 0
    head: int = 0
    record: SessionRecord | None = None
    consumed: frozenset[CommandId] = frozenset()
    landmarks: tuple[tuple[int, int], ...] = ((0, 0),)
    """Pairs of `seq` and the offset of the append that follows it, so that reading can start."""

    def start_for(self, after: int) -> tuple[int, int]:
        """Return the last landmark that is not behind `after`."""
        place = bisect.bisect_right(self.landmarks, (after, 1 << 63)) - 1
        return self.landmarks[max(place, 0)]

    def stop_for(self, last: int | None) -> int:
        """Return an offset by which entry `last` has been read."""
        if last is None:
            return self.end
        place = bisect.bisect_left(self.landmarks, (last, 0))
        return self.landmarks[place][1] if place < len(self.landmarks) else self.end


class _Kept(msgspec.Struct, frozen=True):
    """The content of `index.json`."""

    sessions: dict[SessionId, LogSummary]
    format: int = 1


class _Header(msgspec.Struct, frozen=True):
    kind: str
    time: int


_header_decoder = msgspec.json.Decoder(_Header)
_kept_decoder = msgspec.json.Decoder(_Kept)


class Summaries:
    """The summaries of all logs in a folder, for any thread: values are replaced, not changed."""

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder
        self._known: dict[SessionId, LogSummary] | None = None
        self._unsaved = 0

    def of(self, session_id: SessionId) -> LogSummary:
        """Return the summary of a log as it is now; a missing log has an empty one."""
        known = self._load()
        path = self._folder.log(session_id)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            known.pop(session_id, None)
            return LogSummary()
        try:
            before = known.get(session_id, LogSummary())
            find = finder_in(self._folder.blobs(session_id))
            summary = _refreshed(before, descriptor, find)
        finally:
            os.close(descriptor)
        if summary is not before:
            if summary.record is None and summary.head:
                summary = msgspec.structs.replace(summary, record=self._remembered(session_id))
            self._unsaved += 1
            known[session_id] = summary
        return summary

    def records(self) -> list[SessionRecord]:
        """Return what is known of every session."""
        known = self._load()
        present = self._folder.logs()
        for gone in known.keys() - present.keys():
            known.pop(gone, None)
        records = [self._at(session_id, found) for session_id, found in present.items()]
        if self._unsaved >= _SAVE_AFTER:
            self.save()
        return [record for record in records if record is not None]

    def named(self, name: str) -> list[SessionId]:
        """Return the sessions that had a name when they were last looked at."""
        return [
            session_id
            for session_id, known in list(self._load().items())
            if known.record is not None and known.record.name == name
        ]

    def forget(self) -> None:
        """Read everything anew at the next look."""
        self._known = {}
        self._unsaved = _SAVE_AFTER

    def save(self) -> None:
        """Keep the summaries for the next process. A cache that cannot be written is no error."""
        if self._known and self._unsaved:
            body = msgspec.json.encode(_Kept(sessions=dict(self._known)))
            with contextlib.suppress(OSError):
                _write_whole(self._folder.index, b"%08x\n" % zlib.crc32(body) + body)
                self._unsaved = 0

    def _at(self, session_id: SessionId, found: os.stat_result) -> SessionRecord | None:
        """Return a record without opening the file when nothing changed."""
        known = self._load().get(session_id)
        if known is not None and _is_current(known, found):
            return known.record
        # A file of another name is not ours.
        return self.of(session_id).record if parse_session_id(session_id) else None

    def _remembered(self, session_id: SessionId) -> SessionRecord | None:
        """Return what was known of a session before the entry that opens it was damaged."""
        return read_lease(self._folder.lease(session_id)).record

    def _load(self) -> dict[SessionId, LogSummary]:
        if self._known is None:
            seal, _, body = read_or_empty(self._folder.index).partition(b"\n")
            self._known = {}
            if seal == b"%08x" % zlib.crc32(body):
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                    self._known = _kept_decoder.decode(body).sessions
        return self._known


def _is_current(summary: LogSummary, found: os.stat_result) -> bool:
    seen = (summary.inode, summary.size, summary.modified)
    return seen == (found.st_ino, found.st_size, found.st_mtime_ns)


def _refreshed(summary: LogSummary, descriptor: int, find: FindBlob) -> LogSummary:
    found = os.fstat(descriptor)
    if _is_current(summary, found):
        return summary
    if summary.inode != found.st_ino or found.st_size <= summary.size:
        summary = LogSummary()
    content = read_from(descriptor, summary.end, stop=found.st_size)
    scan = scan_log(content, offset=summary.end, after=summary.head)
    record, consumed = summary.record, set(summary.consumed)
    for line in (found_line.line for found_line in scan.lines):
        record = _record_after(record, line, find)
        consumed.update(line.consumed)
    return LogSummary(
        inode=found.st_ino,
        size=found.st_size,
        modified=found.st_mtime_ns,
        end=scan.end,
        head=scan.head,
        record=record,
        consumed=frozenset(consumed),
        landmarks=_landmarks_after(summary.landmarks, scan),
    )


def _record_after(
    record: SessionRecord | None, line: LogLine, find: FindBlob
) -> SessionRecord | None:
    """Fold one line in, decoding as little of it as will do."""
    if not line.has_entry:
        return record
    try:
        header = _header_decoder.decode(line.entry)
        if header.kind.startswith("session."):
            return updated_record(record, [from_stored_body(bytes(line.entry), find)])
    except (msgspec.DecodeError, UnicodeDecodeError, StoreError):
        return record
    if record is None:
        return None
    return msgspec.structs.replace(record, updated=header.time, head=line.seq)


def _landmarks_after(
    landmarks: tuple[tuple[int, int], ...], scan: LogScan
) -> tuple[tuple[int, int], ...]:
    fresh: list[tuple[int, int]] = []
    last = landmarks[-1][0]
    for found in scan.lines:
        before = found.line.seq - found.line.has_entry
        if found.starts_append and before >= last + _LANDMARK_DISTANCE:
            fresh.append((before, found.offset))
            last = before
    return (*landmarks, *fresh) if fresh else landmarks


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE
    )
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
    temporary.rename(path)
