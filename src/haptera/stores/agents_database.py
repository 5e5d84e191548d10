"""Reads the database in which openai-agents keeps its sessions (`SQLiteSession`).

Nothing is written, and nothing in the file is carried out: what is read must be plain tables, and
the rows of a session are bounded. A module of its own because an import contract lets only stores
use the database driver.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import apsw
import msgspec

from haptera.formats.values import LIMITS
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.json_types import Json, JsonObject

_BUSY_MS = 2000
_TABLES = (
    "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%virtual%'"
    " AND name IN ('agent_sessions', 'agent_messages')"
)
_SESSIONS = (
    "SELECT CAST(session_id AS BLOB), CAST(created_at AS BLOB), CAST(updated_at AS BLOB)"
    " FROM agent_sessions ORDER BY updated_at DESC, session_id LIMIT ?"
)
_ITEMS = (
    "SELECT CAST(message_data AS BLOB) FROM agent_messages"
    " WHERE session_id = CAST(? AS TEXT) ORDER BY id LIMIT ?"
)


def agents_sessions(path: Path) -> tuple[JsonObject, ...]:
    """Return the id and the times of each session, the last updated first.

    Raises:
        StoreError: UNAVAILABLE when it is no such database, or cannot be read.

    """
    rows = _rows(path, _SESSIONS, LIMITS.records)
    return tuple(
        {"id": _text(own), "created": _text(created), "updated": _text(updated)}
        for own, created, updated in rows
    )


def agents_document(path: Path, session_id: str) -> bytes:
    """Return the items of a session as a list in JSON; one that is none stands there as a text.

    Raises:
        StoreError: UNAVAILABLE when it is no such database, or cannot be read.

    """
    rows = _rows(path, _ITEMS, session_id, LIMITS.records + 1)
    return msgspec.json.encode([_item(data) for (data,) in rows])


def _item(data: object) -> Json:
    text = _text(data)
    try:
        found: Json = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    return found


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _rows(path: Path, query: str, *values: str | int) -> Iterator[tuple[object, ...]]:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(f"file:{quote(str(path))}?mode=ro", flags=flags)
        try:
            connection.set_busy_timeout(_BUSY_MS)
            connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
            if connection.execute(_TABLES).get != len(("agent_sessions", "agent_messages")):
                raise StoreError(
                    ErrorCode.UNAVAILABLE, f"{path} is not a database of openai-agents"
                )
            # Read to the end at once: an open query would keep a snapshot of it.
            yield from list(connection.execute(query, values))
        finally:
            connection.close()
    except apsw.Error as error:
        message = f"{path} cannot be read as a database of openai-agents: {type(error).__name__}"
        raise StoreError(ErrorCode.UNAVAILABLE, message) from None
