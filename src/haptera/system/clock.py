"""Time and chance as arguments, so that tests can hold both still; and the stamp of entries."""

import asyncio
import time
from typing import Protocol, TypedDict, runtime_checkable

from haptera.model.ids import EntryId, QueryId, TurnId, new_entry_id


class Clock(Protocol):
    """Tells the time and waits.

    - `now` never goes backwards; only differences between two readings mean anything.
    - `time_ms` is wall-clock time for people; nothing is ordered or expired by it but access
      tokens, whose end another machine decides.
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


@runtime_checkable
class LimitClock(Protocol):
    """A clock, for tests, on which a time limit is not the same as a wait.

    - `limit` returns when the waits of others have used up that many seconds, and can be cancelled.
    """

    async def limit(self, seconds: float) -> None:
        """Wait until a time limit is over."""
        ...


async def until_limit(clock: Clock, seconds: float) -> None:
    """Wait until a time limit is over that runs beside the work that it limits."""
    if isinstance(clock, LimitClock):
        await clock.limit(seconds)
    else:
        await clock.sleep(seconds)


class SystemClock:
    """The machine's time."""

    def now(self) -> float:
        """Return seconds on a clock that never goes backwards."""
        return time.monotonic()

    def time_ms(self) -> int:
        """Return wall-clock milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Random(Protocol):
    """Chance. `random.Random` is one."""

    def random(self) -> float:
        """Return a number from 0 (included) to 1 (excluded)."""
        ...


class StampFields(TypedDict):
    """The fields that all entries share."""

    id: EntryId
    time: int
    query_id: QueryId | None
    turn_id: TurnId | None


class Stamp:
    """Gives entries their id and time, for one query and turn or for none."""

    def __init__(
        self, clock: Clock, *, query_id: QueryId | None = None, turn_id: TurnId | None = None
    ) -> None:
        self.clock = clock
        self.query_id = query_id
        self.turn_id = turn_id

    def __call__(self) -> StampFields:
        """Make the shared fields of one new entry."""
        return {
            "id": new_entry_id(),
            "time": self.clock.time_ms(),
            "query_id": self.query_id,
            "turn_id": self.turn_id,
        }

    def of_turn(self, turn_id: TurnId) -> "Stamp":
        """Return a stamp for a turn of the same query."""
        return Stamp(self.clock, query_id=self.query_id, turn_id=turn_id)
