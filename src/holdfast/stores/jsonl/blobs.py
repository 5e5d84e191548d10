"""The big payloads of a jsonl store: a file each, named by its content."""

import os
from pathlib import Path

from holdfast.stores.blob_names import is_blob_name, name_of_content, no_such_blob, verified
from holdfast.stores.file_failures import translating
from holdfast.stores.jsonl.room import JsonlRoom
from holdfast.stores.private_files import open_or_create, read_whole, sync_folder
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
        path = self._room.folder.blobs(session_id) / name
        with translating(path):
            # A damaged file of that name is replaced by what it should have been.
            if not path.exists() or read_whole(path) != content:
                _write_durably(path, content)
        return name

    def _get(self, session_id: SessionId, name: str) -> bytes:
        folder = self._room.folder.blobs(session_id)
        if not is_blob_name(name):
            raise no_such_blob(session_id, name)
        with translating(folder / name):
            try:
                content = (folder / name).read_bytes()
            except FileNotFoundError:
                raise no_such_blob(session_id, name) from None
        return verified(name, content)


def _write_durably(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = open_or_create(temporary, os.O_WRONLY | os.O_TRUNC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    temporary.rename(path)
    sync_folder(path.parent)
