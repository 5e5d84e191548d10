"""The real world's clock and chance."""

import asyncio
import time

from holdfast.ports.clock import Random


class SystemClock:
    """The machine's time."""

    def now(self) -> float:
        """Return seconds on a clock that never goes backwards."""
        return time.monotonic()  # noqa: TID251 - this is the clock

    def time_ms(self) -> int:
        """Return wall-clock milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)  # noqa: TID251 - this is the clock


def system_random() -> Random:
    """Return the machine's chance, good enough to spread retries."""
    import random  # noqa: PLC0415 - a module full of distributions that an import need not pay for

    return random.Random()  # noqa: S311 - no secret depends on it
