"""TurnDriver: prompts to a native session one after the other, each answered up to its result."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec

from haptera.model.errors import AgentError, ErrorCode, RequestError, SessionError
from haptera.model.native_messages import NativeMessage, NativeResult
from haptera.model.parts import Part
from haptera.ports.native_agent import NativeSession
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks

_logger = scrubbed_logger(__name__)

_DRAIN_SECONDS = 10.0
"""How long a turn that was left may take to end before its session is closed."""


class TurnTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long the agent may take, in seconds; None is any time."""

    send: float | None = None
    """Until a prompt is taken. It fails only its own turn."""
    result: float | None = None
    """Until the result is there; a consumer's time does not count. It ends the session."""


class TurnDriver:
    """Runs turns of one native session, in the order in which they were asked for.

    Owns the order, the times, and what becomes of a turn whose consumer left: it is interrupted and
    read to its result, so that the next turn begins clean. A session is used by turns or by `send`
    and `stream`, not by both: the other way is STREAM_BUSY.
    """

    def __init__(
        self, session: NativeSession, *, times: TurnTimes | None = None, capacity: int = 64
    ) -> None:
        self.session = session
        self._times = times or TurnTimes()
        self._capacity = capacity
        self._waiting = 0
        self._order = asyncio.Lock()
        self._mode: Literal["raw", "turns"] | None = None
        self._failure: AgentError | None = None
        self._tasks = OwnedTasks()

    @property
    def usable(self) -> bool:
        """Whether another turn can be tried."""
        return self._failure is None and self.session.is_alive

    async def send(self, parts: Sequence[Part]) -> None:
        """Hand over a prompt; its answer is in `stream`."""
        self._claim("raw")
        await self.session.send(parts)

    def stream(self) -> AsyncGenerator[Sequence[NativeMessage], None]:
        """Read up to and including the next result."""
        self._claim("raw")
        return self.session.stream()

    def turn(
        self, parts: Sequence[Part], *, within: float | None = None, prompt_id: str | None = None
    ) -> AsyncGenerator[Sequence[NativeMessage], None]:
        """Send a prompt when its turn has come, and yield messages up to the result.

        A turn that takes longer than `within` seconds is interrupted; the session goes on.

        Raises:
            SessionError: STREAM_BUSY when the session is used by `send` and `stream`, BUSY when
                too many turns wait, CLOSED.
            RequestError: TIMEOUT.

        """
        # Not in the generator, which would refuse only when it is first read.
        self._claim("turns")
        if self._waiting >= self._capacity:
            raise SessionError(ErrorCode.BUSY, f"{self._capacity} turns are already waiting")
        return self._turn(parts, within, prompt_id)

    async def _turn(
        self, parts: Sequence[Part], within: float | None, prompt_id: str | None
    ) -> AsyncGenerator[Sequence[NativeMessage], None]:
        # Counted only while it waits: `capacity` does not include the turn that runs.
        self._waiting += 1
        try:
            await self._order.acquire()
        finally:
            self._waiting -= 1
        sent = finished = False
        try:
            self._refuse_failed()
            await self._send(parts, prompt_id)
            sent = True
            async with aclosing(self.session.stream()) as stream:
                waited = 0.0
                while not finished:
                    batch, waited = await self._next(stream, waited, within)
                    finished = _has_result(batch)
                    yield batch
        finally:
            if sent and not finished and self._failure is None:
                # Not awaited: the consumer is gone, perhaps cancelled; the next turn waits for it.
                self._tasks.start(self._drain(), name="haptera-native-drain")
            else:
                self._order.release()

    async def _send(self, parts: Sequence[Part], prompt_id: str | None) -> None:
        try:
            async with asyncio.timeout(self._times.send):
                await self.session.send(parts, prompt_id=prompt_id)
        except TimeoutError:
            seconds = self._times.send or 0.0
            raise RequestError(
                ErrorCode.TIMEOUT, f"the agent did not take the prompt within {seconds:g} s"
            ) from None

    async def _next(
        self,
        stream: AsyncGenerator[Sequence[NativeMessage], None],
        waited: float,
        within: float | None,
    ) -> tuple[Sequence[NativeMessage], float]:
        """Wait for the next messages; time counts only while it waits."""
        # The clock of the loop, because `asyncio.timeout` runs on it.
        clock, limit = asyncio.get_running_loop().time, self._times.result
        began = clock()
        bounds = [each for each in (limit, within) if each is not None]
        try:
            async with asyncio.timeout(max(0.0, min(bounds) - waited) if bounds else None):
                batch = await anext(stream, None)
        except TimeoutError:
            timeout = RequestError(
                ErrorCode.TIMEOUT, f"the agent gave no result within {min(bounds):g} s"
            )
            if limit is not None and limit == min(bounds):
                self._shut(timeout)
            raise timeout from None
        if batch is None:
            raise RequestError(ErrorCode.STREAM_INTERRUPTED, "the agent ended without a result")
        return batch, waited + clock() - began

    async def _drain(self) -> None:
        """End a turn whose consumer left, and read it to its result; what it says is not shown."""
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self.session.interrupt()
        except (AgentError, TimeoutError) as error:
            _logger.info("a turn that was left does not end: %s", error)
            self._shut(SessionError(ErrorCode.CLOSED, "the agent did not end a turn"))
        finally:
            # Only now: the next turn must not see what remains of this one.
            self._order.release()

    def _shut(self, failure: AgentError) -> None:
        """End the session; turns that wait fail. Happens once."""
        if self._failure is None:
            self._failure = failure
            self._tasks.start(self.session.close(within=0), name="haptera-native-shut")

    async def close(self, *, within: float) -> None:
        """Close the session; what runs may end by itself for so many seconds."""
        # First, so that turns which wait for their order fail.
        if self._failure is None:
            self._failure = SessionError(ErrorCode.CLOSED, "the native session is closed")
        await self.session.close(within=within)
        await self._tasks.cancel(within=1.0)

    def _claim(self, mode: Literal["raw", "turns"]) -> None:
        self._refuse_failed()
        if self._mode not in {None, mode}:
            raise SessionError(
                ErrorCode.STREAM_BUSY, f"the session is used by its {self._mode or ''} already"
            )
        self._mode = mode

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise self._failure


def _has_result(batch: Sequence[NativeMessage]) -> bool:
    return any(isinstance(message, NativeResult) for message in batch)
