"""The connections to a database that the ports of a SQLite store share.

One connection writes (`GroupWriter`), a few read, and two watch for changes by other processes.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import apsw

from haptera.model.errors import StoreError
from haptera.model.ids import SessionId
from haptera.stores.notifications import ChangeNotifier
from haptera.stores.sqlite.database import (
    Database,
    LockTimeouts,
    close_quietly,
    is_at_its_path,
)
from haptera.stores.sqlite.group_writer import GroupWriter
from haptera.stores.stored_records import closed_error
from haptera.system.processes import ForkGuard

READERS = 2

T = TypeVar("T")


class Readers:
    """Owns a few reading connections and the threads that use them.

    A reader never waits for a writer. It reads the file under the store's name, also after that
    file was replaced by another.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="haptera-read")
        self._idle: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        self._fork_guard = ForkGuard()
        self._is_closed = False

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run a function that only reads, on a thread."""
        self._fork_guard.refuse_forks()
        if self._is_closed:
            raise closed_error()
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
            outcome = self._database.retry_while_locked(lambda: work(connection))
        except StoreError:
            # The next read gets a new connection: it may succeed where this one failed.
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
            if is_at_its_path(connection):
                return connection
            close_quietly(connection)

    def _connect(self) -> apsw.Connection:
        connection = self._database.connect_migrated()
        try:
            # Not opened read-only: it may have to migrate, and readers of a write-ahead log write
            # to the memory that all connections share.
            connection.pragma("query_only", 1)
        except BaseException:
            close_quietly(connection)
            raise
        return connection


class ChangeWatch:
    """Compares a number that changes with the database with the number of the last look.

    Owns a connection of its own: `data_version` counts the changes by other connections only.
    """

    def __init__(self, database: Database, look: Callable[[apsw.Connection], object]) -> None:
        self._database = database
        self._look = look
        # The thread that polls uses the connection, and another one closes it.
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._seen: object = None

    def poll(self, watched: Collection[SessionId]) -> Collection[SessionId]:
        """Return all watched sessions after any change: which one changed is not known."""
        return watched if self.has_changed() else ()

    def has_changed(self) -> bool:
        """Return whether the number is another than the last time; True when it cannot be read."""
        with self._lock:
            try:
                if self._connection is not None and not is_at_its_path(self._connection):
                    self._disconnect()
                if self._connection is None:
                    # `data_version` begins anew with each connection, so the first look reports a
                    # change.
                    self._connection, self._seen = self._database.connect(), None
                now = self._look(self._connection)
            except (apsw.Error, StoreError):
                self._disconnect()
                return True
            changed, self._seen = now != self._seen, now
            return changed

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            close_quietly(self._connection)
            self._connection = None


@dataclass(slots=True, frozen=True)
class SqliteConnections:
    """The writer, the readers and the notifiers of one database file."""

    database: Database
    writer: GroupWriter
    readers: Readers
    watches: tuple[ChangeWatch, ...]
    notifier: ChangeNotifier
    """Wakes those who wait for entries or a lease."""
    inbox_notifier: ChangeNotifier
    """Wakes those who wait for commands. Every holder of a session does, so entries must not wake
    them."""

    async def close(self) -> None:
        """Wake all waiters, finish what was begun, end the threads and close the file."""
        self.notifier.close()
        self.inbox_notifier.close()
        await self.readers.close()
        await self.writer.close()
        for watch in self.watches:
            watch.close()


def make_connections(
    path: Path, *, timeouts: LockTimeouts, sqlite_version: str | None
) -> SqliteConnections:
    """Prepare the connections to a file; each is opened when it is first used."""
    database = Database(path, timeouts=timeouts, sqlite_version=sqlite_version)
    entries, commands = ChangeWatch(database, _data_version), ChangeWatch(database, _last_command)
    return SqliteConnections(
        database=database,
        writer=GroupWriter(database),
        readers=Readers(database),
        watches=(entries, commands),
        notifier=ChangeNotifier(entries.poll),
        inbox_notifier=ChangeNotifier(commands.poll),
    )


def _data_version(connection: apsw.Connection) -> object:
    """Return a number that changes with every change by another connection."""
    return connection.pragma("data_version")


def _last_command(connection: apsw.Connection) -> object:
    """Return a number that changes with every new command."""
    # The counter of AUTOINCREMENT: consuming a command does not change it, and a new one does.
    return connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'command'").get
