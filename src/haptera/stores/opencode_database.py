"""Reads the database in which opencode keeps its sessions, as the document that it exports.

Nothing is written: the file is opened read-only. A module of its own because an import
contract lets only stores use the database driver.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import apsw
import msgspec

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.json_types import JsonObject

_BUSY_MS = 2000
_SESSIONS = (
    "SELECT id, directory, title, time_created, time_updated FROM session "
    "WHERE parent_id IS NULL ORDER BY time_updated DESC"
)
_SESSION = "SELECT id, directory, title, time_created, time_updated FROM session WHERE id = ?"
# opencode makes ids that sort in the order in which they were made.
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY id"
_PARTS = "SELECT message_id, id, data FROM part WHERE session_id = ? ORDER BY id"


def opencode_sessions(path: Path) -> tuple[JsonObject, ...]:
    """Return what is known of each session, the last updated first; not those of sub-agents.

    Raises:
        StoreError: UNAVAILABLE when the database cannot be read.

    """
    return tuple(_info(row) for row in _rows(path, _SESSIONS))


def opencode_document(path: Path, session_id: str) -> bytes:
    """Return a session as `opencode export` would write it.

    Raises:
        StoreError: UNAVAILABLE when the database cannot be read.

    """
    infos = [_info(row) for row in _rows(path, _SESSION, session_id)]
    parts: dict[str, list[JsonObject]] = {}
    for message_id, own, data in _rows(path, _PARTS, session_id):
        parts.setdefault(str(message_id), []).append(_object(data) | {"id": own})
    messages: list[JsonObject] = [
        {"info": _object(data) | {"id": own}, "parts": parts.get(str(own), [])}
        for own, data in _rows(path, _MESSAGES, session_id)
    ]
    return msgspec.json.encode({"info": infos[0] if infos else {}, "messages": messages})


def _info(row: tuple[object, ...]) -> JsonObject:
    own, directory, title, created, updated = row
    times = {"created": created, "updated": updated}
    return {"id": own, "directory": directory, "title": title, "time": times}


def _object(data: object) -> JsonObject:
    try:
        return msgspec.json.decode(data if isinstance(data, str) else b"{}", type=dict)
    except ValueError:
        return {}


def _rows(path: Path, query: str, *values: str) -> Iterator[tuple[object, ...]]:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(f"file:{quote(str(path))}?mode=ro", flags=flags)
        try:
            connection.set_busy_timeout(_BUSY_MS)
            # Read to the end at once: the database is opencode's, and an open query would keep a
            # snapshot of it.
            yield from list(connection.execute(query, values))
        finally:
            connection.close()
    except apsw.Error as error:
        message = f"{path} cannot be read as a database of opencode: {type(error).__name__}"
        raise StoreError(ErrorCode.UNAVAILABLE, message) from None
