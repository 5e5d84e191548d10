"""Feeds: the events of sessions for streams, from the log and from sessions that are open here.

A session that is open in this process gives its live deltas, too. One that another process holds,
or none, is followed in its log. A feed changes from one to the other by `seq`: no entry is lost or
doubled, and a consumer that does not read makes the session's observer lag instead of a queue grow.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from holdfast import AgentError, ErrorCode, Event, QueryEnded
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.events import ObserverLagged, SessionDeleted

ItemT = TypeVar("ItemT")
_ROOM = 256
"""How many items wait for a consumer before their source waits."""

_AGAIN_SECONDS = 1.0
"""How soon a store that did not answer is asked again."""

Source: TypeAlias = AsyncGenerator[Event, None]
OpenSource: TypeAlias = Callable[[int], Awaitable[tuple[Source, bool]]]
"""Opens the events after a `seq`; says whether they are those of a session that is open here."""


class Funnel(Generic[ItemT]):
    """Collects the items of generators for one consumer, who takes all that are there at once.

    Owns the tasks that read the generators. A generator whose items are not taken waits.
    """

    def __init__(self) -> None:
        self._items: deque[ItemT] = deque()
        self._ready = asyncio.Event()
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

    def offer(self, item: ItemT) -> bool:
        """Add an item from outside, unless too many wait; returns whether it was added."""
        if len(self._items) >= 2 * _ROOM:
            return False
        self._items.append(item)
        self._ready.set()
        return True

    def wake(self) -> None:
        """Let the consumer look, though there is no item."""
        self._ready.set()

    async def take(self, seconds: float) -> list[ItemT] | None:
        """Return the items that came; none when it was woken, None when nothing happened."""
        if not self._items and not self._ready.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._ready.wait()
            except TimeoutError:
                return None
        self._ready.clear()
        taken = list(self._items)
        self._items.clear()
        self._room.set()
        return taken

    def stop(self, *, but: asyncio.Task[None] | None = None) -> None:
        """Let the generators be closed, all `but` one, without waiting for it."""
        for task in self._tasks - {but}:
            task.cancel()

    async def close(self) -> None:
        """Stop reading."""
        self.stop()
        tasks, self._tasks = self._tasks, set()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._items.clear()
        self.failure = None

    async def _read(self, source: AsyncGenerator[ItemT, None]) -> None:
        try:
            async with contextlib.aclosing(source):
                async for item in source:
                    self._items.append(item)
                    self._ready.set()
                    while len(self._items) >= _ROOM:
                        self._room.clear()
                        await self._room.wait()
        except AgentError as error:
            self.failure = error  # the feed looks where to go on
        finally:
            self._ready.set()


class SessionFeed:
    """The events of one session after a `seq`, wherever the session is."""

    def __init__(self, open_source: OpenSource, *, session_id: str, after: int) -> None:
        self.session_id = session_id
        self.seen = after
        """The `seq` of the last entry that was delivered."""
        self._open_source = open_source
        self._funnel: Funnel[Event] = Funnel()
        self._is_stopped = self._is_moved = self._is_live = False

    def stop(self) -> None:
        """End the feed: the server shuts down."""
        self._is_stopped = True
        self._funnel.wake()

    async def move(self) -> None:
        """Observe the session, which was opened here, before anything happens in it.

        What waits to be taken stays; what the log and the session both have is delivered once.
        """
        if not self._funnel.is_reading:  # it is about to begin, perhaps with the log
            self._is_moved = True
            self._funnel.wake()
            return
        with contextlib.suppress(AgentError):  # the session was closed again: the log goes on
            self._funnel.stop(but=await self._read_on())

    @property
    def is_begun(self) -> bool:
        """Whether it reads."""
        return self._funnel.is_reading

    def abandon(self) -> None:
        """Stop reading, without waiting for it: the client left before it took anything."""
        self._is_stopped = True
        self._funnel.stop()

    async def begin(self) -> None:
        """Read from now on, so that nothing live is missed; `batches` or `close` must follow."""
        self._is_moved = False
        await self._read_on()

    async def _read_on(self) -> asyncio.Task[None]:
        source, self._is_live = await self._open_source(self.seen)
        reading = self._funnel.add(source)
        await asyncio.wait({reading}, timeout=0)  # it observes the session from its first step on
        return reading

    async def close(self) -> None:
        """Stop reading."""
        await self._funnel.close()

    async def batches(self, *, ping_seconds: float) -> AsyncGenerator[list[Event], None]:
        """Yield events, all that are there at once; an empty list when nothing happened.

        A store that does not answer is asked again: a client that got a first answer keeps it.
        """
        try:
            while not self._is_stopped:
                if not self._funnel.is_reading:
                    async with contextlib.aclosing(self._begin_again(ping_seconds)) as waits:
                        async for _ in waits:
                            yield []
                while batch := await self._next(ping_seconds):
                    fresh = [] if batch == [None] else self._fresh(batch)
                    if fresh or batch == [None]:
                        yield fresh
                    if any(isinstance(item, ObserverLagged | SessionDeleted) for item in fresh):
                        return
                if not (self._is_live or self._is_moved or _is_unavailable(self._funnel.failure)):
                    return  # the log itself came to its end: the store is closed
                await self.close()
        except AgentError:
            yield [SessionDeleted(session_id=self.session_id)]  # type: ignore[arg-type]  # our id
        finally:
            await self.close()

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
            is_reading = self._funnel.is_reading
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
