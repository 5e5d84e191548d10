"""A memory store whose calls take time: others run before and after each takes effect."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal, TypeVar

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Lease
from haptera.stores.lease_rules import GIVING_BACK_SECONDS, lease_of_thread, result_of_thread
from haptera.stores.memory import MemoryLeases, MemoryLog, MemoryStore
from haptera.system.owned_tasks import OwnedTasks

ValueT = TypeVar("ValueT")
Pause = Callable[[], Awaitable[None]]


class PausingStore(MemoryStore):
    """Keeps the promises of a store, and nothing that only a store without waiting would give.

    What a cancelled caller had asked for may still happen, as with a store that works in threads:
    an append takes effect in its turn, a release releases, and what was acquired is given back.
    """

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self._work = OwnedTasks()
        self.log: _PausingLog = _PausingLog(self._sessions, pause, self._work)
        self.leases: _PausingLeases = _PausingLeases(self._sessions, pause, self._work)
        self.index: Any = _PausingPort(self.index, pause)
        self.inbox: Any = _PausingPort(self.inbox, pause)

    async def rest(self) -> None:
        """Wait until everything was done that callers had given up."""
        while self._work:
            await asyncio.wait(self._work)


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
        self.repeats = 0
        """How many of the next appends reach the log a second time."""

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
        if self.repeats:
            self.repeats -= 1
            self._work.start(self._append_again(lease, entries, consumed), name="pausing-again")

    async def _append_again(
        self, lease: Lease, entries: Sequence[Entry], consumed: Sequence[CommandId]
    ) -> None:
        with suppress(StoreError):  # no caller hears that the session was taken over meanwhile
            await self._pause()
            self.append_now(lease, entries, consumed=consumed)

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
    """Grants and releases in tasks of the store's own, as stores do that work in threads.

    What its caller has given up is given back by the rules of all stores, behind the acquiring: so
    a lease may be granted, or be free again, only after that caller went on.
    """

    def __init__(self, sessions: Any, pause: Pause, work: OwnedTasks) -> None:
        super().__init__(sessions)
        self._pause = pause
        self._work = work
        self.failures = 0
        """How many of the next releases fail for their caller; they are done later."""

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer; a caller that gives up holds nothing in the end."""
        granted: list[Lease] = []
        waiting = asyncio.Event()

        async def grant() -> Lease:
            await self._pause()
            waiting.set()
            granted.append(await super(_PausingLeases, self).acquire(session_id, holder, busy=busy))
            await self._pause()
            return granted[0]

        task = self._work.start(grant(), name="pausing-acquire")

        async def give_back() -> None:
            await waiting.wait()  # what is on its way to the store arrives
            if not granted:
                task.cancel()
            await asyncio.wait({task})
            for lease in granted:
                await super(_PausingLeases, self).release(lease)

        return await lease_of_thread(_future_of(task), lambda: self._start(give_back()))

    async def release(self, lease: Lease) -> None:
        """Let another holder become the writer, also for a caller that gives up or hears no."""
        if self.failures:
            self.failures -= 1
            self._start(self._release(lease))
            raise StoreError(ErrorCode.UNAVAILABLE, "the store failed; it releases later")
        await result_of_thread(self._start(self._release(lease)), within=GIVING_BACK_SECONDS)

    async def _release(self, lease: Lease) -> None:
        await self._pause()
        await super().release(lease)

    def _start(self, work: Coroutine[Any, Any, None]) -> "Future[None]":
        return _future_of(self._work.start(work, name="pausing-release"))


def _future_of(task: "asyncio.Task[ValueT]") -> "Future[ValueT]":
    """Return what a thread would have given for a task; it cannot be called back."""
    future: Future[ValueT] = Future()
    future.set_running_or_notify_cancel()

    def hand_over(done: "asyncio.Task[ValueT]") -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result())

    task.add_done_callback(hand_over)
    return future
