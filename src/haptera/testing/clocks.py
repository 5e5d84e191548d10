"""Clocks for tests, and an event loop with virtual time that draws its order by a seed.

A `FakeClock` stands still until a test moves it. A `SeededLoop` runs ready tasks in an order drawn
by a seed: the same seed gives the same schedule, so a race that was found once can be found again.
"""

import asyncio
import contextlib
import heapq
import random
import selectors
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")

_sleep = asyncio.sleep  # noqa: TID251 - these are the clocks


class FakeClock:
    """A clock that a test moves by hand. Sleepers wake in the order of their times."""

    def __init__(self, *, start_ms: int = 1_700_000_000_000) -> None:
        self._now = 0.0
        self._start_ms = start_ms
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0
        self.sleeps: list[float] = []
        """Every wait that was asked for, in seconds."""

    def now(self) -> float:
        """Return seconds since the clock was made."""
        return self._now

    def time_ms(self) -> int:
        """Return wall-clock milliseconds."""
        return self._start_ms + int(self._now * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved the clock that far."""
        self.sleeps.append(seconds)
        await self._wait(seconds)

    async def _wait(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        # The count tells equal times apart: futures cannot be compared.
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, woken))
        await woken

    @property
    def sleeping(self) -> int:
        """How many wait at this moment."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move the clock, waking every sleeper whose time has come."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)

    async def until_sleeping(self, count: int = 1) -> None:
        """Let other tasks run until that many of them wait for this clock."""
        while self.sleeping < count:
            await _sleep(0)


class AutoClock(FakeClock):
    """A clock whose sleeps take no time: it jumps to the end of each of them.

    A time limit, such as `total_timeout`, is over when the sleeps add up to it, not before.
    """

    async def sleep(self, seconds: float) -> None:
        """Jump ahead."""
        self.sleeps.append(seconds)
        self.advance(seconds)
        # Others get a turn, as in a real wait.
        await _sleep(0)

    async def limit(self, seconds: float) -> None:
        """Wait until the sleeps of others have used up a time limit."""
        await self._wait(seconds)


class DeadlockError(AssertionError):
    """Nothing is left to run, and a task still waits."""


class _VirtualSelector(selectors.SelectSelector):
    """A selector that never waits: it moves the loop's time instead."""

    def __init__(self) -> None:
        super().__init__()
        self.skip: Callable[[float], None] = lambda _seconds: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now; without anything, jump to the next timer."""
        # Sockets are looked at, too: a thread wakes the loop by one.
        ready = super().select(0)
        if not ready and timeout is None:
            raise DeadlockError("every task waits for something that no task will do")
        if not ready and timeout is not None and timeout > 0:
            self.skip(timeout)
        return ready


class _NumberedTask(asyncio.Task[Any]):
    """A task that is hashed by its number, not by its address.

    Tasks in a set are cancelled in the order in which the set is iterated. By address that order
    would differ from run to run.
    """

    def __init__(self, number: int, work: Coroutine[Any, Any, Any], **options: object) -> None:
        self._number = number
        super().__init__(work, **options)  # type: ignore[arg-type]  # as this Python's loop has them

    def __hash__(self) -> int:
        return self._number


class SeededLoop(asyncio.SelectorEventLoop):
    """Shuffles the ready queue by a seed, and never waits for real."""

    def __init__(self, seed: int) -> None:
        self._virtual_now = 0.0
        selector = _VirtualSelector()
        super().__init__(selector)
        selector.skip = self._skip
        self._chance = random.Random(seed)  # noqa: S311 - schedules, not secrets
        self.schedule: list[int] = []
        """The orders that were drawn, which tell two schedules apart."""
        numbers = count()
        self.set_task_factory(
            lambda loop, work, **options: _NumberedTask(next(numbers), work, loop=loop, **options)
        )

    def time(self) -> float:
        """Return virtual seconds."""
        return self._virtual_now

    def end(self) -> None:
        """Cancel what still runs, let it end and close the loop.

        A task that were destroyed with its loop would run its `finally` blocks later, in the
        middle of another test. One that a cancellation cannot end is left after a virtual hour.
        """
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        with contextlib.suppress(DeadlockError):
            if left:
                self.run_until_complete(asyncio.wait(left, timeout=3_600))
            self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    def _skip(self, seconds: float) -> None:
        self._virtual_now += seconds

    def _run_once(self) -> None:
        # A private queue of asyncio: there is no public way to choose the order of ready callbacks.
        ready: Any = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            handles = list(ready)
            order = list(range(len(handles)))
            self._chance.shuffle(order)
            ready.clear()
            ready.extend(handles[index] for index in order)
            self.schedule.extend(order)
        super()._run_once()  # type: ignore[misc]


class LoopClock:
    """A clock on the running loop's own time, virtual or real."""

    def now(self) -> float:
        """Return the loop's seconds."""
        return asyncio.get_running_loop().time()

    def time_ms(self) -> int:
        """Return the loop's time as wall-clock milliseconds."""
        return 1_700_000_000_000 + int(self.now() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait in the loop's time."""
        await _sleep(seconds)


async def one_turn() -> None:
    """Let everything else that is ready run once."""
    await _sleep(0)


def run_seeded(work: Callable[[], Coroutine[Any, Any, ValueT]], seed: int) -> ValueT:
    """Run a coroutine on a seeded loop; fails when tasks are left over."""
    loop = SeededLoop(seed)
    try:
        asyncio.set_event_loop(loop)
        value = loop.run_until_complete(work())
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        if left:
            raise DeadlockError(f"seed {seed}: {len(left)} tasks were left: {left[:3]}")
        return value
    finally:
        asyncio.set_event_loop(None)
        loop.end()
