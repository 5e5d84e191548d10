"""Reads the sessions of a jsonl store, beside their writers: entries, and the records of the index.

The record of a session is in its lock file, with the size of the log that it is of. A log of
another size is read, so deleting lock files loses nothing. Nothing is kept between processes.
"""

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import TypeAlias

import msgspec

from haptera.model.ids import SessionId, parse_session_id
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import SessionRecord
from haptera.stores.jsonl.folder import SessionFolder, blob_finder
from haptera.stores.jsonl.lock_file import LockFile, read_lease_state
from haptera.stores.jsonl.log_file import open_log
from haptera.stores.jsonl.scan import LogScan, scan_pieces, scan_whole
from haptera.stores.jsonl.session_writer import record_of
from haptera.system.private_files import translated_os_errors

_Seen: TypeAlias = tuple[int, int, int]
"""Inode, size and time of a log: another one has changed."""


class SessionReader:
    """Reads what writers wrote, in this process or another. Any thread may use it."""

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder
        self._known: dict[SessionId, tuple[_Seen, SessionRecord | None]] = {}
        """What was looked at. An item is replaced, never changed, because other threads read it."""
        self._ends: dict[SessionId, tuple[int, int, int]] = {}
        """Where reading a log ended: inode, offset and `seq`, for a follower, who goes on there."""

    def read(self, session_id: SessionId, *, after: int, limit: int | None) -> list[Entry]:
        """Read entries after `after`, up to `limit` that can be read."""
        entries: list[Entry] = []
        for piece in self.pieces(session_id, after=after):
            entries += piece.entries
            if limit is not None and len(entries) >= limit:
                break
        return entries[:limit]

    def consumed(self, session_id: SessionId) -> set[CommandId]:
        """Return the commands that were consumed, as the log says."""
        pieces = self.pieces(session_id, kinds=())
        return {item for piece in pieces for item in piece.consumed}

    def pieces(
        self, session_id: SessionId, *, after: int = 0, kinds: Collection[str] | None = None
    ) -> Iterator[LogScan]:
        """Read a log some appends at a time; a missing log has none."""
        path = self._folder.log(session_id)
        with translated_os_errors(path):
            try:
                descriptor = open_log(path)
            except FileNotFoundError:
                return
            try:
                find_blob = blob_finder(self._folder.blobs(session_id))
                stat = os.fstat(descriptor)
                place = self._place(session_id, stat, after)
                for piece in scan_pieces(
                    descriptor, find_blob, after=after, kinds=kinds, place=place
                ):
                    if not (piece.lines or piece.damaged or piece.torn):
                        self._ends[session_id] = (stat.st_ino, piece.end, piece.head)
                    yield piece
            finally:
                os.close(descriptor)

    def _place(
        self, session_id: SessionId, stat: os.stat_result, after: int
    ) -> tuple[int, int] | None:
        """Return where the log was read to, if that is not behind an entry and the log is that."""
        inode, offset, head = self._ends.get(session_id, (0, 0, 0))
        is_there = inode == stat.st_ino and 0 < offset <= stat.st_size and head <= after
        return (offset, head) if is_there else None

    def record(self, session_id: SessionId) -> SessionRecord | None:
        """Return the record of a session; None when there is no such session."""
        path = self._folder.log(session_id)
        with translated_os_errors(path), contextlib.suppress(FileNotFoundError):
            return self._record(session_id, path.stat(follow_symlinks=False))
        return None

    def records(self) -> list[SessionRecord]:
        """Return the record of every session."""
        with translated_os_errors(self._folder.root):
            listed = {each: self._record(each, stat) for each, stat in self._logs()}
            # What is known of other sessions is of no use: they are gone.
            self._known = {each: self._known[each] for each in listed if each in self._known}
            self._ends = {each: end for each, end in self._ends.copy().items() if each in listed}
        return [record for record in listed.values() if record is not None]

    def rebuild(self) -> int:
        """Read all logs, write their records to the lock files that are free, and count them."""
        self._known, count = {}, 0
        with translated_os_errors(self._folder.root):
            for session_id, _ in self._logs():
                count += self._rebuild(session_id) is not None
        return count

    def _logs(self) -> Iterator[tuple[SessionId, os.stat_result]]:
        """Yield each session with the `stat` of its log."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder.sessions) as files:
            for file in files:
                name = file.name.removesuffix(".jsonl")
                # A file that is not named by a session id belongs to another program.
                if name in self._known or parse_session_id(name):
                    with contextlib.suppress(FileNotFoundError):
                        yield SessionId(name), file.stat(follow_symlinks=False)

    def _record(self, session_id: SessionId, found: os.stat_result) -> SessionRecord | None:
        seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        cached = self._known.get(session_id)
        if cached is not None and cached[0] == seen:
            return cached[1]
        held = read_lease_state(f"{self._folder.leases}/{session_id}.lock")
        record = held.record
        if record is None or held.size != found.st_size:
            record = record_of(self._scan(session_id), record)
        self._known[session_id] = (seen, record)
        return record

    def _scan(self, session_id: SessionId) -> LogScan:
        descriptor = open_log(self._folder.log(session_id))
        try:
            return scan_whole(descriptor, blob_finder(self._folder.blobs(session_id)))
        finally:
            os.close(descriptor)

    def _rebuild(self, session_id: SessionId) -> SessionRecord | None:
        log, lock = self._scan(session_id), LockFile.open(self._folder.lease(session_id))
        with contextlib.closing(lock):
            before = lock.read()
            record = record_of(log, before.record)
            # A holder writes the record itself. Of a log with a torn tail the size would be wrong,
            # and what was appended since the scan is not in the record.
            is_same = self._folder.log(session_id).stat().st_size == log.end
            if record is not None and is_same and lock.try_lock():
                lock.write(msgspec.structs.replace(before, record=record, size=log.end))
        return record
