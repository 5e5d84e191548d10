"""Subscription: the bounded buffer between what publishes events and one consumer of them."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

from haptera.model.errors import AgentError
from haptera.model.events import Heartbeat, ToolProgress

ItemT = TypeVar("ItemT")
WhenBufferFull: TypeAlias = Literal["wait", "lag"]
"""What happens when a consumer is `limit` events behind: the publisher waits for it, or the
consumer loses its buffer and is told so."""

_MOMENTARY = (ToolProgress, Heartbeat)
"""Events that are worth nothing later, and whose publisher does not wait for space: a consumer that
is behind gets the next."""


class Subscription(Generic[ItemT]):
    """Hands events to one consumer, in batches or one by one, in order.

    Owns the buffer and its limits. Publishing never waits by itself: a publisher that respects the
    limit waits in `wait_for_space` afterwards. With `when_full="lag"` it need not: a consumer that
    is too far behind is `lagged` and gets nothing more. A subscription that lags may have a
    `size_limit`, too, with what tells the size of an event (`size_of`). Does not own what
    publishes; a consumer that goes away is only marked as `abandoned`.

    The events are those of a session, or what a surface makes of them.

    Used from one event loop only. What a publisher or the consumer waits for are bare futures:
    an `asyncio.Event` costs several calls for each event that is streamed.
    """

    def __init__(
        self,
        *,
        limit: int = 100,
        when_full: WhenBufferFull = "wait",
        size_limit: float = math.inf,
        size_of: Callable[[ItemT], int] | None = None,
    ) -> None:
        self._limit = limit
        self._size_limit = size_limit
        self._size_of = size_of
        self._lags = when_full == "lag"
        self._buffer: deque[ItemT] = deque()
        self._size = 0
        """Of what was published since the last batch was taken, while the consumer did not wait."""
        self._news: asyncio.Future[bool] | None = None
        """What the consumer waits for, if it does, until it goes on. False: its time is up."""
        # A timer that is rarely set anew: one for each wait would cost every event of a stream.
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._space: asyncio.Future[None] | None = None
        """What publishers wait for, if any does."""
        self._is_excused = False
        self._error: AgentError | None = None
        self.has_space = True
        """Whether publishers may go on. False only when the buffer is full and does not lag."""
        self.ended = False
        """Whether the publisher is done; what is buffered can still be taken."""
        self.abandoned = False
        """Whether the consumer left."""
        self.lagged = False
        """Whether the consumer was too far behind and lost its buffer."""

    def publish(self, events: Sequence[ItemT]) -> None:
        """Add a batch; nothing is added after the end or for a consumer that left or lagged."""
        if self.ended or self.abandoned or self.lagged:
            return
        buffer = self._buffer
        # A consumer that was woken and has had no turn yet is not behind, however much comes.
        is_behind = len(buffer) > self._limit or self._size > self._size_limit
        if is_behind and self._lags and self._news is None:
            self.lagged = True
            buffer.clear()
        elif self.has_space:
            buffer.extend(events)
        else:
            buffer.extend([event for event in events if not isinstance(event, _MOMENTARY)])
        if self._news is None:
            # One that waits takes all of it in its next turn: that need not be measured.
            if self._size_of is not None:
                self._size += sum(map(self._size_of, events))
        elif not self._news.done():
            self._news.set_result(True)
        # Batches are not split: a publisher may exceed the limit by one, and then waits.
        if len(buffer) > self._limit and not (self._lags or self._is_excused):
            self.has_space = False

    async def wait_for_space(self, *, unless: "Collection[asyncio.Future[None]]" = ()) -> None:
        """Wait until the consumer has caught up or left, or one of `unless` is done."""
        if self.has_space:
            return
        if self._space is None:
            self._space = asyncio.get_running_loop().create_future()
        # Not awaited directly: cancelling one waiting publisher would cancel it for all of them.
        await asyncio.wait({self._space, *unless}, return_when=asyncio.FIRST_COMPLETED)

    def end(self, error: AgentError | None = None) -> None:
        """Say that nothing more comes; the consumer gets `error` after the last event."""
        if not self.ended:
            self.ended, self._error = True, error
        if self._news is not None and not self._news.done():
            self._news.set_result(True)
        self._drop_timer()
        self._free_space()

    def excuse(self) -> None:
        """Let no publisher wait until the consumer takes its next event."""
        self._is_excused = True
        self._free_space()

    def abandon(self) -> None:
        """Say that the consumer left: what is buffered is dropped."""
        self.abandoned = True
        self._buffer.clear()
        self._drop_timer()
        self._free_space()

    async def next_batch(self, seconds: float | None = None) -> list[ItemT]:
        """Return everything that is there, waiting for the first event; an empty list is the end.

        Raises:
            AgentError: the error that the subscription ended with, once all events were taken.
            TimeoutError: nothing came for so many `seconds`.

        """
        while not self._buffer:
            if self.ended and self._error is not None:
                raise self._error
            if self.ended or self.lagged:
                return []
            loop = asyncio.get_running_loop()
            if seconds is not None:
                self._limit_wait(loop, seconds)
            elif self._timer is not None:
                # The timer of an earlier wait must not end this one, which has no limit.
                self._drop_timer()
            self._news = loop.create_future()
            try:
                is_in_time = await self._news
            finally:
                # Only when the consumer runs again: until then `publish` knows that it was woken
                # and not behind.
                self._news = None
            if not (is_in_time or self._buffer):
                raise TimeoutError
        batch = list(self._buffer)
        self._buffer.clear()
        self._size = 0
        self._is_excused = False
        if not self.has_space:
            self._free_space()
        return batch

    def next_event(self) -> ItemT | None:
        """Return the first event that is there, or None; for a consumer that takes one by one."""
        if not self._buffer:
            return None
        event = self._buffer.popleft()
        self._is_excused = False
        if len(self._buffer) <= self._limit:
            self._free_space()
        elif not self._lags:
            self.has_space = False  # it may have been excused
        return event

    def _free_space(self) -> None:
        self.has_space = True
        if self._space is not None:
            if not self._space.done():
                self._space.set_result(None)
            self._space = None

    def _limit_wait(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Let the wait that begins now end after so many seconds."""
        self._deadline = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._drop_timer()
            self._timer = loop.call_at(self._deadline, self._on_time, loop)

    def _on_time(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a wait whose time is up; one that began later has another deadline."""
        self._timer = None
        if self._news is None:
            return
        if self._deadline > loop.time():
            self._timer = loop.call_at(self._deadline, self._on_time, loop)
        elif not self._news.done():
            self._news.set_result(False)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
