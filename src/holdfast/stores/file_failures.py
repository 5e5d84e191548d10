"""What goes wrong with files, in the words of the store ports."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from holdfast.vocabulary.errors import ErrorCode, StoreError

# EFBIG is the limit on the size of a file; to whoever wants to write, it is a full disk.
FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def store_error_of(error: OSError, path: Path) -> StoreError:
    """Translate an error of the operating system."""
    reason = error.strerror or type(error).__name__
    if error.errno in FULL_ERRORS:
        return StoreError(ErrorCode.FULL, f"there is no room to write {path}: {reason}")
    return StoreError(ErrorCode.UNAVAILABLE, f"{path} cannot be used: {reason}")


def vanished(path: Path) -> StoreError:
    """Make the error of a write that went into a file that has lost its name."""
    return StoreError(
        ErrorCode.UNAVAILABLE,
        f"{path} was deleted, moved or replaced while it was open; what was written is not kept",
    )


@contextlib.contextmanager
def translating(path: Path) -> Iterator[None]:
    """Let no bare OSError out."""
    try:
        yield
    except OSError as error:
        raise store_error_of(error, path) from error
