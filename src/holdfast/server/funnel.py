"""Funnel: collects the items of several generators for one consumer, who takes them in batches."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

from holdfast import AgentError

ItemT = TypeVar("ItemT")
ROOM = 256
"""How many items wait for a consumer before their source waits."""
_ROOM_SIZE = 512 * 1024
"""How large the items that wait for a consumer may be together, where their size is known."""


class Funnel(Generic[ItemT]):
    """Collects the items of generators for one consumer, who takes all that are there at once.

    Owns the tasks that read the generators. A generator whose items are not taken waits.
    """

    def __init__(self) -> None:
        self._items: deque[ItemT] = deque()
        # A bare future and a timer that is rarely set anew: an `asyncio.Event` with a timeout costs
        # several times as much for each event of each stream.
        self._news: asyncio.Future[None] | None = None
        """What the consumer waits for, if it does, until it goes on."""
        self._is_woken = False
        self._size = 0
        """Of what came while the consumer did not wait."""
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: AgentError | None = None
        """What the last generator failed with."""

    @property
    def is_reading(self) -> bool:
        """Whether a generator may still have items."""
        return any(not task.done() for task in self._tasks)

    def add(self, source: AsyncGenerator[ItemT, None]) -> asyncio.Task[None]:
        """Read a generator, and close it at the end."""
        task = asyncio.get_running_loop().create_task(self._read(source))
        self._tasks.add(task)
        return task

    def offer(self, item: ItemT, *, size: int = 0) -> bool:
        """Add an item from outside, unless too many wait; returns whether it was added."""
        # A consumer that was woken and has had no turn yet is not behind, however much comes.
        if self._news is None:
            self._size += size
            if len(self._items) >= 2 * ROOM or self._size > _ROOM_SIZE:
                return False
        self._items.append(item)
        self.wake()
        return True

    def replace(self, item: ItemT) -> None:
        """Forget what waits, and give the consumer this item instead."""
        self._items.clear()
        self._items.append(item)
        self.wake()

    def wake(self) -> None:
        """Let the consumer look, though there is no item."""
        self._is_woken = True
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def take(self, seconds: float) -> list[ItemT] | None:
        """Return the items that came; none when it was woken, None when nothing happened."""
        if not self._is_woken and not await self._wait(seconds):
            return None
        self._is_woken, self._size = False, 0
        taken = list(self._items)
        self._items.clear()
        self._room.set()
        return taken

    async def _wait(self, seconds: float) -> bool:
        """Wait until there is something, but not longer; returns whether there is."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer(loop)
        self._news = loop.create_future()
        try:
            await self._news
        finally:
            self._news = None
        return self._is_woken

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._on_time, loop)

    def _on_time(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a wait whose time is up; one that began later has another deadline."""
        self._timer = None
        if self._news is None:
            return
        if self._deadline > loop.time():
            self._set_timer(loop)
        elif not self._news.done():
            self._news.set_result(None)

    def stop(self, *, but: asyncio.Task[None] | None = None) -> None:
        """Let the generators be closed, all `but` one, without waiting for it."""
        for task in self._tasks - {but}:
            task.cancel()

    async def close(self) -> None:
        """Stop reading."""
        if self._timer is not None:  # first: the caller may be cancelled, and its wait with it
            self._timer.cancel()
            self._timer = None
        self.stop()
        tasks, self._tasks = self._tasks, set()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._items.clear()
        self.failure = None

    async def _read(self, source: AsyncGenerator[ItemT, None]) -> None:
        try:
            async with contextlib.aclosing(source):
                async for item in source:
                    self._items.append(item)
                    self.wake()
                    while len(self._items) >= ROOM:
                        self._room.clear()
                        await self._room.wait()
        except AgentError as error:
            self.failure = error  # the feed looks where to go on
        finally:
            self.wake()
