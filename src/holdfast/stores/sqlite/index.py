"""The index of a SQLite store: the rows of its sessions."""

import contextlib
from collections.abc import Sequence

import apsw
import msgspec

from holdfast.ports.session_store import SessionRecord
from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import (
    LARGEST_KEY,
    RECORD_COLUMNS,
    folded_record,
    record_of,
    save_record,
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

        def look(connection: apsw.Connection) -> list[SessionRecord]:
            rows = connection.execute(
                f"{_OWNED}{cursor} ORDER BY updated DESC, id DESC LIMIT ?",
                (*asked, -1 if limit is None else limit),
            )
            records = [record_of(connection, row) for row in rows.fetchall()]
            return [record for record in records if record is not None]

        return await self._room.readers.read(look)

    async def rebuild(self) -> int:
        """Make the index anew from the logs."""
        return await self._room.writer.write(_rebuild)


def _find(
    connection: apsw.Connection,
    owned: tuple[str, str],
    wanted: tuple[SessionId | None, str | None],
) -> SessionRecord | None:
    row = connection.execute(f"{_OWNED} AND (id = ? OR name = ?)", (*owned, *wanted)).fetchone()
    return None if row is None else record_of(connection, row)


def _rebuild(connection: apsw.Connection) -> int:
    # What leads to the entries is derived, too: the ids of sessions and the indexes over rows.
    connection.execute("REINDEX")
    _renumber(connection)
    known = _known(connection)
    # Names go first, so that two sessions can swap theirs.
    connection.execute("UPDATE session SET owner = NULL, name = NULL, head = 0, indexed = 0")
    connection.execute("INSERT INTO text_index (text_index) VALUES ('delete-all')")
    folded = {key: folded_record(connection, key, record) for key, record in known.items()}
    return sum(
        _is_saved(connection, key, record) for key, record in folded.items() if record is not None
    )


def _renumber(connection: apsw.Connection) -> None:
    """Make rows for entries that no row leads to, in the place of rows with impossible numbers."""
    connection.execute("DELETE FROM session WHERE key NOT BETWEEN 1 AND ?", (LARGEST_KEY,))
    connection.execute(
        "UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(key), 0) FROM session)"
        " WHERE name = 'session' AND seq NOT BETWEEN 0 AND ?",
        (LARGEST_KEY,),
    )
    lost = connection.execute("SELECT DISTINCT session FROM entry EXCEPT SELECT key FROM session")
    for key in [int(str(row[0])) for row in lost.fetchall()]:
        if (record := folded_record(connection, key, None)) is not None:
            connection.execute(
                "INSERT OR IGNORE INTO session (key, id) VALUES (?, ?)", (key, record.id)
            )


def _is_saved(connection: apsw.Connection, key: int, record: SessionRecord) -> bool:
    """Save a record; a name that was given again while its row was damaged stays where it is."""
    for candidate in (record, msgspec.structs.replace(record, name=None)):
        with contextlib.suppress(apsw.ConstraintError):
            save_record(connection, key, candidate)
            return True
    return False


def _known(connection: apsw.Connection) -> dict[int, SessionRecord | None]:
    """Return what the rows say of all sessions, by their number; None before one was opened."""
    rows = connection.execute(f"SELECT {RECORD_COLUMNS} FROM session").fetchall()  # noqa: S608
    return {int(str(row[0])): record_of(connection, row) for row in rows}
