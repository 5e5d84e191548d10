"""The logs of a SQLite store."""

from collections.abc import AsyncGenerator, Sequence

import apsw

from holdfast.ports.session_store import Damage, Lease, SessionRecord
from holdfast.stores.append_rules import (
    entries_to_store,
    name_taken_error,
    refuse_other_sessions,
    updated_record,
)
from holdfast.stores.notifications import follow_log
from holdfast.stores.sqlite.inbox import damaged_commands
from holdfast.stores.sqlite.leases import SqliteLeases
from holdfast.stores.sqlite.quarantine import read_quarantine
from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import (
    RECORD_COLUMNS,
    as_bytes,
    as_numbers,
    entry_of,
    finder_of,
    keep_content,
    key_of,
    place_of,
    record_of,
    row_of,
    rows_between,
    save_record,
    seq_of,
    span_of,
    text_of,
)
from holdfast.stores.stored_records import to_stored_entry
from holdfast.vocabulary.commands import CommandId
from holdfast.vocabulary.entries import Entry, SessionChanged, SessionOpened
from holdfast.vocabulary.ids import EntryId, SessionId


class SqliteLog:
    """Entries as rows, in the order they are read; a transaction makes an append one step."""

    def __init__(self, room: SqliteRoom, leases: SqliteLeases) -> None:
        self._room = room
        self._leases = leases

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append entries that already have their `seq`."""

        def work(connection: apsw.Connection) -> None:
            key = self._leases.hold(connection, lease)
            refuse_other_sessions(lease.session_id, entries)
            _append(connection, (key, lease.session_id), entries=entries, consumed=consumed)

        await self._room.writer.write(work)
        self._room.notifier.notify(lease.session_id)

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order; an unknown session has none."""
        return await self._room.readers.read(
            lambda connection: _read(connection, session_id, after=after, limit=limit)
        )

    def follow(self, session_id: SessionId, *, after: int = 0) -> AsyncGenerator[list[Entry], None]:
        """Yield entries as they are appended, by any process, until closed."""
        return follow_log(self._room.notifier, self, session_id=session_id, after=after)

    async def inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        """Report what cannot be read."""
        path = self._room.database.path
        found = await self._room.readers.read(
            lambda connection: _find_damage(connection, session_id)
        )
        return tuple(
            Damage(session_id=session_id, place=f"{place} of {path}", reason=reason)
            for place, reason in found
        )

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session with everything that belongs to it."""
        await self._room.writer.write(lambda connection: _delete(connection, session_id))
        self._room.notifier.notify(session_id)


def _append(
    connection: apsw.Connection,
    session: tuple[int, SessionId],
    *,
    entries: Sequence[Entry],
    consumed: Sequence[CommandId],
) -> None:
    key, _ = session
    fresh = entries_to_store(
        entries,
        head=_head(connection, key),
        id_at=lambda seq: _id_at(connection, place_of(key, seq)),
        is_stored=lambda entry_id: _is_stored(connection, key, entry_id),
    )
    kept = [(entry, to_stored_entry(entry)) for entry in fresh]
    connection.executemany(
        "INSERT INTO entry (place, id, kind, crc, body) VALUES (?, ?, ?, ?, ?)",
        [row_of(key, entry, form) for entry, form in kept],
    )
    for _, form in kept:
        if form.content is not None:
            keep_content(connection, key, name=form.name, content=form.content)
    # The row stays, so that the same command cannot come again; its text is in the log now.
    connection.executemany(
        "UPDATE command SET body = NULL WHERE session = ? AND id = ?",
        [(key, command_id) for command_id in consumed],
    )
    if fresh:
        _update_index(connection, session, fresh)


def _update_index(
    connection: apsw.Connection, session: tuple[int, SessionId], fresh: Sequence[Entry]
) -> None:
    key, session_id = session
    connection.execute(
        "UPDATE session SET updated = ?, head = ? WHERE key = ?",
        (fresh[-1].time, fresh[-1].seq, key),
    )
    if not any(isinstance(entry, SessionOpened | SessionChanged) for entry in fresh):
        return
    record = updated_record(_record(connection, session_id), fresh)
    if record is not None:
        try:
            save_record(connection, key, record)
        except apsw.ConstraintError:
            raise name_taken_error(str(record.name)) from None


def _record(connection: apsw.Connection, session_id: SessionId) -> SessionRecord | None:
    row = connection.execute(
        f"SELECT {RECORD_COLUMNS} FROM session WHERE id = ? AND owner IS NOT NULL",  # noqa: S608
        (session_id,),
    ).fetchone()
    return None if row is None else record_of(connection, row)


def _head(connection: apsw.Connection, key: int) -> int:
    """Ask the entries themselves: what the session's row says is derived from them."""
    place: int | None = connection.execute(
        "SELECT max(place) FROM entry WHERE place BETWEEN ? AND ?", span_of(key)
    ).get
    return 0 if place is None else seq_of(place)


def _id_at(connection: apsw.Connection, place: int) -> EntryId | None:
    found: bytes | None = connection.execute(
        f"SELECT {as_bytes('id')} FROM entry WHERE place = ?",  # noqa: S608
        (place,),
    ).get
    text = text_of(found)
    return None if text is None else EntryId(text)


def _is_stored(connection: apsw.Connection, key: int, entry_id: EntryId) -> bool:
    found = connection.execute("SELECT 1 FROM entry WHERE session = ? AND id = ?", (key, entry_id))
    return found.fetchone() is not None


def _read(
    connection: apsw.Connection, session_id: SessionId, *, after: int, limit: int | None
) -> list[Entry]:
    key = key_of(connection, session_id)
    if key is None:
        return []
    first, last = place_of(key, after + 1), span_of(key)[1]
    find = finder_of(connection, key)
    decoded = (entry_of(row, find) for row in rows_between(connection, first, last, limit=limit))
    return [entry for entry in decoded if not isinstance(entry, str)]


def _find_damage(connection: apsw.Connection, session_id: SessionId) -> list[tuple[str, str]]:
    key = key_of(connection, session_id)
    if key is None:
        return []
    found = read_quarantine(connection, key)
    find = finder_of(connection, key)
    seq = 0
    try:
        for row in rows_between(connection, *span_of(key)):
            if seq_of(row[0]) > seq + 1:
                found.append(
                    (f"row {row[0]}", f"entries {seq + 1} to {seq_of(row[0]) - 1} are missing")
                )
            seq = seq_of(row[0])
            if isinstance(reason := entry_of(row, find), str):
                found.append((f"row {row[0]}", reason))
        found += damaged_commands(connection, key)
        reached: int | None = connection.execute(
            f"SELECT {as_numbers('head')} FROM session WHERE key = ?",  # noqa: S608
            (key,),
        ).get
        if reached is not None and reached > seq:
            found.append((f"row {place_of(key, seq)}", f"the log had reached {reached}"))
    except (apsw.CorruptError, apsw.NotADBError) as error:
        found.append((f"rows after {place_of(key, seq)}", str(error)))
    return found


def _delete(connection: apsw.Connection, session_id: SessionId) -> None:
    key = key_of(connection, session_id)
    if key is not None:
        connection.execute("DELETE FROM text_index WHERE rowid BETWEEN ? AND ?", span_of(key))
        connection.execute("DELETE FROM session WHERE key = ?", (key,))
