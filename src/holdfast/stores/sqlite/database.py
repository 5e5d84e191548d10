"""Opens the database file, with the settings that every connection to it has."""

import contextlib
import ctypes
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from holdfast.stores.private_files import open_or_create
from holdfast.stores.processes import monotonic_seconds
from holdfast.stores.sqlite.failures import translating_database
from holdfast.stores.sqlite.migrations import schema_of
from holdfast.stores.sqlite.patience import Patience
from holdfast.stores.sqlite.version_guard import refuse_unsafe_version
from holdfast.vocabulary.errors import ErrorCode, StoreError

_FIRST_WAIT = 0.01
_LONGEST_WAIT = 0.5
_SHORTEST_LOCK_WAIT = 0.001

T = TypeVar("T")


class Database:
    """A database file. Knows how to connect to it; does not keep connections."""

    def __init__(
        self, path: Path, *, patience: Patience, sqlite_version: str | None = None
    ) -> None:
        self.path = path
        self.patience = patience
        self._version = sqlite_version or apsw.sqlite_lib_version()

    def connect(self) -> apsw.Connection:
        """Open a connection, and the file if it is new."""
        refuse_unsafe_version(self._version)
        with translating_database(self.path):
            # SQLite would make it readable to others; its companions inherit the mode from it.
            os.close(open_or_create(self.path, os.O_RDWR))
            connection = apsw.Connection(
                str(self.path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
            )
        try:
            self.patiently(lambda: _configure(connection, self.path, self.patience))
        except BaseException:
            close_quietly(connection)
            raise
        return connection

    def patiently(self, work: Callable[[], T]) -> T:
        """Do something again while others keep the database locked, up to the end of patience."""
        deadline = monotonic_seconds() + self.patience.whole
        wait = _FIRST_WAIT
        while True:
            try:
                with translating_database(self.path):
                    try:
                        return work()
                    except (apsw.BusyError, apsw.LockedError):
                        if monotonic_seconds() >= deadline:
                            raise
            except StoreError as error:
                if isinstance(error.__cause__, apsw.BusyError | apsw.LockedError):
                    raise StoreError(
                        ErrorCode.UNAVAILABLE, f"{error.message} for {self.patience.whole:g} s"
                    ) from error
                raise
            threading.Event().wait(wait * (1 + secrets.randbelow(1000) / 1000))
            wait = min(wait * 2, _LONGEST_WAIT)


def is_in_place(connection: apsw.Connection) -> bool:
    """Whether the file of a connection is still the one under its name: one call of `stat`."""
    moved = ctypes.c_int()
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
    return not moved.value


def write_ahead_inode(path: Path) -> int:
    """Return which file the write-ahead log of a database is; 0 when there is none."""
    try:
        return Path(f"{path}-wal").stat().st_ino
    except FileNotFoundError:
        return 0


def close_quietly(connection: apsw.Connection) -> None:
    """Close a connection whose last words nobody needs."""
    with contextlib.suppress(apsw.Error):
        connection.close()


def _wait_in(busy: float) -> Callable[[int], bool]:
    """Make the handler that SQLite asks whether to try a lock again.

    Its own one waits longer each time, so that whoever is late stays late; short random waits
    give everyone the same chance.
    """
    waited = 0.0

    def wait(attempt: int) -> bool:
        nonlocal waited
        waited = 0.0 if attempt == 0 else waited
        if waited >= busy:
            return False
        moment = _SHORTEST_LOCK_WAIT * (1 + secrets.randbelow(1000) / 250)
        waited += moment
        threading.Event().wait(moment)
        return True

    return wait


def _configure(connection: apsw.Connection, path: Path, patience: Patience) -> None:
    connection.set_busy_handler(_wait_in(patience.busy))
    schema_of(connection, path)  # the next line changes the file, so it has to be ours
    if connection.pragma("journal_mode", "wal") != "wal":
        raise StoreError(
            ErrorCode.UNAVAILABLE,
            f"{connection.filename} is on a file system that cannot share memory between processes",
        )
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", 1)
    connection.pragma("trusted_schema", 0)
    # Words that look like names are text only in quotes that say so.
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
