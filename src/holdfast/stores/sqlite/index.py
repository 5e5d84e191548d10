"""The index of a SQLite store: the rows of its sessions."""

from collections.abc import Sequence

import apsw

from holdfast.ports.session_store import SessionRecord
from holdfast.stores.index_record import update_record
from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import (
    RECORD_COLUMNS,
    entry_of,
    finder_of,
    record_of,
    rows_between,
    save_record,
    span_of,
)
from holdfast.vocabulary.ids import SessionId

_OWNED = f"SELECT {RECORD_COLUMNS} FROM session WHERE owner = ? AND project = ?"  # noqa: S608


class SqliteIndex:
    """Finds sessions by what their rows say; the rows follow from the entries."""

    def __init__(self, room: SqliteRoom) -> None:
        self._room = room

    async def find(
        self,
        owner: str,
        project: str,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of somebody else is not found."""
        return await self._room.readers.read(
            lambda connection: _find(connection, (owner, project), (session_id, name))
        )

    async def browse(
        self, owner: str, project: str, *, limit: int | None = None, after: SessionId | None = None
    ) -> Sequence[SessionRecord]:
        """List sessions, the last updated first."""
        cursor = (
            ""
            if after is None
            else (
                " AND (updated, id) < (SELECT updated, id FROM session"
                " WHERE id = ? AND owner = ? AND project = ?)"
            )
        )
        asked = (owner, project) if after is None else (owner, project, after, owner, project)
        rows = await self._room.readers.read(
            lambda connection: connection.execute(
                f"{_OWNED}{cursor} ORDER BY updated DESC, id DESC LIMIT ?",
                (*asked, -1 if limit is None else limit),
            ).fetchall()
        )
        return [record_of(row) for row in rows]

    async def rebuild(self) -> int:
        """Make the index anew from the logs."""
        return await self._room.writer.write(_rebuild)


def _find(
    connection: apsw.Connection,
    owned: tuple[str, str],
    wanted: tuple[SessionId | None, str | None],
) -> SessionRecord | None:
    row = connection.execute(f"{_OWNED} AND (id = ? OR name = ?)", (*owned, *wanted)).fetchone()
    return None if row is None else record_of(row)


def _rebuild(connection: apsw.Connection) -> int:
    # What leads to the entries is derived, too: the ids of sessions and the indexes over rows.
    connection.execute("REINDEX")
    known = _known(connection)
    # Names go first, so that two sessions can swap theirs.
    connection.execute("UPDATE session SET owner = NULL, name = NULL, head = 0, indexed = 0")
    connection.execute("INSERT INTO text_index (text_index) VALUES ('delete-all')")
    folded = {key: _fold(connection, key, record) for key, record in known.items()}
    records = {key: record for key, record in folded.items() if record is not None}
    for key, record in records.items():
        save_record(connection, key, record)
    return len(records)


def _known(connection: apsw.Connection) -> dict[int, SessionRecord | None]:
    """Return what the rows say of all sessions, by their number; None before one was opened."""
    rows = connection.execute(f"SELECT key, {RECORD_COLUMNS} FROM session")  # noqa: S608
    return {int(str(row[0])): None if row[2] is None else record_of(tuple(row[1:])) for row in rows}


def _fold(
    connection: apsw.Connection, key: int, known: SessionRecord | None
) -> SessionRecord | None:
    """Derive a record; one that was `known` counts where the entry that opens it is damaged."""
    record: SessionRecord | None = None
    find = finder_of(connection, key)
    for row in rows_between(connection, *span_of(key)):
        entry = entry_of(row, find)
        if not isinstance(entry, str):
            record = update_record(record or known, entry)
    return record
