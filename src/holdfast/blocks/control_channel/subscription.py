"""Subscription: the bounded buffer between what publishes events and one consumer of them."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from holdfast.vocabulary.errors import AgentError
from holdfast.vocabulary.events import Event, Heartbeat, ToolProgress

WhenFull: TypeAlias = Literal["wait", "lag"]
"""What happens when a consumer is `limit` events behind: the publisher waits for it, or the
consumer loses its buffer and is told so."""

_MOMENTARY = (ToolProgress, Heartbeat)
"""Events that are worth nothing later, and whose publisher does not wait for space: a consumer that
is behind gets the next."""


class Subscription:
    """Hands events to one consumer, in batches or one by one, in order.

    Owns the buffer and its limit. Publishing never waits by itself: a publisher that respects the
    limit waits in `wait_for_space` afterwards. With `when_full="lag"` it need not: a consumer that
    is too far behind is `lagged` and gets nothing more. Does not own what publishes; a consumer
    that goes away is only marked as `abandoned`.

    Used from one event loop only. What a publisher or the consumer waits for are bare futures:
    an `asyncio.Event` costs several calls for each event that is streamed.
    """

    def __init__(self, *, limit: int = 100, when_full: WhenFull = "wait") -> None:
        self._limit = limit
        self._lags = when_full == "lag"
        self._buffer: deque[Event] = deque()
        self._news: asyncio.Future[None] | None = None
        """What the consumer waits for, if it does, until it goes on."""
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

    def publish(self, events: Sequence[Event]) -> None:
        """Add a batch; nothing is added after the end or for a consumer that left or lagged."""
        if self.ended or self.abandoned or self.lagged:
            return
        buffer = self._buffer
        # A consumer that was woken and has had no turn yet is not behind, however much comes.
        if self._lags and len(buffer) > self._limit and self._news is None:
            self.lagged = True
            buffer.clear()
        elif self.has_space:
            buffer.extend(events)
        else:
            buffer.extend([event for event in events if not isinstance(event, _MOMENTARY)])
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
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
            self._news.set_result(None)
        self._free_space()

    def excuse(self) -> None:
        """Let no publisher wait until the consumer takes its next event."""
        self._is_excused = True
        self._free_space()

    def abandon(self) -> None:
        """Say that the consumer left: what is buffered is dropped."""
        self.abandoned = True
        self._buffer.clear()
        self._free_space()

    async def next_batch(self) -> list[Event]:
        """Return everything that is there, waiting for the first event; an empty list is the end.

        Raises:
            AgentError: the error that the subscription ended with, once all events were taken.

        """
        while not self._buffer:
            if self.ended and self._error is not None:
                raise self._error
            if self.ended or self.lagged:
                return []
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None
        batch = list(self._buffer)
        self._buffer.clear()
        self._is_excused = False
        if not self.has_space:
            self._free_space()
        return batch

    def next_event(self) -> Event | None:
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
