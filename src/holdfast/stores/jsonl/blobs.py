"""The big payloads of a jsonl store: a file each, named by its content."""

from holdfast.stores.blob_names import is_blob_name, name_of_content, no_such_blob, verified
from holdfast.stores.file_failures import translating
from holdfast.stores.jsonl.content_files import find_content, keep_content
from holdfast.stores.jsonl.room import JsonlRoom
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
        name = name_of_content(content)
        folder = self._room.folder.blobs(session_id)
        with translating(folder / name):
            keep_content(folder, name, content)
        return name

    def _get(self, session_id: SessionId, name: str) -> bytes:
        folder = self._room.folder.blobs(session_id)
        if not is_blob_name(name):
            raise no_such_blob(session_id, name)
        with translating(folder / name):
            content = find_content(folder, name)
        if content is None:
            raise no_such_blob(session_id, name)
        return verified(name, content)
