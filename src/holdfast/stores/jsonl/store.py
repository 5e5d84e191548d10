"""The store behind `jsonl:DIR`: sessions as files that any tool can read."""

import contextlib
from pathlib import Path

from holdfast.stores.jsonl.blobs import JsonlBlobs
from holdfast.stores.jsonl.inbox import JsonlInbox
from holdfast.stores.jsonl.index import JsonlIndex
from holdfast.stores.jsonl.leases import JsonlLeases
from holdfast.stores.jsonl.log import JsonlLog
from holdfast.stores.jsonl.room import open_room
from holdfast.stores.lease_rules import LEASE_SECONDS
from holdfast.vocabulary.errors import StoreError


class JsonlStore:
    """All five ports of a store over a folder. Any number of event loops may use it."""

    def __init__(self, root: Path, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._room = open_room(root, lease_seconds=lease_seconds)
        self.log = JsonlLog(self._room)
        self.index = JsonlIndex(self._room)
        self.leases = JsonlLeases(self._room)
        self.inbox = JsonlInbox(self._room)
        self.blobs = JsonlBlobs(self._room)

    async def close(self) -> None:
        """Give up the leases held here and end the threads; what was appended stays."""
        self.leases.stop_renewing()
        self._room.notifier.close()
        self._room.inbox_notifier.close()
        await self._room.lanes.close(self._part)

    def _part(self) -> None:
        for writer in self._room.writers.values():
            # The lock is given up with the file in any case; the rest is courtesy.
            with contextlib.suppress(OSError, StoreError):
                writer.release()
            writer.drop()
        self._room.writers.clear()
        for ticket in tuple(self._room.tickets):
            self._room.forget_ticket(ticket)
        self._room.summaries.save()
