"""Files and folders that only their owner can read, created durably, with typed errors.

Durable creation needs two syncs: one of the file, which its writer makes, and one of the folder
that lists it, which the functions here make. Without the second a power cut can remove the file.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from haptera.model.errors import ErrorCode, StoreError
from haptera.system.atomic_files import FULL_ERRORS, create_folder, sync_folder

FILE_MODE = 0o600
# O_NOFOLLOW: a link that was put under the name of one of our files is refused, and not written
# through. O_CLOEXEC: commands that tools start do not inherit our files and their locks.
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


def open_or_create(path: Path, flags: int) -> int:
    """Open a file and return its descriptor; a new file is listed in its folder durably."""
    try:
        return os.open(path, flags | _FLAGS)
    except FileNotFoundError:
        create_folder(path.parent)
    # Not O_EXCL: another process may have made it since, and then it is the same file.
    descriptor = os.open(path, flags | _FLAGS | os.O_CREAT, FILE_MODE)
    sync_folder(path.parent)
    return descriptor


def read_or_empty(path: Path) -> bytes:
    """Return the content of a file; a missing file is empty."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def read_range(descriptor: int, offset: int = 0, *, stop: int | None = None) -> bytes:
    """Return the bytes between `offset` and `stop`, or the end of the file."""
    # The end is fixed first: a file that another process appends to would never end.
    end = os.fstat(descriptor).st_size
    end = end if stop is None else min(stop, end)
    pieces = []
    # One `pread` returns at most 2 GiB. It returns nothing when the file was cut back meanwhile.
    while offset < end and (piece := os.pread(descriptor, end - offset, offset)):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def remove_durably(path: Path) -> None:
    """Remove a file durably; a missing file is no error."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    # Without it a power cut can bring the file back.
    sync_folder(path.parent)


@contextlib.contextmanager
def translated_os_errors(path: Path) -> Iterator[None]:
    """Raise every OSError of the block as a StoreError that names `path`."""
    try:
        yield
    except OSError as error:
        raise store_error_of(error, path) from error


def store_error_of(error: OSError, path: Path) -> StoreError:
    """Translate an error of the operating system."""
    reason = error.strerror or type(error).__name__
    if error.errno in FULL_ERRORS:
        return StoreError(ErrorCode.FULL, f"there is no space left to write {path}: {reason}")
    return StoreError(ErrorCode.UNAVAILABLE, f"{path} cannot be used: {reason}")


def replaced_file_error(path: Path) -> StoreError:
    """Make the error of a write into a file that is no longer the one under its name."""
    return StoreError(
        ErrorCode.UNAVAILABLE,
        f"{path} was deleted, moved or replaced while it was open; what was written to it is lost",
    )
