"""The leases of a PostgreSQL store: an epoch in the session's row, and a node that is alive.

Time is the database's clock alone. A node is an open store; it renews one row for all its leases,
on a connection of its own. When it does not, its leases can be taken over. Epochs hold the timeline
of the server, so a lease from before a failover is fenced, and epochs never go back.
"""

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from typing import Literal

import psycopg

from holdfast.ports.logs import scrubbed_logger
from holdfast.ports.session_store import Lease
from holdfast.stores.append_rules import fenced_error
from holdfast.stores.lease_rules import (
    PASS_OVER_SECONDS,
    WaitersFirstError,
    busy_error,
    lease_of_thread,
    result_of_thread,
)
from holdfast.stores.notifications import PeriodicThread
from holdfast.stores.postgresql.connections import PostgresConnections
from holdfast.stores.postgresql.database import (
    PgConnection,
    close_quietly,
    closed_error,
    from_text,
    to_text,
)
from holdfast.stores.processes import parse_identity, process_state, this_process
from holdfast.vocabulary.errors import AgentError, ErrorCode, SessionError
from holdfast.vocabulary.ids import SessionId, new_id

_logger = scrubbed_logger(__name__)

NODE_LEASE_SECONDS = 15.0
"""How long the leases of a node that no longer renews them are kept."""
# The functions of the database shift by the same number.
_TIMELINE_BITS = 40
_WAIT_SECONDS = 0.5
"""How often a caller in the waiting line shows that it still waits."""

_ACQUIRE = "SELECT * FROM holdfast.acquire(%s, %s, %s, %s, %s, %s, %s)"
_RENEW = "SELECT * FROM holdfast.renew_node(%s, %s, %s, %s, %s)"
_RELEASE = (
    "UPDATE holdfast.session SET lease_holder = NULL, lease_node = NULL"
    " WHERE id = %s AND epoch = %s AND (%s::text IS NULL OR owner = %s)"
)
_HOLDER = (
    "SELECT lease_holder, epoch = %s AND lease_holder = %s AND epoch >> 40 = holdfast.timeline()"
    " FROM holdfast.session WHERE id = %s AND (%s::text IS NULL OR owner = %s)"
)


