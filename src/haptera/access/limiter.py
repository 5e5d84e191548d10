"""QueryLimiter: how many queries a server runs at once, and what happens to those that wait."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import Annotated, Literal, TypeAlias

import msgspec

from haptera.model.errors import ErrorCode, RequestError, SessionError
from haptera.model.option import Option
from haptera.options.checks import checked_fields

WhenQueueFull: TypeAlias = Literal["suspend", "dropping", "sliding"]

LimiterEvent: TypeAlias = Literal["started", "queued", "refused", "expired", "ended"]


class LimiterStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a limiter has done so far."""

    running: int
    pending: int
    """Callers that wait, without those that are suspended because the line is full."""
    started: int
    refused: int
    expired: int


class QueryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many queries run and wait."""

    concurrency: Annotated[int, Option("Queries that run at the same time.", least=1)] = 4
    pending: Annotated[int, Option("Callers that wait for their turn.", least=0)] = 64
    when_full: Annotated[
        WhenQueueFull,
        Option(
            "What happens to a new caller when as many wait: it waits outside (`suspend`), is "
            "refused (`dropping`), or takes the place of the one that has waited longest "
            "(`sliding`)."
        ),
    ] = "suspend"
    pending_seconds: Annotated[
        float,
        Option("Seconds that a caller waits for its turn before it gets TIMEOUT.", least=0),
    ] = 30.0
    events: Annotated[int, Option("How many of the last events are kept.", least=0)] = 256


class QueryLimiter:
    """Lets a number of callers run at once, and the others wait in order.

    Owns the order of the callers that wait. Belongs to one event loop.
    """

    def __init__(self, limits: QueryLimits | None = None) -> None:
        self._limits = checked_fields(limits or QueryLimits())
        self._running = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._counts = {"started": 0, "refused": 0, "expired": 0}
        self.events: deque[LimiterEvent] = deque(maxlen=self._limits.events)
        """The last events; the oldest go first."""

    @property
    def stats(self) -> LimiterStats:
        """What the limiter does now, and has done so far."""
        pending = min(len(self._line), self._limits.pending)
        return LimiterStats(running=self._running, pending=pending, **self._counts)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Wait for a turn, and have it while the block runs.

        Raises:
            SessionError: POOL_FULL when too many wait already.
            RequestError: TIMEOUT when the turn did not come in time.

        """
        # Also behind a line, though a turn is free: a newcomer must not overtake those in it.
        if self._running >= self._limits.concurrency or self._line:
            try:
                async with asyncio.timeout(self._limits.pending_seconds):
                    await self._wait()
            except TimeoutError:
                self._note("expired")
                raise RequestError(
                    ErrorCode.TIMEOUT,
                    f"the query did not start within {self._limits.pending_seconds:g} s; try again",
                ) from None
        else:
            self._running += 1
        # A caller that has waited is counted by the one that handed the turn over.
        self._note("started")
        try:
            yield
        finally:
            self._end_turn()
            self._note("ended")

    async def _wait(self) -> None:
        """Wait until the turn was handed over; raises POOL_FULL as `when_full` says."""
        # A caller that is suspended stands in the same line: it only does not count as pending.
        if len(self._line) >= self._limits.pending and self._limits.when_full != "suspend":
            if self._limits.when_full == "dropping" or not self._line:
                raise self._refusal()
            oldest = self._line.popleft()
            # A caller that was cancelled stays in the line until it runs, and counts no more.
            if not oldest.done():
                oldest.set_exception(self._refusal())
        self._note("queued")
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._line:
                self._line.remove(turn)
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                # The turn came together with the cancellation: the next one gets it.
                self._end_turn()
            raise

    def _end_turn(self) -> None:
        """Hand the turn to the caller that has waited longest, or leave it free."""
        self._running -= 1
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                # Handed over without being free in between, so that no newcomer can overtake.
                self._running += 1
                turn.set_result(None)
                return

    def _refusal(self) -> SessionError:
        self._note("refused")
        return SessionError(
            ErrorCode.POOL_FULL,
            f"{self._limits.pending} queries are already waiting; try again later",
        )

    def _note(self, event: LimiterEvent) -> None:
        self.events.append(event)
        if event in self._counts:
            self._counts[event] += 1
