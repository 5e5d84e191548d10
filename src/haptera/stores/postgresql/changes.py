"""How a process hears of changes by others: a notification as a hint, polling as the guarantee.

After an append the writer sends one notification for all sessions that changed since the last one.
It names them by a digest, so that a listener learns nothing of other owners' sessions. It is sent
apart from the append: a transaction with a notification keeps all others of the database from
committing. Where notifications arrive, the database is asked only every second. Behind a pooler
they do not arrive, and the database is asked ten times a second.
"""

import hashlib
import threading
from collections.abc import Callable, Collection, Sequence

import psycopg

from haptera.model.errors import AgentError
from haptera.model.ids import SessionId
from haptera.stores.postgresql.database import (
    Database,
    PgConnection,
    Row,
    close_quietly,
    to_text,
)
from haptera.system.processes import monotonic_seconds

CHANNEL = "haptera"
DATABASE_POLL_SECONDS = 0.1
"""How often the database is asked where notifications do not arrive."""
POLL_SECONDS_WITH_HINTS = 1.0
_HINT_SECONDS = 0.025
_MOST_NAMES = 400
"""More sessions than fit into one notification, which has 8,000 bytes; then it names none."""
_ALL = "*"

_HEADS = (
    "SELECT id, head, epoch, lease_holder IS NULL FROM haptera.session"
    " WHERE id = ANY (%s) AND (%s::text IS NULL OR owner = %s)"
)
_PENDING = (
    "SELECT s.id, count(*), max(c.arrived) FROM haptera.command c"
    " JOIN haptera.session s ON s.key = c.session"
    " WHERE c.body IS NOT NULL AND (%s::text IS NULL OR c.owner = %s) GROUP BY s.id"
)


class ChangeHints:
    """Sends notifications: one for all changes since the last, and no more than 40 a second.

    Owns the thread that does so. Listeners look 20 times a second, so more would tell them nothing.
    """

    def __init__(self, submit: Callable[[Callable[[PgConnection], None]], object]) -> None:
        self._submit = submit
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def send(self, kind: str, sessions: Sequence[str]) -> None:
        """Tell other processes that sessions changed: `e` entries or leases, `c` commands."""
        with self._lock:
            self._names.update(f"{kind}{_digest(session_id)}" for session_id in sessions)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="haptera-hints", daemon=True)
                self._thread.start()
        self._wanted.set()

    def close(self) -> None:
        """Send no more; polling finds what was not told."""
        self._closed.set()
        self._wanted.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            # Cleared before the names are taken: one that is added in between asks for another
            # round.
            self._wanted.clear()
            try:
                self._submit(self._notify)
            except (AgentError, RuntimeError):
                return  # the store is closing, or the program ends without closing it
            self._closed.wait(_HINT_SECONDS)

    def _notify(self, connection: PgConnection) -> None:
        with self._lock:
            names, self._names = self._names, set()
        if names:
            payload = ",".join(sorted(names)) if len(names) <= _MOST_NAMES else _ALL
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, payload))


_ANSWER_SECONDS = 5.0
"""How long a poll may take; the next one has another connection."""


class ChangeWatch:
    """Finds out which watched sessions changed. Owns one connection, shared by two notifiers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._connection: PgConnection | None = None
        self.hears_notifications = False
        """Whether notifications arrive; False before the first poll."""
        self._named: dict[str, set[str]] = {"e": set(), "c": set()}
        self._asked = {"e": 0.0, "c": 0.0}
        self._found: dict[str, dict[str, Row]] = {"e": {}, "c": {}}
        self._watched: dict[str, set[SessionId]] = {"e": set(), "c": set()}
        """What was asked for the last time. One who comes to watch a session is woken once, since
        it may have changed before it was first asked for."""

    def poll_entries(self, watched: Collection[SessionId]) -> Collection[SessionId]:
        """Return the watched sessions with new entries, or another holder."""
        return self._poll("e", watched)

    def poll_commands(self, watched: Collection[SessionId]) -> Collection[SessionId]:
        """Return the watched sessions with new commands."""
        return self._poll("c", watched)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def _poll(self, kind: str, watched: Collection[SessionId]) -> Collection[SessionId]:
        with self._lock:
            if self._database.closing.is_set():
                return ()
            try:
                return self._changed(kind, watched)
            except (psycopg.Error, AgentError):
                # All are woken: each reads by itself, and meets the error there.
                self._disconnect()
                return watched

    def _changed(self, kind: str, watched: Collection[SessionId]) -> Collection[SessionId]:
        connection = self._connect()
        with self._database.watched(connection, within=_ANSWER_SECONDS):
            return self._changed_as_told(connection, kind, watched)

    def _changed_as_told(
        self, connection: PgConnection, kind: str, watched: Collection[SessionId]
    ) -> Collection[SessionId]:
        if self.hears_notifications:
            self._take_notifications(connection)
        named, self._named[kind] = self._named[kind], set()
        if _ALL in named:
            return watched
        hinted: set[SessionId] = set()
        if named:
            hinted = {session_id for session_id in watched if _digest(session_id) in named}
        pause = POLL_SECONDS_WITH_HINTS if self.hears_notifications else DATABASE_POLL_SECONDS
        if monotonic_seconds() - self._asked[kind] < pause:
            return hinted
        self._asked[kind] = monotonic_seconds()
        return hinted | self._ask(kind, connection, watched)

    def _ask(
        self, kind: str, connection: PgConnection, watched: Collection[SessionId]
    ) -> set[SessionId]:
        owner = self._database.owner_text
        if kind == "e":
            texts = [to_text(session_id) for session_id in watched]
            rows = self._database.query(connection, _HEADS, texts, owner, owner)
        else:
            rows = self._database.query(connection, _PENDING, owner, owner)
        before, now = self._found[kind], {row[0]: row[1:] for row in rows}
        earlier, self._watched[kind] = self._watched[kind], set(watched)
        self._found[kind] = now
        return {
            session_id
            for session_id in watched
            if session_id not in earlier or now.get(session_id) != before.get(session_id)
        }

    def _take_notifications(self, connection: PgConnection) -> None:
        for notification in connection.notifies(timeout=0):
            for name in notification.payload.split(","):
                if name == _ALL:
                    self._named["e"].add(_ALL)
                    self._named["c"].add(_ALL)
                elif name[:1] in self._named:
                    self._named[name[:1]].add(name[1:])

    def _connect(self) -> PgConnection:
        if self._connection is None:
            connection = self._database.connect()
            try:
                with self._database.watched(connection, within=_ANSWER_SECONDS):
                    # A pooler gives its clients process numbers of its own.
                    row = connection.execute("SELECT pg_backend_pid()").fetchone()
                    here = connection.info.backend_pid
                    self.hears_notifications = row is not None and row[0] == here
                    if self.hears_notifications:
                        connection.execute(f"LISTEN {CHANNEL}".encode())
            except BaseException:
                close_quietly(connection)
                raise
            # What changed before is asked for: notifications of before were not heard.
            self._connection, self._asked = connection, {"e": 0.0, "c": 0.0}
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            close_quietly(self._connection)
            self._connection = None


def _digest(session_id: str) -> str:
    return hashlib.blake2b(session_id.encode(errors="replace"), digest_size=8).hexdigest()
