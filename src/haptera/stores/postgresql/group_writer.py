"""A writer of a store. Appends that are asked for at the same time are one statement.

While a statement is on its way, new appends gather and become the next statement. Most of the time
of an append is its round trip and the sync of its commit, so a group costs as much as one.
"""

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import msgspec
import psycopg

from haptera.model.errors import AgentError, ErrorCode, StoreError
from haptera.ports.session_store import Lease
from haptera.stores.append_rules import fenced_error, name_taken_error
from haptera.stores.postgresql.database import (
    TOTAL_WAIT_SECONDS,
    Database,
    PgConnection,
    Work,
    close_quietly,
    is_transient,
    texts_or_none,
    to_text,
)
from haptera.stores.writer_thread import WriterThread
from haptera.system.processes import monotonic_seconds

LARGEST_GROUP = 128
"""The most appends in one statement."""
LARGEST_GROUP_BYTES = 16 * 1024 * 1024
"""The most bytes of entries in one statement, unless one append has more."""

_LOCKED_SECONDS = 0.05
"""How long several appends wait for their rows before they are tried again."""
_LOCKED = object()
"""The outcome of an append to a session whose row is another transaction's."""

T = TypeVar("T")

_APPEND = (
    "SELECT * FROM haptera.append(%s::text, %s::boolean,"
    " %s::text[], %s::bigint[], %s::text[], %s::bigint[],"
    " %s::integer[], %s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::boolean[],"
    " %s::bytea[],"
    " %s::integer[], %s::bigint[], %s::text[], %s::integer[], %s::text[])"
)


class EntryRow(msgspec.Struct, frozen=True):
    """An entry as a row."""

    seq: int
    id: str
    kind: str
    time: int
    rests: bool
    """Whether it is the end of a query that waits for an approval."""
    body: bytes


