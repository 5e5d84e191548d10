"""The leases of a SQLite store: epoch, holder, process and expiry in the session's row."""

import contextlib
import functools
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

import apsw

from haptera.model.errors import AgentError, ErrorCode, SessionError, StoreError
from haptera.model.ids import SessionId
from haptera.ports.session_store import Lease, SessionRecord
from haptera.stores.append_rules import fenced_error
from haptera.stores.lease_rules import (
    GIVING_BACK_SECONDS,
    LinePosition,
    acquire_in_line,
    busy_error,
    is_abandoned,
    is_lease_lost,
    lease_of_thread,
    result_of_thread,
)
from haptera.stores.notifications import PeriodicThread
from haptera.stores.sqlite.connections import SqliteConnections
from haptera.stores.sqlite.group_writer import Work
from haptera.stores.sqlite.rows import (
    decode_for_display,
    decode_text,
    move_damaged_end_aside,
    session_key_or_new,
)
from haptera.stores.stored_records import closed_error
from haptera.system.processes import (
    monotonic_seconds,
    parse_identity,
    process_state,
    this_process,
)

_RETRY_SECONDS = 0.5
"""How often a release that failed is tried again."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """Which session is wanted, by which holder and process, from which position in line."""

    session_id: SessionId
    holder: str
    process: str
    position: LinePosition
    unused: AbstractSet[Lease]
    """Leases of this process without a user."""

    def is_unused(self, holder: str | None, process: str, epoch: int) -> bool:
        """Return whether the lease that is in the file is one of those."""
        lease = Lease(session_id=self.session_id, holder=holder or "", epoch=epoch)
        return process == self.process and lease in self.unused


class SqliteLeases:
    """One writer per session, across processes.

    Owns the leases that this store holds and renews them. A holder whose process has ended loses
    its lease at once; one that is stopped or cannot be seen from here loses it when it expires.
    """

    def __init__(self, connections: SqliteConnections, *, lease_seconds: float) -> None:
        self._connections = connections
        self._seconds = lease_seconds
        self._held: dict[SessionId, Lease] = {}
        self.records: dict[SessionId, SessionRecord] = {}
        """The records of held sessions, each as its last append left it."""
        self._tickets: set[tuple[SessionId, str]] = set()
        self._unused: set[Lease] = set()
        """Leases without a holder here, which may still be in the file: their release failed,
        or it is not known whether they were granted."""
        self._giving_back = PeriodicThread("haptera-give-back", _RETRY_SECONDS, self._give_back)
        self._is_used = False
        self._is_closed = False
        self._renewals = PeriodicThread("haptera-renew", lease_seconds / 3, self._renew_all)

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer of a session."""
        return await acquire_in_line(
            self._connections.notifier,
            self,
            session_id,
            busy=busy,
            attempt=lambda position: self._try_acquire(session_id, holder, position),
        )

    async def renew(self, lease: Lease) -> None:
        """Stay the writer; raises FENCED when another holder took over."""
        await self._connections.writer.write(lambda connection: self.hold(connection, lease))

    async def release(self, lease: Lease) -> None:
        """Let another holder become the writer; doing it twice is fine.

        A release that fails, or that the file makes wait, is tried again until it is done. No
        caller waits for that, and until then the session can be acquired in this store.
        """
        self._forget(lease)
        self._unused.add(lease)
        released = self._ask_to_release(lease.session_id, functools.partial(_release, lease=lease))
        released.add_done_callback(functools.partial(self._note_release, lease))
        await result_of_thread(released, within=GIVING_BACK_SECONDS)

    async def release_all(self) -> None:
        """Release everything that is held here, for good: later calls acquire nothing."""
        self._renewals.stop()
        self._is_closed = True
        for session_id, ticket in tuple(self._tickets):
            with contextlib.suppress(AgentError):
                self.leave(session_id, ticket)
        # A store that asked for no lease may have no file yet, and closing must not make one.
        if self._is_used:
            self._unused.update(self._held.values())
            released = self._connections.writer.submit(self._release_held)
            released.add_done_callback(self._note_release_of_all)
            await result_of_thread(released, within=GIVING_BACK_SECONDS)

    async def join(self, session_id: SessionId, ticket: str) -> None:
        """Store a ticket, and remove the tickets of processes that have ended."""
        if self._is_closed:
            raise closed_error()
        # Noted first, so that closing the store removes it even if the caller is gone.
        self._tickets.add((session_id, ticket))
        await self._connections.writer.write(
            lambda connection: _join(connection, session_id, ticket)
        )

    def leave(self, session_id: SessionId, ticket: str) -> "Future[None]":
        """Start removing a ticket; one that stays behind is void once its process ends."""
        self._tickets.discard((session_id, ticket))
        return self._connections.writer.submit(lambda connection: _leave(connection, ticket))

    def hold(self, connection: apsw.Connection, lease: Lease) -> int:
        """Prolong a lease and return the key of its session.

        Called inside the transaction that writes under the lease.

        Raises:
            StoreError: FENCED when the lease is not the newest of its session.

        """
        key: int | None = connection.execute(
            "UPDATE session SET lease_until = ?"
            " WHERE id = ? AND epoch = ? AND lease_holder = ? RETURNING key",
            (monotonic_seconds() + self._seconds, lease.session_id, lease.epoch, lease.holder),
        ).get
        if key is None:
            holder = connection.execute(
                "SELECT CAST(lease_holder AS BLOB) FROM session WHERE id = ?", (lease.session_id,)
            ).get
            raise fenced_error(lease.session_id, decode_for_display(holder))
        return key

    async def _try_acquire(
        self, session_id: SessionId, holder: str, position: LinePosition
    ) -> Lease:
        claim = _Claim(session_id, holder, str(this_process()), position, self._unused)
        # Reading first keeps callers that are refused from writing.
        await self._connections.readers.read(lambda connection: _refuse_busy(connection, claim))
        gained: list[Lease] = []
        self._is_used = True

        def acquire(connection: apsw.Connection) -> Lease:
            # Asked in the thread, which works in order: nothing is acquired behind the release of
            # all leases.
            if self._is_closed:
                raise closed_error()
            gained.append(_acquire(connection, claim, seconds=self._seconds))
            # Noted at once, so that closing the store releases it even if the caller is gone.
            self._held[session_id] = gained[0]
            # One that was not committed may have had the same number.
            self._unused.discard(gained[0])
            return gained[0]

        def give_back() -> "Future[None]":
            # Looked at when the acquiring is over: the thread works in order.
            released = self._ask_to_release(
                session_id, lambda connection: _release_all(connection, gained)
            )
            released.add_done_callback(lambda _: self._note_unused(gained, released))
            return released

        try:
            lease = await lease_of_thread(
                self._connections.writer.submit(acquire),
                give_back,
            )
        except AgentError:
            # The work was done, but its transaction failed: it may have been committed all the
            # same.
            for uncertain in gained:
                self._forget(uncertain)
                self._unused.add(uncertain)
                self._giving_back.start()
            raise
        self._renewals.start()
        return lease

    def _ask_to_release(self, session_id: SessionId, release: Work[None]) -> "Future[None]":
        """Ask the writer for a release; callers that wait for the session are woken after it."""
        released = self._connections.writer.submit(release)
        released.add_done_callback(lambda _: self._connections.notifier.notify(session_id))
        return released

    def _note_release(self, lease: Lease, released: "Future[None]") -> None:
        """Note the outcome of a release; one that failed is tried again behind its caller."""
        if released.cancelled() or released.exception() is not None:
            self._giving_back.start()
        else:
            self._unused.discard(lease)

    def _note_unused(self, gained: Sequence[Lease], released: "Future[None]") -> None:
        for lease in gained:
            self._forget(lease)
            self._unused.add(lease)
            self._note_release(lease, released)

    def _note_release_of_all(self, released: "Future[None]") -> None:
        for lease in tuple(self._unused):
            self._note_release(lease, released)

    def _give_back(self) -> None:
        """Release what has no holder here; called again and again until that is done."""
        unused = tuple(self._unused)
        # Closing the store ends its connections, but not this. A file that is gone has no leases.
        if unused and self._connections.database.path.exists():
            with contextlib.suppress(AgentError, apsw.Error):
                self._connections.database.write_apart(
                    lambda connection: _release_all(connection, unused)
                )
                self._unused.difference_update(unused)
        else:
            self._unused.difference_update(unused)
        for lease in unused:
            self._connections.notifier.notify(lease.session_id)
        if not self._unused:
            self._giving_back.stop()

    def _forget(self, lease: Lease) -> None:
        if self._held.get(lease.session_id) == lease:
            del self._held[lease.session_id]
            self.records.pop(lease.session_id, None)

    def remember(self, lease: Lease, record: SessionRecord) -> None:
        """Keep the record of a session after an append, for the next one."""
        if self._held.get(lease.session_id) == lease:
            self.records[lease.session_id] = record

    def _release_held(self, connection: apsw.Connection) -> None:
        # Those, too, that were acquired since closing began.
        self._unused.update(self._held.values())
        self._held.clear()
        self.records.clear()
        _release_all(connection, tuple(self._unused))

    def _renew_all(self) -> None:
        for lease in tuple(self._held.values()):
            try:
                # Its outcome is not looked at: the next append of a holder that lost its lease gets
                # FENCED.
                self._connections.writer.submit(functools.partial(self.hold, lease=lease))
            # The store was closed meanwhile, and closing releases the leases.
            except SessionError:
                return


