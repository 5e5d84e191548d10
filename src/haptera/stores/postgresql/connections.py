"""The connections of one store: two writers, two readers, one for renewals and one for changes.

However many sessions a process holds, it has these six connections. None of them is held while a
session waits for anything else than the database.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg

from haptera.stores.lease_rules import result_of_thread
from haptera.stores.notifications import ChangeNotifier
from haptera.stores.postgresql.changes import ChangeHints, ChangeWatch
from haptera.stores.postgresql.database import (
    Database,
    PgConnection,
    Row,
    close_quietly,
)
from haptera.stores.postgresql.group_writer import Append, GroupWriter
from haptera.stores.stored_records import closed_error
from haptera.system.processes import ForkGuard

READERS = 2

T = TypeVar("T")


class Readers:
    """Owns a few connections and the threads that use them, for whatever is not an append."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="haptera-read")
        self._idle: queue.SimpleQueue[PgConnection] = queue.SimpleQueue()
        self._fork_guard = ForkGuard()
        self._lock = threading.Lock()
        self._is_closed = False

    async def run(self, work: Callable[[PgConnection], T]) -> T:
        """Run a function on a thread; one that loses its connection is run again on a new one."""
        return await asyncio.wrap_future(self.submit(work))

    async def query(self, statement: str, *values: object) -> list[Row]:
        """Run one statement."""
        return await self.run(
            lambda connection: self._database.query(connection, statement, *values)
        )

    def submit(self, work: Callable[[PgConnection], T]) -> "Future[T]":
        """Ask for a function to be run, from any thread."""
        self._fork_guard.refuse_forks()
        with self._lock:
            if self._is_closed:
                raise closed_error()
            # Under the lock, so that closing does not come between the check and this.
            return self._threads.submit(self._run, work)

    async def close(self) -> None:
        """End the threads and close the connections."""
        self._fork_guard.refuse_forks()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        # It waits for what is under way, and so not on the event loop.
        await asyncio.to_thread(self._threads.shutdown)
        while not self._idle.empty():
            close_quietly(self._idle.get())

    def _run(self, work: Callable[[PgConnection], T]) -> T:
        return self._database.retry(lambda _: self._attempt(work))

    def _attempt(self, work: Callable[[PgConnection], T]) -> T:
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = self._database.connect()
        try:
            with self._database.watched(connection):
                outcome = work(connection)
                self._database.confirm(connection)
        except psycopg.Error:
            # What is wrong with it is not known, so it is not used again.
            close_quietly(connection)
            raise
        except BaseException:
            self._idle.put(connection)
            raise
        self._idle.put(connection)
        return outcome


@dataclass(slots=True, frozen=True)
class PostgresConnections:
    """What the ports of one store share."""

    database: Database
    writer: GroupWriter
    """Does what must be done in order: leases."""
    second_writer: GroupWriter
    """Takes appends while a statement of the first is on its way."""
    readers: Readers
    watch: ChangeWatch
    hints: ChangeHints
    notifier: ChangeNotifier
    """Wakes those who wait for entries or a lease."""
    inbox_notifier: ChangeNotifier
    """Wakes those who wait for commands. Every holder of a session does, so entries must not wake
    them."""
    on_their_way: dict[str, "Future[None]"] = field(default_factory=dict)
    """The last append of each session, until its outcome is known."""

    async def append(self, append: Append) -> None:
        """Append through the writer that has less to do.

        The appends of a session follow one another, also behind one that its caller has given up:
        nothing that is asked for later comes before it.
        """
        session_id = append.lease.session_id
        while (before := self.on_their_way.get(session_id)) is not None:
            with suppress(Exception):  # its own caller has the error
                await result_of_thread(before)
        first, second = self.writer, self.second_writer
        appending = (first if first.load <= second.load else second).append(append)
        self.on_their_way[session_id] = appending
        appending.add_done_callback(lambda _: self._arrived(session_id, appending))
        await asyncio.wrap_future(appending)

    def _arrived(self, session_id: str, appending: "Future[None]") -> None:
        if self.on_their_way.get(session_id) is appending:
            del self.on_their_way[session_id]

    def announce(self, sessions: Sequence[str]) -> None:
        """Wake those who wait for entries or a lease of these sessions, here and elsewhere."""
        for session_id in sessions:
            self.notifier.notify(session_id)  # type: ignore[arg-type]
        self.hints.send("e", sessions)

    async def close(self) -> None:
        """Wake all waiters, finish what was begun, end the threads and close the connections."""
        self.notifier.close()
        self.inbox_notifier.close()
        self.hints.close()
        await self.writer.close()
        await self.second_writer.close()
        # After the writers: they go on trying to reach the database until then, so that accepted
        # appends are not given up.
        self.database.closing.set()
        await self.readers.close()
        self.watch.close()


def make_connections(url: str, *, owner: str | None) -> PostgresConnections:
    """Prepare the connections to a database; each is opened when it is first used."""
    database = Database(url, owner=owner)
    readers = Readers(database)
    watch = ChangeWatch(database)
    return PostgresConnections(
        database=database,
        writer=GroupWriter(database),
        second_writer=GroupWriter(database),
        readers=readers,
        watch=watch,
        hints=ChangeHints(_submitter(readers)),
        notifier=ChangeNotifier(watch.poll_entries),
        inbox_notifier=ChangeNotifier(watch.poll_commands),
    )


def _submitter(readers: Readers) -> Callable[[Callable[[PgConnection], None]], object]:
    def submit(work: Callable[[PgConnection], Any]) -> object:
        return readers.submit(work)

    return submit
