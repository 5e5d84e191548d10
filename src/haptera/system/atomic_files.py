"""Files that only their owner can read: replaced as a whole, synced, locked between processes."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from haptera.model.late_names import late_module

# EFBIG is a limit on the size of a file; for the program that writes, the disk is full.
FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def replace_file(path: Path, content: bytes, *, is_durable: bool = True) -> None:
    """Replace a file by new content, readable by its owner only: all of it, or none.

    The new content is durable when this returns, unless that is not asked for.

    Raises:
        OSError: when it cannot be written; the file is as it was then, unless only the sync of its
            folder failed.

    """
    # In the same folder, because a rename cannot cross file systems. Random, because other
    # processes may replace the same file at the same time.
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC, 0o600)
        try:
            write_all(descriptor, content)
            if is_durable:
                # Before it gets its name: after a power cut the name leads to all of it.
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    if is_durable:
        sync_folder(path.parent)


def create_folder(path: Path) -> None:
    """Create a folder and its missing parents durably, for their owner only."""
    if path.is_dir():
        return
    create_folder(path.parent)
    # Another process may make it at the same time.
    path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the list of files in a folder durable: without it a power cut can remove a new name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes; `os.write` may write fewer than it was given."""
    view = memoryview(content)
    while view:
        # A short write comes before an error; the next call raises it.
        view = view[os.write(descriptor, view) :]


class FileLock:
    """A lock between processes. It ends with its process, so a crash leaves none behind.

    Two objects exclude each other, also in one process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, *, wait: bool = True) -> bool:
        """Take the lock; with `wait=False`, return at once whether that was possible.

        Raises:
            OSError: when the file of the lock cannot be made.

        """
        # There is no fcntl on Windows, where configuration is read but not written.
        fcntl = late_module("fcntl")
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock up, if it is held."""
        # The file stays: a process that waits for it would get the lock of a file without a name,
        # and the next one that of a new file.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold the lock beside a file, whose folder is made if it is missing; waits for the lock.

    Raises:
        OSError: when the folder or the lock cannot be made.

    """
    create_folder(path.parent)
    lock = FileLock(path.with_suffix(".lock"))
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


# Windows has no such flag.
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
