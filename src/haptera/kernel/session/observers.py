"""Observing a session: its events from any `seq` on, from the log and then as they happen."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress

from haptera.kernel.blocks.control_channel import ControlChannelInterface, Subscription
from haptera.model.errors import AgentError
from haptera.model.events import Event, ObserverLagged, SessionDeleted
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.turns import PartCheckpoint, PartEnded, PartTexts, TurnStarted
from haptera.ports.session_store import SessionLog

_PAGE = 256
"""The most entries that are read back at once."""


async def observe(
    channel: ControlChannelInterface,
    log: SessionLog,
    session_id: SessionId,
    *,
    subscription: Subscription[Event],
    after: int,
    head: Callable[[], int],
) -> AsyncGenerator[Event, None]:
    """Yield events after a `seq`: first from the log, then as they happen, none twice.

    `head` tells the last `seq` that was published. An observer whose `subscription` lagged gets
    `ObserverLagged` and nothing more; reading again from the `seq` it names loses nothing but
    live-only deltas.
    """
    composer = _EntryComposer(log, session_id, after=after)
    seen = after
    # An observer that is far behind reads by pages, and is not attached yet: its buffer would be
    # full before it is there.
    while head() - seen > _PAGE and (page := await log.read(session_id, after=seen, limit=_PAGE)):
        for entry in await composer.compose(page):
            yield entry
        seen = page[-1].seq
    # Attached before the rest is read, so that nothing falls between the two. What both have is
    # dropped below. Events without a `seq` belong behind the last entry that was published.
    live = head()
    detach = channel.attach(subscription)
    try:
        if rest := await log.read(session_id, after=seen):
            for entry in await composer.compose(rest):
                yield entry
            seen = rest[-1].seq
        while batch := await subscription.next_batch():
            for event in batch:
                # What happened before the last entry that was seen, the log has shown already.
                fresh = live >= seen
                if isinstance(event, Entry) and event.seq:
                    live = event.seq
                    fresh = live > seen
                    seen = max(seen, live)
                if fresh:
                    yield event
        if subscription.lagged:
            yield ObserverLagged(resume_after=seen)
    finally:
        detach()


async def follow_entries(
    log: SessionLog, session_id: SessionId, *, after: int = 0
) -> AsyncGenerator[Event, None]:
    """Yield entries after a `seq` as consumers see them, then those that any process appends.

    The last one says that the session was deleted, if that is why nothing more comes.
    """
    composer = _EntryComposer(log, session_id, after=after)
    async with aclosing(log.follow(session_id, after=after)) as pages:
        async for page in pages:
            for entry in await composer.compose(page):
                yield entry
    with suppress(AgentError):  # the store was closed
        # `follow` also ends when the store is closed; only a log without entries was deleted.
        if not await log.read(session_id, limit=1):
            yield SessionDeleted(session_id=session_id)


class _EntryComposer:
    """Composes the entries of a log as it is read: the entry of an ended part gets the whole part.

    Owns the text of the parts that are still growing, so that every entry is read once. A part that
    began before the entry it starts with needs its earlier text: that is read back once, no further
    than to the start of the turn.
    """

    def __init__(self, log: SessionLog, session_id: SessionId, *, after: int) -> None:
        self._log = log
        self._session_id = session_id
        self._unread = after
        """Entries up to this `seq` were not read; 0 once they were read back."""
        self._texts = PartTexts()

    async def compose(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that follow those of the last call, as consumers see them."""
        composed: list[Entry] = []
        for entry in entries:
            if self._unread and self._begins_in_the_middle(entry):
                await self._read_back()
            # What is for the log alone is not shown when it is read back, either.
            if entry.is_public:
                composed.append(self._take(entry))
        return composed

    def _begins_in_the_middle(self, entry: Entry) -> bool:
        if not isinstance(entry, PartCheckpoint | PartEnded):
            return False
        return entry.offset > 0 and entry.part_id not in self._texts

    def _take(self, entry: Entry) -> Entry:
        match entry:
            case TurnStarted():
                # Whatever of an earlier turn has not ended never will.
                self._texts, self._unread = PartTexts(), 0
            case PartCheckpoint():
                self._texts.add(entry)
            case PartEnded():
                entry = self._texts.compose(entry)
                self._texts.drop(entry.part_id)
        return entry

    async def _read_back(self) -> None:
        """Read the entries before the first one, page by page, back to the start of the turn."""
        stop, self._unread = self._unread, 0
        pages: list[list[Entry]] = []
        while stop > 0:
            start = max(0, stop - _PAGE)
            read = await self._log.read(self._session_id, after=start, limit=stop - start)
            # Where entries are damaged, this number of good ones reaches further than wanted.
            page = [entry for entry in read if entry.seq <= stop]
            turns = [index for index, item in enumerate(page) if isinstance(item, TurnStarted)]
            pages.append(page[turns[-1] + 1 :] if turns else page)
            stop = 0 if turns else start
        for page in reversed(pages):
            for entry in page:
                self._take(entry)
