"""ControlChannel: events out to whoever subscribed, commands in to whoever is in charge."""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from holdfast.ports.logs import scrubbed_logger
from holdfast.vocabulary.commands import Command
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.events import Event, ToolProgress

EventT = TypeVar("EventT", bound=Event)
EventHandler: TypeAlias = Callable[[Event], Awaitable[None] | None]
CommandReceiver: TypeAlias = Callable[[Command], None]

_log = scrubbed_logger(__name__)

_STOP_SECONDS = 1.0
"""How long a handler that was stopped is waited for."""


class _Subscriber:
    """One handler and the events of its kind that it has not seen yet, in order."""

    def __init__(self, kind: type[object], handler: EventHandler, *, limit: int) -> None:
        self._kind = kind
        self._handler = handler
        self._limit = limit
        self._waiting: deque[Event] = deque()
        self._bounded = True
        self._space = asyncio.Event()
        self._space.set()
        self.worker: asyncio.Task[None] | None = None

    def offer(self, events: Sequence[Event]) -> None:
        """Deliver to a plain function at once; queue for a coroutine function."""
        wanted = [event for event in events if isinstance(event, self._kind)]
        if self.worker is None and not self._waiting:
            for place, event in enumerate(wanted):
                outcome = self._call(event)
                if inspect.isawaitable(outcome):
                    self._queue(wanted[place + 1 :])
                    self.worker = worker = asyncio.ensure_future(self._go_on(outcome))
                    worker.add_done_callback(self._at_rest)
                    return
        else:
            self._queue(wanted)

    async def room(self) -> None:
        """Wait until the handler has caught up, or left."""
        await self._space.wait()

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
            return self._handler(event)
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

    async def room(self) -> None:
        """Wait until every handler has caught up, or left."""
        for subscriber in tuple(self._subscribers):
            await subscriber.room()

    def excuse(self, worker: "asyncio.Task[Any] | None") -> None:
        """Let nobody wait for a handler that runs in this task, until it takes its next event.

        It waits for whoever publishes: both would wait for ever.
        """
        for subscriber in self._subscribers:
            if worker is not None and subscriber.worker is worker:
                subscriber.excuse()

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

    async def close(
        self,
        *,
        within: float | None = None,
        closers: "Collection[asyncio.Task[Any] | None]" = (),
    ) -> None:
        """Take nothing more and deliver what was published, for so many seconds at most.

        A handler that still works then is stopped. One that is among the `closers` waits for this
        end itself, and is not waited for.
        """
        self.closed = True
        closing = [item for item in self._subscribers if item.worker in closers]
        self._subscribers = [item for item in self._subscribers if item not in closing]
        try:
            async with asyncio.timeout(within):
                await self.drain()
        except TimeoutError:
            workers = self._workers()
            for subscriber in self._subscribers:
                subscriber.stop()
            await asyncio.wait(workers, timeout=_STOP_SECONDS)
        self._subscribers.clear()

    def _workers(self) -> "list[asyncio.Task[None]]":
        return [item.worker for item in self._subscribers if item.worker is not None]
