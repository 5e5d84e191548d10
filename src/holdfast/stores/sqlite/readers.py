"""Connections that only read, used by threads of their own."""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from holdfast.stores.processes import ForkGuard
from holdfast.stores.sqlite.database import Database, close_quietly, is_in_place
from holdfast.stores.sqlite.migrations import migrate
from holdfast.vocabulary.errors import ErrorCode, SessionError, StoreError

READERS = 2

T = TypeVar("T")


class Readers:
    """Owns a few reading connections. Reading waits for nobody who writes.

    What is read is the file under the store's name, also after it was replaced.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="holdfast-read")
        self._idle: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        self._fork_guard = ForkGuard()
        self._is_closed = False

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Read something off the event loop."""
        self._fork_guard.refuse_forks()
        if self._is_closed:
            raise SessionError(ErrorCode.CLOSED, "the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, work)

    async def close(self) -> None:
        """End the threads and close the connections."""
        self._fork_guard.refuse_forks()
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(self._threads, lambda: None)
        self._threads.shutdown()
        while not self._idle.empty():
            close_quietly(self._idle.get())

    def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        connection = self._connection()
        try:
            outcome = self._database.patiently(lambda: work(connection))
        except StoreError:
            # What failed to read once may be read by a fresh connection.
            close_quietly(connection)
            raise
        except BaseException:
            self._idle.put(connection)
            raise
        self._idle.put(connection)
        return outcome

    def _connection(self) -> apsw.Connection:
        while True:
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                return self._connect()
            if is_in_place(connection):
                return connection
            close_quietly(connection)

    def _connect(self) -> apsw.Connection:
        connection = self._database.connect()
        try:
            self._database.patiently(lambda: migrate(connection, self._database.path))
            connection.pragma("query_only", 1)
        except BaseException:
            close_quietly(connection)
            raise
        return connection


def data_version(connection: apsw.Connection) -> object:
    """Return a number that is another one after any change by another connection."""
    return connection.pragma("data_version")


def last_command(connection: apsw.Connection) -> object:
    """Return a number that is another one after any command."""
    return connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'command'").get


class ChangeWatch:
    """Notices that something in the database changed, by whatever process."""

    def __init__(self, database: Database, look: Callable[[apsw.Connection], object]) -> None:
        self._database = database
        self._look = look
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._seen: object = None

    def has_changed(self) -> bool:
        """Whether it looks otherwise than the last time; True when it cannot look."""
        with self._lock:
            try:
                if self._connection is not None and not is_in_place(self._connection):
                    self._forget()
                if self._connection is None:
                    self._connection, self._seen = self._database.connect(), None
                now = self._look(self._connection)
            except (apsw.Error, StoreError):
                self._forget()
                return True
            changed, self._seen = now != self._seen, now
            return changed

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._connection is not None:
            close_quietly(self._connection)
            self._connection = None
