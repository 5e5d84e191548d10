"""The logs of a SQLite store: appending, reading, following, inspecting and deleting."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import closing
from itertools import islice

import apsw

from haptera.model.believed_values import time_of
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import EntryId, SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Damage, Lease, SessionRecord
from haptera.stores.append_rules import (
    RECORDED,
    entries_to_store,
    name_taken_error,
    refuse_other_sessions,
    updated_record,
)
from haptera.stores.notifications import follow_log
from haptera.stores.sqlite.connections import SqliteConnections
from haptera.stores.sqlite.leases import SqliteLeases
from haptera.stores.sqlite.rows import (
    ROWS_AT_ONCE,
    SELECT_RECORDS,
    blob_finder,
    damaged_commands,
    decode_entry_row,
    decode_record,
    decode_text,
    entry_row,
    entry_rows,
    head_of,
    place_of,
    read_quarantine,
    readable_entries,
    save_blob,
    save_record,
    seq_of,
    session_key,
    span_of,
)
from haptera.stores.stored_records import to_stored_entry


class SqliteLog:
    """Entries as rows in the order in which they are read; an append is part of a transaction."""

    def __init__(self, connections: SqliteConnections, leases: SqliteLeases) -> None:
        self._connections = connections
        self._leases = leases

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append entries that already have their `seq`."""

        def work(connection: apsw.Connection) -> SessionRecord | None:
            key = self._leases.hold(connection, lease)
            refuse_other_sessions(lease.session_id, entries)
            before = self._leases.records.get(lease.session_id)
            record = _append(connection, key, entries, known=before)
            if consumed:
                _consume(connection, key, consumed)
            return record

        record = await self._connections.writer.write(work)
        if record is not None:
            # Only now that it is committed: a transaction that failed has changed no record.
            self._leases.remember(lease, record)
        self._connections.notifier.notify(lease.session_id)

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order; an unknown session has none."""
        return await self._connections.readers.read(
            lambda connection: _read(connection, session_id, after=after, limit=limit)
        )

    def follow(self, session_id: SessionId, *, after: int = 0) -> AsyncGenerator[list[Entry], None]:
        """Yield entries as they are appended, by any process, until closed or deleted."""
        return follow_log(
            self._connections.notifier,
            self,
            session_id=session_id,
            after=after,
            exists=lambda: self._connections.readers.read(
                lambda connection: session_key(connection, session_id) is not None
            ),
        )

    async def inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        """Report what cannot be read."""
        path = self._connections.database.path
        damage = await self._connections.readers.read(
            lambda connection: _find_damage(connection, session_id)
        )
        return tuple(
            Damage(session_id=session_id, place=f"{place} of {path}", reason=reason)
            for place, reason in damage
        )

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session with everything that belongs to it."""
        await self._connections.writer.write(lambda connection: _delete(connection, session_id))
        self._connections.notifier.notify(session_id)


def _append(
    connection: apsw.Connection, key: int, entries: Sequence[Entry], *, known: SessionRecord | None
) -> SessionRecord | None:
    """Insert the entries that are not stored yet; returns the session's record if it changes.

    `known` is the record after an earlier append. It is current if no entry was appended since.
    """
    head = head_of(connection, key)
    fresh = entries_to_store(
        entries,
        head=head,
        id_at=lambda seq: _id_at(connection, place_of(key, seq)),
        is_stored=lambda _: False,  # the unique index of ids tells, when they are inserted
    )
    if not fresh:
        return None
    pairs = [(entry, to_stored_entry(entry)) for entry in fresh]
    try:
        connection.executemany(
            "INSERT INTO entry (place, id, kind, crc, body) VALUES (?, ?, ?, ?, ?)",
            [entry_row(key, entry, stored) for entry, stored in pairs],
        )
    except apsw.ConstraintError:
        raise StoreError(
            ErrorCode.CONFLICT, f"one of {len(fresh)} entries has another place in the log"
        ) from None
    # In one transaction, so a pointer may be written before its blob.
    for _, stored in pairs:
        if stored.content is not None:
            save_blob(connection, key, name=stored.name, content=stored.content)
    is_current = known is not None and known.head == head
    return _update_index(connection, key, fresh, known=known if is_current else None)


