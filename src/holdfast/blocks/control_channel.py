"""ControlChannel: events out to whoever subscribed, commands in to whoever is in charge."""

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar, cast

from holdfast.ports.logs import scrubbed_logger
from holdfast.vocabulary.commands import Command
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.events import Event, ToolProgress

EventT = TypeVar("EventT", bound=Event)
EventHandler: TypeAlias = Callable[[Event], Awaitable[None] | None]
CommandReceiver: TypeAlias = Callable[[Command], None]

_log = scrubbed_logger(__name__)

_STOP_SECONDS = 0.5
"""How long a handler that was stopped is waited for."""

_delivers_to: "ContextVar[_Subscriber | None]" = ContextVar("holdfast_handler", default=None)
"""The subscriber whose handler runs, for that handler and whatever it starts."""


class _Subscriber:
    """One handler and the events of its kind that it has not seen yet, in order.

    The handler runs in the context of the one who subscribed it, not of what is published: it does
    not belong to the query whose events it sees.
    """

    def __init__(self, kind: type[object], handler: EventHandler, *, limit: int) -> None:
        self._kind = kind
        self._handler = handler
        self._limit = limit
        self._waiting: deque[Event] = deque()
        self._bounded = True
        self._space = asyncio.Event()
        self._space.set()
        self._context = contextvars.copy_context()
        self._context.run(_delivers_to.set, self)
        self.worker: asyncio.Task[None] | None = None
        self.is_closing = False
        """Whether the handler itself waits for the channel to be closed."""

    def offer(self, events: Sequence[Event]) -> None:
        """Deliver to a plain function at once; queue for a coroutine function."""
        wanted = [event for event in events if isinstance(event, self._kind)]
        if self.worker is None and not self._waiting:
            for place, event in enumerate(wanted):
                outcome = self._call(event)
                if inspect.isawaitable(outcome):
                    self._queue(wanted[place + 1 :])
                    self.worker = worker = asyncio.get_running_loop().create_task(
                        self._go_on(outcome), context=self._context.copy()
                    )
                    worker.add_done_callback(self._at_rest)
                    return
        else:
            self._queue(wanted)

    async def room(self, unless: "Collection[asyncio.Future[None]]") -> None:
        """Wait until the handler has caught up, or left, or one of `unless` is done."""
        if self._space.is_set():
            return
        waiting = asyncio.ensure_future(self._space.wait())
        ends: set[asyncio.Future[Any]] = {waiting, *unless}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def excuse(self) -> None:
        """Let nobody wait for the handler until it takes its next event."""
        self._bounded = False
        self._space.set()

    def leave(self) -> None:
        """Give up on what was not delivered."""
        self._waiting.clear()
        self._space.set()

    def stop(self) -> None:
        """Give up on what was not delivered, and on a handler that is still at work."""
        self.leave()
        if self.worker is not None:
            self.worker.cancel()

    def _queue(self, events: Sequence[Event]) -> None:
        if self._space.is_set():
            self._waiting.extend(events)
        else:
            # Progress does not wait for room; a handler that is behind gets the next one.
            self._waiting.extend(item for item in events if type(item) is not ToolProgress)
        if self._bounded and len(self._waiting) > self._limit:
            self._space.clear()

    def _next(self) -> Event:
        event = self._waiting.popleft()
        self._bounded = True
        if len(self._waiting) <= self._limit:
            self._space.set()
        else:
            self._space.clear()
        return event

    def _call(self, event: Event) -> Awaitable[None] | None:
        try:
            return self._context.copy().run(self._handler, event)
        except Exception:  # noqa: BLE001 - a handler's failure stays its own
            _log.exception("a handler failed on %s", event.kind)
            return None

    async def _go_on(self, outcome: Awaitable[None] | None) -> None:
        while True:
            if inspect.isawaitable(outcome):
                try:
                    await outcome
                except Exception:  # noqa: BLE001 - see _call
                    _log.exception("a handler failed")
            if not self._waiting:
                self.worker = None
                return
            outcome = self._call(self._next())

    def _at_rest(self, worker: "asyncio.Task[None]") -> None:
        if self.worker is worker:  # it was stopped
            self.worker = None


