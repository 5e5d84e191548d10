"""The leases of a SQLite store: an epoch, a holder and a time in the session's row."""

import contextlib
import functools
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

import apsw

from holdfast.ports.session_store import Lease
from holdfast.stores.append_rules import fenced_error
from holdfast.stores.lease_rules import (
    NOT_WAITING,
    LinePosition,
    busy_error,
    finished,
    is_abandoned,
    is_lease_lost,
    lease_of_thread,
    wait_for_lease,
)
from holdfast.stores.notifications import PeriodicThread
from holdfast.stores.processes import (
    monotonic_seconds,
    parse_identity,
    process_state,
    this_process,
)
from holdfast.stores.sqlite.group_writer import Work
from holdfast.stores.sqlite.quarantine import set_damaged_end_aside
from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import as_bytes, key_made_for, shown, text_of
from holdfast.vocabulary.errors import AgentError, ErrorCode, SessionError, StoreError
from holdfast.vocabulary.ids import SessionId


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who wants to write which session."""

    session_id: SessionId
    name: str
    process: str
    turn: LinePosition


class SqliteLeases:
    """One writer per session, across processes.

    A holder whose process is gone loses its lease at once. Time counts only for one that is
    stopped or cannot be seen from here; leases held in this process are renewed in time.
    """

    def __init__(self, room: SqliteRoom) -> None:
        self._room = room
        self._seconds = room.database.patience.lease
        self._held: dict[SessionId, Lease] = {}
        self._tickets: set[tuple[SessionId, str]] = set()
        self._is_used = False
        self._is_closed = False
        self._renewals = PeriodicThread("holdfast-renew", self._seconds / 3, self._renew_all)

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer of a session."""
        if busy == "wait":
            return await wait_for_lease(
                self._room.notifier,
                self,
                session_id,
                attempt=lambda turn: self._try_acquire(session_id, holder, turn),
            )
        return await self._try_acquire(session_id, holder)

    async def renew(self, lease: Lease) -> None:
        """Stay the writer; raises FENCED when somebody else took over."""
        await self._room.writer.write(lambda connection: self.hold(connection, lease))

    async def release(self, lease: Lease) -> None:
        """Let somebody else become the writer; doing it twice is fine."""
        self._forget(lease)
        await finished(
            self._ask_to_release(lease.session_id, lambda connection: _release(connection, lease))
        )

    async def release_all(self) -> None:
        """Give up everything that is held here, for good: nothing is granted from now on."""
        self._renewals.stop()
        self._is_closed = True
        for session_id, ticket in tuple(self._tickets):
            with contextlib.suppress(AgentError):
                self.leave(session_id, ticket)
        if self._is_used:
            await finished(self._room.writer.submit(self._release_held))

    async def join(self, session_id: SessionId, ticket: str) -> None:
        """Keep a ticket, and forget those of processes that are gone."""
        if self._is_closed:
            raise SessionError(ErrorCode.CLOSED, "the store is closed")
        self._tickets.add((session_id, ticket))
        await self._room.writer.write(lambda connection: _join(connection, session_id, ticket))

    def leave(self, session_id: SessionId, ticket: str) -> "Future[None]":
        """Ask for a ticket to be forgotten; one that stays behind goes with its process."""
        self._tickets.discard((session_id, ticket))
        return self._room.writer.submit(lambda connection: _leave(connection, ticket))

    async def _try_acquire(
        self, session_id: SessionId, holder: str, turn: LinePosition = NOT_WAITING
    ) -> Lease:
        wanted = _Holder(session_id, holder, str(this_process()), turn)
        # Looking first keeps those who wait from writing.
        await self._room.readers.read(lambda connection: _refuse_busy(connection, wanted))
        gained: list[Lease] = []
        self._is_used = True

        def acquire(connection: apsw.Connection) -> Lease:
            if self._is_closed:
                raise SessionError(ErrorCode.CLOSED, "the store is closed")
            gained.append(_acquire(connection, wanted, seconds=self._seconds))
            # From here on, whatever becomes of the caller: closing the store gives it back, too.
            self._held[session_id] = gained[0]
            return gained[0]

        def give_back(connection: apsw.Connection) -> None:
            for lease in gained:
                self._forget(lease)
                _release(connection, lease)

        try:
            lease = await lease_of_thread(
                self._room.writer.submit(acquire),
                lambda: self._ask_to_release(session_id, give_back),
            )
        except AgentError:
            for not_committed in gained:
                self._forget(not_committed)
            raise
        self._renewals.start()
        return lease

    def _ask_to_release(self, session_id: SessionId, release: Work[None]) -> "Future[None]":
        """Ask for a release, after which those who wait for the session are woken."""
        released = self._room.writer.submit(release)
        released.add_done_callback(lambda _: self._room.notifier.notify(session_id))
        return released

    def _forget(self, lease: Lease) -> None:
        if self._held.get(lease.session_id) == lease:
            del self._held[lease.session_id]

    def _release_held(self, connection: apsw.Connection) -> None:
        for lease in tuple(self._held.values()):
            _release(connection, lease)
        self._held.clear()

    def hold(self, connection: apsw.Connection, lease: Lease) -> int:
        """Prolong a lease that is still the newest and return the session's number.

        Raises FENCED. Called inside the transaction that writes under the lease.
        """
        key: int | None = connection.execute(
            "UPDATE session SET lease_until = ?"
            " WHERE id = ? AND epoch = ? AND lease_holder = ? RETURNING key",
            (monotonic_seconds() + self._seconds, lease.session_id, lease.epoch, lease.holder),
        ).get
        if key is None:
            holder = connection.execute(
                f"SELECT {as_bytes('lease_holder')} FROM session WHERE id = ?",  # noqa: S608
                (lease.session_id,),
            ).get
            raise fenced_error(lease.session_id, shown(holder))
        return key

    def _renew_all(self) -> None:
        for lease in tuple(self._held.values()):
            try:
                self._room.writer.submit(functools.partial(self.hold, lease=lease))
            except SessionError:
                return


