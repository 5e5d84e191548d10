"""The index of a PostgreSQL store: the rows of its sessions, and how they are derived again."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import psycopg

from holdfast.ports.session_store import SessionRecord
from holdfast.stores.append_rules import updated_record
from holdfast.stores.postgresql.connections import PostgresConnections
from holdfast.stores.postgresql.database import PgConnection, from_text, to_text
from holdfast.stores.postgresql.log import read_rows, record_fields
from holdfast.vocabulary.entries import Entry, QueryEnded, QueryStarted
from holdfast.vocabulary.ids import SessionId

_TEXTS = ("id", "owner", "project", "name", "title", "model", "parent", "native_session_id")
_OWNED = (
    "SELECT id, owner, project, name, title, model, parent, native_session_id,"
    " created, updated, head FROM holdfast.session WHERE owner = %s AND project = %s"
    " AND (%s::text IS NULL OR owner = %s)"
)
_AFTER = (
    " AND (updated, id) < (SELECT updated, id FROM holdfast.session"
    " WHERE id = %s AND owner = %s AND project = %s)"
)
_SAVE = (
    "UPDATE holdfast.session SET owner = %s, project = %s, name = %s, title = %s, model = %s,"
    " parent = %s, native_session_id = %s, created = %s, updated = %s, head = %s, indexed = 0,"
    " query_open = %s, query_rests = %s, inputs_waiting = %s"
    " WHERE id = %s AND head = %s AND (%s::text IS NULL OR owner = %s) RETURNING key"
)
_ALL = "SELECT id, head FROM holdfast.session WHERE (%s::text IS NULL OR owner = %s) ORDER BY key"


class PostgresIndex:
    """Finds sessions by their rows. Each append updates them; they can be derived from entries."""

    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections

    async def find(
        self,
        owner: str,
        project: str,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of another owner or project is not found."""
        rows = await self._connections.readers.query(
            f"{_OWNED} AND (id = %s OR name = %s)",
            *self._owned(owner, project),
            None if session_id is None else to_text(session_id),
            None if name is None else to_text(name),
        )
        return _record(rows[0]) if rows else None

    async def browse(
        self, owner: str, project: str, *, limit: int | None = None, after: SessionId | None = None
    ) -> Sequence[SessionRecord]:
        """List sessions, the last updated first."""
        values = self._owned(owner, project)
        rows = await self._connections.readers.query(
            f"{_OWNED}{'' if after is None else _AFTER} ORDER BY updated DESC, id DESC LIMIT %s",
            *values,
            *(() if after is None else (to_text(after), *values[:2])),
            limit,
        )
        return [_record(row) for row in rows]

    async def rebuild(self) -> int:
        """Derive the index again from the logs.

        A session that is appended to meanwhile is derived anew. A name that two sessions would
        have stays with the older one.
        """
        owner = self._connections.database.owner_text
        sessions = await self._connections.readers.query(_ALL, owner, owner)
        saved = 0
        for session_id, _ in sessions:
            saved += await self._connections.readers.run(partial(self._derive, session_id))
        return saved

    def _owned(self, owner: str, project: str) -> tuple[str | None, ...]:
        bound = self._connections.database.owner_text
        return to_text(owner), to_text(project), bound, bound

    def _derive(self, session_id: SessionId, connection: PgConnection) -> bool:
        while True:
            database = self._connections.database
            rows = read_rows(self._connections, connection, session_id, after=0, limit=None)
            entries = [entry for _, entry in rows if not isinstance(entry, str)]
            record = updated_record(None, entries)
            if record is None:
                return False
            head = rows[-1][0]
            record = msgspec.structs.replace(record, head=head)
            values = [*_saved_values(record), *_open_work(entries)]
            where = (session_id, head, database.owner_text, database.owner_text)
            for names in (values, [*values[:2], None, *values[3:]]):
                try:
                    if database.query(connection, _SAVE, *names, *where):
                        return True
                    break
                except psycopg.errors.UniqueViolation:
                    continue


def _saved_values(record: SessionRecord) -> list[Any]:
    fields = record_fields(record)
    texts = [to_text(value) if isinstance(value, str) else value for value in fields.values()]
    return [*texts, record.updated, record.head]


def _open_work(entries: Sequence[Entry]) -> tuple[bool, bool, int]:
    """Return whether the last query has not ended, whether it rests, and how many prompts wait."""
    kinds = [entry.kind for entry in entries]
    queries = [entry for entry in entries if isinstance(entry, QueryStarted | QueryEnded)]
    last = queries[-1] if queries else None
    rests = isinstance(last, QueryEnded) and last.stop_reason == "approval"
    left = sum(kind in {"input.promoted", "input.drained"} for kind in kinds)
    return isinstance(last, QueryStarted), rests, kinds.count("input.queued") - left


def _record(row: tuple[Any, ...]) -> SessionRecord:
    *texts, created, updated, head = row
    known: dict[str, Any] = {
        name: from_text(text) for name, text in zip(_TEXTS, texts, strict=True)
    }
    return SessionRecord(**known, created=created, updated=updated, head=head)
