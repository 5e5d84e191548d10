"""FakeClock: time that stands still until a test moves it."""

import asyncio
import heapq


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
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, woken))
        await woken

    @property
    def sleeping(self) -> int:
        """How many wait at this moment."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move the clock, waking everyone whose time has come."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)

    async def until_sleeping(self, count: int = 1) -> None:
        """Let other tasks run until that many of them wait for this clock."""
        while self.sleeping < count:
            await _yield_to_others()


class AutoClock(FakeClock):
    """A clock whose sleeps take no time: it jumps to the end of each of them."""

    async def sleep(self, seconds: float) -> None:
        """Jump ahead."""
        self.sleeps.append(seconds)
        self._now += seconds
        await _yield_to_others()


async def _yield_to_others() -> None:
    await asyncio.sleep(0)  # noqa: TID251 - this is a clock