class PostgresLeases:
    """One writer per session, across machines.

    Owns the leases that this store holds, its row as a node, and the connection that renews it.
    """

    def __init__(self, connections: PostgresConnections, *, lease_seconds: float) -> None:
        self._connections = connections
        self._seconds = lease_seconds
        self._node = new_id("nod")
        self._process = str(this_process())
        self._lock = threading.Lock()
        self._held: dict[SessionId, tuple[Lease, Future[None]]] = {}
        self._lost: set[Lease] = set()
        """Leases that another node took over, until their holder releases them."""
        self._renewing: PgConnection | None = None
        self._is_node = False
        self._is_closed = False
        self._renewals = PeriodicThread("holdfast-renew", lease_seconds / 3, self._renew_node)

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
        """Let another holder become the writer; doing it twice is fine."""
        self._forget(lease)
        await result_of_thread(self._ask_to_release(lease))

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
            await result_of_thread(self._connections.writer.submit(self._remove_node))
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
                    await result_of_thread(self._leave(joining))
                raise

    async def _try_acquire(
        self, session_id: SessionId, holder: str, ticket: int | None = None
    ) -> Lease:
        gained: list[Lease] = []

        def acquire(connection: PgConnection) -> Lease:
            # Asked in the thread, which works in order: nothing is acquired behind the release of
            # all leases.
            if self._is_closed:
                raise closed_error()
            self._become_node(connection)
            lease = self._acquire(connection, (session_id, holder, ticket))
            gained.append(lease)
            # Noted at once, so that closing the store releases it even if the caller is gone.
            self._note(lease)
            return lease

        def give_back() -> "Future[None]":
            return self._connections.writer.submit(
                lambda connection: self._give_back(connection, gained)
            )

        # Before the row is written: closing has to remove it even if this caller is cancelled.
        self._is_node = True
        lease = await lease_of_thread(self._connections.writer.submit(acquire), give_back)
        self._renewals.start()
        return lease

    def _acquire(self, connection: PgConnection, claim: tuple[SessionId, str, int | None]) -> Lease:
        session_id, holder, ticket = claim
        database, lost = self._connections.database, None
        while True:
            row = connection.execute(
                _ACQUIRE,
                (
                    database.owner_text,
                    to_text(session_id),
                    to_text(holder),
                    self._node,
                    lost,
                    ticket,
                    PASS_OVER_SECONDS,
                ),
            ).fetchone()
            verdict, epoch, other, process = row or ("foreign", 0, None, None)
            if verdict == "busy" and lost is None and _has_ended(process):
                # The database cannot see that the process has ended. The epoch is named, so that a
                # lease which was granted meanwhile is not taken.
                lost = epoch
                continue
            break
        match verdict:
            case "granted":
                return Lease(session_id=session_id, holder=holder, epoch=epoch)
            case "busy":
                identity = parse_identity(process or "")
                here = process == self._process
                raise busy_error(
                    session_id,
                    from_text(other),
                    process=identity.pid if here and identity else None,
                )
            case "line":
                raise WaitersFirstError(session_id, "")
        raise SessionError(ErrorCode.NOT_FOUND, f"there is no session {session_id!r}")

    def _join(self, connection: PgConnection, session_id: SessionId) -> int:
        row = connection.execute(
            "SELECT holdfast.join_line(%s, %s)",
            (self._connections.database.owner_text, to_text(session_id)),
        ).fetchone()
        return int(str(row[0])) if row else 0

    def _leave(self, joining: "Future[int]") -> "Future[None]":
        """Ask for a ticket to be removed. The writer works in order, so it is stored by then."""

        def leave(connection: PgConnection) -> None:
            if joining.done() and joining.exception() is None:
                self._connections.database.query(
                    connection, "DELETE FROM holdfast.waiter WHERE ticket = %s", joining.result()
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
        database = self._connections.database
        values = (lease.session_id, lease.epoch, database.owner_text, database.owner_text)
        database.query(connection, _RELEASE, *values)

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
        connection.execute("DELETE FROM holdfast.node WHERE id = %s", (self._node,))
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
                    self._process,
                    self._seconds,
                    0,
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

    def _renew_node(self) -> None:
        """Renew the node's row, and find out which leases were lost."""
        if self._connections.database.closing.is_set():
            return
        with self._lock:
            held = [lease for lease, _ in self._held.values()]
        try:
            if self._renewing is None:
                # Not through the writers: a long statement must not let the leases of a whole node
                # expire.
                self._renewing = self._connections.database.connect()
            owner = self._connections.database.owner_text
            row = self._renewing.execute(
                _RENEW, (owner, self._node, self._process, self._seconds, len(held))
            ).fetchone()
        # Whether leases were lost shows when the database can be reached again.
        except (psycopg.Error, AgentError):
            self._close_renewing()
            return
        timeline, ids, epochs = row or (0, None, None)
        # The list comes only when the number of leases differs from what this node holds.
        known = None if ids is None else set(zip(ids, epochs, strict=True))
        for lease in held:
            is_known = known is None or (lease.session_id, lease.epoch) in known
            if not is_known or lease.epoch >> _TIMELINE_BITS != timeline:
                self._lose(lease)

    def _close_renewing(self) -> None:
        connection, self._renewing = self._renewing, None
        if connection is not None:
            close_quietly(connection)


def _has_ended(process: str | None) -> bool:
    """Return whether a process of this machine has ended. Others cannot be seen: time decides."""
    identity, here = parse_identity(process or ""), this_process()
    if identity is None or (identity.boot, identity.namespace) != (here.boot, here.namespace):
        return False
    return process_state(identity) == "dead"
