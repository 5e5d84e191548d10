"""EventStream: events on their way from one query to its one consumer, bounded."""

import asyncio
from collections.abc import Sequence
from typing import Literal, TypeAlias

from holdfast.vocabulary.errors import AgentError, ErrorCode, SessionError
from holdfast.vocabulary.events import Event, ToolProgress

StreamPhase: TypeAlias = Literal[
    "idle", "connecting", "connected", "reconnecting", "closed", "error"
]


class EventStream:
    """Hands batches of events from a producer to one consumer.

    Owns the buffer and its bound: a producer that is `limit` events ahead waits in `room`. Does
    not own the query; when the consumer goes away it only says so, through `abandoned`.
    """

    def __init__(self, *, limit: int = 100) -> None:
        self._limit = limit
        self._bounded = True
        self._buffer: list[Event] = []
        self._claimed = False
        self._error: BaseException | None = None
        self._news = asyncio.Event()
        self._space = asyncio.Event()
        self._space.set()
        self.phase: StreamPhase = "idle"
        self.abandoned = False

    @property
    def ended(self) -> bool:
        """Whether the producer is done."""
        return self.phase in ("closed", "error")

    def publish(self, events: Sequence[Event]) -> None:
        """Hand on a batch; nothing is handed on after the end or to a consumer that left."""
        if self.ended or self.abandoned:
            return
        if self._space.is_set():
            self._buffer.extend(events)
        else:
            # Progress does not wait for room; a consumer that is behind gets the next one.
            self._buffer.extend(item for item in events if type(item) is not ToolProgress)
        self._news.set()
        if self._bounded and len(self._buffer) > self._limit:
            self._space.clear()

    async def room(self) -> None:
        """Wait until the consumer has caught up, or left."""
        if not self._space.is_set():
            await self._space.wait()

    def end(self, error: AgentError | None = None) -> None:
        """Say that nothing more comes; the consumer gets `error` after the last event."""
        if not self.ended:
            self._error = error
            self.phase = "closed" if error is None else "error"
        self._news.set()
        self._space.set()

    def release(self) -> None:
        """Let a waiting producer go on, whatever the consumer does."""
        self._bounded = False
        self._space.set()

    def claim(self) -> None:
        """Become the one consumer.

        Raises:
            SessionError: STREAM_BUSY when there is one already.

        """
        if self._claimed:
            raise SessionError(ErrorCode.STREAM_BUSY, "this stream already has a consumer")
        self._claimed = True

    def abandon(self) -> None:
        """Say that the consumer left."""
        self.abandoned = True
        self._buffer.clear()
        self._space.set()

    async def next_batch(self) -> list[Event]:
        """Return everything that is there, waiting for the first; an empty list is the end.

        Raises:
            AgentError: the error that the stream ended with, once all events were taken.

        """
        while not self._buffer:
            if self.ended:
                if self._error is not None:
                    raise self._error
                return []
            self._news.clear()
            await self._news.wait()
        batch, self._buffer = self._buffer, []
        self._space.set()
        return batch