def _consume(connection: apsw.Connection, key: int, consumed: Sequence[CommandId]) -> None:
    # The row stays, so that the same command cannot come again; its effect is in the log now.
    connection.executemany(
        "UPDATE command SET body = NULL WHERE session = ? AND id = ?",
        [(key, command_id) for command_id in consumed],
    )


def _update_index(
    connection: apsw.Connection, key: int, fresh: Sequence[Entry], *, known: SessionRecord | None
) -> SessionRecord | None:
    record: SessionRecord | None = None
    if known is not None or any(isinstance(entry, RECORDED) for entry in fresh):
        record = updated_record(known or _record(connection, key), fresh)
    if record is None:
        connection.execute(
            "UPDATE session SET updated = ?, head = ? WHERE key = ?",
            (time_of(fresh[-1].time), fresh[-1].seq, key),
        )
        return None
    try:
        save_record(connection, key, record, known=known)
    except apsw.ConstraintError:
        if known is not None:  # a rebuilt index may have given its name to another session
            return _update_index(connection, key, fresh, known=None)
        raise name_taken_error(str(record.name)) from None
    return record


def _record(connection: apsw.Connection, key: int) -> SessionRecord | None:
    row = connection.execute(
        f"{SELECT_RECORDS} WHERE key = ? AND owner IS NOT NULL", (key,)
    ).fetchone()
    return None if row is None else decode_record(connection, row)


def _id_at(connection: apsw.Connection, place: int) -> EntryId | None:
    stored: bytes | None = connection.execute(
        "SELECT CAST(id AS BLOB) FROM entry WHERE place = ?", (place,)
    ).get
    text = decode_text(stored)
    return None if text is None else EntryId(text)


def _read(
    connection: apsw.Connection, session_id: SessionId, *, after: int, limit: int | None
) -> list[Entry]:
    key = session_key(connection, session_id)
    if key is None:
        return []
    # Closing ends the query: one that was read only in part would keep its snapshot open.
    if limit is None:
        return list(readable_entries(connection, key, after=after))
    at_once = min(max(limit, 1), ROWS_AT_ONCE)
    with closing(readable_entries(connection, key, after=after, at_once=at_once)) as entries:
        return list(islice(entries, limit))


def _find_damage(connection: apsw.Connection, session_id: SessionId) -> list[tuple[str, str]]:
    key = session_key(connection, session_id)
    if key is None:
        return []
    damage = read_quarantine(connection, key)
    find_blob = blob_finder(connection, key)
    seq = 0
    try:
        for row in entry_rows(connection, *span_of(key)):
            if seq_of(row[0]) > seq + 1:
                damage.append(
                    (f"row {row[0]}", f"entries {seq + 1} to {seq_of(row[0]) - 1} are missing")
                )
            seq = seq_of(row[0])
            if isinstance(reason := decode_entry_row(row, find_blob), str):
                damage.append((f"row {row[0]}", reason))
        damage += damaged_commands(connection, key)
        reached: int | None = connection.execute(
            "SELECT CAST(head AS INTEGER) FROM session WHERE key = ?", (key,)
        ).get
        if reached is not None and reached > seq:
            damage.append((f"row {place_of(key, seq)}", f"the log had reached {reached}"))
    except (apsw.CorruptError, apsw.NotADBError) as error:
        damage.append((f"rows after {place_of(key, seq)}", str(error)))
    return damage


def _delete(connection: apsw.Connection, session_id: SessionId) -> None:
    key = session_key(connection, session_id)
    if key is not None:
        # A virtual table has no foreign keys. All other rows go with the row of the session.
        connection.execute("DELETE FROM text_index WHERE rowid BETWEEN ? AND ?", span_of(key))
        connection.execute("DELETE FROM session WHERE key = ?", (key,))
