"""Observing a session: its events from any `seq` on, from the log and then as they happen."""

from collections.abc import AsyncGenerator, Callable, Sequence

from holdfast.blocks.control_channel.channel import ControlChannel
from holdfast.blocks.control_channel.subscription import Subscription
from holdfast.blocks.conversation.open_turn import OpenTurn
from holdfast.ports.session_store import SessionLog
from holdfast.vocabulary.entries import Entry, PartCheckpoint, PartEnded, PartStarted, TurnStarted
from holdfast.vocabulary.events import Event, ObserverLagged
from holdfast.vocabulary.ids import SessionId


async def observe(
    channel: ControlChannel,
    log: SessionLog,
    session_id: SessionId,
    *,
    subscription: Subscription,
    after: int,
    head: Callable[[], int],
) -> AsyncGenerator[Event, None]:
    """Yield events after a `seq`: first from the log, then as they happen, none twice.

    `head` tells the last `seq` that was published. An observer whose `subscription` lagged gets
    `ObserverLagged` and nothing more; reading again from the `seq` it names loses nothing but
    live-only deltas.
    """
    live = head()
    detach = channel.attach(subscription)
    try:
        seen = after
        for entry in await read_events(log, session_id, after=after):
            seen = entry.seq
            yield entry
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
