"""Files that only their owner can read: replaced as a whole, and locked between processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.vocabulary.late_names import late_module


def replace_private_file(path: Path, content: bytes) -> None:
    """Replace a file in one step; readers see the old content or the new one, also after a crash.

    Raises:
        OSError: when it cannot be written; the old file is unchanged then.

    """
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


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
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a lock for a block; waits for it."""
    lock = FileLock(path)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
