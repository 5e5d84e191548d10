"""A store whose n-th append fails, for tests of what happens then."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Damage, Lease, SessionLog, Store
from haptera.stores.memory import MemoryStore


class FailingLog:
    """A log that refuses one append, or every append from one on."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self.appends: list[list[str]] = []
        """The kinds of every batch that was tried, in order."""
        self.fail_at: int | None = None
        self.is_broken = False
        self.has_failed = asyncio.Event()
        self.stores_before_failing = False
        """Whether the failing append reaches the log all the same: its outcome is unknown."""

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append, unless this is the one."""
        self.appends.append([entry.kind for entry in entries])
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        if len(self.appends) == self.fail_at or self.is_broken:
            if self.stores_before_failing:
                await self._log.append(lease, entries, consumed=consumed)
            self.has_failed.set()
            raise StoreError(ErrorCode.UNAVAILABLE, "the disk is on fire")
        await self._log.append(lease, entries, consumed=consumed)

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order; others go on meanwhile, as with every store that reads files."""
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        return await self._log.read(session_id, after=after, limit=limit)

    def follow(self, session_id: SessionId, *, after: int = 0) -> AsyncGenerator[list[Entry], None]:
        """Yield entries as they are appended."""
        return self._log.follow(session_id, after=after)

    async def inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        """Report what cannot be read."""
        return await self._log.inspect(session_id)

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session."""
        await self._log.delete(session_id)


class FailingStore:
    """A store around another one whose log can fail."""

    def __init__(self, store: Store | None = None) -> None:
        store = store or MemoryStore()
        self._store = store
        self.log = FailingLog(store.log)
        self.index = store.index
        self.leases = store.leases
        self.inbox = store.inbox
        self.blobs = store.blobs
        self.search = store.search

    async def close(self) -> None:
        """Close the store inside."""
        await self._store.close()