class Append(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One append, with everything that the statement needs."""

    lease: Lease
    rows: Sequence[EntryRow]
    consumed: Sequence[str] = ()
    fields: dict[str, Any] | None = None
    """What the entries change in the index."""
    fields_seq: int = 0
    """The last entry that changes something there."""


class _Write(Generic[T]):
    """One piece of work, or an append, and the future of its caller."""

    def __init__(self, work: Work[T] | Append) -> None:
        self.work = work
        self.future: Future[T] = Future()
        self.locked_since: float | None = None
        """When the row of its session was found to be another transaction's."""


class _Group:
    """What is written together: appends to different sessions, or one piece of other work."""

    def __init__(self) -> None:
        self.writes: list[_Write[Any]] = []
        self._sessions: set[str] = set()
        self._bytes = 0

    def takes(self, write: _Write[Any]) -> bool:
        """Return whether this can be written together with what is here."""
        if not self.writes:
            return True
        if not isinstance(write.work, Append) or not self._sessions:
            return False
        is_full = len(self.writes) >= LARGEST_GROUP or self._bytes > LARGEST_GROUP_BYTES
        # The SQL function takes each session once: it compares all appends with the heads of
        # before.
        return not is_full and write.work.lease.session_id not in self._sessions

    def add(self, write: _Write[Any]) -> None:
        """Write this, too."""
        self.writes.append(write)
        if isinstance(write.work, Append):
            self._sessions.add(write.work.lease.session_id)
            self._bytes += sum(len(row.body) for row in write.work.rows)


class GroupWriter(WriterThread[_Write[Any]]):
    """Owns the writing connection and the thread that uses it. Everything is done in order.

    A connection that failed is discarded, and what it was about is done again on a new one: the
    outcome of the first attempt may not be known, and entries that are stored already are found by
    their ids.
    """

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._connection: PgConnection | None = None
        self._is_writing = False

    @property
    def load(self) -> int:
        """How many wait here, and one more while a statement is on its way."""
        # Without the lock: it only decides which writer is taken, and may be a little old.
        return len(self._waiting) + self._is_writing

    def append(self, append: Append) -> "Future[None]":
        """Ask for an append, together with what others append at the same time."""
        return self._submit(_Write[None](append))

    def submit(self, work: Work[T]) -> "Future[T]":
        """Ask for other work to be done in its turn, from any thread."""
        return self._submit(_Write(work))

    def _submit(self, write: "_Write[T]") -> "Future[T]":
        self._enqueue(write)
        return write.future

    def _write_waiting(self) -> None:
        self._is_writing = True
        try:
            self._write_groups(self._take_waiting())
        finally:
            self._is_writing = False

    def _write_groups(self, waiting: Sequence[_Write[Any]]) -> None:
        locked = [write for write in waiting if write.locked_since is not None]
        group = _Group()
        for write in waiting:
            # A caller that was cancelled before its turn wants nothing written.
            if write.locked_since is not None or not write.future.set_running_or_notify_cancel():
                continue
            if not group.takes(write):
                self._finish_any(group.writes)
                group = _Group()
            group.add(write)
        self._finish_any(group.writes)
        # Last, so that nothing else waits for their rows.
        for start in range(0, len(locked), LARGEST_GROUP):
            self._finish_any(locked[start : start + LARGEST_GROUP])
        if len(locked) > 1 and all(not write.future.done() for write in locked):
            # Several are not waited for in the database, so they would be tried without any pause.
            self._database.closing.wait(_LOCKED_SECONDS)

    def _finish_any(self, group: Sequence[_Write[Any]]) -> None:
        # Its callers have the error by then; those of the groups after it still wait.
        with contextlib.suppress(Exception):
            self._finish(group)

    def _finish(self, group: Sequence[_Write[Any]]) -> None:
        """Do a group of appends, or one piece of other work, and tell the callers."""
        if not group:
            return
        try:
            outcomes = self._database.retry(lambda tried: self._attempt(group, tried))
        except Exception as error:
            # The statement failed as a whole, and the error does not say which append it was.
            if len(group) > 1 and _is_of_one_append(error):
                for write in group:
                    self._finish([write])
                return
            for write in group:
                write.future.set_exception(error)
            if not isinstance(error, AgentError):
                raise
            return
        for write, outcome in zip(group, outcomes, strict=True):
            if outcome is _LOCKED:
                self._try_later(write)
            elif isinstance(outcome, AgentError):
                write.future.set_exception(outcome)
            else:
                write.future.set_result(outcome)

    def _try_later(self, write: _Write[Any]) -> None:
        """Let an append wait for its row behind all that is asked for meanwhile."""
        now = monotonic_seconds()
        write.locked_since = now if write.locked_since is None else write.locked_since
        seconds = now - write.locked_since
        try:
            if seconds >= TOTAL_WAIT_SECONDS:
                raise _locked_error(seconds)
            self._enqueue(write)
        except AgentError as error:  # also when the store was closed meanwhile
            write.future.set_exception(error)

    def _attempt(self, group: Sequence[_Write[Any]], tried: int) -> Sequence[Any]:
        connection = self._connect()
        try:
            with self._database.watched(connection):
                outcomes = self._outcomes(connection, group, tried)
                self._database.confirm(connection)
                return outcomes
        except psycopg.errors.LockNotAvailable:
            # The function took no lock that it did not give back.
            if not isinstance(group[0].work, Append):
                raise
            if len(group) == 1:
                return [_LOCKED]
            raise _GroupIsLockedError from None
        except psycopg.Error:
            self._disconnect()
            raise

    def _outcomes(
        self, connection: PgConnection, group: Sequence[_Write[Any]], tried: int
    ) -> Sequence[Any]:
        appends = [write.work for write in group if isinstance(write.work, Append)]
        if appends:
            # `again` lets the function accept entries of a fenced lease that are stored: the first
            # attempt stored them, its answer was lost, and the session was taken over since.
            again = tried > 0 or any(write.locked_since is not None for write in group)
            return append_group(connection, self._database.owner_text, appends, again=again)
        work: Any = group[0].work
        return [work(connection)]

    def _connect(self) -> PgConnection:
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            close_quietly(self._connection)
            self._connection = None


class _GroupIsLockedError(Exception):
    """A lock that one append of a group needs is another transaction's."""


def _locked_error(seconds: float) -> StoreError:
    return StoreError(
        ErrorCode.UNAVAILABLE,
        f"another transaction has kept the session locked for {seconds:.0f} s",
    )


def _is_of_one_append(error: Exception) -> bool:
    """Return whether the database refused the statement, so that each append is tried alone."""
    if isinstance(error, _GroupIsLockedError):
        return True
    cause = error.__cause__
    return isinstance(cause, psycopg.Error) and not is_transient(cause)


def append_group(
    connection: PgConnection, owner: str | None, appends: Sequence[Append], *, again: bool
) -> list[object]:
    """Append to several sessions in one statement; returns what is wrong with each append."""
    rows = [(number, row) for number, item in enumerate(appends, 1) for row in item.rows]
    changed = [(number, item) for number, item in enumerate(appends, 1) if item.fields]
    consumed = [(number, key) for number, item in enumerate(appends, 1) for key in item.consumed]
    values = (
        owner,
        again,
        [item.lease.session_id for item in appends],
        [item.lease.epoch for item in appends],
        [to_text(item.lease.holder) for item in appends],
        # An append that only consumes fits behind any entry.
        [item.rows[0].seq if item.rows else 1 for item in appends],
        [number for number, _ in rows],
        [row.seq for _, row in rows],
        [to_text(row.id) for _, row in rows],
        [to_text(row.kind) for _, row in rows],
        [row.time for _, row in rows],
        [row.rests for _, row in rows],
        [row.body for _, row in rows],
        [number for number, _ in changed],
        [item.fields_seq for _, item in changed],
        [msgspec.json.encode(item.fields).decode() for _, item in changed],
        [number for number, _ in consumed],
        texts_or_none([key for _, key in consumed]),
    )
    cursor = connection.execute(_APPEND.encode(), values, binary=True)
    verdicts = {number: (verdict, holder) for number, verdict, holder in cursor}
    return [_error_of(item, *verdicts[number]) for number, item in enumerate(appends, 1)]


def _error_of(append: Append, verdict: str, holder: str | None) -> object:
    match verdict:
        case "locked":
            return _LOCKED
        case "appended" | "stored":
            return None
        case "fenced":
            return fenced_error(append.lease.session_id, holder)
        case "name":
            return name_taken_error(str((append.fields or {}).get("columns", {}).get("name")))
        case "gap":
            seq = append.rows[0].seq if append.rows else 0
            return StoreError(ErrorCode.CONFLICT, f"entry {seq} does not follow the last one")
    return StoreError(
        ErrorCode.CONFLICT,
        f"different entries are already stored from seq {append.rows[0].seq} on,"
        " or one of them is already stored with another seq",
    )
