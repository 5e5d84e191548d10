"""QueryStream: a query as users see it: lazy, pulled by one consumer, stopped when it is left."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self

from haptera.agent.query_options import QueryOptions
from haptera.kernel.blocks.control_channel import Subscription
from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    RequestError,
    SessionError,
    without_frames,
)
from haptera.model.events import Event, TextDelta
from haptera.model.late_names import on_first_use
from haptera.model.results import AgentResult, OutputT
from haptera.system.abort import AbortController, AbortSignal
from haptera.system.owned_tasks import LEAVING_SECONDS, to_its_end

if TYPE_CHECKING:
    from haptera.agent import growing_output
    from haptera.kernel.session.session import QueryHandle
else:
    growing_output = on_first_use("haptera.agent.growing_output")

__all__ = ["QueryStream", "Subscription"]


class QueryStream(Generic[OutputT]):
    """The events of one query. Nothing is sent before the first use.

    Use it with `async with`, or iterate it, or await it for its result. Leaving it early aborts the
    query; only `async with` does so before the next line runs. It has one consumer; a second one
    gets STREAM_BUSY.
    """

    # Owns the link between abort signals and the query: the user's signal, and its own, which can
    # say stop before there is a query. Does not own the query. Its generators hold the stream and
    # the stream holds no generator: when the last of them is dropped, the query is stopped.

    def __init__(
        self,
        start: Callable[[], Awaitable["QueryHandle"]],
        finish: Callable[[], Awaitable[None]] | None,
        options: QueryOptions[Any],
    ) -> None:
        self._start = start
        self._finish = finish
        self._own = AbortController()
        signal = options.signal
        self._signals = (self._own.signal, signal) if signal else (self._own.signal,)
        wanted = (options.output_type, options.output_schema, options.output_validator)
        self._has_output = any(each is not None for each in wanted)
        self._returns_aborts = options.on_abort == "return"
        self._forgets: list[Callable[[], None]] = []
        """End what the signals call."""
        self._dropping: weakref.finalize[..., QueryStream[Any]] | None = None
        self._beginning = asyncio.Lock()
        self._claimed = False
        self._left = False
        self._was_closed = False
        """Whether it was left, and all is done that leaving takes: `async with` leaves it again."""
        self._refused: AgentError | None = None
        self._handle: QueryHandle | None = None

    @property
    def phase(self) -> str:  # a `StreamPhase`; Jedi completes nothing beside a property of it
        """What the stream is doing: idle until it is used."""
        return self._handle.phase if self._handle else "idle"

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        self._claim()
        return self._each_event()

    def __await__(self) -> Generator[Any, None, AgentResult[OutputT]]:
        return self.result().__await__()

    def text(self) -> AsyncGenerator[str, None]:
        """Iterate over the answer's text as it comes."""
        self._claim()
        return self._each_text()

    def partial(self) -> AsyncGenerator[OutputT, None]:
        """Iterate over the output as it grows, at most every 50 ms; the last one is the result's.

        What is not there yet is None or a default, or absent where the type allows that. An answer
        that is tried again begins anew.

        Raises:
            ConfigError: CONFIG_INVALID without an `output_type` or `output_schema`.

        """
        if not self._has_output:
            raise ConfigError(ErrorCode.CONFIG_INVALID, "partial() needs an output_type")
        self._claim()
        return self._each_partial()

    def take(self, count: int) -> AsyncGenerator[Event, None]:
        """Iterate over the first events, then stop the query."""
        self._claim()
        return self._first_events(count)

    def batches(self) -> AsyncGenerator[list[Event], None]:
        """Iterate over events as they come in, many at a time; for programs that forward them."""
        self._claim()
        return self._each_batch()

    async def result(self) -> AgentResult[OutputT]:
        """Let the query run to its end and return what came of it.

        Raises:
            AgentError: what the query failed with; its `result` is what was kept.

        """
        try:
            # With another consumer only the end is waited for: that consumer takes the events.
            if not self._claimed:
                self._claimed = True
                await self._drain()
            handle = await self._begin()
        except AgentError as error:
            # Only this stream's own refusal: an ABORTED from elsewhere, such as the opening of a
            # session, is raised.
            if error is self._refused and error.result is not None and self._tolerates(error):
                return error.result
            raise without_frames(error) from error.__cause__
        if not handle.ended:
            await handle.wait()
        failure = handle.error
        if failure is not None and not self._tolerates(failure):
            raise without_frames(failure) from failure.__cause__
        if handle.result is None:
            raise SessionError(ErrorCode.CLOSED, "the query ended without a result")
        return handle.result

    def abort(self, reason: str | None = None) -> None:
        """Stop the query, from any thread, also before it has begun; what was streamed is kept."""
        self._own.abort(reason)

    def suspend(self, reason: str | None = None) -> None:
        """Stop the query without an end, from any thread: `session.resume()` carries it on."""
        self._own.abort(reason, suspends=True)

    async def aclose(self) -> None:
        """Leave the stream: a query that still runs is aborted, and its end waited for."""
        self._claimed = self._left = True
        handle = self._handle
        if handle is None or self._was_closed:
            return
        if not handle.ended:
            handle.abort("the stream was closed")
        # Before the wait: a query that waits for space in the buffer of its stream would never end.
        handle.stream.abandon()
        if self._dropping is not None:
            # It would keep the query as long as this stream, which the query's own error may hold.
            self._dropping.detach()
        if handle.ended and self._finish is None:
            for forget in self._forgets:
                forget()
            self._was_closed = True
            return
        leaving = self._leave(handle)
        await to_its_end(leaving, name="haptera-leaving", within=LEAVING_SECONDS)

    async def _leave(self, handle: "QueryHandle") -> None:
        """Wait until the query is at rest and in the log, and what it alone needed is closed."""
        try:
            await handle.wait()
        finally:
            for forget in self._forgets:
                forget()
            await self._clean_up()
        self._was_closed = True

    # Beginning: at the first use, unless a signal says stop.

    def _claim(self) -> None:
        """Become the one consumer, or raise STREAM_BUSY."""
        if self._claimed:
            raise SessionError(ErrorCode.STREAM_BUSY, "this stream already has a consumer")
        self._claimed = True

    async def _begin(self) -> "QueryHandle":
        """Start the query, unless it was started; a signal that is aborted prevents it."""
        # `async with`, iteration and `result` may begin it at the same time.
        async with self._beginning:
            if self._handle is not None:
                return self._handle
            if self._refused is not None:
                raise self._refused
            if self._left:
                raise SessionError(ErrorCode.CLOSED, "this stream was closed before it was used")
            self._refuse_if_aborted()
            try:
                self._handle = handle = await self._start_unless_aborted()
            except BaseException:
                await self._clean_up()
                raise
            self._dropping = weakref.finalize(self, _drop, handle)
            # At exit no event loop is left in which the query could be stopped.
            self._dropping.atexit = False
            # A signal that was aborted since it was last looked at calls the listener at once.
            follow = handle.follow
            self._forgets = [each.add_listener(partial(follow, each)) for each in self._signals]
            return handle

    async def _start_unless_aborted(self) -> "QueryHandle":
        """Start the query; an abort ends the wait for a session, a lease or a file, too."""
        # A timeout without a time, which an abort makes expire. Unlike a cancelled task it cannot
        # be taken for a cancellation by the caller.
        loop, timer = asyncio.get_running_loop(), asyncio.timeout(None)

        def give_up(_signal: AbortSignal) -> None:
            # A signal may be aborted in any thread.
            loop.call_soon_threadsafe(_expire, timer)

        try:
            async with timer:
                forgets = [each.add_listener(partial(give_up, each)) for each in self._signals]
                try:
                    return await self._start()
                finally:
                    for forget in forgets:
                        forget()
        except TimeoutError:
            # Any other TimeoutError comes from what was waited for, and is passed on.
            if timer.expired():
                self._refuse_if_aborted()
            raise

    def _refuse_if_aborted(self) -> None:
        for signal in self._signals:
            if signal.aborted:
                self._refused = aborted_before(signal)
                raise self._refused

    async def _clean_up(self) -> None:
        if self._finish is not None:
            await self._finish()

    # Consuming.

    def _tolerates(self, error: AgentError) -> bool:
        """Whether the consumer asked to get this error as a result."""
        return self._returns_aborts and error.code is ErrorCode.ABORTED

    async def _drain(self) -> None:
        """Consume every event without looking at it; how it ended is judged later."""
        try:
            handle = await self._begin()
            while await handle.stream.next_batch():
                pass
        except AgentError:
            # With a handle, the error is that of the query, which `result` takes from the handle.
            if self._handle is None:
                raise
        finally:
            await self.aclose()

    @asynccontextmanager
    async def _consuming(self) -> AsyncGenerator[Subscription[Event], None]:
        """Give out the events of the query; leave it, however that ends."""
        try:
            yield await self._events_to_consume()
        except AgentError as error:
            if not self._tolerates(error):
                raise
        finally:
            await self.aclose()

    async def _events_to_consume(self) -> Subscription[Event]:
        """Begin the query; one that was aborted before that has no events."""
        try:
            return (await self._begin()).stream
        except AgentError as error:
            if not self._tolerates(error):
                raise
            nothing: Subscription[Event] = Subscription()
            nothing.end()
            return nothing

    # Each of these takes batches by itself: a generator over another would cost a call per event.

    async def _each_batch(self) -> AsyncGenerator[list[Event], None]:
        async with self._consuming() as stream:
            while batch := await stream.next_batch():
                yield batch

    async def _each_event(self) -> AsyncGenerator[Event, None]:
        async with self._consuming() as stream:
            while batch := await stream.next_batch():
                for event in batch:
                    yield event

    async def _each_text(self) -> AsyncGenerator[str, None]:
        async with self._consuming() as stream:
            while batch := await stream.next_batch():
                for event in batch:
                    # Only deltas: the text of `PartEnded` is what they come to.
                    if isinstance(event, TextDelta):
                        yield event.text

    async def _each_partial(self) -> AsyncGenerator[Any, None]:
        async with self._consuming() as stream:
            if self._handle is None:
                return  # it was aborted before it began
            handle = self._handle
            output = growing_output.GrowingOutput(handle.query.output, handle.submission.clock)
            while batch := await stream.next_batch():
                value = output.take(batch)
                if value is not growing_output.NOTHING:
                    yield value
            if handle.result is not None and handle.result.stop_reason == "complete":
                yield handle.result.output

    async def _first_events(self, count: int) -> AsyncGenerator[Event, None]:
        # The query must not begin for events that are not wanted.
        if count <= 0:
            await self.aclose()
            return
        async with aclosing(self._each_event()) as events:
            async for event in events:
                yield event
                count -= 1
                if not count:
                    return


def _drop(handle: "QueryHandle") -> None:
    """Stop a query that has no consumer any more."""
    if not handle.ended:
        handle.abort("the stream was dropped")


def _expire(timer: asyncio.Timeout) -> None:
    with suppress(RuntimeError):  # what it waited for has come meanwhile
        timer.reschedule(0)


def aborted_before(signal: AbortSignal) -> AgentError:
    """Make the error of a query whose signal stopped it before it started."""
    reason = f": {signal.reason}" if signal.reason else ""
    error = RequestError(ErrorCode.ABORTED, f"aborted before it started{reason}")
    error.result = AgentResult(text="", stop_reason="aborted")
    return error
