"""The lock file of a session: a lock that dies with its process, and who holds it in words.

The lock says whether somebody writes; the text says who, under which epoch, and how far the log
has reached. A file that was replaced by another one under the same name is a lease that was lost.
"""

import os
import threading
from pathlib import Path

import msgspec

from holdfast.ports.session_store import SessionRecord
from holdfast.stores.jsonl.file_lock import try_lock, unlock
from holdfast.stores.private_files import open_or_create, read_or_empty

_WIDTH = 512
_TRIES = 100
_MOMENT = 0.002


class LeaseText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a lock file says."""

    epoch: int = 0
    holder: str | None = None
    process: str = ""
    """The identity of the holder's process."""
    until: float = 0.0
    """On the machine's clock; counts only for a holder that cannot be seen or cannot act."""
    head: int = 0
    """How far the log has reached; more than the log holds means that something was lost."""
    record: SessionRecord | None = None
    """Whose session it is and what it is called, for when the entry that says so is damaged."""


_decoder = msgspec.json.Decoder(LeaseText)


class LeaseFile:
    """An open lock file. Closing it gives the lock up."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._inode = os.fstat(descriptor).st_ino
        self._opener = os.getpid()

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> "LeaseFile":
        """Open the lock file, without taking its lock."""
        if not create:
            return cls(path, os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
        return cls(path, open_or_create(path, os.O_RDWR))

    @classmethod
    def replace(cls, path: Path, fresh: Path, text: LeaseText) -> "LeaseFile":
        """Put a new lock file in the place of one whose lock cannot be had."""
        file = cls(path, open_or_create(fresh, os.O_RDWR))
        try:
            try_lock(file._descriptor)
            file.write(text)
            fresh.rename(path)
        except BaseException:
            file.close()
            raise
        return file

    def try_lock(self) -> bool:
        """Take the lock if nobody has it; who only looks or is just letting go is waited for."""
        for _ in range(_TRIES):
            if try_lock(self._descriptor):
                return True
            if self.read().holder is not None:
                return False
            threading.Event().wait(_MOMENT)
        return False

    def is_in_place(self) -> bool:
        """Whether the file under this name is still this one."""
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def is_held(self) -> bool:
        """Whether another one has the lock; a free lock is taken until this is closed."""
        return not try_lock(self._descriptor)

    def read(self) -> LeaseText:
        """Return what it says; an unreadable one says nothing."""
        return _parsed(os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0))

    def write(self, text: LeaseText) -> None:
        """Say something else. It is not synced: after a power cut every holder is gone."""
        os.pwrite(self._descriptor, msgspec.json.encode(text).ljust(_WIDTH) + b"\n", 0)

    def close(self) -> None:
        """Give up the lock, also when a fork of this process has the file open, too."""
        if self._opener == os.getpid():
            unlock(self._descriptor)
        os.close(self._descriptor)


def read_lease(path: Path) -> LeaseText:
    """Look at a lock file without opening it for long."""
    return _parsed(read_or_empty(path))


def _parsed(content: bytes) -> LeaseText:
    try:
        return _decoder.decode(content.partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LeaseText()
