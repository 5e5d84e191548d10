"""Consumption: the consumer's side of one query, from its lazy start to the moment it is left.

Generators over it are module-level functions that hold the consumption and nothing else: when one
is dropped, nothing keeps the query alive and it is stopped at once.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from holdfast.agent.keywords import OnAbort
from holdfast.ports.abort import AbortSignal
from holdfast.vocabulary.errors import AgentError, ErrorCode, RequestError, SessionError
from holdfast.vocabulary.events import Event, TextDelta
from holdfast.vocabulary.results import AgentResult

if TYPE_CHECKING:
    from holdfast.session.query_handle import QueryHandle


class Consumption:
    """Starts a query when it is first wanted, and sees that it ends when it is not.

    Owns the link between an abort signal and the query. Does not own the query.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable["QueryHandle"]],
        finish: Callable[[], Awaitable[None]],
        *,
        signal: AbortSignal | None = None,
        on_abort: OnAbort = "raise",
    ) -> None:
        self._start = start
        self._finish = finish
        self._signal = signal
        self._on_abort = on_abort
        self._forget: Callable[[], None] = lambda: None
        self._beginning = asyncio.Lock()
        self._claimed = False
        self._left = False
        self.handle: QueryHandle | None = None

    def claim(self) -> None:
        """Become the one consumer.

        Raises:
            SessionError: STREAM_BUSY when there is one already.

        """
        if self._claimed:
            raise SessionError(ErrorCode.STREAM_BUSY, "this stream already has a consumer")
        self._claimed = True

    async def begin(self) -> "QueryHandle":
        """Start the query, unless it was started; a signal that is aborted prevents it."""
        async with self._beginning:
            if self.handle is None:
                self.handle = await self._begin()
            return self.handle

    async def _begin(self) -> "QueryHandle":
        if self._left:
            raise SessionError(ErrorCode.CLOSED, "this stream was left before it was used")
        signal = self._signal
        if signal is not None and signal.aborted:
            raise _aborted_before(signal)
        try:
            handle = await self._start()
        except BaseException:
            await self._finish()
            raise
        weakref.finalize(self, _drop, handle).atexit = False
        if signal is not None:
            self._forget = signal.add_listener(lambda: handle.abort(signal.reason))
        return handle

    async def leave(self) -> None:
        """Stop consuming: a query that still runs is aborted, and its end waited for."""
        self._claimed = self._left = True
        handle = self.handle
        if handle is None:
            return
        if not handle.ended:
            handle.abort("the stream was closed")
        handle.stream.abandon()
        try:
            await handle.wait()
        finally:
            self._forget()
            await self._finish()

    def tolerates(self, error: AgentError) -> bool:
        """Whether the consumer asked to get this error as a result."""
        return self._on_abort == "return" and error.code is ErrorCode.ABORTED

    async def result(self) -> AgentResult[Any]:
        """Wait for the end and return what came of it, or raise what it failed with."""
        if not self._claimed:
            self.claim()
            await _drain(self)
        handle = await self.begin()
        await handle.wait()
        if handle.error is not None and not self.tolerates(handle.error):
            raise handle.error
        if handle.result is None:
            raise SessionError(ErrorCode.CLOSED, "the query ended without a result")
        return handle.result


async def batches_of(consumption: Consumption) -> AsyncGenerator[list[Event], None]:
    """Yield the events as they come in, many at a time."""
    try:
        handle = await consumption.begin()
        try:
            while batch := await handle.stream.next_batch():
                yield batch
        except AgentError as error:
            if not consumption.tolerates(error):
                raise
    finally:
        await consumption.leave()


async def events_of(consumption: Consumption) -> AsyncGenerator[Event, None]:
    """Yield the events one by one."""
    async with aclosing(batches_of(consumption)) as batches:
        async for batch in batches:
            for event in batch:
                yield event


async def texts_of(consumption: Consumption) -> AsyncGenerator[str, None]:
    """Yield the answer's text as it comes."""
    async with aclosing(batches_of(consumption)) as batches:
        async for batch in batches:
            for event in batch:
                if isinstance(event, TextDelta):
                    yield event.text


async def first_of(consumption: Consumption, count: int) -> AsyncGenerator[Event, None]:
    """Yield the first events, then stop the query."""
    if count <= 0:
        await consumption.leave()
        return
    async with aclosing(events_of(consumption)) as events:
        async for event in events:
            yield event
            count -= 1
            if not count:
                return


async def _drain(consumption: Consumption) -> None:
    """Consume every event without looking at it; how it ended is judged later."""
    try:
        handle = await consumption.begin()
        while await handle.stream.next_batch():
            pass
    except AgentError:
        if consumption.handle is None:
            raise
    finally:
        await consumption.leave()


def _drop(handle: "QueryHandle") -> None:
    """Stop a query that nobody can see any more."""
    if not handle.ended:
        handle.abort("the stream was dropped")


def _aborted_before(signal: AbortSignal) -> AgentError:
    reason = f": {signal.reason}" if signal.reason else ""
    error = RequestError(ErrorCode.ABORTED, f"aborted before it started{reason}")
    error.result = AgentResult(text="", stop_reason="aborted")
    return error
