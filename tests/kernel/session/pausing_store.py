"""A memory store whose calls take time: others run before and after each takes effect."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, TypeVar

from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Lease
from haptera.stores.memory import MemoryLeases, MemoryLog, MemoryStore
from haptera.system.owned_tasks import OwnedTasks

ValueT = TypeVar("ValueT")
Pause = Callable[[], Awaitable[None]]


class PausingStore(MemoryStore):
    """Keeps the promises of a store, and nothing that only a store without waiting would give.

    What a cancelled caller had asked for may still happen, as with a store that works in threads:
    an append takes effect in its turn, and a release releases. A cancelled `acquire` holds nothing.
    """

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self._work = OwnedTasks()
        self.log = _PausingLog(self._sessions, pause, self._work)
        self.leases = _PausingLeases(self._sessions, pause)
        self.index: Any = _PausingPort(self.index, pause)
        self.inbox: Any = _PausingPort(self.inbox, pause)


class _PausingPort:
    """Pauses before and after every call of a port."""

    def __init__(self, port: Any, pause: Pause) -> None:
        self._port = port
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def called(*args: Any, **options: Any) -> Any:
            await self._pause()
            value = await method(*args, **options)
            await self._pause()
            return value

        return called


class _PausingLog(MemoryLog):
    """Appends in the order in which it was asked to, also for callers that have given up."""

    def __init__(self, sessions: Any, pause: Pause, work: OwnedTasks) -> None:
        super().__init__(sessions)
        self._pause = pause
        self._work = work
        self._one_appends = asyncio.Lock()

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append in a task of the store's own."""
        await self._in_own_task(self._append_in_turn(lease, entries, consumed))

    async def _append_in_turn(
        self, lease: Lease, entries: Sequence[Entry], consumed: Sequence[CommandId]
    ) -> None:
        async with self._one_appends:
            await self._pause()
            self.append_now(lease, entries, consumed=consumed)
            await self._pause()

    async def _in_own_task(self, work: Coroutine[Any, Any, ValueT]) -> ValueT:
        task = self._work.start(work, name="pausing-store")
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read what there is now; there may be more when the caller hears of it."""
        await self._pause()
        entries = await super().read(session_id, after=after, limit=limit)
        await self._pause()
        return entries


class _PausingLeases(MemoryLeases):
    """Grants a lease before its caller can hear of it."""

    def __init__(self, sessions: Any, pause: Pause) -> None:
        super().__init__(sessions)
        self._pause = pause

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer; a caller that gives up holds nothing."""
        await self._pause()
        lease = await super().acquire(session_id, holder, busy=busy)
        try:
            await self._pause()
        except asyncio.CancelledError:
            await super().release(lease)
            raise
        return lease

    async def release(self, lease: Lease) -> None:
        """Let another holder become the writer, also for a caller that gives up."""
        try:
            await self._pause()
        finally:
            await super().release(lease)
