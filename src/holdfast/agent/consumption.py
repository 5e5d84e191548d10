"""Consumption: the consumer's side of one query, from its lazy start to the moment it is left.

Generators over it are module-level functions that hold the consumption and nothing else: when one
is dropped, nothing keeps the query alive and it is stopped at once.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from holdfast.agent.keywords import OnAbort
from holdfast.ports.abort import AbortController, AbortSignal
from holdfast.vocabulary.errors import AgentError, ErrorCode, RequestError, SessionError
from holdfast.vocabulary.events import Event, TextDelta
from holdfast.vocabulary.results import AgentResult

if TYPE_CHECKING:
    from holdfast.session.query_handle import QueryHandle


class Consumption:
    """Starts a query when it is first wanted, and sees that it ends when it is not.

    Owns the link between abort signals and the query: the user's, and its own, which says stop
    also before there is a query. Does not own the query.
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
        self._own = AbortController()
        self._signals = (self._own.signal, signal) if signal else (self._own.signal,)
        self._on_abort = on_abort
        self._forget: Callable[[], None] = lambda: None
        self._dropping: weakref.finalize[..., Consumption] | None = None
        self._beginning = asyncio.Lock()
        self._claimed = False
        self._left = False
        self._refused: AgentError | None = None
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
        if self._refused is not None:
            raise self._refused
        if self._left:
            raise SessionError(ErrorCode.CLOSED, "this stream was left before it was used")
        self._refuse_if_aborted()
        try:
            handle = await self._start_unless_aborted()
        except BaseException:
            await self._finish()
            raise
        self._dropping = weakref.finalize(self, _drop, handle)
        self._dropping.atexit = False
        self._forget = self._listen(handle.abort)
        return handle

    async def _start_unless_aborted(self) -> "QueryHandle":
        """Start the query; an abort ends the wait for a session, a lease or a file, too."""
        loop, patience = asyncio.get_running_loop(), asyncio.timeout(None)

        def give_up(_reason: str | None) -> None:
            loop.call_soon_threadsafe(_expire, patience)

        try:
            async with patience:
                forget = self._listen(give_up)
                try:
                    return await self._start()
                finally:
                    forget()
        except TimeoutError:
            if patience.expired():
                self._refuse_if_aborted()
            raise

    def _refuse_if_aborted(self) -> None:
        for signal in self._signals:
            if signal.aborted:
                self._refused = _aborted_before(signal)
                raise self._refused

    def _listen(self, stop: Callable[[str | None], None]) -> Callable[[], None]:
        """Call `stop` with the reason when any signal aborts, until the returned call."""
        forgets = [signal.add_listener(_telling(stop, signal)) for signal in self._signals]

        def forget() -> None:
            for each in forgets:
                each()

        return forget

    def abort(self, reason: str | None) -> None:
        """Stop the query, from any thread; one that has not begun will not."""
        self._own.abort(reason)

    async def leave(self) -> None:
        """Stop consuming: a query that still runs is aborted, and its end waited for."""
        self._claimed = self._left = True
        handle = self.handle
        if handle is None:
            return
        if not handle.ended:
            handle.abort("the stream was closed")
        handle.stream.abandon()
        if self._dropping is not None:
            # It would keep the query as long as this object, which the query's own error may hold.
            self._dropping.detach()
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
        try:
            if not self._claimed:
                self.claim()
                await _drain(self)
            handle = await self.begin()
        except AgentError as error:
            if error is self._refused and error.result is not None and self.tolerates(error):
                return error.result
            raise
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


def _telling(stop: Callable[[str | None], None], signal: AbortSignal) -> Callable[[], None]:
    return lambda: stop(signal.reason)


def _expire(patience: asyncio.Timeout) -> None:
    with suppress(RuntimeError):  # what it waited for has come meanwhile
        patience.reschedule(0)


def _aborted_before(signal: AbortSignal) -> AgentError:
    reason = f": {signal.reason}" if signal.reason else ""
    error = RequestError(ErrorCode.ABORTED, f"aborted before it started{reason}")
    error.result = AgentResult(text="", stop_reason="aborted")
    return error
