"""The big payloads of a SQLite store."""

from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import finder_of, keep_content, key_made_for, key_of
from holdfast.stores.stored_records import blob_name, blob_not_found_error, verified_blob
from holdfast.vocabulary.ids import SessionId


class SqliteBlobs:
    """Content-addressed rows, kept as long as their session."""

    def __init__(self, room: SqliteRoom) -> None:
        self._room = room

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Store content durably and return its name."""
        name = blob_name(content)
        await self._room.writer.write(
            lambda connection: keep_content(
                connection, key_made_for(connection, session_id), name=name, content=content
            )
        )
        return name

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND, or CORRUPT when it does not match its name."""
        content = await self._room.readers.read(
            lambda connection: finder_of(connection, key_of(connection, session_id))(name)
        )
        if content is None:
            raise blob_not_found_error(session_id, name)
        return verified_blob(name, content)