def _acquire(connection: apsw.Connection, wanted: _Holder, *, seconds: float) -> Lease:
    key = key_made_for(connection, wanted.session_id)
    _refuse_busy(connection, wanted)
    set_damaged_end_aside(connection, key)
    # Epochs never repeat in a database, not even for a session that is deleted and made again.
    epoch: int | None = connection.execute(
        "UPDATE last_epoch SET value = 1 + max(value, (SELECT epoch FROM session WHERE key = ?))"
        " RETURNING value",
        (key,),
    ).get
    if epoch is None:
        raise StoreError(ErrorCode.CORRUPT, "the database has lost the number of its last lease")
    connection.execute(
        "UPDATE session SET epoch = ?, lease_holder = ?, lease_process = ?, lease_until = ?"
        " WHERE key = ?",
        (epoch, wanted.name, wanted.process, monotonic_seconds() + seconds, key),
    )
    return Lease(session_id=wanted.session_id, holder=wanted.name, epoch=epoch)


def _refuse_busy(connection: apsw.Connection, wanted: _Holder) -> None:
    row = connection.execute(
        f"SELECT {as_bytes('lease_holder', 'lease_process')}, CAST(lease_until AS REAL)"  # noqa: S608
        " FROM session WHERE id = ? AND lease_holder IS NOT NULL",
        (wanted.session_id,),
    ).fetchone()
    if row is None:
        wanted.turn.refuse_unless_first(wanted.session_id, _tickets(connection, wanted.session_id))
        return
    holder, process, until = shown(row[0]), shown(row[1]) or "", row[2]
    if (holder, process) == (wanted.name, wanted.process):
        return
    identity = parse_identity(process)
    condition = process_state(identity) if identity else "unknown"
    if not is_lease_lost(condition, expired=monotonic_seconds() >= until):
        raise busy_error(wanted.session_id, holder, process=identity.pid if identity else None)
    wanted.turn.refuse_unless_first(wanted.session_id, _tickets(connection, wanted.session_id))


def _tickets(connection: apsw.Connection, session_id: SessionId) -> list[str]:
    rows = connection.execute(
        f"SELECT {as_bytes('ticket')} FROM waiter"  # noqa: S608
        " WHERE session = (SELECT key FROM session WHERE id = ?)",
        (session_id,),
    )
    tickets = (text_of(ticket) for (ticket,) in rows)
    return [ticket for ticket in tickets if ticket is not None]


def _leave(connection: apsw.Connection, ticket: str) -> None:
    connection.execute("DELETE FROM waiter WHERE ticket = ?", (ticket,)).fetchall()


def _join(connection: apsw.Connection, session_id: SessionId, ticket: str) -> None:
    for other in _tickets(connection, session_id):
        if is_abandoned(other):
            connection.execute("DELETE FROM waiter WHERE ticket = ?", (other,))
    connection.execute(
        "INSERT INTO waiter (ticket, session) VALUES (?, ?)",
        (ticket, key_made_for(connection, session_id)),
    )


def _release(connection: apsw.Connection, lease: Lease) -> None:
    connection.execute(
        "UPDATE session SET lease_holder = NULL, lease_process = '', lease_until = 0"
        " WHERE id = ? AND epoch = ?",
        (lease.session_id, lease.epoch),
    )
