"""The index of a SQLite store: the rows of its sessions, and how they are derived again."""

import contextlib
import itertools
from collections.abc import Sequence
from typing import TypeAlias

import apsw
import msgspec

from haptera.model.ids import SessionId
from haptera.model.results import SessionOrder
from haptera.ports.session_store import (
    ANY_SESSION,
    SessionFilter,
    SessionRecord,
)
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

_Value: TypeAlias = str | int | None
_OWNED = "owner = ?1 AND (?2 IS NULL OR project = ?2)"
_KEYS = "SELECT key FROM session WHERE "
_COUNT = "SELECT count(*) FROM session WHERE "
_LAST = f" FROM session WHERE {_OWNED} AND id = "
_PARENTS = "SELECT key, CAST(parent AS BLOB) FROM session"
_ORDERS: dict[SessionOrder, tuple[str, str]] = {
    "updated": ("(updated, id)", "updated DESC, id DESC"),
    "created": ("(created, id)", "created DESC, id DESC"),
    "oldest": ("(created, id)", "created, id"),
    "name": ("(name IS NULL, coalesce(name, ''), id)", "name IS NULL, name, id"),
}
"""The values that an order compares, and the order itself."""
_LAST_LETTER = "\U0010ffff"


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
        order: SessionOrder = "updated",
        limit: int | None = None,
        after: SessionId | None = None,
    ) -> Sequence[SessionRecord]:
        """List sessions in an order."""
        where, values = _where(owner, project, matching)
        compared, sorting = _ORDERS[order]
        if after is not None:
            side = "<" if sorting.endswith("DESC") else ">"
            values.append(after)
            where += f" AND {compared} {side} (SELECT {compared[1:-1]}{_LAST}?{len(values)})"

        def list_records(connection: apsw.Connection) -> list[SessionRecord]:
            if matching.parent is not None and after is None and order == "updated":
                return _forks(connection, (owner, project), matching)[:limit]
            # Keys are sorted, not rows, and of most rows only those of one page are read.
            keys = connection.execute(f"{_KEYS}{where} ORDER BY {sorting}", values).fetchall()
            rows = (
                connection.execute(f"{SELECT_RECORDS} WHERE key = ?", key).fetchone()
                for key in keys
            )
            records = (decode_record(connection, row) for row in rows if row is not None)
            found = (record for record in records if record and matching.matches(record))
            return list(itertools.islice(found, limit))

        return await self._connections.readers.read(list_records)

    async def count(
        self, owner: str, project: str | None, *, matching: SessionFilter = ANY_SESSION
    ) -> int:
        """Count sessions without reading their records."""
        where, values = _where(owner, project, matching)
        found: int = await self._connections.readers.read(
            lambda connection: connection.execute(f"{_COUNT}{where}", values).get
        )
        return found

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


def _where(owner: str, project: str | None, matching: SessionFilter) -> tuple[str, list[_Value]]:
    """Return the condition for the sessions of an owner that match, and its values.

    A turn with a budget asks for what its session started, or for the sessions of the day: neither
    is to decode all sessions. `browse` compares what it has decoded once more, because a row may be
    damaged.
    """
    values: list[_Value] = [owner, project]
    where = _OWNED
    prefix = matching.name_prefix
    compared: list[tuple[str, _Value]] = [
        ("name = ?", matching.name),
        ("name >= ?", prefix),
        ("name < ?", None if prefix is None else prefix + _LAST_LETTER),
        ("parent = ?", matching.parent),
        ("spawned_by = ?", matching.spawned_by),
        ("phase = ?", matching.phase),
        ("status = ?", matching.status),
        ("updated > ?", matching.updated_after),
        ("updated < ?", matching.updated_before),
        ("updated >= ?", matching.since),
        *(("key IN (SELECT session FROM label WHERE text = ?)", each) for each in matching.labels),
    ]
    for condition, value in compared:
        if value is not None:
            values.append(value)
            where += f" AND {condition.replace('?', f'?{len(values)}')}"
    for column, is_there in (
        ("spawned_by", matching.spawned),
        ("archived", matching.archived),
        ("deleted", matching.deleted),
        ("noted", matching.noted),
    ):
        if is_there is not None:
            where += f" AND {column} IS {'NOT ' if is_there else ''}NULL"
    return where, values


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
