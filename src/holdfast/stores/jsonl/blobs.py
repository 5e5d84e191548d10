"""The big payloads of a jsonl store: a file each, named by its content."""

from holdfast.stores.jsonl.content_files import find_content, keep_content
from holdfast.stores.jsonl.room import JsonlRoom
from holdfast.stores.private_files import translated_os_errors
from holdfast.stores.stored_records import (
    blob_name,
    blob_not_found_error,
    is_blob_name,
    verified_blob,
)
from holdfast.vocabulary.ids import SessionId


class JsonlBlobs:
    """Content-addressed files in a folder per session."""

    def __init__(self, room: JsonlRoom) -> None:
        self._room = room

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Store content durably and return its name."""
        return await self._room.lanes.write(session_id, lambda: self._put(session_id, content))

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND, or CORRUPT when it does not match its name."""
        return await self._room.lanes.read(lambda: self._get(session_id, name))

    def _put(self, session_id: SessionId, content: bytes) -> str:
        name = blob_name(content)
        folder = self._room.folder.blobs(session_id)
        with translated_os_errors(folder / name):
            keep_content(folder, name, content)
        return name

    def _get(self, session_id: SessionId, name: str) -> bytes:
        folder = self._room.folder.blobs(session_id)
        if not is_blob_name(name):
            raise blob_not_found_error(session_id, name)
        with translated_os_errors(folder / name):
            content = find_content(folder, name)
        if content is None:
            raise blob_not_found_error(session_id, name)
        return verified_blob(name, content)
