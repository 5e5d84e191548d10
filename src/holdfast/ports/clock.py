"""Time and chance as arguments, so that tests can hold both still."""

from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits.

    - `now` never goes backwards; only differences between two readings mean anything.
    - `time_ms` is wall-clock time for people; nothing is ordered or expired by it.
    - `sleep` returns after at least that many seconds of `now`, and can be cancelled.
    """

    def now(self) -> float:
        """Return seconds on a clock that never goes backwards."""
        ...

    def time_ms(self) -> int:
        """Return wall-clock milliseconds since 1970."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Random(Protocol):
    """Chance. `random.Random` is one."""

    def random(self) -> float:
        """Return a number from 0 (included) to 1 (excluded)."""
        ...
