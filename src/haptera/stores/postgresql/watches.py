"""Watches over statements: servers that do not answer, and commits that were not replicated.

A server that is paused, or whose disk hangs, keeps its connections open and says nothing. The
client has no time limit of its own for that: the connection is cut from another thread.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

import psycopg

from haptera.stores.notifications import PeriodicThread
from haptera.system.processes import monotonic_seconds

_Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_LOOK_SECONDS = 0.25
_CANCELLED_WAIT = "SyncRepWaitForLSN"
"""The function of the server that warns of a cancelled wait. Its text depends on the language."""
_CONFIRM = "SELECT pg_logical_emit_message(true, 'haptera', 'confirm')"
"""Writes to the write-ahead log, and so waits until the replicas have all that stands before."""
_REPLICATION = (
    "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names')"
)


class SilenceWatch:
    """Cuts connections whose statement takes too long. Owns the thread that looks.

    The thread runs while a statement does, and ends a moment after the last one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[_Connection, float] = {}
        self._looking = PeriodicThread("haptera-silence", _LOOK_SECONDS, self._look)

    @contextlib.contextmanager
    def watched(self, connection: _Connection, *, until: float) -> Iterator[None]:
        """Let a connection be cut at a time of the monotonic clock, unless the block has ended."""
        with self._lock:
            self._until[connection] = until
            self._looking.start()
        try:
            yield
        finally:
            with self._lock:
                self._until.pop(connection, None)

    def _look(self) -> None:
        now = monotonic_seconds()
        # Under the lock: a connection that is not watched any more may be closed, and its number
        # given to another file.
        with self._lock:
            if not self._until:
                self._looking.stop()
            for connection, until in tuple(self._until.items()):
                if now >= until:
                    del self._until[connection]
                    _cut(connection)


def _cut(connection: _Connection) -> None:
    """End a connection so that the thread that waits for its answer gets an error."""
    # Of a copy of the descriptor: the connection itself is closed by the thread that has it.
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as copy,
    ):
        copy.shutdown(socket.SHUT_RDWR)


class ReplicationWatch:
    """Knows, for each thread, whether a commit of its operation was reported without its replicas.

    A wait for replicas can be cancelled, by an operator or a restart. The server then says that all
    went well, and beside it, in a warning, that the commit may not have been replicated.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def begin(self) -> None:
        """Begin an operation of this thread."""
        self._local.cancelled = False

    def note(self, notice: psycopg.errors.Diagnostic) -> None:
        """Take a notice of the server, in the thread that runs the statement."""
        if notice.source_function == _CANCELLED_WAIT:
            self._local.cancelled = True

    def confirm(self, connection: _Connection, *, until: float) -> None:
        """Wait for the replicas as long as waits for them were cancelled."""
        while getattr(self._local, "cancelled", False):
            if monotonic_seconds() >= until:
                raise psycopg.OperationalError("the wait for the replicas was cancelled")
            self._local.cancelled = False
            try:
                connection.execute(_CONFIRM)
            except psycopg.Error:
                self._local.cancelled = True
                raise


def replication_warning(connection: _Connection) -> str | None:
    """Return what is wrong with how the server acknowledges commits; None if nothing is."""
    commit, standbys = connection.execute(_REPLICATION).fetchone() or ("on", "")
    if commit == "off":
        return "synchronous_commit is off: a crash of the server loses acknowledged entries"
    if commit == "local" and standbys:
        return (
            "synchronous_commit is local: a failover loses acknowledged entries, although "
            "synchronous_standby_names is set"
        )
    return None
