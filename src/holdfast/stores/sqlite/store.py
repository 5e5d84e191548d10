"""The store behind `sqlite:FILE`: all sessions in one file."""

import contextlib
from pathlib import Path

from holdfast.stores.sqlite.blobs import SqliteBlobs
from holdfast.stores.sqlite.inbox import SqliteInbox
from holdfast.stores.sqlite.index import SqliteIndex
from holdfast.stores.sqlite.leases import SqliteLeases
from holdfast.stores.sqlite.log import SqliteLog
from holdfast.stores.sqlite.patience import Patience
from holdfast.stores.sqlite.room import open_room
from holdfast.stores.sqlite.search import SqliteSearch
from holdfast.vocabulary.errors import AgentError

_PATIENCE = Patience()


class SqliteStore:
    """All five ports of a store over one database file. Any number of event loops may use it."""

    def __init__(
        self, path: Path, *, patience: Patience = _PATIENCE, sqlite_version: str | None = None
    ) -> None:
        self._room = open_room(path, patience=patience, sqlite_version=sqlite_version)
        self.leases = SqliteLeases(self._room)
        self.log = SqliteLog(self._room, self.leases)
        self.index = SqliteIndex(self._room)
        self.inbox = SqliteInbox(self._room)
        self.blobs = SqliteBlobs(self._room)
        self.search = SqliteSearch(self._room)

    async def close(self) -> None:
        """Give up the leases held here, end the threads and close the file."""
        # A lease that cannot be given up now is free once this process is gone.
        with contextlib.suppress(AgentError):
            await self.leases.release_all()
        self._room.notifier.close()
        self._room.inbox_notifier.close()
        await self._room.readers.close()
        await self._room.writer.close()
        for watch in self._room.watches:
            watch.close()
