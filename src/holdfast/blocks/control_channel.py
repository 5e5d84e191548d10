"""ControlChannel: events out to whoever subscribed, commands in to whoever is in charge."""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeVar

from holdfast.vocabulary.commands import Command
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.events import Event

EventT = TypeVar("EventT", bound=Event)
EventHandler: TypeAlias = Callable[[Event], Awaitable[None] | None]
CommandReceiver: TypeAlias = Callable[[Command], None]

_log = logging.getLogger(__name__)

_STOP_SECONDS = 1.0
"""How long a handler that was stopped is waited for."""


class _Subscriber:
    """One handler and the events it has not seen yet, in order."""

    def __init__(self, handler: EventHandler) -> None:
        self.handler = handler
        self.waiting: deque[Event] = deque()
        self.worker: asyncio.Task[None] | None = None

    def offer(self, events: Sequence[Event]) -> None:
        """Deliver to a plain function at once; queue for a coroutine function."""
        if self.worker is None and not self.waiting:
            for place, event in enumerate(events):
                outcome = self._call(event)
                if inspect.isawaitable(outcome):
                    self.waiting.extend(events[place + 1 :])
                    self.worker = worker = asyncio.ensure_future(self._go_on(outcome))
                    worker.add_done_callback(self._at_rest)
                    return
        else:
            self.waiting.extend(events)

    def stop(self) -> None:
        """Give up on what was not delivered, and on a handler that is still at work."""
        self.waiting.clear()
        if self.worker is not None:
            self.worker.cancel()

    def _call(self, event: Event) -> Awaitable[None] | None:
        try:
            return self.handler(event)
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
            if not self.waiting:
                self.worker = None
                return
            outcome = self._call(self.waiting.popleft())

    def _at_rest(self, worker: "asyncio.Task[None]") -> None:
        if self.worker is worker:  # it was stopped
            self.worker = None


class ControlChannel:
    """Lives as long as its session; queries come and go and never close it.

    Publishing never waits. Each subscriber sees events in order, one at a time, and its failures
    stay its own. Owns the subscribers and their queues; does not own what commands do.
    """

    def __init__(self) -> None:
        self._subscribers: list[_Subscriber] = []
        self._receiver: CommandReceiver | None = None
        self.closed = False

    def subscribe(self, handler: EventHandler) -> Callable[[], None]:
        """Call `handler` with every event; returns a function that ends this."""
        subscriber = _Subscriber(handler)
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
            subscriber.waiting.clear()

        return unsubscribe

    def on(
        self, kind: type[EventT], handler: Callable[[EventT], Awaitable[None] | None]
    ) -> Callable[[], None]:
        """Call `handler` with every event of a kind; returns a function that ends this."""

        def call(event: Event) -> Awaitable[None] | None:
            return handler(event) if isinstance(event, kind) else None

        return self.subscribe(call)

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
