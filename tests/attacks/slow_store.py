"""A store in memory whose appends can be held or broken by a test."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Lease
from haptera.stores.memory import MemoryLog, MemoryStore

Judge = Callable[[Sequence[Entry]], Exception | None]


async def _a_trip_to_the_disk() -> None:
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)


class HeldLog(MemoryLog):
    """Appends like a disk: never at once, and sometimes not at all."""

    def __init__(self, sessions: Any) -> None:
        super().__init__(sessions)
        self.judge: Judge = lambda _entries: None
        self.hold: Callable[[Sequence[Entry]], bool] = lambda _entries: False
        self.held = asyncio.Event()
        self.go_on = asyncio.Event()

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append after a while, unless the test says otherwise."""
        if self.hold(entries):
            self.held.set()
            await self.go_on.wait()
        await _a_trip_to_the_disk()
        error = self.judge(entries)
        if error is not None:
            raise error
        await super().append(lease, entries, consumed=consumed)
        await _a_trip_to_the_disk()

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read after a while."""
        await _a_trip_to_the_disk()
        entries = await super().read(session_id, after=after, limit=limit)
        await _a_trip_to_the_disk()
        return entries


class HeldStore(MemoryStore):
    """The store around such a log."""

    def __init__(self) -> None:
        super().__init__()
        self.log: HeldLog = HeldLog(self._sessions)
