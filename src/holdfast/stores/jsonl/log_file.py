"""The log of a session, for its writer: an append is on the disk or was never there.

The file is opened for each use, so that a thousand live sessions cost no descriptors here and no
descriptor outlives an error. Whoever uses it holds its lock meanwhile.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.stores.jsonl.file_lock import PATIENCE_SECONDS, locked
from holdfast.stores.private_files import open_or_create, read_or_empty, store_error_of, sync_folder
from holdfast.vocabulary.errors import ErrorCode, StoreError


class LogFile:
    """Knows which file a log is and where its last whole append ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        self._inode = 0
        self._is_clean = True
        """Whether nothing but whole, synced appends is in the file."""

    @contextlib.contextmanager
    def create(self, *, patience: float = PATIENCE_SECONDS) -> Iterator[int]:
        """Open the file, new or old, and hold its lock."""
        while True:
            descriptor = open_or_create(self.path, os.O_RDWR | os.O_APPEND)
            try:
                with locked(descriptor, self.path, patience=patience):
                    self._inode = os.fstat(descriptor).st_ino
                    # Whoever had the lock before may have deleted the session.
                    if self.is_in_place():
                        yield descriptor
                        return
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def replace(self, fresh: Path) -> Iterator[int]:
        """Copy the log to a new file, without its lock, and put that in its place at the end.

        Whatever another writer still does to the old file is then done to a file without a name.
        """
        descriptor = open_or_create(fresh, os.O_RDWR | os.O_APPEND)
        try:
            self._inode = os.fstat(descriptor).st_ino
            _write(descriptor, read_or_empty(self.path))
            yield descriptor
            os.fsync(descriptor)
            fresh.rename(self.path)
            sync_folder(self.path.parent)
        finally:
            os.close(descriptor)
            fresh.unlink(missing_ok=True)

    @contextlib.contextmanager
    def open(self) -> Iterator[int | None]:
        """Open the file that was opened before and hold its lock; None when it is gone."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            yield None
            return
        try:
            with locked(descriptor, self.path):
                is_same = os.fstat(descriptor).st_ino == self._inode and self.is_in_place()
                yield descriptor if is_same else None
        finally:
            os.close(descriptor)

    def append(self, descriptor: int, lines: bytes) -> None:
        """Write lines at the end and sync them, or leave the file as it was."""
        self._clean_up(descriptor)
        try:
            _write(descriptor, lines)
            os.fdatasync(descriptor)
        except OSError as error:
            self._is_clean = False
            self._undo()
            raise store_error_of(error, self.path) from error
        self.end += len(lines)

    def settle(self, descriptor: int, end: int) -> None:
        """Take `end` for the end of the log, durably: a writer that died may not have synced."""
        if os.fstat(descriptor).st_size > end:
            self.cut(descriptor, end)
        else:
            os.fsync(descriptor)
            self.end = end

    def cut(self, descriptor: int, end: int) -> None:
        """Drop everything from `end` on, durably."""
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
        self.end = end
        self._is_clean = True

    def _clean_up(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if not self._is_clean:
            self.cut(descriptor, self.end)
        elif size != self.end:
            raise StoreError(
                ErrorCode.CONFLICT,
                f"{self.path} has {size} bytes instead of {self.end}: somebody changed it",
            )

    def _undo(self) -> None:
        """Take back an append that failed.

        After a failed sync nobody knows which pages reached the disk, and a later sync of the same
        descriptor may not tell. So the file is opened anew and cut back to what was synced; if
        that fails, too, the next append tries it before it writes anything. A file that was put
        in the place of this one belongs to another writer and is not touched.
        """
        with contextlib.suppress(OSError):
            fresh = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if os.fstat(fresh).st_ino == self._inode:
                    self.cut(fresh, self.end)
            finally:
                os.close(fresh)

    def is_in_place(self) -> bool:
        """Whether the file under this name is the one that was opened."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False


def read_from(descriptor: int, offset: int = 0, *, stop: int | None = None) -> bytes:
    """Return what is between `offset` and `stop`, or the end of the file."""
    end = os.fstat(descriptor).st_size
    end = end if stop is None else min(stop, end)
    pieces = []
    while offset < end and (piece := os.pread(descriptor, end - offset, offset)):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def _write(descriptor: int, lines: bytes) -> None:
    written = os.write(descriptor, lines)
    while written < len(lines):
        # A short write is the last one before an error; asking again brings the reason.
        written += os.write(descriptor, lines[written:])