class ControlChannel:
    """Lives as long as its session; queries come and go and never close it.

    Publishing never waits, and each subscriber sees events in order, one at a time, and its
    failures stay its own. An async handler may be `limit` events behind; from then on whoever
    publishes waits in `room`, so that a slow handler slows the query down like a slow consumer
    of its stream, and misses nothing but a tool's progress.

    Owns the subscribers and their queues; does not own what commands do. A session's commands are
    its methods, and other processes leave theirs in the store: `submit` is for those who use this
    block by itself.
    """

    def __init__(self, *, limit: int = 100) -> None:
        self._limit = limit
        self._subscribers: list[_Subscriber] = []
        self._receiver: CommandReceiver | None = None
        self._patience: asyncio.Timeout | None = None
        self.closed = False

    def subscribe(self, handler: EventHandler) -> Callable[[], None]:
        """Call `handler` with every event; returns a function that ends this."""
        return self._add(_Subscriber(object, handler, limit=self._limit))

    def on(
        self, kind: type[EventT], handler: Callable[[EventT], Awaitable[None] | None]
    ) -> Callable[[], None]:
        """Call `handler` with every event of a kind; returns a function that ends this."""
        return self._add(_Subscriber(kind, cast("EventHandler", handler), limit=self._limit))

    def _add(self, subscriber: _Subscriber) -> Callable[[], None]:
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
            subscriber.leave()

        return unsubscribe

    @property
    def subscriber_count(self) -> int:
        """How many handlers are subscribed."""
        return len(self._subscribers)

    def publish(self, events: Sequence[Event]) -> None:
        """Hand events to every subscriber.

        Raises:
            SessionError: CLOSED after `close`.

        """
        if self.closed:
            raise SessionError(ErrorCode.CLOSED, "this channel is closed")
        for subscriber in tuple(self._subscribers):
            subscriber.offer(events)

    async def room(self, *, unless: "Collection[asyncio.Future[None]]" = ()) -> None:
        """Wait until every handler has caught up, or left; not once one of `unless` is done."""
        for subscriber in tuple(self._subscribers):
            await subscriber.room(unless)

    def excuse(self, *, closing: bool = False) -> None:
        """Let nothing wait for the handler that calls this, until it takes its next event.

        It waits for what publishes, or closes, itself: both would wait for ever. It is known by its
        context, so that it may wait through tasks and threads of its own.
        """
        subscriber = _delivers_to.get()
        if subscriber is not None and subscriber in self._subscribers:
            subscriber.excuse()
            subscriber.is_closing = subscriber.is_closing or closing

    def receive_with(self, receiver: CommandReceiver) -> None:
        """Say who takes the commands."""
        self._receiver = receiver

    def submit(self, command: Command) -> None:
        """Hand a command to whoever is in charge.

        Raises:
            SessionError: CLOSED when nobody is.

        """
        if self.closed or self._receiver is None:
            raise SessionError(ErrorCode.CLOSED, "nobody takes commands here")
        self._receiver(command)

    async def drain(self) -> None:
        """Wait until every subscriber has seen everything that was published so far."""
        while workers := self._workers():
            await asyncio.wait(workers)

    async def close(self, *, within: float | None = None) -> None:
        """Take nothing more and deliver what was published, for so many seconds at most.

        A handler that still works then is stopped, and left behind when it does not let itself be.
        One that was excused because it closes waits for this end itself, and is not waited for.
        """
        self.closed = True
        try:
            async with asyncio.timeout(within) as self._patience:
                await self.drain()
        except TimeoutError:
            await self._stop_all()
        self._subscribers.clear()

    def hurry(self, *, within: float) -> None:
        """Let a close that is under way wait no longer than so many seconds from now."""
        with suppress(RuntimeError):  # there is none, or its wait is over
            if self._patience is not None:
                self._patience.reschedule(asyncio.get_running_loop().time() + within)

    async def _stop_all(self) -> None:
        workers = self._workers()
        for subscriber in self._subscribers:
            if not subscriber.is_closing:
                subscriber.stop()
        if workers:
            _, left = await asyncio.wait(workers, timeout=_STOP_SECONDS)
            for worker in left:
                _log.warning("a handler does not let itself be cancelled: %r", worker)

    def _workers(self) -> "list[asyncio.Task[None]]":
        """Return what is still to be waited for."""
        working = [item for item in self._subscribers if not item.is_closing]
        return [item.worker for item in working if item.worker is not None]
