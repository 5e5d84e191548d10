"""Feeds: the events of sessions for streams, from the log and from sessions that are open here.

A session that is open in this process gives its live deltas, too. One that another process holds,
or none, is followed in its log. A feed changes from one to the other by `seq`: no entry is lost or
doubled, and a consumer that does not read is told to resume instead of a queue growing.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

from haptera import AgentError, AgentSession, ErrorCode, Event, QueryEnded
from haptera.access.descriptions import SessionEvent
from haptera.agent.query_stream import Subscription
from haptera.model.events import ObserverLagged, ReasoningDelta, SessionDeleted, TextDelta
from haptera.model.log.entry import Entry
from haptera.system.owned_tasks import OwnedTasks

_AGAIN_SECONDS = 1.0
"""How soon a store that did not answer is asked again."""
_STOP_SECONDS = 1.0
"""How long a store that is still asked where to begin is waited for when a feed is closed."""
_READ_AHEAD = 256
"""How many entries of a log wait for a consumer before reading waits."""
_KEPT = 512
"""How many events that happen wait for a consumer before it lags."""
_KEPT_SIZE = 512 * 1024
"""How large their text may be before it lags."""

Told: TypeAlias = tuple[str, Event] | SessionEvent
"""An event of a session with its id, or what happened to a session as a whole."""
Source: TypeAlias = AsyncGenerator[Event, None]
OpenSource: TypeAlias = Callable[[int], Awaitable[AgentSession | Source]]
"""Finds the events of a session after a `seq`: a session that is open here, or else its log."""


def _size_of(event: Event) -> int:
    """Return how long a delta is; another event is short, or the session keeps it."""
    return len(event.text) if isinstance(event, TextDelta | ReasoningDelta) else 0


def _size_of_told(event: Told) -> int:
    return 0 if isinstance(event, SessionEvent) else _size_of(event[1])


class Overview(Subscription[Told]):
    """What happens in the sessions of an owner that are open here, for a client of all of them.

    Owns what each session publishes to; a client that does not read lags.
    """

    def __init__(self) -> None:
        # A slow client must not slow a query down, so it loses its buffer instead.
        super().__init__(
            limit=_KEPT - 1, when_full="lag", size_limit=_KEPT_SIZE, size_of=_size_of_told
        )
        self._taps: dict[_Tap, Callable[[], None]] = {}

    def show(self, session: AgentSession, session_id: str) -> None:
        """Get every event of a session from now on, until it is closed."""
        tap = _Tap(self, session_id)
        detach = session.attach(tap)
        if not tap.ended:
            self._taps[tap] = detach

    def forget(self, tap: "_Tap") -> None:
        """Let go of a session that was closed."""
        self._taps.pop(tap, None)

    def leave(self) -> None:
        """Get no more events of any session."""
        for detach in self._taps.values():
            detach()
        self._taps.clear()


class _Tap(Subscription[Event]):
    """Hands the events of a session on to an overview, with the id of the session."""

    def __init__(self, overview: Overview, session_id: str) -> None:
        super().__init__()
        self._overview = overview
        self._session_id = session_id

    def publish(self, events: Sequence[Event]) -> None:
        """Hand a batch on."""
        self._overview.publish([(self._session_id, event) for event in events])

    def end(self, error: AgentError | None = None) -> None:
        """Let the overview forget the session, which was closed."""
        super().end(error)
        self._overview.forget(self)


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


class SessionFeed:
    """The events of one session after a `seq`, wherever the session is.

    Owns the tasks that read the log. Reading waits for the consumer; what happens does not, and a
    consumer that does not take it lags.
    """

    def __init__(self, open_source: OpenSource, *, session_id: str, after: int) -> None:
        self.session_id = session_id
        self.seen = after
        """The `seq` of the last entry that was delivered."""
        self._open_source = open_source
        self._parts: deque[Subscription[Event]] = deque()
        """What is taken one after the other: what the log has, then what happens."""
        self._live: tuple[Subscription[Event], Callable[[], None]] | None = None
        """What a session that is open here publishes to, and what ends that."""
        self._readings = OwnedTasks()
        self._beginnings = OwnedTasks()
        self._failure: AgentError | None = None
        """What reading the log failed with."""
        self._changed = asyncio.Event()
        """Set when it is to begin anew, or to end."""
        self._is_stopped = self._is_live = False
        self._last: list[Event] = []
        """What a client is told at the end, after everything that happened."""

    @property
    def is_begun(self) -> bool:
        """Whether it reads, or gets what happens."""
        return bool(self._parts)

    def stop(self, last: Sequence[Event] = ()) -> None:
        """End the feed, without waiting for it: the server shuts down, or the client left."""
        self._is_stopped = True
        self._last = list(last)
        self._changed.set()
        self._leave()
        for reading in self._readings:
            reading.cancel()

    async def move(self) -> None:
        """Observe the session, which was opened here, before anything happens in it.

        What waits to be taken stays; what the log and the session both have is delivered once.
        """
        if not self.is_begun:  # it is about to begin, perhaps with the log
            self._changed.set()
            return
        before = tuple(self._readings)
        with contextlib.suppress(AgentError):  # the session was closed again: the log goes on
            await self._read_on()
            for reading in before:
                reading.cancel()

    async def begin(self) -> None:
        """Read from now on, so that nothing live is missed; `batches` or `close` must follow."""
        if not self._is_stopped:
            self._changed.clear()
        await self._read_on()

    async def _read_on(self) -> None:
        """Let what is stored after `seen`, and what happens, follow what is taken now."""
        self._is_live = False
        # Before the old source is left: if this fails, the feed goes on with that one.
        source = await self._open_source(self.seen)
        self._leave()
        if isinstance(source, AgentSession):
            self._attach(source)
        else:
            self._read(source)

    def _attach(self, session: AgentSession) -> None:
        """Get what happens from now on, after what is stored already."""
        self._is_live = True
        live = Subscription(
            limit=_KEPT - 1, when_full="lag", size_limit=_KEPT_SIZE, size_of=_size_of
        )
        # Attached before the head is read: what happens in between is in both, and `_fresh` leaves
        # the second out.
        self._live = live, session.attach(live)
        head = session.view().head
        if self.seen < head:
            self._read(_stored(session, after=self.seen, head=head))
        self._parts.append(live)

    def _read(self, source: Source) -> None:
        part: Subscription[Event] = Subscription(limit=_READ_AHEAD)
        reading = self._readings.start(_publish(source, part), name="haptera-feed-reading")

        def end(reading: asyncio.Task[None]) -> None:
            error = None if reading.cancelled() else reading.exception()
            part.end(error if isinstance(error, AgentError) else None)

        reading.add_done_callback(end)
        self._parts.append(part)

    def _leave(self) -> None:
        """Get no more events of the session that is open here; what waits can still be taken."""
        if self._live is not None:
            live, detach = self._live
            detach()
            live.end()
            self._live = None

    async def close(self) -> None:
        """Stop reading."""
        self._leave()
        for part in self._parts:  # first: the caller may be cancelled, and its wait with it
            part.abandon()
        self._parts.clear()
        self._failure = None
        await self._readings.cancel(within=None)
        await self._beginnings.cancel(within=_STOP_SECONDS)

    async def batches(self, *, ping_seconds: float) -> AsyncGenerator[list[Event], None]:
        """Yield events, all that are there at once; an empty list when nothing happened.

        A store that does not answer is asked again: a client that got a first answer keeps it.
        """
        async with contextlib.aclosing(self._each_batch(ping_seconds)) as batches:
            async for batch in batches:
                yield batch
        if self._last:
            yield self._last

    async def _each_batch(self, ping_seconds: float) -> AsyncGenerator[list[Event], None]:
        try:
            while not self._is_stopped:
                if not self.is_begun:
                    async with contextlib.aclosing(self._begin_again(ping_seconds)) as waits:
                        async for _ in waits:
                            yield []
                while (batch := await self._next(ping_seconds)) is not None:
                    fresh = self._fresh(batch)
                    if fresh or not batch:
                        yield fresh
                    if any(isinstance(item, ObserverLagged | SessionDeleted) for item in fresh):
                        return
                # A session that was open here was closed or moved: its log goes on, perhaps
                # elsewhere.
                is_moved = self._is_live or self._changed.is_set()
                if not (is_moved or _is_unavailable(self._failure)):
                    return  # the log itself came to its end: the store is closed
                await self.close()
        except AgentError as error:
            # After any other error the stream just ends: a client that comes back is told that one.
            if error.code is ErrorCode.NOT_FOUND:
                yield [SessionDeleted(session_id=self.session_id)]  # type: ignore[arg-type]  # our id
        finally:
            await self.close()

    async def _begin_again(self, ping_seconds: float) -> AsyncGenerator[None, None]:
        """Begin to read; yields at intervals while the store does not answer."""
        while not self._is_stopped:
            beginning = self._beginnings.start(self.begin(), name="haptera-feed-beginning")
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
                # Not awaited: `close` does that, within a limit, for a store that hangs.
                beginning.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_SECONDS):
                    await self._changed.wait()
            yield

    async def _next(self, seconds: float) -> list[Event] | None:
        """Return what came, an empty list when nothing did for a while, None at the end."""
        while self._parts and not self._changed.is_set():
            part = self._parts[0]
            try:
                batch = await part.next_batch(seconds)
            except TimeoutError:
                return []
            except AgentError as error:
                self._failure = error  # it looks where to go on
                return None
            if batch:
                return batch
            if part.lagged:
                return [ObserverLagged(resume_after=self.seen)]
            self._parts.popleft()
        return None

    def _fresh(self, batch: list[Event]) -> list[Event]:
        """Return what was not delivered yet of what came."""
        fresh: list[Event] = []
        for event in batch:
            if isinstance(event, Entry) and event.seq:
                if event.seq <= self.seen:
                    continue
                self.seen = event.seq
            if not _is_end_elsewhere(event):
                fresh.append(event)
        return fresh


async def _publish(source: Source, part: Subscription[Event]) -> None:
    """Publish what a log has, no faster than it is taken."""
    async with contextlib.aclosing(source):
        async for event in source:
            part.publish((event,))
            await part.wait_for_space()


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
