"""The store behind `postgresql://…`: sessions of many machines. Also its two small ports.

The inbox is a table whose rows lose their body when an append consumes them. Blobs are rows named
by their content.
"""

import contextlib
from collections.abc import Sequence

import msgspec

from haptera.model.errors import AgentError
from haptera.model.ids import SessionId
from haptera.model.operations.session import Command
from haptera.ports.session_store import UnownedQuery
from haptera.stores.notifications import NotifiedInbox
from haptera.stores.postgresql.connections import PostgresConnections, make_connections
from haptera.stores.postgresql.database import Database, from_text, to_text
from haptera.stores.postgresql.index import PostgresIndex
from haptera.stores.postgresql.leases import NODE_LEASE_SECONDS, PostgresLeases
from haptera.stores.postgresql.log import PostgresLog
from haptera.stores.postgresql.migrations import grant_access
from haptera.stores.postgresql.search import PostgresSearch
from haptera.stores.stored_records import (
    blob_name,
    blob_or_error,
    decode_command,
    no_session_error,
)

_PENDING = (
    "SELECT c.body FROM haptera.session s JOIN haptera.command c ON c.session = s.key"
    " WHERE s.id = %s AND c.body IS NOT NULL AND (%s::text IS NULL OR s.owner = %s)"
    " AND (%s::text IS NULL OR c.owner = %s) ORDER BY c.arrived"
)
_BLOB = (
    "SELECT b.content FROM haptera.session s JOIN haptera.blob b ON b.session = s.key"
    " WHERE s.id = %s AND b.name = %s AND (%s::text IS NULL OR s.owner = %s)"
    " AND (%s::text IS NULL OR b.owner = %s)"
)


class PostgresStore:
    """All ports of a store over one database. Any number of event loops may use it.

    With an `owner` it sees and writes the sessions of that owner alone. Without one it sees all,
    if its role may: row-level security hides everything from a role that is neither the owner of
    the tables nor exempt. `lease_seconds` can be a parameter of the URL, too.
    """

    def __init__(
        self, url: str, *, owner: str | None = None, lease_seconds: float | None = None
    ) -> None:
        connections = make_connections(url, owner=owner)
        seconds = lease_seconds or connections.database.lease_seconds or NODE_LEASE_SECONDS
        self._connections = connections
        self.leases = PostgresLeases(connections, lease_seconds=seconds)
        self.log = PostgresLog(connections)
        self.index = PostgresIndex(connections)
        self.inbox = PostgresInbox(connections)
        self.blobs = PostgresBlobs(connections)
        self.search = PostgresSearch(connections)
        self.unowned = PostgresUnownedQueries(connections)

    @property
    def warning(self) -> str | None:
        """What is wrong with how the server acknowledges commits, once it was asked something."""
        return self._connections.database.warning

    async def close(self) -> None:
        """Release the leases held here, end the threads and close the connections."""
        # Leases that cannot be released now are free when they expire.
        with contextlib.suppress(AgentError):
            await self.leases.release_all()
        await self._connections.close()


def prepare_database(url: str, *, grant_to: Sequence[str] = ()) -> None:
    """Make or migrate the tables, and let roles use them; raises UNAVAILABLE."""
    database = Database(url, owner=None)

    def prepare(_: int) -> None:
        # Connecting migrates.
        with database.connect() as connection:
            for role in grant_to:
                grant_access(connection, role)

    database.retry(prepare)


class PostgresInbox(NotifiedInbox):
    """Commands from any process to the process that holds a session."""

    def __init__(self, connections: PostgresConnections) -> None:
        super().__init__(connections.inbox_notifier)
        self._connections = connections

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder; raises NOT_FOUND."""
        rows = await self._connections.readers.query(
            "SELECT haptera.put_command(%s, %s, %s, %s)",
            self._connections.database.owner_text,
            to_text(session_id),
            to_text(command.id),
            msgspec.json.encode(command),
        )
        _refuse_foreign(session_id, found=rows[0][0])
        self._notifier.notify(session_id)
        self._connections.hints.send("c", [session_id])

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Return the commands that are not consumed yet."""
        owner = self._connections.database.owner_text
        rows = await self._connections.readers.query(
            _PENDING, to_text(session_id), owner, owner, owner, owner
        )
        decoded = (decode_command(bytes(body)) for (body,) in rows)
        return tuple(command for command in decoded if command is not None)


class PostgresBlobs:
    """Content by its SHA-256, kept as long as its session."""

    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Store content durably and return its name."""
        name = blob_name(content)
        rows = await self._connections.readers.query(
            "SELECT haptera.put_blob(%s, %s, %s, %s)",
            *(self._connections.database.owner_text, to_text(session_id), name, content),
        )
        _refuse_foreign(session_id, found=rows[0][0])
        return name

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND, or CORRUPT when it does not match its name."""
        owner = self._connections.database.owner_text
        rows = await self._connections.readers.query(
            _BLOB, to_text(session_id), to_text(name), owner, owner, owner, owner
        )
        return blob_or_error(session_id, name, bytes(rows[0][0]) if rows else None)


class PostgresUnownedQueries:
    """Queries whose node has gone, of all projects or of one; one caller at a time claims each."""

    def __init__(self, connections: PostgresConnections, project: str | None = None) -> None:
        self._connections = connections
        self._project = project

    def of_project(self, project: str) -> "PostgresUnownedQueries":
        """Return those of one project alone."""
        return PostgresUnownedQueries(self._connections, project)

    async def claim(
        self, *, limit: int, most_attempts: int, first_pause: float, longest_pause: float
    ) -> Sequence[UnownedQuery]:
        """Take some of them, and count the attempt."""
        within = None if self._project is None else to_text(self._project)
        rows = await self._connections.readers.query(
            "SELECT * FROM haptera.claim_unowned(%s, %s, %s, %s, %s, %s)",
            *(self._connections.database.owner_text, limit, most_attempts),
            *(first_pause, longest_pause, within),
        )
        return tuple(
            UnownedQuery(
                session_id=SessionId(session_id),
                owner=from_text(owner) or "",
                project=from_text(project) or "",
                attempt=attempt,
            )
            for session_id, owner, project, attempt in rows
        )


def _refuse_foreign(session_id: SessionId, *, found: bool) -> None:
    if not found:
        # Not ACCESS_DENIED, which would tell that another owner has a session of this id.
        raise no_session_error(session_id)
