"""Feeds: the events of sessions for streams, from the log and from sessions that are open here.

A session that is open in this process gives its live deltas, too. One that another process holds,
or none, is followed in its log. A feed changes from one to the other by `seq`: no entry is lost or
doubled, and a consumer that does not read is told to resume instead of a queue growing.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar

from holdfast import AgentError, AgentSession, ErrorCode, Event, QueryEnded
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.events import ObserverLagged, ReasoningDelta, SessionDeleted, TextDelta

ItemT = TypeVar("ItemT")
_ROOM = 256
"""How many items wait for a consumer before their source waits."""
_ROOM_SIZE = 512 * 1024
"""How many characters of live-only events wait for a consumer; entries are kept in any case."""

_EVERY_KIND: Any = object
"""The kinds of events have no class in common but this one."""

_AGAIN_SECONDS = 1.0
"""How soon a store that did not answer is asked again."""

Source: TypeAlias = AsyncGenerator[Event, None]
OpenSource: TypeAlias = Callable[["SessionFeed"], Awaitable[Source | None]]
"""Lets a feed have the events after its `seen`: attaches it to the relay of a session that is open
here, and returns what is to be read from the log before; or else returns all of them."""


class Funnel(Generic[ItemT]):
    """Collects the items of generators for one consumer, who takes all that are there at once.

    Owns the tasks that read the generators. A generator whose items are not taken waits.
    """

    def __init__(self) -> None:
        self._items: deque[ItemT] = deque()
        # A bare future and a timer that is rarely set anew: an `asyncio.Event` with a timeout costs
        # several times as much for each event of each stream.
        self._news: asyncio.Future[None] | None = None
        """What the consumer waits for, if it does, until it goes on."""
        self._is_woken = False
        self._size = 0
        """Of what came while the consumer did not wait."""
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: AgentError | None = None
        """What the last generator failed with."""

    @property
    def is_reading(self) -> bool:
        """Whether a generator may still have items."""
        return any(not task.done() for task in self._tasks)

    def add(self, source: AsyncGenerator[ItemT, None]) -> asyncio.Task[None]:
        """Read a generator, and close it at the end."""
        task = asyncio.get_running_loop().create_task(self._read(source))
        self._tasks.add(task)
        return task

    def offer(self, item: ItemT, *, size: int = 0) -> bool:
        """Add an item from outside, unless too many wait; returns whether it was added."""
        # A consumer that was woken and has had no turn yet is not behind, however much comes.
        if self._news is None:
            self._size += size
            if len(self._items) >= 2 * _ROOM or self._size > _ROOM_SIZE:
                return False
        self._items.append(item)
        self.wake()
        return True

    def replace(self, item: ItemT) -> None:
        """Forget what waits, and give the consumer this item instead."""
        self._items.clear()
        self._items.append(item)
        self.wake()

    def wake(self) -> None:
        """Let the consumer look, though there is no item."""
        self._is_woken = True
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def take(self, seconds: float) -> list[ItemT] | None:
        """Return the items that came; none when it was woken, None when nothing happened."""
        if not self._is_woken and not await self._wait(seconds):
            return None
        self._is_woken, self._size = False, 0
        taken = list(self._items)
        self._items.clear()
        self._room.set()
        return taken

    async def _wait(self, seconds: float) -> bool:
        """Wait until there is something, but not longer; returns whether there is."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer(loop)
        self._news = loop.create_future()
        try:
            await self._news
        finally:
            self._news = None
        return self._is_woken

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._on_time, loop)

    def _on_time(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a wait whose time is up; one that began later has another deadline."""
        self._timer = None
        if self._news is None:
            return
        if self._deadline > loop.time():
            self._set_timer(loop)
        elif not self._news.done():
            self._news.set_result(None)

    async def close(self) -> None:
        """Stop reading."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._items.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.failure = None

    async def _read(self, source: AsyncGenerator[ItemT, None]) -> None:
        try:
            async with contextlib.aclosing(source):
                async for item in source:
                    self._items.append(item)
                    self.wake()
                    while len(self._items) >= _ROOM:
                        self._room.clear()
                        await self._room.wait()
        except AgentError as error:
            self.failure = error  # the feed looks where to go on
        finally:
            self.wake()


class Relay:
    """Passes the events of a session that is open here on to the feeds that follow it.

    Observes the session once, however many feeds there are, and only while there are any.
    """

    def __init__(self, session: AgentSession) -> None:
        self.session = session
        self._feeds: set[SessionFeed] = set()
        self._forget: Callable[[], None] | None = None

    def attach(self, feed: "SessionFeed") -> Source | None:
        """Give a feed every event from now on; returns what is stored already after its `seen`."""
        self._feeds.add(feed)
        if self._forget is None:
            self._forget = self.session.on(_EVERY_KIND, self._pass_on)
        head = self.session.snapshot().head
        return _stored(self.session, after=feed.seen, head=head) if feed.seen < head else None

    def detach(self, feed: "SessionFeed") -> None:
        """Give a feed nothing more."""
        self._feeds.discard(feed)
        if not self._feeds and self._forget is not None:
            self._forget()
            self._forget = None

    def end(self) -> None:
        """Let the feeds look elsewhere: the session was closed."""
        for feed in tuple(self._feeds):
            feed.move()

    def _pass_on(self, event: Event) -> None:
        for feed in tuple(self._feeds):
            feed.push(event)


async def _stored(session: AgentSession, *, after: int, head: int) -> Source:
    """Yield the entries after a `seq` up to another one, from the log."""
    async with contextlib.aclosing(session.events(after=after)) as events:
        async for event in events:
            seq = event.seq if isinstance(event, Entry) else 0
            if not 0 < seq <= head:
                return  # the end of the log is damaged: this one happens now, and is passed on
            yield event
            if seq == head:
                return


def _size_of(event: Event) -> int:
    """Return how long a delta is; another event is short, or the session keeps it."""
    return len(event.text) if isinstance(event, TextDelta | ReasoningDelta) else 0


class SessionFeed:
    """The events of one session after a `seq`, wherever the session is."""

    def __init__(self, open_source: OpenSource, *, session_id: str, after: int) -> None:
        self.session_id = session_id
        self.seen = after
        """The `seq` of the last entry that was delivered."""
        self._open_source = open_source
        self._funnel: Funnel[Event] = Funnel()
        self._relay: Relay | None = None
        self._held: list[Event] | None = None
        """What happened while the log is still read."""
        self._is_stopped = self._is_moved = self._has_lagged = False

    def stop(self) -> None:
        """End the feed: the server shuts down."""
        self._is_stopped = True
        self._funnel.wake()

    def move(self) -> None:
        """Look again where the events come from: the session was opened here."""
        self._is_moved = True
        self._funnel.wake()

    def follow(self, relay: Relay) -> Source | None:
        """Get the events of a session that is open here; returns what is to be read before."""
        self._relay = relay
        return relay.attach(self)

    def push(self, event: Event) -> None:
        """Take an event of the relay, unless too many wait: then the feed ends with a cursor."""
        if self._has_lagged:
            return
        if self._held is not None and len(self._held) < 2 * _ROOM:
            self._held.append(event)
        elif self._held is not None or not self._funnel.offer(event, size=_size_of(event)):
            self._has_lagged = True
            self._funnel.replace(ObserverLagged(resume_after=self.seen))

    async def begin(self) -> None:
        """Read from now on, so that nothing live is missed; `batches` or `close` must follow."""
        self._is_moved = False
        source = await self._open_source(self)
        if source is not None:
            self._held = [] if self._relay is not None else None
            self._funnel.add(source).add_done_callback(self._release)

    def _release(self, reading: "asyncio.Task[None]") -> None:
        """Go on with what happened while the log was read."""
        held, self._held = self._held, None
        if held is None or reading.cancelled():
            return
        if self._funnel.failure is not None:
            self.move()  # what was not read must come before what happened since
            return
        for event in held:
            self.push(event)

    async def close(self) -> None:
        """Stop reading."""
        if self._relay is not None:
            self._relay.detach(self)
            self._relay = None
        self._held = None
        await self._funnel.close()

    async def batches(self, *, ping_seconds: float) -> AsyncGenerator[list[Event], None]:
        """Yield events, all that are there at once; an empty list when nothing happened.

        A store that does not answer is asked again: a client that got a first answer keeps it.
        """
        try:
            while not self._is_stopped:
                if not self._is_reading:
                    async with contextlib.aclosing(self._begin_again(ping_seconds)) as waits:
                        async for _ in waits:
                            yield []
                while batch := await self._next(ping_seconds):
                    fresh = [] if batch == [None] else self._fresh(batch)
                    if fresh or batch == [None]:
                        yield fresh
                    if any(isinstance(item, ObserverLagged | SessionDeleted) for item in fresh):
                        return
                if not (self._relay or self._is_moved or _is_unavailable(self._funnel.failure)):
                    return  # the log itself came to its end: the store is closed
                await self.close()
        except AgentError:
            yield [SessionDeleted(session_id=self.session_id)]  # type: ignore[arg-type]  # our id
        finally:
            await self.close()

    @property
    def _is_reading(self) -> bool:
        return self._relay is not None or self._funnel.is_reading

    async def _begin_again(self, ping_seconds: float) -> AsyncGenerator[None, None]:
        """Begin to read; yields at intervals while the store does not answer."""
        while not self._is_stopped:
            beginning = asyncio.get_running_loop().create_task(self.begin())
            try:
                while not (await asyncio.wait({beginning}, timeout=ping_seconds))[0]:
                    yield
                    if self._is_stopped:
                        return
                beginning.result()
            except AgentError as error:
                if not _is_unavailable(error):
                    raise
            else:
                return
            finally:
                beginning.cancel()
            await self._funnel.take(_AGAIN_SECONDS)
            yield

    async def _next(self, seconds: float) -> "list[Event] | list[None]":
        """Return what came, `[None]` when nothing did for a while, nothing at the end."""
        while not (self._is_stopped or self._is_moved):
            is_reading = self._is_reading
            taken = await self._funnel.take(seconds if is_reading else 0)
            if taken:
                return taken
            if not is_reading:
                return []
            if taken is None:
                return [None]
        return []

    def _fresh(self, batch: "list[Event] | list[None]") -> list[Event]:
        fresh: list[Event] = []
        for event in batch:
            if isinstance(event, Entry) and event.seq:
                if event.seq <= self.seen:
                    continue
                self.seen = event.seq
            if event is not None and not _is_end_elsewhere(event):
                fresh.append(event)
        return fresh


def _is_end_elsewhere(event: Event) -> bool:
    """Return whether a query ended in this process alone: its end is not in the log.

    The store failed, or another process has the session. The query is carried on, and ends there.
    """
    return (
        isinstance(event, QueryEnded)
        and not event.seq
        and event.error is not None
        and event.error.code in {ErrorCode.UNAVAILABLE, ErrorCode.FENCED}
    )


def _is_unavailable(error: AgentError | None) -> bool:
    return error is not None and error.code is ErrorCode.UNAVAILABLE
