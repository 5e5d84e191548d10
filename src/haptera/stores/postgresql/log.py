"""The logs of a PostgreSQL store: appending, reading, following, inspecting and deleting."""

from collections.abc import AsyncGenerator, Sequence

from haptera.model.believed_values import time_of
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.errors import AgentError, ErrorCode, SessionError, StoreError
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded
from haptera.model.log.sessions import SessionOpened
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Damage, Lease
from haptera.stores.append_rules import refuse_other_sessions
from haptera.stores.notifications import follow_log
from haptera.stores.postgresql.connections import PostgresConnections
from haptera.stores.postgresql.database import PgConnection, to_text
from haptera.stores.postgresql.group_writer import Append, EntryRow
from haptera.stores.postgresql.records import record_changes
from haptera.stores.stored_records import command_damage

_READ = (
    "SELECT e.seq, e.body FROM haptera.session s JOIN haptera.entry e ON e.session = s.key"
    " WHERE s.id = %s AND e.seq > %s AND (%s::text IS NULL OR s.owner = %s)"
    " AND (%s::text IS NULL OR e.owner = %s) ORDER BY e.seq LIMIT %s"
)
_COMMANDS = (
    "SELECT c.arrived, c.body FROM haptera.session s JOIN haptera.command c ON c.session = s.key"
    " WHERE s.id = %s AND c.body IS NOT NULL AND (%s::text IS NULL OR c.owner = %s)"
    " ORDER BY c.arrived"
)
_HEAD = "SELECT head FROM haptera.session WHERE id = %s AND (%s::text IS NULL OR owner = %s)"
_PAGE = 1000
"""The most rows that are read at once; a big log is decoded page by page."""


class PostgresLog:
    """Entries as rows; an append is part of a statement that many sessions share."""

    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append entries that already have their `seq`."""
        refuse_other_sessions(lease.session_id, entries)
        self._refuse_other_owners(entries)
        _refuse_gaps(entries)
        fields, fields_seq = record_changes(entries)
        await self._connections.append(
            Append(
                lease=lease,
                rows=[_row(entry) for entry in entries],
                consumed=consumed,
                fields=fields,
                fields_seq=fields_seq,
            )
        )
        self._connections.announce([lease.session_id])

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order; an unknown session has none."""

        def work(connection: PgConnection) -> list[Entry]:
            entries: list[Entry] = []
            last = after
            while limit is None or len(entries) < limit:
                size = _PAGE if limit is None else min(_PAGE, limit - len(entries))
                rows = read_rows(self._connections, connection, session_id, after=last, limit=size)
                entries += [entry for _, entry in rows if not isinstance(entry, str)]
                # By rows, not by entries: one that cannot be read is left out, and the log still
                # goes on.
                if len(rows) < size:
                    break
                last = rows[-1][0]
            return entries

        return await self._connections.readers.run(work)

    def follow(self, session_id: SessionId, *, after: int = 0) -> AsyncGenerator[list[Entry], None]:
        """Yield entries as they are appended, by any process, until closed or deleted."""
        return follow_log(
            self._connections.notifier,
            self,
            session_id=session_id,
            after=after,
            exists=lambda: self._exists(session_id),
        )

    async def inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        """Report what cannot be read."""
        damage = await self._connections.readers.run(
            lambda connection: _find_damage(self._connections, connection, session_id)
        )
        return tuple(
            Damage(session_id=session_id, place=place, reason=reason) for place, reason in damage
        )

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session with everything that belongs to it."""
        await self._connections.readers.query(
            "SELECT haptera.delete_session(%s, %s)",
            self._connections.database.owner_text,
            to_text(session_id),
        )
        self._connections.announce([session_id])

    async def _exists(self, session_id: SessionId) -> bool:
        owner = self._connections.database.owner_text
        return bool(await self._connections.readers.query(_HEAD, to_text(session_id), owner, owner))

    def _refuse_other_owners(self, entries: Sequence[Entry]) -> None:
        """Refuse to open a session of an owner whom this store is not for."""
        owner = self._connections.database.owner
        for entry in entries if owner is not None else ():
            if isinstance(entry, SessionOpened) and entry.owner != owner:
                raise SessionError(
                    ErrorCode.ACCESS_DENIED, f"this store is for {owner!r}, not {entry.owner!r}"
                )


def read_rows(
    connections: PostgresConnections,
    connection: PgConnection,
    session_id: SessionId,
    *,
    after: int,
    limit: int | None,
) -> list[tuple[int, Entry | str]]:
    """Read entries with their `seq`; one that cannot be read is the reason instead."""
    owner = connections.database.owner_text
    rows = connections.database.query(
        connection, _READ, to_text(session_id), after, owner, owner, owner, owner, limit
    )
    return [(seq, _decoded(seq, body)) for seq, body in rows]


def _row(entry: Entry) -> EntryRow:
    rests = isinstance(entry, QueryEnded) and entry.stop_reason == "approval"
    time = time_of(entry.time)
    return EntryRow(entry.seq, entry.id, entry.kind, time, rests, encode_entry(entry))


def _decoded(seq: int, body: bytes) -> Entry | str:
    try:
        entry = decode_entry(bytes(body))
    except AgentError as error:
        return error.message
    # Rows have no checksum of their own here, so this is how a row in a wrong place is noticed.
    return entry if entry.seq == seq else f"the entry in place {seq} says that it is {entry.seq}"


def _refuse_gaps(entries: Sequence[Entry]) -> None:
    """Refuse entries that do not follow each other; the database compares with the log."""
    for index, entry in enumerate(entries):
        if entry.seq != entries[0].seq + index:
            raise StoreError(
                ErrorCode.CONFLICT, f"entry {entry.seq} does not follow {entries[index - 1].seq}"
            )
    if len({entry.id for entry in entries}) < len(entries):
        raise StoreError(ErrorCode.CONFLICT, "two entries have the same id")


def _find_damage(
    connections: PostgresConnections, connection: PgConnection, session_id: SessionId
) -> list[tuple[str, str]]:
    damage: list[tuple[str, str]] = []
    seq = 0
    for row_seq, entry in read_rows(connections, connection, session_id, after=0, limit=None):
        if row_seq > seq + 1:
            damage.append((f"row {row_seq}", f"entries {seq + 1} to {row_seq - 1} are missing"))
        if isinstance(entry, str):
            damage.append((f"row {row_seq}", entry))
        seq = row_seq
    owner = connections.database.owner_text
    values = (to_text(session_id), owner, owner)
    for arrived, body in connections.database.query(connection, _COMMANDS, *values):
        if (reason := command_damage(bytes(body))) is not None:
            damage.append((f"command {arrived}", reason))
    for (head,) in connections.database.query(connection, _HEAD, *values):
        if head > seq:
            damage.append((f"row {seq}", f"the log had reached {head}"))
    return damage
