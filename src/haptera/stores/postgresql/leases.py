"""The leases of a PostgreSQL store: an epoch in the session's row, and a node that is alive.

Time is the database's clock alone. A node is an open store; it renews one row for all its leases,
on a connection of its own. When it does not, its leases can be taken over. Epochs hold the timeline
of the server, so a lease from before a failover is fenced, and epochs never go back.
"""

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Literal

import msgspec
import psycopg

from haptera.model.errors import AgentError, ErrorCode, SessionError, StoreError
from haptera.model.ids import SessionId, new_id
from haptera.ports.session_store import Lease
from haptera.stores.append_rules import fenced_error
from haptera.stores.lease_rules import (
    GIVING_BACK_SECONDS,
    PASS_OVER_SECONDS,
    WaitersFirstError,
    busy_error,
    lease_of_thread,
    result_of_thread,
)
from haptera.stores.notifications import PeriodicThread
from haptera.stores.postgresql.connections import PostgresConnections
from haptera.stores.postgresql.database import (
    TOTAL_WAIT_SECONDS,
    PgConnection,
    close_quietly,
    from_text,
    to_text,
)
from haptera.stores.stored_records import closed_error, no_session_error
from haptera.system.logs import scrubbed_logger
from haptera.system.processes import (
    is_of_this_machine,
    monotonic_seconds,
    parse_identity,
    process_state,
    this_process,
)

_logger = scrubbed_logger(__name__)

NODE_LEASE_SECONDS = 15.0
"""How long the leases of a node that no longer renews them are kept."""
# The functions of the database shift by the same number.
_TIMELINE_BITS = 40
_WAIT_SECONDS = 0.5
"""How often a caller in the waiting line shows that it still waits."""
_FIRST_LOCKED_SECONDS = 0.005
"""The first pause before a session whose row is another transaction's is tried again."""

_ACQUIRE = "SELECT * FROM haptera.acquire_lease(%s, %s, %s, %s, %s, %s, %s, %s)"
_RENEW = "SELECT * FROM haptera.renew_leases(%s, %s, %s, %s, %s)"
_RELEASE = "SELECT haptera.release_lease(%s, %s, %s)"
_HOLDER = (
    "SELECT lease_holder, epoch = %s AND lease_holder = %s AND epoch >> 40 = haptera.timeline()"
    " FROM haptera.session WHERE id = %s AND (%s::text IS NULL OR owner = %s)"
)


class _Claim(msgspec.Struct, frozen=True):
    """Which session is wanted, by which holder and call, and its place in the waiting line."""

    session_id: SessionId
    holder: str
    request: str
    ticket: int | None


