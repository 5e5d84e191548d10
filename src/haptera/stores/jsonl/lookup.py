"""Which sessions took a name, or made notes for their project, in one file beside the logs.

A line is written before the append that takes the name, so that the file leads to every session
that has one; what it leads to is always verified against the log. It is read as far as it has
grown. A folder without it, which is new or which an earlier version wrote, gets it when a session
begins or a name is taken.
"""

import contextlib
import os
import threading
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from haptera.model.entry_bytes import UNREADABLE
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.notes import ContextNoted
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.ports.session_store import SessionRecord
from haptera.stores.jsonl.folder import LOCK_TIMEOUT_SECONDS, SessionFolder, descriptor_lock
from haptera.system.atomic_files import replace_file, write_all
from haptera.system.private_files import (
    open_or_create,
    read_range,
)

LookupKey = tuple[str, str, str]
"""Owner, project, and what a session is looked up by there: a name, or that it made notes."""

_line_decoder = msgspec.json.Decoder(tuple[str, str, str, str])


class Lookup:
    """The file of names. Any thread may read it; only one that holds `locked` may add to it."""

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder
        self._path = folder.root / "lookup.jsonl"
        self._known: dict[LookupKey, dict[SessionId, None]] = {}
        self._ids: set[SessionId] = set()
        # Several threads read: what is known and how far it was read change together.
        self._one_reads = threading.Lock()
        self._read_to = (0, 0)
        """The inode of the file, and how far it was read."""

    @contextlib.contextmanager
    def locked(self, *, timeout: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """Keep every other process from taking a name; raises StillLockedError."""
        # A file of its own: a lock belongs to a file and not to its name, and `write_all` replaces
        # the file of names.
        path = self._folder.index_lock
        descriptor = open_or_create(path, os.O_RDWR)
        try:
            with descriptor_lock(descriptor, path, timeout=timeout):
                yield
        finally:
            os.close(descriptor)

    def exists(self) -> bool:
        """Return whether the folder has the file."""
        return self._path.exists()

    def sessions(self, key: LookupKey) -> list[SessionId] | None:
        """Return the sessions that ever took a name; None when the folder has no such file yet."""
        with self._one_reads:
            return list(self._known.get(key, ())) if self._read() else None

    def __contains__(self, session_id: SessionId) -> bool:
        # Without the lock: the set only grows, or is replaced by another one.
        return session_id in self._ids

    def add(self, key: LookupKey, session_id: SessionId) -> None:
        """Write durably that a session takes a name. Called under the lock."""
        if session_id in (self.sessions(key) or ()):
            return
        descriptor = open_or_create(self._path, os.O_RDWR | os.O_APPEND)
        try:
            end = os.fstat(descriptor).st_size
            # A last line that a crash cut off is ended first, so that it does not spoil this one.
            is_cut_off = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"
            write_all(descriptor, b"\n" * is_cut_off + _line(key, session_id))
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def write_all(self, records: Iterable[SessionRecord]) -> None:
        """Write the file anew from the records of all sessions. Called under the lock."""
        lines = [_line(key, record.id) for record in records for key in keys_of(record)]
        replace_file(self._path, b"".join(lines))

    def _read(self) -> bool:
        """Read what was added since last time; False when there is no file."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            found = os.fstat(descriptor)
            inode, start = self._read_to
            # `write_all` of some process has replaced the file.
            if inode != found.st_ino or found.st_size < start:
                self._known, self._ids, start = {}, set(), 0
            added = read_range(descriptor, start)
        finally:
            os.close(descriptor)
        end = added.rfind(b"\n") + 1  # a line that is being written is read next time
        for line in added[:end].splitlines():
            self._take(line)
        self._read_to = (found.st_ino, start + end)
        return True

    def _take(self, line: bytes) -> None:
        checksum, _, body = line.partition(b" ")
        if checksum == b"%08x" % zlib.crc32(body):
            with contextlib.suppress(*UNREADABLE):
                owner, project, name, session_id = _line_decoder.decode(body)
                self._known.setdefault((owner, project, name), {})[SessionId(session_id)] = None
                self._ids.add(SessionId(session_id))


def name_key(owner: str, project: str, name: str) -> LookupKey:
    """Return the key of a name."""
    return owner, project, f"name {name}"


def notes_key(owner: str, project: str) -> LookupKey:
    """Return the key of sessions that made notes for their project."""
    return owner, project, "notes"


def keys_of(record: SessionRecord | None) -> set[LookupKey]:
    """Return what a session is looked up by."""
    keys: set[LookupKey] = set()
    if record is not None and record.name is not None:
        keys.add(name_key(record.owner, record.project, record.name))
    if record is not None and record.notes:
        keys.add(notes_key(record.owner, record.project))
    return keys


def may_be_looked_up_by(entry: Entry) -> bool:
    """Return whether an entry can give a session a name, or a note for its project."""
    if isinstance(entry, SessionOpened):
        return entry.name is not None
    if isinstance(entry, SessionChanged):
        return "name" in entry.changes
    return isinstance(entry, ContextNoted) and entry.source is None


def _line(key: LookupKey, session_id: SessionId) -> bytes:
    body = msgspec.json.encode((*key, session_id))
    return b"%08x %s\n" % (zlib.crc32(body), body)
