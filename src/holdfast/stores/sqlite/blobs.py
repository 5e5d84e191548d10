"""The big payloads of a SQLite store."""

import apsw

from holdfast.stores.blob_names import name_of_content, no_such_blob, verified
from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import key_made_for, key_of
from holdfast.vocabulary.ids import SessionId


class SqliteBlobs:
    """Content-addressed rows, kept as long as their session."""

    def __init__(self, room: SqliteRoom) -> None:
        self._room = room

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Store content durably and return its name."""
        name = name_of_content(content)
        await self._room.writer.write(
            lambda connection: connection.execute(
                "INSERT OR REPLACE INTO blob (session, name, content) VALUES (?, ?, ?)",
                (key_made_for(connection, session_id), name, content),
            )
        )
        return name

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND, or CORRUPT when it does not match its name."""
        content = await self._room.readers.read(
            lambda connection: _content(connection, session_id, name)
        )
        if content is None:
            raise no_such_blob(session_id, name)
        return verified(name, content)


def _content(connection: apsw.Connection, session_id: SessionId, name: str) -> bytes | None:
    content: bytes | None = connection.execute(
        "SELECT content FROM blob WHERE session = ? AND name = ?",
        (key_of(connection, session_id), name),
    ).get
    return content