def _acquire(connection: apsw.Connection, claim: _Claim, *, seconds: float) -> Lease:
    key = session_key_or_new(connection, claim.session_id)
    # Again, now inside the transaction: another process may have come first since it was read.
    _refuse_busy(connection, claim)
    move_damaged_end_aside(connection, key)
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
        (epoch, claim.holder, claim.process, monotonic_seconds() + seconds, key),
    )
    return Lease(session_id=claim.session_id, holder=claim.holder, epoch=epoch)


def _refuse_busy(connection: apsw.Connection, claim: _Claim) -> None:
    """Raise BUSY when another holder keeps its lease, or another caller is first in line."""
    row = connection.execute(
        "SELECT CAST(lease_holder AS BLOB), CAST(lease_process AS BLOB), CAST(lease_until AS REAL),"
        " CAST(epoch AS INTEGER) FROM session WHERE id = ? AND lease_holder IS NOT NULL",
        (claim.session_id,),
    ).fetchone()
    if row is not None:
        holder, process = decode_for_display(row[0]), decode_for_display(row[1]) or ""
        # The same holder asks again and gets a new epoch, which fences its earlier lease.
        if (holder, process) == (claim.holder, claim.process):
            return
        identity = parse_identity(process)
        state = process_state(identity) if identity else "unknown"
        is_lost = is_lease_lost(state, expired=monotonic_seconds() >= row[2])
        if not is_lost and not claim.is_unused(holder, process, row[3]):
            raise busy_error(claim.session_id, holder, process=identity.pid if identity else None)
    claim.position.refuse_unless_first(claim.session_id, _tickets(connection, claim.session_id))


