"""QueryStream and with_retry, blocking: what is written by hand beside the faces that are made."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Generic, Self, TypeVar

from haptera.agent import retrying
from haptera.agent.query_stream import QueryStream as AsyncQueryStream
from haptera.agent.retrying import OnRetry
from haptera.model.events import Event, TextDelta
from haptera.model.results import AgentResult, OutputT
from haptera.model.settings import RetrySettings
from haptera.sync.background_loop import LoopAccess, background_loop
from haptera.system.abort import AbortSignal
from haptera.system.clock import Clock, Random

ValueT = TypeVar("ValueT")


class QueryStream(Generic[OutputT]):
    """The blocking face of a query's stream; see `haptera.QueryStream`."""

    def __init__(self, inner: AsyncQueryStream[Any], access: LoopAccess) -> None:
        self._inner = inner
        self._access = access

    @property
    def phase(self) -> str:
        """What the stream is doing."""
        return self._inner.phase

    def __enter__(self) -> Self:
        self._access.call(self._inner.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        # By batches: each event by itself would be a hop between threads.
        for batch in self.batches():
            yield from batch

    def text(self) -> Iterator[str]:
        """Iterate over the answer's text as it comes."""
        for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    def partial(self) -> Iterator[OutputT]:
        """Iterate over the output as it grows, at most every 50 ms; the last one is the result's.

        What is not there yet is None or a default, or absent where the type allows that. An answer
        that is tried again begins anew.
        """
        return self._access.iterate(self._inner.partial())

    def take(self, count: int) -> Iterator[Event]:
        """Iterate over the first events, then stop the query."""
        events = iter(self)
        try:
            yield from islice(events, max(count, 0))
        finally:
            self.close()

    def batches(self) -> Iterator[list[Event]]:
        """Iterate over events as they come in, many at a time: one hop to the loop for each."""
        return self._access.iterate(self._inner.batches())

    def result(self) -> AgentResult[OutputT]:
        """Let the query run to its end and return what came of it."""
        return self._access.call(self._inner.result())

    def abort(self, reason: str | None = None) -> None:
        """Stop the query, from any thread; what was streamed is kept."""
        self._inner.abort(reason)

    def suspend(self, reason: str | None = None) -> None:
        """Stop the query without an end, from any thread: `session.resume()` carries it on."""
        self._inner.suspend(reason)

    def close(self) -> None:
        """Leave the stream: a query that still runs is aborted, and its end waited for."""
        self._access.close(self._inner.aclose)


def with_retry(
    work: Callable[[], ValueT],
    *,
    retry: RetrySettings | None = None,
    on_retry: OnRetry | None = None,
    signal: AbortSignal | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
) -> ValueT:
    """Call a blocking function, in a thread, and again when it fails in a way that may pass."""

    async def attempt() -> ValueT:
        return await asyncio.to_thread(work)

    return background_loop.call(
        retrying.with_retry(
            attempt, retry=retry, on_retry=on_retry, signal=signal, clock=clock, random=random
        )
    )
