"""The store behind `sqlite:FILE`: all sessions in one file. Also its two small ports.

The inbox is a table whose rows lose their body when an append consumes them. Blobs are rows named
by their content.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec

from haptera.model.errors import AgentError
from haptera.model.ids import SessionId
from haptera.model.operations.session import Command
from haptera.stores.lease_rules import LOCAL_LEASE_SECONDS
from haptera.stores.notifications import NotifiedInbox
from haptera.stores.sqlite.connections import SqliteConnections, make_connections
from haptera.stores.sqlite.database import LockTimeouts
from haptera.stores.sqlite.index import SqliteIndex
from haptera.stores.sqlite.leases import SqliteLeases
from haptera.stores.sqlite.log import SqliteLog
from haptera.stores.sqlite.rows import (
    blob_finder,
    pending_command_bodies,
    save_blob,
    session_key,
    session_key_or_new,
)
from haptera.stores.sqlite.search import SqliteSearch
from haptera.stores.stored_records import (
    blob_name,
    blob_or_error,
    decode_command,
    no_session_error,
)
from haptera.system.own_places import hold_store

_TIMEOUTS = LockTimeouts()


class SqliteStore:
    """All ports of a store over one database file. Any number of event loops may use it."""

    def __init__(
        self,
        path: Path,
        *,
        timeouts: LockTimeouts = _TIMEOUTS,
        lease_seconds: float = LOCAL_LEASE_SECONDS,
        sqlite_version: str | None = None,
    ) -> None:
        self.files_at = path
        """The file."""
        hold_store(self, database=path)
        connections = make_connections(path, timeouts=timeouts, sqlite_version=sqlite_version)
        self._connections = connections
        self.leases = SqliteLeases(connections, lease_seconds=lease_seconds)
        self.log = SqliteLog(connections, self.leases)
        self.index = SqliteIndex(connections)
        self.inbox = SqliteInbox(connections)
        self.blobs = SqliteBlobs(connections)
        self.search = SqliteSearch(connections)

    async def close(self) -> None:
        """Release the leases held here, end the threads and close the file."""
        # A lease that cannot be released now is free once this process has ended.
        with contextlib.suppress(AgentError):
            await self.leases.release_all()
        await self._connections.close()


class SqliteInbox(NotifiedInbox):
    """Commands from any process to the process that holds a session."""

    def __init__(self, connections: SqliteConnections) -> None:
        super().__init__(connections.inbox_notifier)
        self._connections = connections

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder; raises NOT_FOUND."""
        await self._connections.writer.write(
            lambda connection: _put_command(connection, session_id, command)
        )
        self._notifier.notify(session_id)

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Return the commands that are not consumed yet."""
        return await self._connections.readers.read(
            lambda connection: _pending_commands(connection, session_id)
        )


class SqliteBlobs:
    """Content by its SHA-256, kept as long as its session."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Store content durably and return its name."""
        name = blob_name(content)
        await self._connections.writer.write(
            lambda connection: save_blob(
                connection, session_key_or_new(connection, session_id), name=name, content=content
            )
        )
        return name

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND, or CORRUPT when it does not match its name."""
        content = await self._connections.readers.read(
            lambda connection: blob_finder(connection, session_key(connection, session_id))(name)
        )
        return blob_or_error(session_id, name, content)


def _put_command(connection: apsw.Connection, session_id: SessionId, command: Command) -> None:
    key = session_key(connection, session_id)
    if key is None:
        raise no_session_error(session_id)
    connection.execute(
        # A sender that got no answer leaves its command again, perhaps after the first was
        # consumed.
        "INSERT OR IGNORE INTO command (session, id, body) VALUES (?, ?, ?)",
        (key, command.id, msgspec.json.encode(command)),
    )


def _pending_commands(connection: apsw.Connection, session_id: SessionId) -> tuple[Command, ...]:
    bodies = pending_command_bodies(connection, session_key(connection, session_id))
    decoded = (decode_command(body) for _, body in bodies)
    return tuple(command for command in decoded if command is not None)
