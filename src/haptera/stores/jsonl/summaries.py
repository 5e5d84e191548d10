"""Reads logs with the help of a summary of each, which grows by what was appended since last time.

Summaries are a cache. One that does not fit its file any more is made again from the start of the
file, and `index.json` only saves a new process from reading all logs.
"""

import bisect
import contextlib
import os
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from haptera.model.believed_values import time_of
from haptera.model.entry_bytes import UNREADABLE
from haptera.model.errors import StoreError
from haptera.model.ids import SessionId, parse_session_id
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import SessionRecord
from haptera.stores.append_rules import updated_record
from haptera.stores.jsonl.folder import SessionFolder, blob_finder
from haptera.stores.jsonl.lines import LogLine, entry_header
from haptera.stores.jsonl.lock_file import read_lease_state
from haptera.stores.jsonl.scan import LogScan, decode_scanned, scan_log
from haptera.stores.stored_records import FindBlob, from_stored_body
from haptera.system.atomic_files import replace_file
from haptera.system.private_files import (
    read_or_empty,
    read_range,
    translated_os_errors,
)

_LANDMARK_DISTANCE = 256
# A save writes the summaries of all sessions, so it waits until many have changed.
_SAVE_AFTER = 100
_PAGE = 4096
"""How many entries are read at a time when all are wanted."""
_PIECE = 4 * 1024 * 1024
"""How many bytes of a log are scanned at a time."""


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
    """Where reading can start: pairs of a `seq` and the offset of the append that follows it."""
    last_growth: tuple[int, int] = (0, 0)
    """Such a pair for what was appended last, where a follower of the log continues to read."""

    def start_for(self, after: int) -> tuple[int, int]:
        """Return the last place before the entry that follows `after` where reading can start."""
        # Greater than any offset, so that a landmark at `after` itself is found.
        index = bisect.bisect_right(self.landmarks, (after, 1 << 63)) - 1
        landmark = self.landmarks[max(index, 0)]
        return max(landmark, self.last_growth) if self.last_growth[0] <= after else landmark

    def stop_for(self, last: int) -> tuple[int, int]:
        """Return the first landmark behind entry `last`; head and end when there is none."""
        index = bisect.bisect_left(self.landmarks, (last, 0))
        return self.landmarks[index] if index < len(self.landmarks) else (self.head, self.end)


class _SavedSummaries(msgspec.Struct, frozen=True):
    """The content of `index.json`, after its checksum."""

    sessions: dict[SessionId, LogSummary]
    format: int = 1


_saved_decoder = msgspec.json.Decoder(_SavedSummaries)


