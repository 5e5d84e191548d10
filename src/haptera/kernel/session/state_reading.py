"""What a session is, and was, by the states that are stored in its log: little of it is read."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from haptera.kernel.session.log_reading import beside_the_loop, last_seq_in, refuse_newer
from haptera.model.ids import MessageId, SessionId
from haptera.model.log.approvals import ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.fold import copy_fold, fold_at
from haptera.model.log.history import Rewound
from haptera.model.log.landmarks import Landmarks, StatePlace
from haptera.model.log.paths import current_path
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.stored_state import (
    STORED_EVERY,
    fold_at_state,
    fold_further,
    fold_on,
    needs_messages,
    stored_state,
)
from haptera.model.messages import Message
from haptera.ports.session_store import SessionLog

LONGEST_STRETCH = 4 * STORED_EVERY
"""How many entries are read of what follows a state; where more are needed, the whole log is."""


class Stretch(msgspec.Struct, frozen=True):
    """A session at an earlier entry, and entries that follow that without a gap."""

    base: Callable[[], SessionFold | None]
    """Makes the session at that entry; None when it cannot be read."""
    near: Sequence[Entry]
    places: Sequence[tuple[int, int]] = ()
    """Where these lie: for each piece of the log the `seq` before it, and its last one."""
    way_end: int = 0
    """The last of them that leads to where the session is."""
    until: int = 0
    """The last entry that was asked for what belongs to them."""
    length: int = 0
    """How many messages it takes to make the session at that entry."""
    takes_fates: bool = True
    """Whether what became of calls may follow: no answer before has calls that it is about."""

    async def folded(self, later: Sequence[Entry], *, between: SessionFold) -> SessionFold | None:
        """Fold the session from there on, by what is near and what came later in its log.

        None where that does not suffice.
        """

        def fold() -> SessionFold | None:
            if not self.takes_fates and any(map(_settles_calls, later)):
                return None
            base = self.base()
            if base is None:
                return None
            following = self._by_read_ways(later) if self.near else later
            return fold_on(base, self.near, following, between=between)

        length = len(self.near) + len(later) + len(between.conversation) + self.length
        return await beside_the_loop(length, fold)

    async def find(self, message_id: MessageId) -> "MessagePlace | None":
        """Find a message that is added near; None when none is."""

        def find() -> MessagePlace | None:
            fold = self.base()
            if fold is None or needs_messages(self.near):
                return None
            again = copy_fold(fold)
            path = current_path(self.near, through=self.way_end)
            seq = last_seq_in(fold, path, message_id)
            if seq is None:
                return None
            again.apply_all(current_path(self.near, through=seq))
            return MessagePlace(seq, again.messages(), self)

        return await beside_the_loop(len(self.near) + self.length, find)

    def _by_read_ways(self, later: Sequence[Entry]) -> Sequence[Entry]:
        """Cut rewinds off among later entries that go back to what is not read."""
        end = later[-1].seq if later else 0
        return (
            without_unread_ways([*self.places, (later[0].seq - 1, end)], later) if later else later
        )


def _settles_calls(entry: Entry) -> bool:
    return entry.is_fate or isinstance(entry, ApprovalSettled)


def without_unread_ways(places: Sequence[tuple[int, int]], entries: Sequence[Entry]) -> list[Entry]:
    """Let rewinds to what was not read go back to nothing.

    They would go back to the last entry that was read before that, and what became of calls there
    would be taken for what became of those of another answer.
    """
    return [
        replace(each, to_seq=0)
        if isinstance(each, Rewound)
        and not any(first < each.to_seq <= last for first, last in places)
        else each
        for each in entries
    ]


class MessagePlace(msgspec.Struct, frozen=True):
    """Where a message is the last one, the messages there, and what to read to go back there."""

    seq: int
    messages: Sequence[Message]
    """The messages there, as far as they are near."""
    stretch: Stretch


async def read_to_look(
    log: SessionLog, session_id: SessionId, folded: tuple[int, int] | None
) -> SessionFold | None:
    """Fold what a session is, perhaps without its messages; None when all has to be read for that.

    Raises:
        StoreError: VERSION_UNSUPPORTED when a newer version wrote the session.

    """
    if folded is None:
        return None
    last = StatePlace(*folded)
    opening = await log.read(session_id, limit=1)
    # `read` leaves a damaged opening out: then all entries are folded as usual.
    if not (opening and isinstance(opening[0], SessionOpened) and opening[0].seq < last.at):
        return None
    refuse_newer(opening[0])
    later = await log.read(session_id, after=last.at)
    entry = next((each for each in later if each.seq == last.seq), None)
    state = fold_at_state(opening[0], entry)
    # The place is that of an index, which has no checksum as the entry has.
    if state is None or state.head != last.at:
        return None
    fold_further(state, later)
    reader = StateReader(log, session_id, opening[0])
    stretch = await reader.before_rewinds(state, last=last)
    return None if stretch is None else await stretch.folded(later, between=state)


class StateReader:
    """Reads one session's log around its stored states."""

    def __init__(self, log: SessionLog, session_id: SessionId, opened: Entry | None) -> None:
        self._log = log
        self._session_id = session_id
        self._opened = opened

    async def before_rewinds(self, known: SessionFold, *, last: StatePlace) -> Stretch | None:
        """Return what a session goes on from whose log has all but its end read.

        That is its last state, unless the conversation went back to before it.
        """
        landmarks = known.landmarks
        base = None if landmarks is None else next(landmarks.states_on_way_to(known.head), None)
        if landmarks is None or base is None:
            return None
        if base == last:
            entry = await self._entry(base.seq)
            return Stretch(lambda: fold_at_state(self._opened, entry), ())
        ends = [end for start, end in landmarks.way_to(known.head) if start <= last.at]
        return await self.stretch(landmarks, base, through=max(ends), until=last.at)

    async def before(self, landmarks: Landmarks, seq: int, *, until: int) -> Stretch | None:
        """Return what the session was at an entry, from the last state before it on."""
        base = next(landmarks.states_on_way_to(seq), None)
        if base is None:
            return None
        return await self.stretch(landmarks, base, through=seq, until=until)

    async def stretch(
        self,
        landmarks: Landmarks,
        base: StatePlace,
        *,
        through: int,
        until: int,
    ) -> Stretch | None:
        """Read a state and all entries that count for what leads from it to the entry `through`.

        Of what comes after `until` nothing is asked: that is read in any case.
        """
        entry = await self._entry(base.seq)
        if stored_state(entry) is None:
            return None
        return await self.around(
            landmarks,
            landmarks.way_between(base.at, through, until=until),
            until=until,
            base=lambda: fold_at_state(self._opened, entry),
        )

    async def around(
        self,
        landmarks: Landmarks,
        way: Sequence[tuple[int, int]],
        *,
        until: int,
        base: Callable[[], SessionFold | None],
        length: int = 0,
    ) -> Stretch | None:
        """Read stretches of the log that begin and end where nothing was open.

        With them comes what went on from there later, up to `until`. None if it is too much.
        """
        places = landmarks.with_branches(way, until=until)
        if sum(last - after for after, last in places) > LONGEST_STRETCH:
            return None
        near = [each for place in places for each in await self._read(*place)]
        if not near and any(after != last for after, last in places):
            return None
        return Stretch(
            base,
            without_unread_ways(places, near),
            places=places,
            way_end=landmarks.reach(places, to=until),
            until=until,
            length=length,
        )

    async def _read(self, after: int, end: int) -> list[Entry]:
        near = await self._log.read(self._session_id, after=after, limit=max(end - after, 1))
        # `limit` counts readable entries, and so reaches past that `seq` where some are damaged.
        return [each for each in near if each.seq <= end]

    async def find(self, fold: SessionFold, message_id: MessageId) -> MessagePlace | None:
        """Find a message of a session that was folded from a stored state.

        None if it is not on the current path, or that cannot be told without the whole log.
        """
        landmarks = fold.landmarks
        if landmarks is None:
            return None
        # The first message is the last one of the state that the session was folded from.
        later = {message.id for message in fold.messages()[1:]}
        through, following = fold.head if message_id in later else None, fold.head
        for place in landmarks.states_on_way_to(fold.head):
            if through is not None:
                stretch = await self.stretch(landmarks, place, through=through, until=fold.head)
                return None if stretch is None else await stretch.find(message_id)
            stored = stored_state(await self._entry(place.seq))
            if stored is None or stored.listed is None:
                return None
            # What follows a state may leave its last message the last one for a while.
            if message_id in stored.listed:
                through = following if message_id == stored.tip.id else place.at
            if message_id != stored.tip.id:
                following = place.at
        return None

    async def find_at(
        self, fold: SessionFold, index: int, message_id: MessageId
    ) -> MessagePlace | None:
        """Find the message with an index by the session's points around it.

        None if that cannot be told without more of the log.
        """
        landmarks, point = fold.landmarks, fold.points.before_message(index)
        following = fold.points.after_message(index)
        if landmarks is None or point is None:
            return None
        end, is_at_rest = (fold.head, False) if following is None else (following.seq, True)
        way = landmarks.way_between(point.seq, end, until=fold.head, is_at_rest=is_at_rest)
        stretch = await self.around(
            landmarks,
            way,
            until=fold.head,
            base=lambda: fold_at(fold, point),
            length=len(fold.conversation),
        )
        return None if stretch is None or not stretch.near else await stretch.find(message_id)

    async def _entry(self, seq: int) -> Entry | None:
        entries = await self._log.read(self._session_id, after=seq - 1, limit=1)
        return entries[0] if entries and entries[0].seq == seq else None
