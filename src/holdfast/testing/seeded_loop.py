"""SeededLoop: an event loop with virtual time that runs ready tasks in an order drawn by a seed.

The same seed gives the same schedule, so a race that was found once can be found again.
"""

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")


class DeadlockError(AssertionError):
    """Nothing is left to run, and somebody still waits."""


class _VirtualSelector(selectors.SelectSelector):
    """A selector that never waits: it moves the loop's time instead."""

    def __init__(self) -> None:
        super().__init__()
        self.skip: Callable[[float], None] = lambda _seconds: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now; without anything, jump to the next timer."""
        ready = super().select(0)
        if not ready and timeout is None:
            raise DeadlockError("every task waits for something that nobody will do")
        if not ready and timeout is not None and timeout > 0:
            self.skip(timeout)
        return ready


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

    def time(self) -> float:
        """Return virtual seconds."""
        return self._virtual_now

    def _skip(self, seconds: float) -> None:
        self._virtual_now += seconds

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            handles = list(ready)
            order = list(range(len(handles)))
            self._chance.shuffle(order)
            ready.clear()
            ready.extend(handles[place] for place in order)
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
        await asyncio.sleep(seconds)  # noqa: TID251 - this is the clock


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
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
