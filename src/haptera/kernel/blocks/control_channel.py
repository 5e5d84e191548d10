"""ControlChannel: events out to every subscriber, each bounded, commands in to the one receiver."""

import asyncio
import contextvars
import inspect
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from haptera.model.errors import AgentError, ErrorCode, SessionError
from haptera.model.events import Event, Heartbeat, ToolProgress, check_handler
from haptera.model.operations.session import Command
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks

ItemT = TypeVar("ItemT")
WhenBufferFull: TypeAlias = Literal["wait", "lag"]
"""What happens when a consumer is `limit` events behind: the publisher waits for it, or the
consumer loses its buffer and is told so."""

_MOMENTARY = (ToolProgress, Heartbeat)
"""Events that are worth nothing later, and whose publisher does not wait for space: a consumer that
is behind gets the next."""


class Subscription(Generic[ItemT]):
    """Hands events to one consumer, in batches or one by one, in order.

    Owns the buffer and its limits. Publishing never waits by itself: a publisher that respects the
    limit waits in `wait_for_space` afterwards. With `when_full="lag"` it need not: a consumer that
    is too far behind is `lagged` and gets nothing more. A subscription that lags may have a
    `size_limit`, too, with what tells the size of an event (`size_of`). Does not own what
    publishes; a consumer that goes away is only marked as `abandoned`.

    The events are those of a session, or what a surface makes of them.

    Used from one event loop only. What a publisher or the consumer waits for are bare futures:
    an `asyncio.Event` costs several calls for each event that is streamed.
    """

    def __init__(
        self,
        *,
        limit: int = 100,
        when_full: WhenBufferFull = "wait",
        size_limit: float = math.inf,
        size_of: Callable[[ItemT], int] | None = None,
    ) -> None:
        self._limit = limit
        self._size_limit = size_limit
        self._size_of = size_of
        self._lags = when_full == "lag"
        self._buffer: deque[ItemT] = deque()
        self._size = 0
        """Of what was published since the last batch was taken, while the consumer did not wait."""
        self._news: asyncio.Future[bool] | None = None
        """What the consumer waits for, if it does, until it goes on. False: its time is up."""
        # A timer that is rarely set anew: one for each wait would cost every event of a stream.
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._space: asyncio.Future[None] | None = None
        """What publishers wait for, if any does."""
        self._is_excused = False
        self._error: AgentError | None = None
        self.has_space = True
        """Whether publishers may go on. False only when the buffer is full and does not lag."""
        self.ended = False
        """Whether the publisher is done; what is buffered can still be taken."""
        self.abandoned = False
        """Whether the consumer left."""
        self.lagged = False
        """Whether the consumer was too far behind and lost its buffer."""

    def publish(self, events: Sequence[ItemT]) -> None:
        """Add a batch; nothing is added after the end or for a consumer that left or lagged."""
        if self.ended or self.abandoned or self.lagged:
            return
        buffer = self._buffer
        # A consumer that was woken and has had no turn yet is not behind, however much comes.
        is_behind = len(buffer) > self._limit or self._size > self._size_limit
        if is_behind and self._lags and self._news is None:
            self.lagged = True
            buffer.clear()
        elif self.has_space:
            buffer.extend(events)
        else:
            buffer.extend([event for event in events if not isinstance(event, _MOMENTARY)])
        if self._news is None:
            # One that waits takes all of it in its next turn: that need not be measured.
            if self._size_of is not None:
                self._size += sum(map(self._size_of, events))
        elif not self._news.done():
            self._news.set_result(True)
        # Batches are not split: a publisher may exceed the limit by one, and then waits.
        if len(buffer) > self._limit and not (self._lags or self._is_excused):
            self.has_space = False

    async def wait_for_space(self, *, unless: "Collection[asyncio.Future[None]]" = ()) -> None:
        """Wait until the consumer has caught up or left, or one of `unless` is done."""
        if self.has_space:
            return
        if self._space is None:
            self._space = asyncio.get_running_loop().create_future()
        # Not awaited directly: cancelling one waiting publisher would cancel it for all of them.
        await asyncio.wait({self._space, *unless}, return_when=asyncio.FIRST_COMPLETED)

    def end(self, error: AgentError | None = None) -> None:
        """Say that nothing more comes; the consumer gets `error` after the last event."""
        if not self.ended:
            self.ended, self._error = True, error
        if self._news is not None and not self._news.done():
            self._news.set_result(True)
        if self._timer is not None:
            self._drop_timer()
        self._free_space()

    def excuse(self) -> None:
        """Let no publisher wait until the consumer takes its next event."""
        self._is_excused = True
        self._free_space()

    def abandon(self) -> None:
        """Say that the consumer left: what is buffered is dropped."""
        self.abandoned = True
        self._buffer.clear()
        if self._timer is not None:
            self._drop_timer()
        self._free_space()

    async def next_batch(self, seconds: float | None = None) -> list[ItemT]:
        """Return everything that is there, waiting for the first event; an empty list is the end.

        Raises:
            AgentError: the error that the subscription ended with, once all events were taken.
            TimeoutError: nothing came for so many `seconds`.

        """
        while not self._buffer:
            if self.ended and self._error is not None:
                raise self._error
            if self.ended or self.lagged:
                return []
            loop = asyncio.get_running_loop()
            if seconds is not None:
                self._limit_wait(loop, seconds)
            elif self._timer is not None:
                # The timer of an earlier wait must not end this one, which has no limit.
                self._drop_timer()
            self._news = loop.create_future()
            try:
                is_in_time = await self._news
            finally:
                # Only when the consumer runs again: until then `publish` knows that it was woken
                # and not behind.
                self._news = None
            if not (is_in_time or self._buffer):
                raise TimeoutError
        batch = list(self._buffer)
        self._buffer.clear()
        self._size = 0
        self._is_excused = False
        if not self.has_space:
            self._free_space()
        return batch

    def next_event(self) -> ItemT | None:
        """Return the first event that is there, or None; for a consumer that takes one by one."""
        if not self._buffer:
            return None
        event = self._buffer.popleft()
        self._is_excused = False
        if len(self._buffer) <= self._limit:
            self._free_space()
        elif not self._lags:
            self.has_space = False  # it may have been excused
        return event

    def _free_space(self) -> None:
        self.has_space = True
        if self._space is not None:
            if not self._space.done():
                self._space.set_result(None)
            self._space = None

    def _limit_wait(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Let the wait that begins now end after so many seconds."""
        self._deadline = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._drop_timer()
            self._timer = loop.call_at(self._deadline, self._on_time, loop)

    def _on_time(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a wait whose time is up; one that began later has another deadline."""
        self._timer = None
        if self._news is None:
            return
        if self._deadline > loop.time():
            self._timer = loop.call_at(self._deadline, self._on_time, loop)
        elif not self._news.done():
            self._news.set_result(False)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


EventT = TypeVar("EventT", bound=Event)
EventHandler: TypeAlias = Callable[[Event], Awaitable[None] | None]
CommandReceiver: TypeAlias = Callable[[Command], None]

_logger = scrubbed_logger(__name__)

_STOP_SECONDS = 0.5
"""How long a handler that was stopped is waited for."""

_delivers_to: "ContextVar[_PumpedSubscription | None]" = ContextVar("haptera_handler", default=None)
"""The subscription whose handler runs, for that handler and whatever it starts."""


class _PumpedSubscription(Subscription[Event]):
    """A subscription that calls a handler with the events of one kind, one at a time.

    A plain function is called while the event is published. When a call returns an awaitable, a
    task awaits it and goes on with what is buffered meanwhile. The handler runs in the context in
    which it was subscribed, not in that of the publisher: it does not belong to the query whose
    events it sees.
    """

    def __init__(self, kind: type[object], handler: EventHandler, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._kind = kind
        self._handler = handler
        self._context = contextvars.copy_context()
        self._context.run(_delivers_to.set, self)
        self._tasks = OwnedTasks()
        self.worker: asyncio.Task[None] | None = None
        self.is_closing = False
        """Whether the handler itself waits for the channel to be closed."""

    def publish(self, events: Sequence[Event]) -> None:
        """Deliver to a plain function at once; buffer for one that still works on an event."""
        # Sorted out before they are buffered: events of other kinds do not bring the handler
        # behind.
        wanted = [event for event in events if isinstance(event, self._kind)]
        # A call now would overtake what is buffered.
        if self.worker is not None or self.ended or self.abandoned:
            super().publish(wanted)
            return
        for index, event in enumerate(wanted):
            outcome = self._call(event)
            if inspect.isawaitable(outcome):
                super().publish(wanted[index + 1 :])
                self.worker = worker = self._tasks.start(
                    self._pump(outcome), name="haptera-handler", context=self._context.copy()
                )
                worker.add_done_callback(self._forget_worker)
                return

    def stop(self) -> None:
        """Give up on what was not delivered, and on a handler that is still at work."""
        self.abandon()
        if self.worker is not None:
            self.worker.cancel()

    def _call(self, event: Event) -> Awaitable[None] | None:
        try:
            # A copy for each call: a context cannot be entered twice, and a handler may cause
            # further events.
            return self._context.copy().run(self._handler, event)
        except Exception:
            _logger.exception("a handler failed on %s", event.kind)
            return None

    async def _pump(self, outcome: Awaitable[None] | None) -> None:
        """Await what the handler began, then hand it one buffered event after the other."""
        while True:
            if inspect.isawaitable(outcome):
                try:
                    await outcome
                except Exception:
                    _logger.exception("a handler failed")
            # No wait from here to `worker = None`: what is published next calls the handler.
            event = self.next_event()
            if event is None:
                self.worker = None
                return
            outcome = self._call(event)

    def _forget_worker(self, worker: "asyncio.Task[None]") -> None:
        if self.worker is worker:  # it was stopped
            self.worker = None


class ControlChannelInterface(Protocol):
    """Carries events out and commands in; a substitute for `ControlChannel` has these members.

    - `publish` does not wait. Each handler gets the events in order, one at a time; an async
      handler is awaited before its next event. A handler that raises disturbs nothing else.
    - `wait_for_space` returns when no handler is too far behind, or one of `unless` is done.
    - A subscription that is attached gets every batch until it is detached; its consumer pulls.
    - After `excuse` nothing waits for the handler that calls it, until it takes its next event.
    - `submit` hands a command to the receiver at once.
    - After `close`, which delivers what was published before, `publish` and `submit` raise CLOSED.
    """

    closed: bool
    has_space: bool
    receiver: CommandReceiver | None

    def subscribe(self, handler: EventHandler) -> Callable[[], None]:
        """Call `handler` with every event; returns a function that ends this."""
        ...

    def on(
        self, kind: type[EventT], handler: Callable[[EventT], Awaitable[None] | None]
    ) -> Callable[[], None]:
        """Call `handler` with every event of a kind; returns a function that ends this."""
        ...

    def publish(self, events: Sequence[Event]) -> None:
        """Hand events to every subscriber."""
        ...

    def attach(self, subscription: Subscription[Event]) -> Callable[[], None]:
        """Publish to a subscription that its consumer pulls; returns a function that ends this."""
        ...

    async def wait_for_space(self, *, unless: "Collection[asyncio.Future[None]]" = ()) -> None:
        """Wait until no subscriber is too far behind; not once one of `unless` is done."""
        ...

    def excuse(self, *, closing: bool = False) -> None:
        """Let nothing wait for the handler that calls this, until it takes its next event."""
        ...

    def submit(self, command: Command) -> None:
        """Hand a command to the receiver."""
        ...

    async def drain(self) -> None:
        """Wait until every handler has seen everything that was published so far."""
        ...

    async def close(self, *, within: float | None = None) -> None:
        """Deliver what was published, for so many seconds at most, and end."""
        ...

    def hurry(self, *, within: float) -> None:
        """Let a close that is under way wait no longer than so many seconds from now."""
        ...


class ControlChannel:
    """Lives as long as its session; queries come and go and never close it.

    Publishing never waits. Each subscriber has a `Subscription` of its own: it sees events in
    order, and its failures stay its own. A handler (`subscribe`, `on`) that is `limit` events
    behind makes publishers wait in `wait_for_space`, so that a slow handler slows the query down
    like a slow consumer of its stream, and misses nothing but a tool's progress. Other consumers
    bring a subscription of their own (`attach`) and pull from it.

    Owns the list of subscribers; does not own what commands do. A session's commands are its
    methods, and other processes leave theirs in the store: `submit` is for programs that use this
    block without a session.
    """

    def __init__(self, *, limit: int = 100) -> None:
        self._limit = limit
        # In their order; a dictionary, because many streams come and go.
        self._subscriptions: dict[Subscription[Event], None] = {}
        self.receiver: CommandReceiver | None = None
        """What takes the commands."""
        self._closing_timeout: asyncio.Timeout | None = None
        self.has_space = True
        """Whether no subscriber was too far behind after the last batch."""
        self.closed = False

    def __len__(self) -> int:
        return len(self._subscriptions)

    def subscribe(self, handler: EventHandler) -> Callable[[], None]:
        """Call `handler` with every event; returns a function that ends this.

        Raises:
            ConfigError: CONFIG_INVALID when the handler is no function.

        """
        check_handler(object, handler)
        return self._add_handler(object, handler)

    def on(
        self, kind: type[EventT], handler: Callable[[EventT], Awaitable[None] | None]
    ) -> Callable[[], None]:
        """Call `handler` with every event of a kind; returns a function that ends this.

        Raises:
            ConfigError: CONFIG_INVALID when the kind is no class of events, or the handler no
                function.

        """
        check_handler(kind, handler)
        return self._add_handler(kind, cast("EventHandler", handler))

    def _add_handler(self, kind: type[object], handler: EventHandler) -> Callable[[], None]:
        subscription = _PumpedSubscription(kind, handler, limit=self._limit)
        detach = self.attach(subscription)

        def unsubscribe() -> None:
            detach()
            subscription.abandon()

        return unsubscribe

    def attach(self, subscription: Subscription[Event]) -> Callable[[], None]:
        """Publish to a subscription that its consumer pulls; returns a function that ends this."""
        if self.closed:
            subscription.end()
        else:
            self._subscriptions[subscription] = None

        def detach() -> None:
            self._subscriptions.pop(subscription, None)

        return detach

    def publish(self, events: Sequence[Event]) -> None:
        """Hand events to every subscriber.

        Raises:
            SessionError: CLOSED after `close`.

        """
        if self.closed:
            raise SessionError(ErrorCode.CLOSED, "this channel is closed")
        has_space = True
        # A copy, because a handler may subscribe or unsubscribe while it is called.
        for subscription in tuple(self._subscriptions):
            subscription.publish(events)
            has_space = has_space and subscription.has_space
        self.has_space = has_space

    async def wait_for_space(self, *, unless: "Collection[asyncio.Future[None]]" = ()) -> None:
        """Wait until no subscriber is too far behind; not once one of `unless` is done."""
        for subscription in tuple(self._subscriptions):
            if not subscription.has_space:
                await subscription.wait_for_space(unless=unless)

    def excuse(self, *, closing: bool = False) -> None:
        """Let nothing wait for the handler that calls this, until it takes its next event.

        The handler is about to wait for the publisher, or for `close`: both would wait for the
        handler, for ever. It is known by its context, so that it may wait through tasks and
        threads of its own.
        """
        subscription = _delivers_to.get()
        if subscription is not None and subscription in self._subscriptions:
            subscription.excuse()
            subscription.is_closing = subscription.is_closing or closing

    def submit(self, command: Command) -> None:
        """Hand a command to the receiver.

        Raises:
            SessionError: CLOSED when there is none.

        """
        if self.receiver is None:
            raise SessionError(ErrorCode.CLOSED, "this channel has no receiver for commands")
        self.receiver(command)

    async def drain(self) -> None:
        """Wait until every handler has seen everything that was published so far."""
        # Again and again: a worker ends with an empty buffer, and the next event starts another.
        while workers := self._workers():
            await asyncio.wait(workers)

    async def close(self, *, within: float | None = None) -> None:
        """Deliver what was published to the handlers, for so many seconds at most, and end.

        From the beginning handlers and the receiver get nothing new; subscriptions that are pulled
        do until the end. A handler that still works when the time is up is stopped, and left behind
        when it does not let itself be. One that was excused because it closes waits for this end
        itself, and is not waited for.
        """
        self.receiver = None
        for handler in self._handlers():
            handler.end()
        try:
            if self._workers():
                async with asyncio.timeout(within) as self._closing_timeout:
                    await self.drain()
        except TimeoutError:
            await self._stop_all()
        self.closed = True
        for subscription in tuple(self._subscriptions):
            subscription.end()
        self._subscriptions.clear()

    def hurry(self, *, within: float) -> None:
        """Let a close that is under way wait no longer than so many seconds from now."""
        with suppress(RuntimeError):  # there is none, or its wait is over
            if self._closing_timeout is not None:
                self._closing_timeout.reschedule(asyncio.get_running_loop().time() + within)

    async def _stop_all(self) -> None:
        # Collected first: a worker that ends is forgotten.
        workers = self._workers()
        for handler in self._handlers():
            # A handler that closes the session waits for this very close, and must not be cancelled
            # by it.
            if not handler.is_closing:
                handler.stop()
        if workers:
            _, left = await asyncio.wait(workers, timeout=_STOP_SECONDS)
            for worker in left:
                _logger.warning("a handler does not let itself be cancelled: %r", worker)

    def _handlers(self) -> list[_PumpedSubscription]:
        return [item for item in self._subscriptions if isinstance(item, _PumpedSubscription)]

    def _workers(self) -> "list[asyncio.Task[None]]":
        """Return what is still to be waited for."""
        working = [item for item in self._handlers() if not item.is_closing]
        return [item.worker for item in working if item.worker is not None]
