"""QueryStream: a query as its one consumer sees it: lazy, pulled, closed when left.

Iterating runs a module-level generator that holds the stream, never the other way round: when the
generator is dropped, nothing keeps either alive and the query is stopped at once.
"""

import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from typing import Any, Generic, Self, TypeVar

from holdfast.agent.options import OnAbort
from holdfast.blocks.event_stream import StreamPhase
from holdfast.ports.abort import AbortSignal
from holdfast.session.query_handle import QueryHandle
from holdfast.vocabulary.errors import AgentError, ErrorCode, RequestError, SessionError
from holdfast.vocabulary.events import Event, TextDelta
from holdfast.vocabulary.results import AgentResult

OutputT = TypeVar("OutputT")


class QueryStream(Generic[OutputT]):
    """The events of one query. Nothing is sent before the first use.

    Use it with `async with`, or iterate it, or await its `result`. Leaving it early aborts the
    query. It has one consumer; a second one gets STREAM_BUSY.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[QueryHandle]],
        finish: Callable[[], Awaitable[None]],
        *,
        signal: AbortSignal | None = None,
        on_abort: OnAbort = "raise",
    ) -> None:
        self._start = start
        self._finish = finish
        self._signal = signal
        self._on_abort = on_abort
        self._handle: QueryHandle | None = None
        self._claimed = False
        self._forget: Callable[[], None] = lambda: None

    @property
    def phase(self) -> StreamPhase:
        """What the stream is doing: idle until it is used."""
        return self._handle.stream.phase if self._handle else "idle"

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        self.claim()
        return _events(self)

    def __await__(self) -> Generator[Any, None, AgentResult[OutputT]]:
        return self.result().__await__()

    def text(self) -> AsyncGenerator[str, None]:
        """Iterate over the answer's text as it comes."""
        self.claim()
        return _texts(self)

    def take(self, count: int) -> AsyncGenerator[Event, None]:
        """Iterate over the first events, then stop the query."""
        self.claim()
        return _first(self, count)

    async def result(self) -> AgentResult[OutputT]:
        """Let the query run to its end and return what came of it.

        Raises:
            AgentError: what the query failed with; its `result` is what was kept.

        """
        if not self._claimed:
            self.claim()
            await self._drain()
        handle = await self._begin()
        await handle.wait()
        return self._judge(handle)

    def abort(self, reason: str | None = None) -> None:
        """Stop the query, from any thread; what was streamed is kept."""
        if self._handle is not None:
            self._handle.abort(reason)

    async def aclose(self) -> None:
        """Leave the stream: a query that still runs is aborted, and its end waited for."""
        handle = self._handle
        if handle is None:
            self._claimed = True
            return
        if not handle.ended:
            handle.abort("the stream was closed")
        handle.stream.abandon()
        await handle.wait()
        self._forget()
        await self._finish()

    def claim(self) -> None:
        """Become the one consumer.

        Raises:
            SessionError: STREAM_BUSY when there is one already.

        """
        if self._claimed:
            raise SessionError(ErrorCode.STREAM_BUSY, "this stream already has a consumer")
        self._claimed = True

    async def _begin(self) -> QueryHandle:
        if self._handle is None:
            if self._signal is not None and self._signal.aborted:
                raise _aborted_before(self._signal)
            try:
                self._handle = handle = await self._start()
            except BaseException:
                await self._finish()
                raise
            weakref.finalize(self, _drop, handle).atexit = False
            if self._signal is not None:
                signal = self._signal
                self._forget = signal.add_listener(lambda: handle.abort(signal.reason))
        return self._handle

    async def _drain(self) -> None:
        """Consume every event without looking at it."""
        try:
            handle = await self._begin()
            while await handle.stream.next_batch():
                pass
        except AgentError:
            if self._handle is None:
                raise
        finally:
            await self.aclose()

    def _judge(self, handle: QueryHandle) -> AgentResult[Any]:
        error = handle.error
        if error is not None and not self._is_tolerated(error):
            raise error
        if handle.result is None:
            raise SessionError(ErrorCode.CLOSED, "the query ended without a result")
        return handle.result

    def _is_tolerated(self, error: AgentError) -> bool:
        return self._on_abort == "return" and error.code is ErrorCode.ABORTED

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """Iterate over events as they come in, many at a time; for those who forward them."""
        try:
            handle = await self._begin()
            try:
                while batch := await handle.stream.next_batch():
                    yield batch
            except AgentError as error:
                if not self._is_tolerated(error):
                    raise
        finally:
            await self.aclose()


async def _events(stream: QueryStream[Any]) -> AsyncGenerator[Event, None]:
    async with aclosing(stream.batches()) as batches:
        async for batch in batches:
            for event in batch:
                yield event


async def _texts(stream: QueryStream[Any]) -> AsyncGenerator[str, None]:
    async with aclosing(stream.batches()) as batches:
        async for batch in batches:
            for event in batch:
                if isinstance(event, TextDelta):
                    yield event.text


async def _first(stream: QueryStream[Any], count: int) -> AsyncGenerator[Event, None]:
    if count <= 0:
        return
    async with aclosing(_events(stream)) as events:
        async for event in events:
            yield event
            count -= 1
            if not count:
                return


def _drop(handle: QueryHandle) -> None:
    """Stop a query that nobody can see any more."""
    if not handle.ended:
        handle.abort("the stream was dropped")


def _aborted_before(signal: AbortSignal) -> AgentError:
    reason = f": {signal.reason}" if signal.reason else ""
    error = RequestError(ErrorCode.ABORTED, f"aborted before it started{reason}")
    error.result = AgentResult(text="", stop_reason="aborted")
    return error
