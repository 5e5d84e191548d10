"""What goes wrong in SQLite, in the words of the store ports."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import apsw

from holdfast.stores.private_files import FULL_ERRORS, store_error_of
from holdfast.vocabulary.errors import ErrorCode, StoreError


def store_error_from(
    error: apsw.Error, path: Path, connection: apsw.Connection | None = None
) -> StoreError:
    """Translate an error of SQLite; the connection knows the system's reason for it."""
    match error:
        case apsw.FullError():
            return StoreError(ErrorCode.FULL, f"there is no room to write {path}: {error}")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return StoreError(ErrorCode.CORRUPT, f"the database {path} is damaged: {error}")
        case apsw.BusyError() | apsw.LockedError():
            return StoreError(
                ErrorCode.UNAVAILABLE, f"another process keeps the database {path} locked"
            )
    system = _system_errno(error, connection)
    if system in FULL_ERRORS:
        return StoreError(
            ErrorCode.FULL, f"there is no room to write {path}: {errno.errorcode[system]}"
        )
    return StoreError(ErrorCode.UNAVAILABLE, f"the database {path} cannot be used: {error}")


@contextlib.contextmanager
def translating_database(path: Path, connection: apsw.Connection | None = None) -> Iterator[None]:
    """Let no bare error of SQLite or the operating system out."""
    try:
        yield
    except apsw.Error as error:
        raise store_error_from(error, path, connection) from error
    except OSError as error:
        raise store_error_of(error, path) from error


def _system_errno(error: apsw.Error, connection: apsw.Connection | None) -> int:
    if connection is None or not isinstance(error, apsw.IOError | apsw.CantOpenError):
        return 0
    try:
        return connection.system_errno
    except apsw.Error:
        return 0
