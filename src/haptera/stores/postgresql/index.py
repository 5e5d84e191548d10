"""The index of a PostgreSQL store: the rows of its sessions, and how they are derived again."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import psycopg

from haptera.model.ids import SessionId
from haptera.model.results import SessionOrder
from haptera.ports.session_store import (
    ANY_SESSION,
    SessionFilter,
    SessionRecord,
)
from haptera.stores.append_rules import is_visible, updated_record
from haptera.stores.postgresql.connections import PostgresConnections
from haptera.stores.postgresql.database import PgConnection, to_text
from haptera.stores.postgresql.log import read_rows
from haptera.stores.postgresql.records import (
    COLUMNS,
    label_details,
    open_work,
    record_of,
    saved_values,
)

_OWNED = (
    " FROM haptera.session WHERE owner = %s AND project IS NOT NULL"
    " AND (%s::text IS NULL OR project = %s) AND (%s::text IS NULL OR owner = %s)"
)
# A session with this id comes before those that have the text as their name.
_FIND = (
    f"SELECT {COLUMNS}{_OWNED} AND (id = %s OR name = %s)"
    " ORDER BY (id = %s) DESC NULLS LAST, updated DESC, id DESC"
)
_BROWSE, _KEYS = f"SELECT {COLUMNS}{_OWNED}", f"SELECT key{_OWNED}"
"""Conditions follow."""
_COUNT = "SELECT count(*) FROM "
_ORDERS: dict[SessionOrder, tuple[str, str]] = {
    "updated": ("(updated, id) < (%s, %s)", "updated DESC, id DESC"),
    "created": ("(created, id) < (%s, %s)", "created DESC, id DESC"),
    "oldest": ("(created, id) > (%s, %s)", "created, id"),
    "name": (
        "(name IS NULL, coalesce(name, ''), id) > (%s::boolean, %s, %s)",
        "name IS NULL, name, id",
    ),
}
"""What comes behind a record in an order, and the order itself."""
_NOTED = (
    "EXISTS (SELECT FROM jsonb_each(details) n WHERE starts_with(n.key, 'note ')"
    " AND n.value <> 'null') OR coalesce(details -> 'notes', '[]') <> '[]'"
)
"""Whether there are notes. Rows of earlier versions have them in one list."""
_SAVE = (
    "UPDATE haptera.session SET owner = %s, project = %s, name = %s, title = %s, model = %s,"
    " parent = %s, native_session_id = %s, created = %s, updated = %s, head = %s, details = %s,"
    " indexed = 0, query_open = %s, query_rests = %s, inputs_waiting = %s"
    " WHERE id = %s AND head = %s AND (%s::text IS NULL OR owner = %s) RETURNING key"
)
_ALL = "SELECT id FROM haptera.session WHERE (%s::text IS NULL OR owner = %s) ORDER BY key"
_HEAD = "SELECT head FROM haptera.session WHERE id = %s AND (%s::text IS NULL OR owner = %s)"
_PAGE = 200


class PostgresIndex:
    """Finds sessions by their rows. Each append updates them; they can be derived from entries."""

    def __init__(self, connections: PostgresConnections) -> None:
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
        wanted = None if session_id is None else to_text(session_id)
        rows = await self._connections.readers.query(
            _FIND,
            *self._owned(owner, project),
            *(wanted, None if name is None else to_text(name), wanted),
        )
        for record in map(record_of, rows):
            if is_visible(record, owner, project):
                return record
        return None

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

        def work(connection: PgConnection) -> list[SessionRecord]:
            start: SessionRecord | None = None
            if after is not None:
                values = (*self._owned(owner, project), to_text(after), None, to_text(after))
                rows = self._connections.database.query(connection, _FIND, *values)
                if not rows:
                    return []
                start = record_of(rows[0])
            owned = self._owned(owner, project)
            records = self._records(connection, owned, matching, order=order, after=start)
            return list(itertools.islice(filter(matching.matches, records), limit))

        return await self._connections.readers.run(work)

    async def count(
        self, owner: str, project: str | None, *, matching: SessionFilter = ANY_SESSION
    ) -> int:
        """Count sessions without reading their records."""
        where, values = _where(matching)
        rows = await self._connections.readers.query(
            f"{_COUNT}({_KEYS}{where}) x", *self._owned(owner, project), *values
        )
        return int(rows[0][0])

    async def rebuild(self) -> int:
        """Derive the index again from the logs.

        A session that is appended to meanwhile is derived anew. A name that two sessions would
        have stays with the older one.
        """
        owner = self._connections.database.owner_text
        sessions = await self._connections.readers.query(_ALL, owner, owner)
        saved = 0
        for (session_id,) in sessions:
            saved += await self._connections.readers.run(partial(self._derive, session_id))
        return saved

    def _records(
        self,
        connection: PgConnection,
        owned: tuple[str | None, ...],
        matching: SessionFilter,
        *,
        order: SessionOrder,
        after: SessionRecord | None,
    ) -> Iterator[SessionRecord]:
        """Yield the records of an owner that match, page by page in an order."""
        where, values = _where(matching)
        behind, sorting = _ORDERS[order]
        while True:
            start = () if after is None else _place_of(after, order)
            following = f" AND {behind}" if start else ""
            rows = self._connections.database.query(
                connection,
                f"{_BROWSE}{where}{following} ORDER BY {sorting} LIMIT %s",
                *(*owned, *values, *start, _PAGE),
            )
            for row in rows:
                after = record_of(row)
                yield after
            if len(rows) < _PAGE:
                return

    def _owned(self, owner: str, project: str | None) -> tuple[str | None, ...]:
        bound = self._connections.database.owner_text
        within = None if project is None else to_text(project)
        return to_text(owner), within, within, bound, bound

    def _derive(self, session_id: SessionId, connection: PgConnection) -> bool:
        database, bound = self._connections.database, self._connections.database.owner_text
        while found := database.query(connection, _HEAD, session_id, bound, bound):
            head = found[0][0]
            rows = read_rows(self._connections, connection, session_id, after=0, limit=None)
            entries = [entry for _, entry in rows if not isinstance(entry, str)]
            record = updated_record(None, entries)
            if record is None:
                return False
            # Entries at the end may be unreadable. Their numbers stay taken.
            record = msgspec.structs.replace(record, head=head)
            values = [*saved_values(record), *open_work(entries)]
            where = (session_id, head, bound, bound)
            # The third value is the name. It stays with the session that has it already.
            for names in (values, [*values[:2], None, *values[3:]]):
                try:
                    if database.query(connection, _SAVE, *names, *where):
                        return True
                    # No row was changed: the session has another head by now, or was deleted.
                    break
                except psycopg.errors.UniqueViolation:
                    continue
        return False


def _where(matching: SessionFilter) -> tuple[str, list[str | int]]:
    """Return the conditions of a filter, and their values; its `matches` decides."""
    compared: tuple[tuple[str, str | int | None], ...] = (
        ("name = %s", matching.name),
        ("starts_with(name, %s)", matching.name_prefix),
        ("parent = %s", matching.parent),
        ("details ->> 'spawned_by' = %s", matching.spawned_by),
        ("coalesce(details ->> 'status', 'idle') = %s", matching.phase),
        ("haptera.shown_status(details) = %s", matching.status),
        ("updated > %s", matching.updated_after),
        ("updated < %s", matching.updated_before),
        ("updated >= %s", matching.since),
    )
    there = (
        ("details ->> 'spawned_by'", matching.spawned),
        ("details ->> 'archived'", matching.archived),
        ("details ->> 'deleted'", matching.deleted),
    )
    where, values = "", list[str | int]()
    for condition, value in compared:
        if value is not None:
            where += f" AND {condition}"
            values.append(to_text(value) if isinstance(value, str) else value)
    if (labels := label_details(matching)) is not None:
        where += " AND labels @> haptera.labels_of(%s::jsonb)"
        values.append(labels)
    for field, is_there in there:
        if is_there is not None:
            where += f" AND {field} IS {'NOT ' if is_there else ''}NULL"
    if matching.noted is not None:
        where += f" AND {'' if matching.noted else 'NOT '}({_NOTED})"
    return where, values


def _place_of(record: SessionRecord, order: SessionOrder) -> tuple[str | int | bool, ...]:
    """Return the values that an order compares."""
    session_id = to_text(record.id)
    if order == "name":
        name = "" if record.name is None else to_text(record.name)
        return record.name is None, name, session_id
    return record.updated if order == "updated" else record.created, session_id
