"""The index of a SQLite store: the rows of its sessions, and how they are derived again."""

import contextlib
import itertools
from collections.abc import Sequence

import apsw
import msgspec

from haptera.model.ids import SessionId
from haptera.ports.session_store import ANY_SESSION, SessionFilter, SessionRecord
from haptera.stores.append_rules import is_visible
from haptera.stores.sqlite.connections import SqliteConnections
from haptera.stores.sqlite.rows import (
    LARGEST_KEY,
    SELECT_RECORDS,
    decode_record,
    decode_text,
    derive_record,
    save_record,
)

_OWNED = "owner = ?1 AND (?2 IS NULL OR project = ?2)"
_PARENTS = "SELECT key, CAST(parent AS BLOB) FROM session"
_AFTER = (
    " AND (updated, id) < (SELECT updated, id FROM session"
    " WHERE id = ?3 AND owner = ?1 AND (?2 IS NULL OR project = ?2))"
)


class SqliteIndex:
    """Finds sessions by their rows. Each append updates them; they can be derived from entries."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections

    async def find(
        self,
        owner: str,
        project: str | None,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of another owner or project is not found."""
        return await self._connections.readers.read(
            lambda connection: _find(connection, (owner, project), (session_id, name))
        )

    async def browse(
        self,
        owner: str,
        project: str | None,
        *,
        matching: SessionFilter = ANY_SESSION,
        limit: int | None = None,
        after: SessionId | None = None,
    ) -> Sequence[SessionRecord]:
        """List sessions, the last updated first."""
        where = _OWNED if after is None else _OWNED + _AFTER
        if matching.noted:
            where += " AND noted IS NOT NULL"
        values: list[str | int | None] = (
            [owner, project] if after is None else [owner, project, after]
        )
        for condition, value in _selected_by(matching):
            values.append(value)
            where += f" AND {condition} ?{len(values)}"

        if matching.deleted:
            where += " AND deleted IS NOT NULL"

        def list_records(connection: apsw.Connection) -> list[SessionRecord]:
            if matching.parent is not None and after is None:
                return _forks(connection, (owner, project), matching)[:limit]
            rows = connection.execute(
                f"{SELECT_RECORDS} WHERE {where} ORDER BY updated DESC, id DESC", values
            )
            records = (decode_record(connection, row) for row in rows)
            found = (record for record in records if record and matching.matches(record))
            return list(itertools.islice(found, limit))

        return await self._connections.readers.read(list_records)

    async def rebuild(self) -> int:
        """Derive the index again from the logs."""
        return await self._connections.writer.write(_rebuild)


def _forks(
    connection: apsw.Connection, owned: tuple[str, str | None], matching: SessionFilter
) -> list[SessionRecord]:
    """Return the forks of a session, the last updated first.

    Only the parents of all rows are compared. One that is damaged may be the wanted one: its row is
    decoded, which derives it from the log.
    """
    rows = connection.execute(
        f"{_PARENTS} WHERE {_OWNED} AND parent IS NOT NULL ORDER BY updated DESC, id DESC",
        owned,
    )
    keys = [key for key, parent in rows if decode_text(parent) in {None, matching.parent}]
    found = [
        decode_record(connection, row)
        for key in keys
        for row in connection.execute(f"{SELECT_RECORDS} WHERE key = ?", (key,))
    ]
    return [record for record in found if record is not None and matching.matches(record)]


def _selected_by(matching: SessionFilter) -> list[tuple[str, str | int]]:
    """Return the conditions of a filter that SQLite compares, so that fewer rows are decoded.

    A turn with a budget asks for what its session started, or for the sessions of the day: neither
    is to decode all sessions. Forks are looked up by `_forks`: one whose row is damaged must not be
    missed, because a deletion would remove the log that it needs.
    """
    conditions = (
        ("spawned_by =", matching.spawned_by),
        ("updated >", matching.updated_after),
        ("updated <", matching.updated_before),
    )
    return [(condition, value) for condition, value in conditions if value is not None]


def _find(
    connection: apsw.Connection,
    owned: tuple[str, str | None],
    wanted: tuple[SessionId | None, str | None],
) -> SessionRecord | None:
    rows = connection.execute(
        f"{SELECT_RECORDS} WHERE {_OWNED} AND (id = ?3 OR name = ?4)"
        # A session with this id comes before those that have the text as their name.
        " ORDER BY id = ?3 DESC, updated DESC, id DESC",
        (*owned, *wanted),
    )
    for row in rows.fetchall():
        record = decode_record(connection, row)
        if record is not None and is_visible(record, *owned):
            return record
    return None


def _rebuild(connection: apsw.Connection) -> int:
    # Indexes over rows and the keys of sessions lead to the entries, and may be damaged, too.
    connection.execute("REINDEX")
    _restore_keys(connection)
    known = _known_records(connection)
    # All names are removed first, so that two sessions can swap theirs.
    connection.execute("UPDATE session SET owner = NULL, name = NULL, head = 0, indexed = 0")
    # The command that empties a full-text table which keeps no content.
    connection.execute("INSERT INTO text_index (text_index) VALUES ('delete-all')")
    derived = {key: derive_record(connection, key, record) for key, record in known.items()}
    return sum(
        _is_saved(connection, key, record) for key, record in derived.items() if record is not None
    )


def _restore_keys(connection: apsw.Connection) -> None:
    """Delete session rows with impossible keys; make rows for entries without a session row."""
    connection.execute("DELETE FROM session WHERE key NOT BETWEEN 1 AND ?", (LARGEST_KEY,))
    connection.execute(
        # AUTOINCREMENT refuses every new row once its counter is at the largest integer.
        "UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(key), 0) FROM session)"
        " WHERE name = 'session' AND seq NOT BETWEEN 0 AND ?",
        (LARGEST_KEY,),
    )
    lost = connection.execute("SELECT DISTINCT session FROM entry EXCEPT SELECT key FROM session")
    for key in [int(str(row[0])) for row in lost.fetchall()]:
        if (record := derive_record(connection, key, None)) is not None:
            connection.execute(
                "INSERT OR IGNORE INTO session (key, id) VALUES (?, ?)", (key, record.id)
            )


def _is_saved(connection: apsw.Connection, key: int, record: SessionRecord) -> bool:
    """Save a record, without its name when another session took it while the row was damaged."""
    for candidate in (record, msgspec.structs.replace(record, name=None)):
        with contextlib.suppress(apsw.ConstraintError):
            save_record(connection, key, candidate, known=None)
            return True
    return False


def _known_records(connection: apsw.Connection) -> dict[int, SessionRecord | None]:
    """Return the records of all session rows by key; None for a session without entries yet."""
    rows = connection.execute(SELECT_RECORDS).fetchall()
    return {int(str(row[0])): decode_record(connection, row) for row in rows}
