"""The database file: how it is opened and configured, how locks are waited for, how errors read.

SQLite versions that can lose committed transactions in WAL mode are refused. Up to 3.51.2 a
checkpoint that runs while another connection restarts the write-ahead log can drop commits. The fix
is in 3.51.3 and was taken back into the 3.50 and 3.44 series.
"""

import contextlib
import ctypes
import errno
import functools
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import apsw

from haptera.model.errors import ErrorCode, StoreError
from haptera.stores.sqlite.migrations import MIGRATIONS, last_migration, migrate
from haptera.system.atomic_files import FULL_ERRORS
from haptera.system.private_files import open_or_create, store_error_of
from haptera.system.processes import monotonic_seconds

_FIRST_RETRY_SECONDS = 0.01
_LONGEST_RETRY_SECONDS = 0.5
_SHORTEST_LOCK_WAIT = 0.001

_FIXED_VERSION = (3, 51, 3)
_FIXED_SERIES = {(3, 50): 7, (3, 44): 6}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTimeouts:
    """How long a lock of the database is waited for, in seconds."""

    busy: float = 5.0
    """One wait inside SQLite, before it reports that the database is locked."""
    total: float = 30.0
    """All waits together, before the caller gets UNAVAILABLE."""


class Database:
    """A database file. Opens connections and retries on locks; does not keep connections."""

    def __init__(
        self, path: Path, *, timeouts: LockTimeouts, sqlite_version: str | None = None
    ) -> None:
        self.path = path
        self._timeouts = timeouts
        self._version = sqlite_version or apsw.sqlite_lib_version()
        self._waiting = _Waiting()

    def connect(self) -> apsw.Connection:
        """Open a connection; creates the file if it is missing."""
        return self._connect()[0]

    def connect_migrated(self) -> apsw.Connection:
        """Open a connection to a database that has all migrations by then."""
        connection, migration = self._connect()
        if migration < len(MIGRATIONS):
            with _closed_on_error(connection):
                self.retry_while_locked(lambda: migrate(connection, self.path))
        return connection

    def _connect(self) -> tuple[apsw.Connection, int]:
        """Open a connection; returns it with the number of the last migration of the database."""
        refuse_unsafe_version(self._version)
        with translated_sqlite_errors(self.path):
            # SQLite would create it readable to others; the files beside it inherit its mode.
            os.close(open_or_create(self.path, os.O_RDWR))
            # Without a mutex of SQLite's own: one thread at a time uses a connection.
            connection = apsw.Connection(
                str(self.path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
            )
        with _closed_on_error(connection):
            configure = functools.partial(_configure, connection, self.path, self._busy_handler())
            return connection, self.retry_while_locked(configure)

    def write_apart(self, work: Callable[[apsw.Connection], None]) -> None:
        """Do work in a transaction on a connection of its own, which is closed then."""
        connection = self.connect()
        try:
            self.retry_while_locked(lambda: connection.execute("BEGIN IMMEDIATE"))
            with translated_sqlite_errors(self.path):
                work(connection)
                connection.execute("COMMIT")
        finally:
            close_quietly(connection)

    def retry_while_locked(self, work: Callable[[], T], *, until: float | None = None) -> T:
        """Do something again while another process keeps the database locked.

        What `work` waits for by this, too, has the same time: it ends `until` then, or after
        `LockTimeouts.total`.

        Raises:
            StoreError: UNAVAILABLE when it is still locked then.

        """
        if self._waiting.until is not None:
            return self._retry(work, self._waiting.until)
        self._waiting.until = until or self.deadline()
        try:
            return self._retry(work, self._waiting.until)
        except StoreError as error:
            if is_locked(error):
                raise StoreError(
                    ErrorCode.UNAVAILABLE, f"{error.message} for {self._timeouts.total:g} s"
                ) from error.__cause__
            raise
        finally:
            self._waiting.until = None

    def deadline(self) -> float:
        """Return until when a lock is waited for from now on."""
        return monotonic_seconds() + self._timeouts.total

    def _busy_handler(self) -> Callable[[int], bool]:
        """Make the function that SQLite calls to ask whether to try a lock again.

        SQLite's own handler waits longer each time, so that a process that is late stays late.
        Short random waits give every process the same chance.
        """
        waited = 0.0

        def wait(attempt: int) -> bool:
            nonlocal waited
            waited = 0.0 if attempt == 0 else waited
            until = self._waiting.until
            if waited >= self._timeouts.busy or (until and monotonic_seconds() >= until):
                return False
            moment = _SHORTEST_LOCK_WAIT * (1 + secrets.randbelow(1000) / 250)
            waited += moment
            threading.Event().wait(moment)
            return True

        return wait

    def _retry(self, work: Callable[[], T], deadline: float) -> T:
        wait = _FIRST_RETRY_SECONDS
        while True:
            with translated_sqlite_errors(self.path):
                try:
                    return work()
                except (apsw.BusyError, apsw.LockedError):
                    # Only the last of these errors is translated; after an earlier one the work is
                    # tried again.
                    if monotonic_seconds() >= deadline:
                        raise
            threading.Event().wait(wait * (1 + secrets.randbelow(1000) / 1000))
            wait = min(wait * 2, _LONGEST_RETRY_SECONDS)


class _Waiting(threading.local):
    """Until when this thread waits for locks; None while it does not."""

    until: float | None = None


def is_locked(error: Exception) -> bool:
    """Return whether an error of a store says that another process keeps the database locked."""
    return isinstance(error.__cause__, apsw.BusyError | apsw.LockedError)


@contextlib.contextmanager
def _closed_on_error(connection: apsw.Connection) -> Iterator[None]:
    """Close a connection when the block fails before its caller has it."""
    try:
        yield
    except BaseException:
        close_quietly(connection)
        raise


def is_at_its_path(connection: apsw.Connection) -> bool:
    """Return whether the file of a connection is still the one under its name (one `stat`)."""
    moved = ctypes.c_int()
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
    return not moved.value


def write_ahead_inode(path: str) -> int:
    """Return the inode of a write-ahead log; 0 when there is none."""
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - after each commit: a Path takes ten times as long
    except FileNotFoundError:
        return 0


def close_quietly(connection: apsw.Connection) -> None:
    """Close a connection and ignore errors of closing."""
    with contextlib.suppress(apsw.Error):
        connection.close()


@contextlib.contextmanager
def translated_sqlite_errors(path: Path) -> Iterator[None]:
    """Raise every error of SQLite and of the operating system as a StoreError."""
    try:
        yield
    except apsw.Error as error:
        raise store_error_from(error, path) from error
    except OSError as error:
        raise store_error_of(error, path) from error


def store_error_from(
    error: apsw.Error, path: Path, connection: apsw.Connection | None = None
) -> StoreError:
    """Translate an error of SQLite; the connection has the error number of the system."""
    match error:
        case apsw.FullError():
            return StoreError(ErrorCode.FULL, f"there is no space left to write {path}: {error}")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return StoreError(ErrorCode.CORRUPT, f"the database {path} is damaged: {error}")
        case apsw.BusyError() | apsw.LockedError():
            return StoreError(
                ErrorCode.UNAVAILABLE, f"another process keeps the database {path} locked"
            )
    system = _system_errno(error, connection)
    if system in FULL_ERRORS:
        return StoreError(
            ErrorCode.FULL, f"there is no space left to write {path}: {errno.errorcode[system]}"
        )
    return StoreError(ErrorCode.UNAVAILABLE, f"the database {path} cannot be used: {error}")


def _system_errno(error: apsw.Error, connection: apsw.Connection | None) -> int:
    if connection is None or not isinstance(error, apsw.IOError | apsw.CantOpenError):
        return 0
    try:
        return connection.system_errno
    except apsw.Error:
        return 0


def is_safe_version(version: tuple[int, int, int]) -> bool:
    """Return whether this SQLite has the fix of the write-ahead log."""
    if version >= _FIXED_VERSION:
        return True
    first_fixed = _FIXED_SERIES.get(version[:2])
    return first_fixed is not None and version[2] >= first_fixed


def refuse_unsafe_version(text: str) -> None:
    """Raise VERSION_UNSUPPORTED unless this SQLite version is safe to write with."""
    major, minor, patch = (int(number) for number in text.split(".")[:3])
    if not is_safe_version((major, minor, patch)):
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"SQLite {text} can lose committed data in WAL mode; "
            "3.51.3 or newer is needed (or 3.50.7, 3.44.6): upgrade apsw",
        )


def _configure(connection: apsw.Connection, path: Path, busy_handler: Callable[[int], bool]) -> int:
    """Configure a connection and return the number of the last migration of the database."""
    connection.set_busy_handler(busy_handler)
    # The next line changes the file, so the file has to be one of ours.
    migration = last_migration(connection, path)
    if connection.pragma("journal_mode", "wal") != "wal":
        raise StoreError(
            ErrorCode.UNAVAILABLE,
            f"{connection.filename} is on a file system that cannot share memory between processes",
        )
    # NORMAL would not sync the write-ahead log at a commit: a power cut could undo it.
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", 1)
    # A view or trigger that was put into the file must not call functions with side effects.
    connection.pragma("trusted_schema", 0)
    # Text in double quotes is a name, never a string.
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    return migration
