"""Feeds: the events of sessions for streams, from the log and from sessions that are open here.

A session that is open in this process gives its live deltas, too. One that another process holds,
or none, is followed in its log. A feed changes from one to the other by `seq`: no entry is lost or
doubled, and a consumer that does not read is told to resume instead of a queue growing.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

from holdfast import AgentError, AgentSession, ErrorCode, Event, QueryEnded
from holdfast.server.funnel import ROOM, Funnel
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.events import ObserverLagged, ReasoningDelta, SessionDeleted, TextDelta

_EVERY_KIND: Any = object
"""The kinds of events have no class in common but this one."""

_AGAIN_SECONDS = 1.0
"""How soon a store that did not answer is asked again."""

Source: TypeAlias = AsyncGenerator[Event, None]
OpenSource: TypeAlias = Callable[["SessionFeed"], Awaitable[Source | None]]
"""Lets a feed have the events after its `seen`: attaches it to the relay of a session that is open
here, and returns what is to be read from the log before; or else returns all of them."""


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
            feed.leave()

    def _pass_on(self, event: Event) -> None:
        for feed in tuple(self._feeds):
            feed.push(event)


class Relays:
    """The relays of the sessions that are open here."""

    def __init__(self) -> None:
        self._relays: dict[tuple[str, str], Relay] = {}

    def of(self, session: AgentSession, owner: str, session_id: str) -> Relay:
        """Return the relay of a session that is open; one that was closed before has ended."""
        relay = self._relays.get((owner, session_id))
        if relay is None or relay.session is not session:
            self.end(owner, session_id)
            relay = self._relays[owner, session_id] = Relay(session)
        return relay

    def end(self, owner: str, session_id: str) -> None:
        """Let the feeds of a session look elsewhere: it was closed."""
        relay = self._relays.pop((owner, session_id), None)
        if relay is not None:
            relay.end()


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
        self._replaying: asyncio.Task[None] | None = None
        self._is_stopped = self._is_moved = self._is_live = self._has_lagged = False

    def stop(self) -> None:
        """End the feed: the server shuts down."""
        self._is_stopped = True
        self._funnel.wake()

    async def move(self) -> None:
        """Observe the session, which was opened here, before anything happens in it.

        What waits to be taken stays; what the log and the session both have is delivered once.
        """
        if not self.is_begun:  # it is about to begin, perhaps with the log
            self._is_moved = True
            self._funnel.wake()
            return
        with contextlib.suppress(AgentError):  # the session was closed again: the log goes on
            self._funnel.stop(but=await self._read_on())

    @property
    def is_begun(self) -> bool:
        """Whether it reads, or gets what happens."""
        return self._relay is not None or self._funnel.is_reading

    def abandon(self) -> None:
        """Stop reading, without waiting for it: the client left before it took anything."""
        self._is_stopped = True
        self.leave()
        self._funnel.stop()

    def follow(self, relay: Relay) -> Source | None:
        """Get the events of a session that is open here; returns what is to be read before."""
        self.leave()
        self._relay, self._is_live = relay, True
        source = relay.attach(self)
        self._held = None if source is None else []
        return source

    def leave(self) -> None:
        """Get no more events of the session that is open here, or was: take what waits, go on."""
        if self._relay is not None:
            self._relay.detach(self)
            self._relay = None
        self._held = None
        self._funnel.wake()

    def push(self, event: Event) -> None:
        """Take an event of the relay, unless too many wait: then the feed ends with a cursor."""
        if self._has_lagged:
            return
        if self._held is not None and len(self._held) < 2 * ROOM:
            self._held.append(event)
        elif self._held is not None or not self._funnel.offer(event, size=_size_of(event)):
            self._has_lagged = True
            self._funnel.replace(ObserverLagged(resume_after=self.seen))

    async def begin(self) -> None:
        """Read from now on, so that nothing live is missed; `batches` or `close` must follow."""
        self._is_moved = False
        await self._read_on()

    async def _read_on(self) -> "asyncio.Task[None] | None":
        """Open the source of events; returns what reads it, if anything is to be read."""
        self._is_live = False
        source = await self._open_source(self)
        if source is None:
            return None
        reading = self._funnel.add(source)
        if self._relay is not None:
            self._replaying = reading
            reading.add_done_callback(self._release)
        return reading

    def _release(self, reading: "asyncio.Task[None]") -> None:
        """Go on with what happened while the log was read."""
        if reading is not self._replaying or self._held is None:
            return
        held, self._held = self._held, None
        if self._funnel.failure is not None:
            self._is_moved = True  # what was not read must come before what happened since
            self._funnel.wake()
            return
        for event in held:
            self.push(event)

    async def close(self) -> None:
        """Stop reading."""
        self.leave()
        await self._funnel.close()

    async def batches(self, *, ping_seconds: float) -> AsyncGenerator[list[Event], None]:
        """Yield events, all that are there at once; an empty list when nothing happened.

        A store that does not answer is asked again: a client that got a first answer keeps it.
        """
        try:
            while not self._is_stopped:
                if not self.is_begun:
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
            is_reading = self.is_begun
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