def _tickets(connection: apsw.Connection, session_id: SessionId) -> list[str]:
    rows = connection.execute(
        "SELECT CAST(ticket AS BLOB) FROM waiter"
        " WHERE session = (SELECT key FROM session WHERE id = ?)",
        (session_id,),
    )
    tickets = (decode_text(ticket) for (ticket,) in rows)
    return [ticket for ticket in tickets if ticket is not None]


def _join(connection: apsw.Connection, session_id: SessionId, ticket: str) -> None:
    for other in _tickets(connection, session_id):
        if is_abandoned(other):
            connection.execute("DELETE FROM waiter WHERE ticket = ?", (other,))
    connection.execute(
        "INSERT INTO waiter (ticket, session) VALUES (?, ?)",
        (ticket, session_key_or_new(connection, session_id)),
    )


def _leave(connection: apsw.Connection, ticket: str) -> None:
    connection.execute("DELETE FROM waiter WHERE ticket = ?", (ticket,)).fetchall()


def _release(connection: apsw.Connection, lease: Lease) -> None:
    # The holder, too: the number of a lease that was not committed is given to the next one.
    connection.execute(
        "UPDATE session SET lease_holder = NULL, lease_process = '', lease_until = 0"
        " WHERE id = ? AND epoch = ? AND lease_holder = ? AND lease_process = ?",
        (lease.session_id, lease.epoch, lease.holder, str(this_process())),
    )


def _release_all(connection: apsw.Connection, leases: Sequence[Lease]) -> None:
    for lease in leases:
        _release(connection, lease)
