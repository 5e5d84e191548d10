"""Observers: any number of readers of one session, each with its own bounded buffer."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import chain

from holdfast.blocks.conversation.open_turn import OpenTurn
from holdfast.ports.session_store import SessionLog
from holdfast.vocabulary.entries import Entry, PartCheckpoint, PartEnded, PartStarted, TurnStarted
from holdfast.vocabulary.events import Event, ObserverLagged
from holdfast.vocabulary.ids import SessionId


class _Observer:
    """One reader's buffer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: list[Sequence[Event]] = []
        self._count = 0
        self._news = asyncio.Event()
        self.lagged = False
        self.ended = False

    def offer(self, events: Sequence[Event]) -> None:
        """Buffer a batch; a reader that was too far behind before it gets no more of them."""
        if self._count > self._limit:
            self.lagged = True
            self._batches.clear()
        if not self.lagged:
            self._count += len(events)
            self._batches.append(events)
        self._news.set()

    def end(self) -> None:
        """Say that nothing more comes."""
        self.ended = True
        self._news.set()

    async def take(self) -> list[Sequence[Event]]:
        """Return the batches that came, waiting for the first; an empty list is the end."""
        while not self._batches and not self.lagged and not self.ended:
            self._news.clear()
            await self._news.wait()
        batches, self._batches, self._count = self._batches, [], 0
        return batches


class Observers:
    """The readers of one session. Publishing never waits for them."""

    def __init__(self, *, limit: int, head: Callable[[], int]) -> None:
        self._limit = limit
        self._head = head
        """Tells the last `seq` that was published."""
        self._observers: set[_Observer] = set()

    def __len__(self) -> int:
        return len(self._observers)

    def publish(self, events: Sequence[Event]) -> None:
        """Hand a batch to every reader; all share the one list."""
        for observer in self._observers:
            observer.offer(events)

    def close(self) -> None:
        """End every reader once it has read what there is."""
        for observer in self._observers:
            observer.end()

    async def events(
        self, log: SessionLog, session_id: SessionId, *, after: int
    ) -> AsyncGenerator[Event, None]:
        """Yield events after a `seq`: first from the log, then as they happen, none twice.

        A reader that falls behind gets `ObserverLagged` and nothing more; reading again from the
        `seq` it names loses nothing but live-only deltas.
        """
        observer, live = _Observer(self._limit), self._head()
        self._observers.add(observer)
        try:
            seen = after
            for entry in await read_events(log, session_id, after=after):
                seen = entry.seq
                yield entry
            while batches := await observer.take():
                for event in chain.from_iterable(batches):
                    # What happened before the last entry that was seen, the log has shown already.
                    fresh = live >= seen
                    if isinstance(event, Entry) and event.seq:
                        live = event.seq
                        fresh = live > seen
                        seen = max(seen, live)
                    if fresh:
                        yield event
            if observer.lagged:
                yield ObserverLagged(resume_after=seen)
        finally:
            self._observers.discard(observer)


async def read_events(log: SessionLog, session_id: SessionId, *, after: int = 0) -> list[Entry]:
    """Read entries as consumers see them: an ended part is whole."""
    entries = await log.read(session_id, after=after)
    composed = _compose(entries)
    if after and any(isinstance(item, PartEnded) and item.offset for item in composed):
        # A part began before `after`: its earlier increments are needed, too.
        whole = _compose(await log.read(session_id))
        return [entry for entry in whole if entry.seq > after]
    return composed


async def follow_entries(
    log: SessionLog, session_id: SessionId, *, after: int = 0
) -> AsyncGenerator[Entry, None]:
    """Read what happened after a `seq`, then what happens, also where another process writes."""
    async for page in log.follow(session_id, after=after):
        for entry in await read_events(log, session_id, after=after):
            if entry.seq <= page[-1].seq:
                yield entry
        after = page[-1].seq


def _compose(entries: Sequence[Entry]) -> list[Entry]:
    turn: OpenTurn | None = None
    composed: list[Entry] = []
    for entry in entries:
        match entry:
            case TurnStarted():
                turn = OpenTurn(entry)
            case PartStarted() if turn is not None:
                turn.start(entry)
            case PartCheckpoint() if turn is not None:
                turn.grow(entry)
            case PartEnded() if turn is not None:
                composed.append(turn.compose(entry))
                continue
        composed.append(entry)
    return composed
