"""The one writer of a database file. Work that is asked for at the same time is one transaction.

Most of the cost of a transaction is its sync, so a group of appends costs as much as one.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, TypeVar

import apsw

from haptera.model.errors import AgentError
from haptera.stores.sqlite.database import (
    Database,
    close_quietly,
    is_at_its_path,
    is_locked,
    store_error_from,
    write_ahead_inode,
)
from haptera.stores.writer_thread import WriterThread
from haptera.system.private_files import replaced_file_error
from haptera.system.processes import monotonic_seconds

LARGEST_GROUP = 512

T = TypeVar("T")

Work = Callable[[apsw.Connection], T]
"""Runs inside a transaction. When it raises, it alone is rolled back, unless it is an error of
the database: then the whole group is."""


class _Write(Generic[T]):
    """One piece of work and the future of its caller."""

    def __init__(self, work: Work[T], deadline: float) -> None:
        self.work = work
        self.deadline = deadline
        """Until when it waits for the lock of the database, from when it was asked for."""
        self.future: Future[T] = Future()
        self.outcome: T | None = None
        self.error: Exception | None = None

    def settle(self) -> None:
        """Pass the outcome on to the caller."""
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.outcome)  # type: ignore[arg-type]


class GroupWriter(WriterThread[_Write[Any]]):
    """Owns the writing connection and the thread that uses it.

    While a transaction is being synced, new work gathers and becomes the next transaction. Work
    that fails is rolled back alone; when the commit fails, all work of the group has failed. A
    commit into a file that is no longer the one under its name counts as failed.
    """

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._connection: apsw.Connection | None = None
        self._write_ahead_path = f"{database.path}-wal"
        self._write_ahead = 0

    async def write(self, work: Work[T]) -> T:
        """Do work in a transaction and return its outcome once the transaction is durable."""
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Work[T]) -> Future[T]:
        """Ask for work to be done, from any thread."""
        write = _Write(work, self._database.deadline())
        self._enqueue(write)
        return write.future

    def _write_waiting(self) -> None:
        group = self._take_waiting()
        for start in range(0, len(group), LARGEST_GROUP):
            # Its callers have the error by then; those of the groups after it still wait.
            with contextlib.suppress(Exception):
                self._write_group(group[start : start + LARGEST_GROUP])

    def _write_group(self, group: Sequence[_Write[Any]]) -> None:
        # A caller that was cancelled before its turn wants nothing written.
        writes = [write for write in group if write.future.set_running_or_notify_cancel()]
        while writes:
            writes = self._write_until_late(writes)

    def _write_until_late(self, writes: Sequence[_Write[Any]]) -> list[_Write[Any]]:
        """Write what there is; return what still has time to wait for the lock of the database."""
        left: list[_Write[Any]] = []
        try:
            self._commit(writes)
        except Exception as error:
            if is_locked(error):
                now = monotonic_seconds()
                left = [write for write in writes if write.deadline > now]
            for write in writes:
                # The work that failed before the commit keeps its own error.
                write.error = write.error or error
            if not isinstance(error, AgentError):
                raise
        finally:
            for write in writes:
                if write in left:
                    write.error = None
                else:
                    write.settle()
        return left

    def _commit(self, writes: Sequence[_Write[Any]]) -> None:
        # IMMEDIATE takes the lock for writing here, where nothing has been done yet. Later it could
        # fail with the work half done.
        connection = self._database.retry_while_locked(
            self._begin, until=min(write.deadline for write in writes)
        )
        try:
            for write in writes:
                _attempt(connection, write, is_alone=len(writes) == 1)
            has_failed = all(write.error is not None for write in writes)
            # With nothing to keep there is nothing to sync, either.
            connection.execute("ROLLBACK" if has_failed else "COMMIT")
        except apsw.Error as error:
            translated = store_error_from(error, self._database.path, connection)
            self._roll_back(connection, error)
            raise translated from error
        except BaseException as error:
            self._roll_back(connection, error)
            raise
        self._refuse_replaced_file(connection)

    def _refuse_replaced_file(self, connection: apsw.Connection) -> None:
        """Raise UNAVAILABLE when the last commit went into a file that has lost its name."""
        if not is_at_its_path(connection):
            self._disconnect()
            raise replaced_file_error(self._database.path)
        if write_ahead_inode(self._write_ahead_path) != self._write_ahead:
            # Keep the connection: closing the last one would copy the commit into the database.
            raise replaced_file_error(Path(self._write_ahead_path))

    def _roll_back(self, connection: apsw.Connection, error: BaseException) -> None:
        if connection.in_transaction:
            with contextlib.suppress(apsw.Error):
                connection.execute("ROLLBACK")
        if isinstance(error, apsw.IOError | apsw.CorruptError):
            # After a failed sync the cached pages may differ from the disk: read it again.
            self._disconnect()

    def _begin(self) -> apsw.Connection:
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def _connect(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = self._database.connect_migrated()
            self._write_ahead = write_ahead_inode(self._write_ahead_path)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            close_quietly(self._connection)
            self._connection = None


def _attempt(connection: apsw.Connection, write: _Write[Any], *, is_alone: bool) -> None:
    """Do the work of one write; if it fails, the others of its group go on."""
    if not is_alone:
        connection.execute("SAVEPOINT write")
    try:
        write.outcome = write.work(connection)
    except apsw.Error:
        # The error may have ended the whole transaction: no other work of the group can go on.
        raise
    except Exception as error:  # noqa: BLE001 - any error of this work is for its caller alone
        write.error = error
        if not is_alone:
            connection.execute("ROLLBACK TO write")
    if not is_alone:
        connection.execute("RELEASE write")