class PostgresLeases:
    """One writer per session, across machines.

    Owns the leases that this store holds, its row as a node, and the connection that renews it.
    """

    def __init__(self, connections: PostgresConnections, *, lease_seconds: float) -> None:
        self._connections = connections
        self._seconds = lease_seconds
        self._node = new_id("nod")
        self._lock = threading.Lock()
        self._held: dict[SessionId, tuple[Lease, Future[None]]] = {}
        self._acquiring: set[SessionId] = set()
        """Sessions that a statement on its way may have acquired already."""
        self._lost: set[Lease] = set()
        """Leases that another node took over, until their holder releases them."""
        self._renewing: PgConnection | None = None
        self._is_node = False
        self._is_closed = False
        self._renewals = PeriodicThread("haptera-renew", lease_seconds / 3, self._renew_node)

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer of a session."""
        try:
            # A free session is the usual case, and needs no ticket.
            return await self._try_acquire(session_id, holder)
        except SessionError as error:
            if error.code is not ErrorCode.BUSY or busy == "reject":
                raise
        return await self._wait_for(session_id, holder)

    async def renew(self, lease: Lease) -> None:
        """Stay the writer; raises FENCED when another holder took over."""
        owner = self._connections.database.owner_text
        rows = await self._connections.readers.query(
            _HOLDER, lease.epoch, to_text(lease.holder), lease.session_id, owner, owner
        )
        holder, is_newest = rows[0] if rows else (None, False)
        if not is_newest:
            self._lose(lease)
            raise fenced_error(lease.session_id, from_text(holder))

    async def release(self, lease: Lease) -> None:
        """Let another holder become the writer; doing it twice is fine.

        A lease that is forgotten here and still in the database is given back by the renewals, so
        no caller has to wait for a database that does not answer.
        """
        self._forget(lease)
        await result_of_thread(self._ask_to_release(lease), within=GIVING_BACK_SECONDS)

    async def lost(self, lease: Lease) -> None:
        """Return once the lease is known to be lost; wait forever for one that is released."""
        with self._lock:
            held, future = self._held.get(lease.session_id, (None, None))
            is_lost = lease in self._lost
        if held == lease and future is not None:
            await result_of_thread(future)
        elif not is_lost:
            await asyncio.Event().wait()

    async def release_all(self) -> None:
        """Release everything that is held here, for good: later calls acquire nothing."""
        self._renewals.stop()
        self._is_closed = True
        if self._is_node:
            removing = self._connections.writer.submit(self._remove_node)
            # Nothing is renewed any more, so the leases of this node end by themselves, too.
            await result_of_thread(removing, within=GIVING_BACK_SECONDS)
        await asyncio.to_thread(self._close_renewing)

    async def _wait_for(self, session_id: SessionId, holder: str) -> Lease:
        """Try until the session is free and this caller is first in line."""
        joining = self._connections.writer.submit(
            lambda connection: self._join(connection, session_id)
        )
        with self._connections.notifier.watch(session_id) as waiter:
            try:
                ticket = await result_of_thread(joining)
                while True:
                    try:
                        return await self._try_acquire(session_id, holder, ticket)
                    except SessionError as error:
                        if error.code is not ErrorCode.BUSY:
                            raise
                    await waiter.wait(_WAIT_SECONDS)
            except BaseException:
                # A cancelled caller raises only once its ticket is gone, so it blocks no other.
                with contextlib.suppress(AgentError):
                    await result_of_thread(self._leave(joining), within=GIVING_BACK_SECONDS)
                raise

    async def _try_acquire(
        self, session_id: SessionId, holder: str, ticket: int | None = None
    ) -> Lease:
        claim = _Claim(session_id, holder, new_id("acq"), ticket)
        if (lease := await self._try_unless_locked(claim)) is not None:
            return lease
        deadline, wait = monotonic_seconds() + TOTAL_WAIT_SECONDS, _FIRST_LOCKED_SECONDS
        with self._connections.notifier.watch(session_id) as waiter:
            while monotonic_seconds() < deadline:
                # Not in the thread, which has other sessions to serve.
                await waiter.wait(wait)
                if (lease := await self._try_unless_locked(claim)) is not None:
                    return lease
                wait = min(2 * wait, _WAIT_SECONDS)
        message = f"another transaction keeps session {session_id} locked"
        raise StoreError(ErrorCode.UNAVAILABLE, message)

    async def _try_unless_locked(self, claim: "_Claim") -> Lease | None:
        """Acquire a session; None while its row is another transaction's."""
        gained: list[Lease] = []

        def acquire(connection: PgConnection) -> Lease | None:
            # Asked in the thread, which works in order: nothing is acquired behind the release of
            # all leases.
            if self._is_closed:
                raise closed_error()
            self._become_node(connection)
            with self._lock:
                self._acquiring.add(claim.session_id)
            try:
                lease = self._acquire(connection, claim)
                if lease is not None:
                    gained.append(lease)
                    # Noted at once, so that closing the store releases it even if the caller is
                    # gone.
                    self._note(lease)
            finally:
                with self._lock:
                    self._acquiring.discard(claim.session_id)
            return lease

        def give_back() -> "Future[None]":
            return self._connections.writer.submit(
                lambda connection: self._give_back(connection, gained)
            )

        # Before the row is written: closing has to remove it even if this caller is cancelled.
        self._is_node = True
        # Also before: what is acquired although its caller hears of an error is given back by them.
        self._renewals.start()
        return await lease_of_thread(self._connections.writer.submit(acquire), give_back)

    def _acquire(self, connection: PgConnection, claim: "_Claim") -> Lease | None:
        session_id, lost = claim.session_id, None
        while True:
            row = connection.execute(
                _ACQUIRE,
                (
                    self._connections.database.owner_text,
                    to_text(session_id),
                    to_text(claim.holder),
                    self._node,
                    claim.request,
                    lost,
                    claim.ticket,
                    PASS_OVER_SECONDS,
                ),
            ).fetchone()
            verdict, epoch, other, node, process = row or ("foreign", 0, None, None, None)
            if verdict != "busy" or lost is not None:
                break
            is_unused = node == self._node and not self._holds(session_id)
            if not is_unused and not _has_ended(process):
                break
            # The database cannot see that the process has ended, or does not use the lease. The
            # epoch is named, so that a lease which was granted meanwhile is not taken.
            lost = epoch
        match verdict:
            case "granted":
                return Lease(session_id=session_id, holder=claim.holder, epoch=epoch)
            case "locked":
                return None
            case "busy":
                identity = parse_identity(process or "")
                here = process == str(this_process())
                raise busy_error(
                    session_id,
                    from_text(other),
                    process=identity.pid if here and identity else None,
                )
            case "line":
                raise WaitersFirstError(session_id, "")
        raise no_session_error(session_id)

    def _join(self, connection: PgConnection, session_id: SessionId) -> int:
        row = connection.execute(
            "SELECT haptera.join_line(%s, %s)",
            (self._connections.database.owner_text, to_text(session_id)),
        ).fetchone()
        return int(str(row[0])) if row else 0

    def _leave(self, joining: "Future[int]") -> "Future[None]":
        """Ask for a ticket to be removed. The writer works in order, so it is stored by then."""

        def leave(connection: PgConnection) -> None:
            if joining.done() and joining.exception() is None:
                self._connections.database.query(
                    connection, "DELETE FROM haptera.waiter WHERE ticket = %s", joining.result()
                )

        return self._connections.writer.submit(leave)

    def _ask_to_release(self, lease: Lease) -> "Future[None]":
        """Ask the writer for a release; callers that wait for the session are woken after it."""
        released = self._connections.writer.submit(
            lambda connection: self._release(connection, lease)
        )
        released.add_done_callback(lambda _: self._connections.announce([lease.session_id]))
        return released

    def _release(self, connection: PgConnection, lease: Lease) -> None:
        owner = self._connections.database.owner_text
        connection.execute(_RELEASE, (owner, to_text(lease.session_id), lease.epoch))

    def _give_back(self, connection: PgConnection, gained: list[Lease]) -> None:
        for lease in gained:
            self._forget(lease)
            self._release(connection, lease)
            self._connections.announce([lease.session_id])

    def _remove_node(self, connection: PgConnection) -> None:
        with self._lock:
            held = [lease for lease, _ in self._held.values()]
            self._held.clear()
        for lease in held:
            self._release(connection, lease)
        connection.execute("DELETE FROM haptera.node WHERE id = %s", (self._node,))
        self._connections.announce([lease.session_id for lease in held])

    def _become_node(self, connection: PgConnection) -> None:
        """Store the node's row before its first lease."""
        with self._lock:
            # A lease of a node without a row counts as lost, so the row comes before the first
            # lease. The renewals keep it from then on.
            is_first = not self._held
        if is_first:
            connection.execute(
                _RENEW,
                (
                    self._connections.database.owner_text,
                    self._node,
                    str(this_process()),
                    self._seconds,
                    "",
                ),
            )

    def _note(self, lease: Lease) -> None:
        with self._lock:
            self._held[lease.session_id] = (lease, Future())

    def _forget(self, lease: Lease) -> None:
        with self._lock:
            self._lost.discard(lease)
            held, _ = self._held.get(lease.session_id, (None, None))
            if held == lease:
                del self._held[lease.session_id]

    def _lose(self, lease: Lease) -> None:
        """Tell those who watch a lease that it is lost."""
        with self._lock:
            held, future = self._held.get(lease.session_id, (None, None))
            if held != lease or future is None:
                return
            del self._held[lease.session_id]
            self._lost.add(lease)
        _logger.warning("session %s was taken over by another node", lease.session_id)
        future.set_result(None)

    def _holds(self, session_id: SessionId) -> bool:
        with self._lock:
            return session_id in self._held

    def _renew_node(self) -> None:
        """Renew what is held, give back what is not, and find out which leases were lost."""
        database = self._connections.database
        if database.closing.is_set():
            return
        with self._lock:
            held, acquiring = [lease for lease, _ in self._held.values()], set(self._acquiring)
        try:
            if self._renewing is None:
                # Not through the writers: a long statement must not let the leases of a whole node
                # expire.
                self._renewing = database.connect()
            with database.watched(self._renewing, within=max(self._seconds / 3, _WAIT_SECONDS)):
                row = self._renewing.execute(
                    _RENEW,
                    (
                        *(database.owner_text, self._node, str(this_process()), self._seconds),
                        _digest(held),
                    ),
                ).fetchone()
                timeline, ids, epochs = row or (0, None, None)
                # The list comes only when the leases differ from what this node holds.
                stored = None if ids is None else set(zip(ids, epochs, strict=True))
                self._give_back_unused(self._renewing, stored or set(), but=acquiring)
        # Whether leases were lost shows when the database can be reached again.
        except (psycopg.Error, AgentError):
            self._close_renewing()
            return
        for lease in held:
            is_known = stored is None or (lease.session_id, lease.epoch) in stored
            if not is_known or lease.epoch >> _TIMELINE_BITS != timeline:
                self._lose(lease)

    def _give_back_unused(
        self,
        connection: PgConnection,
        known: set[tuple[SessionId, int]],
        *,
        but: set[SessionId],
    ) -> None:
        """Release leases of this node that nothing here holds.

        A release failed, or an acquisition arrived when its caller had given up.
        """
        with self._lock:
            # Looked at after the list was made: what was acquired meanwhile is held by now.
            used = {(lease.session_id, lease.epoch) for lease, _ in self._held.values()}
            but = but | self._acquiring
        for session_id, epoch in known - used:
            if session_id not in but:
                _logger.info("session %s was held without use; it is given back", session_id)
                lease = Lease(session_id=session_id, holder="", epoch=epoch)
                self._release(connection, lease)
                self._connections.announce([session_id])

    def _close_renewing(self) -> None:
        connection, self._renewing = self._renewing, None
        if connection is not None:
            close_quietly(connection)


def _digest(leases: Sequence[Lease]) -> str:
    """Return what `haptera.renew_leases` compares. No epoch is used twice, so they are enough."""
    epochs = ",".join(map(str, sorted(lease.epoch for lease in leases)))
    return hashlib.sha256(epochs.encode()).hexdigest() if epochs else ""


def _has_ended(process: str | None) -> bool:
    """Return whether a process of this machine has ended. Others cannot be seen: time decides."""
    identity = parse_identity(process or "")
    if identity is None or not is_of_this_machine(identity):
        return False
    return process_state(identity) == "dead"
