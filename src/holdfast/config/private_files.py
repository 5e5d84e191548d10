"""Files of the user's own that are replaced in one step, by one process at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.vocabulary.late_names import late_module


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock beside a file, whose folder is made if it is missing.

    Raises:
        OSError: when the folder or the lock cannot be made.

    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl = late_module("fcntl")  # there is none on Windows, where configuration is read
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file by new content, readable by its owner only: all of it, or none.

    Raises:
        OSError: when it cannot be written; the file is as it was then.

    """
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
