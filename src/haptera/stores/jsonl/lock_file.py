"""The lock file of a session: which process holds the lease.

Its lock says that a process holds the lease; the system releases it when that process ends. Its
text says which process, under which epoch, and how far the log has reached. A lock file that was
replaced by another one under the same name is a lease that was lost. The text has the session's
index record, too: sessions are found by reading lock files.
"""

import os
from pathlib import Path

import msgspec

from haptera.model.entry_bytes import UNREADABLE
from haptera.ports.session_store import SessionRecord
from haptera.stores.append_rules import believed
from haptera.stores.jsonl.folder import try_lock, unlock
from haptera.system.private_files import open_or_create, read_range

_WIDTH = 512
"""A shorter text is padded to this width, so that it covers the longer one before it."""


class LeaseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text of a lock file."""

    epoch: int = 0
    holder: str | None = None
    process: str = ""
    """The identity of the holder's process."""
    until: float = 0.0
    """When the lease expires, on the machine's clock. Counts only for a stopped process."""
    head: int = 0
    """How far the log has reached. A log that ends before it has lost entries."""
    record: SessionRecord | None = None
    """The session's index record."""
    size: int = 0
    """The bytes of the log that `record` is of. For a log of another size the log is read."""


_state_decoder = msgspec.json.Decoder(LeaseState)


class LockFile:
    """An open lock file. Closing it releases the lock."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        # The file stays open, so the system cannot give its inode to another file meanwhile.
        self._inode = os.fstat(descriptor).st_ino
        self._opener = os.getpid()

    @classmethod
    def open(cls, path: Path) -> "LockFile":
        """Open a lock file, which is made if it is missing, without taking its lock."""
        return cls(path, open_or_create(path, os.O_RDWR))

    @classmethod
    def replace(cls, path: Path, fresh: Path, state: LeaseState) -> "LockFile":
        """Replace a lock file whose lock cannot be taken by a new one, locked, with this text."""
        file = cls(path, open_or_create(fresh, os.O_RDWR))
        try:
            # Locked and written before it has the name, so that no process can find it free or
            # empty.
            file.try_lock()
            file.write(state)
            fresh.rename(path)
        except BaseException:
            file.close()
            raise
        return file

    def try_lock(self) -> bool:
        """Take the lock until closing; False when another descriptor has it."""
        return try_lock(self._descriptor)

    def is_at_its_path(self) -> bool:
        """Return whether the file under this name is still this one."""
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def read(self) -> LeaseState:
        """Return the text; a damaged one is like an empty one."""
        return _parse_state(read_range(self._descriptor))

    def write(self, state: LeaseState) -> None:
        """Replace the text. It is not synced: after a power cut no process holds anything."""
        # In place, because the lock belongs to the file and not to its name.
        os.pwrite(self._descriptor, msgspec.json.encode(state).ljust(_WIDTH) + b"\n", 0)

    def close(self) -> None:
        """Release the lock, also when a fork of this process has the file open, too."""
        # A fork only closes its copy of the descriptor: unlocking would take the lock from its
        # parent.
        if self._opener == os.getpid():
            unlock(self._descriptor)
        os.close(self._descriptor)


def read_lease_state(path: Path | str) -> LeaseState:
    """Read the text of a lock file; a missing one is like an empty one."""
    # Without pathlib: a listing reads the lock files of all sessions.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return LeaseState()
    try:
        return _parse_state(read_range(descriptor))
    finally:
        os.close(descriptor)


def _parse_state(content: bytes) -> LeaseState:
    try:
        # What stands behind the line end is left over from a longer text.
        state = _state_decoder.decode(content.partition(b"\n")[0])
    except UNREADABLE:
        return LeaseState()
    if state.record is None:
        return state
    return msgspec.structs.replace(state, record=believed(state.record))