class Summaries:
    """The summaries of all logs in a folder.

    Any thread may use it: a summary is replaced, never changed.
    """

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder
        self._known: dict[SessionId, LogSummary] | None = None
        self._told: dict[SessionId, LogSummary] = {}
        """What lock files told of logs that were not read: the record, and which log it is of."""
        self._unsaved = 0

    def of(self, session_id: SessionId) -> LogSummary:
        """Return the summary of a log as it is now; a missing log has an empty one."""
        known = self._load()
        path = self._folder.log(session_id)
        try:
            descriptor = _open_to_read(path)
        except FileNotFoundError:
            known.pop(session_id, None)
            return LogSummary()
        try:
            before = known.get(session_id, LogSummary())
            find_blob = blob_finder(self._folder.blobs(session_id))
            summary = _refreshed(before, descriptor, find_blob)
        finally:
            os.close(descriptor)
        # Identity: a log that has not changed gets the same object back.
        if summary is not before:
            if summary.record is None and summary.head:
                # The entry that opened the session is damaged: the lock file has a copy.
                remembered = read_lease_state(self._folder.lease(session_id)).record
                summary = msgspec.structs.replace(summary, record=remembered)
            self._unsaved += 1
            known[session_id] = summary
        return summary

    def read_entries(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries after `after`, up to `limit` that can be read."""
        entries: list[Entry] = []
        for page in self.pages(session_id, after=after, limit=limit):
            entries += page
            if limit is not None and len(entries) >= limit:
                break
        return entries[:limit]

    def pages(
        self,
        session_id: SessionId,
        *,
        after: int = 0,
        limit: int | None = None,
        kinds: Collection[str] | None = None,
    ) -> Iterator[list[Entry]]:
        """Read entries after `after` in pages; `limit` says how many are wanted at first."""
        path = self._folder.log(session_id)
        with translated_os_errors(path):
            summary = self.of(session_id)
            try:
                descriptor = _open_to_read(path)
            except FileNotFoundError:
                return
            try:
                find_blob = blob_finder(self._folder.blobs(session_id))
                for scan in _scans(descriptor, summary, after=after, limit=limit):
                    yield decode_scanned(scan, find_blob, after=after, kinds=kinds)
            finally:
                os.close(descriptor)

    def record_of(self, session_id: SessionId) -> SessionRecord | None:
        """Return the record of a session; None when there is no such session."""
        try:
            found = self._folder.log(session_id).stat()
        except FileNotFoundError:
            return self.of(session_id).record
        return self._record(session_id, found)

    def records(self) -> list[SessionRecord]:
        """Return the record of every session."""
        known = self._load()
        present = self._folder.logs()
        # Copied, because other threads add what they read meanwhile.
        for gone in list(known):
            if gone not in present:
                known.pop(gone, None)
        for gone in list(self._told):
            if gone not in present:
                self._told.pop(gone, None)
        records = [self._record(session_id, found) for session_id, found in present.items()]
        if self._unsaved >= _SAVE_AFTER:
            self.save()
        return [record for record in records if record is not None]

    def unseen(self) -> set[SessionId]:
        """Return the sessions whose logs were never read, by this process or one that saved it."""
        known, found = self._load(), set[SessionId]()
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder.sessions) as files:
            found = {SessionId(file.name.removesuffix(".jsonl")) for file in files}
        return found - known.keys()

    def named(self, name: str) -> list[SessionId]:
        """Return the sessions that had a name when they were last read."""
        return [
            session_id
            # Copied, because other threads add summaries meanwhile. Not by `list`, whose pairs let
            # the garbage collector run, and with it other threads.
            for session_id, known in self._load().copy().items()
            if known.record is not None and known.record.name == name
        ]

    def forget(self) -> None:
        """Drop all summaries, so that every log is read again."""
        self._known, self._told = {}, {}
        # The next listing saves what it reads, also in a folder with few sessions.
        self._unsaved = _SAVE_AFTER

    def save(self) -> None:
        """Save the summaries for the next process. A cache that cannot be written is no error."""
        if self._known and self._unsaved:
            body = msgspec.json.encode(_SavedSummaries(sessions=dict(self._known)))
            with contextlib.suppress(OSError):
                # Not durable: what a power cut leaves incomplete fails its checksum.
                content = b"%08x\n" % zlib.crc32(body) + body
                replace_file(self._folder.index, content, is_durable=False)
                self._unsaved = 0

    def _record(self, session_id: SessionId, found: os.stat_result) -> SessionRecord | None:
        """Return a record. A log is read only if neither a summary nor its lock file knows it."""
        for known in (self._load().get(session_id), self._told.get(session_id)):
            if known is not None and _is_current(known, found):
                return known.record
        if not parse_session_id(session_id):
            return None  # a file that is not named by a session id belongs to another program
        held = read_lease_state(self._folder.lease(session_id))
        # Of another size: its holder could not write the lock file, or another program changed the
        # log.
        if held.record is not None and held.size == found.st_size:
            # Kept: a listing asks for the records of all sessions.
            self._told[session_id] = LogSummary(
                inode=found.st_ino,
                size=found.st_size,
                modified=found.st_mtime_ns,
                record=held.record,
            )
            return held.record
        return self.of(session_id).record

    def _load(self) -> dict[SessionId, LogSummary]:
        if self._known is None:
            checksum, _, body = read_or_empty(self._folder.index).partition(b"\n")
            self._known = {}
            if checksum == b"%08x" % zlib.crc32(body):
                # The file of another version can be intact and have other fields.
                with contextlib.suppress(*UNREADABLE):
                    self._known = _saved_decoder.decode(body).sessions
        return self._known


def _open_to_read(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _is_current(summary: LogSummary, found: os.stat_result) -> bool:
    seen = (summary.inode, summary.size, summary.modified)
    return seen == (found.st_ino, found.st_size, found.st_mtime_ns)


def _scans(
    descriptor: int, summary: LogSummary, *, after: int, limit: int | None
) -> Iterator[LogScan]:
    """Scan a log from before the entry that follows `after`, `limit` entries or more at a time.

    The first scan holds `limit` entries, unless lines of it are damaged or not wanted.
    """
    seq, offset = summary.start_for(after)
    while offset < summary.end and after < summary.head:
        last = max(seq, after) + max(_PAGE if limit is None else limit, 1)
        next_seq, stop = summary.stop_for(last)
        yield scan_log(read_range(descriptor, offset, stop=stop), offset=offset, after=seq)
        seq, offset = next_seq, stop


def _refreshed(summary: LogSummary, descriptor: int, find_blob: FindBlob) -> LogSummary:
    """Return the summary of a log as it is now; reads only what was appended since."""
    # Before reading: what is appended meanwhile is read again next time, and never left out.
    found = os.fstat(descriptor)
    if _is_current(summary, found):
        return summary
    # A log that changed and did not grow was cut back or edited, so it is read from its start.
    if summary.inode != found.st_ino or found.st_size <= summary.size:
        summary = LogSummary()
    record, consumed, landmarks = summary.record, set(summary.consumed), summary.landmarks
    end, head = summary.end, summary.head
    for scan in _pieces(descriptor, (end, found.st_size), after=head):
        for line in (found_line.line for found_line in scan.lines):
            record = _record_after(record, line, find_blob)
            consumed.update(line.consumed)
        landmarks = _landmarks_after(landmarks, scan)
        end, head = scan.end, scan.head
    return LogSummary(
        inode=found.st_ino,
        size=found.st_size,
        modified=found.st_mtime_ns,
        end=end,
        head=head,
        record=record,
        consumed=frozenset(consumed),
        landmarks=landmarks,
        last_growth=(summary.head, summary.end),
    )


def _pieces(descriptor: int, span: tuple[int, int], *, after: int) -> Iterator[LogScan]:
    """Scan a log from one offset to another, a few megabytes at a time, in whole appends."""
    (start, size), length = span, _PIECE
    while start < size:
        stop = min(start + length, size)
        scan = scan_log(read_range(descriptor, start, stop=stop), offset=start, after=after)
        if scan.end == start and stop < size:
            length *= 2  # one append is longer than this
            continue
        yield scan
        if stop == size:
            return
        start, after, length = scan.end, scan.head, _PIECE


# With `session.*` and `query.started` these are the kinds of `append_rules.RECORDED`.
_RECORDED_KINDS = frozenset({"query.ended", "context.noted", "compaction", "rewound"})


def _record_after(
    record: SessionRecord | None, line: LogLine, find_blob: FindBlob
) -> SessionRecord | None:
    """Return the record after one line; most entries are decoded only as far as their header."""
    header = entry_header(line) if line.has_entry else None
    if header is None:
        return record
    if header.kind.startswith("session.") or header.kind in _RECORDED_KINDS:
        # An entry whose blob is gone changes nothing here; `inspect` reports it.
        with contextlib.suppress(StoreError):
            return updated_record(record, [from_stored_body(bytes(line.entry), find_blob)])
        return record
    if record is None:
        return None
    fields: dict[str, Any] = {"updated": time_of(header.time), "head": line.seq}
    if header.kind == "query.started":  # its prompt may be large, and says nothing of the session
        fields |= {"status": "running", "error": None}
    return msgspec.structs.replace(record, **fields)


def _landmarks_after(
    landmarks: tuple[tuple[int, int], ...], scan: LogScan
) -> tuple[tuple[int, int], ...]:
    fresh: list[tuple[int, int]] = []
    last = landmarks[-1][0]
    for found in scan.lines:
        before = found.line.seq - found.line.has_entry
        # Never inside an append: reading stops at landmarks, too, and one that is cut off counts as
        # torn.
        if found.starts_append and before >= last + _LANDMARK_DISTANCE:
            fresh.append((before, found.offset))
            last = before
    return (*landmarks, *fresh) if fresh else landmarks
