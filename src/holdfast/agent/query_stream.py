"""QueryStream: a query as users see it: lazy, pulled, closed when left."""

from collections.abc import AsyncGenerator, Generator
from typing import Any, Generic, Self, TypeVar

from holdfast.agent.consumption import Consumption, batches_of, events_of, first_of, texts_of
from holdfast.vocabulary.events import Event
from holdfast.vocabulary.results import AgentResult
from holdfast.vocabulary.status import StreamPhase

OutputT = TypeVar("OutputT")


class QueryStream(Generic[OutputT]):
    """The events of one query. Nothing is sent before the first use.

    Use it with `async with`, or iterate it, or await it for its result. Leaving it early aborts the
    query; only `async with` does so before the next line runs. It has one consumer; a second one
    gets STREAM_BUSY.
    """

    def __init__(self, consumption: Consumption) -> None:
        self._consumption = consumption

    @property
    def phase(self) -> StreamPhase:
        """What the stream is doing: idle until it is used."""
        handle = self._consumption.handle
        return handle.phase if handle else "idle"

    async def __aenter__(self) -> Self:
        await self._consumption.begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._consumption.leave()

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        self._consumption.claim()
        return events_of(self._consumption)

    def __await__(self) -> Generator[Any, None, AgentResult[OutputT]]:
        return self.result().__await__()

    def text(self) -> AsyncGenerator[str, None]:
        """Iterate over the answer's text as it comes."""
        self._consumption.claim()
        return texts_of(self._consumption)

    def take(self, count: int) -> AsyncGenerator[Event, None]:
        """Iterate over the first events, then stop the query."""
        self._consumption.claim()
        return first_of(self._consumption, count)

    def batches(self) -> AsyncGenerator[list[Event], None]:
        """Iterate over events as they come in, many at a time; for those who forward them."""
        self._consumption.claim()
        return batches_of(self._consumption)

    async def result(self) -> AgentResult[OutputT]:
        """Let the query run to its end and return what came of it.

        Raises:
            AgentError: what the query failed with; its `result` is what was kept.

        """
        return await self._consumption.result()

    def abort(self, reason: str | None = None) -> None:
        """Stop the query, from any thread, also before it has begun; what was streamed is kept."""
        self._consumption.abort(reason)

    async def aclose(self) -> None:
        """Leave the stream: a query that still runs is aborted, and its end waited for."""
        await self._consumption.leave()
