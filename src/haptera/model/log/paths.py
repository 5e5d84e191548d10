"""Paths: which entries of a log count after rewinds.

A log is a list, but what happened is a tree: each entry follows the one before it, except that a
rewind follows the entry it goes back to. What counts is the way from the last entry to the root.
So rewinding can be rewound, and nothing is ever removed.

What became of a tool call belongs to the call in its answer, not to the way: an effect on the world
is not rewound. So wherever an answer counts, everything that was recorded of its calls counts, too.
Call ids are no help with that, because providers use them again; the answer that was open when an
entry was written is.
"""

from bisect import bisect_right
from collections.abc import Sequence

from msgspec.structs import replace

from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.history import Rewound
from haptera.model.log.landmarks import Landmarks, RewindPlace
from haptera.model.log.sessions import SessionChanged, SessionImported


def current_path(entries: Sequence[Entry], *, through: int | None = None) -> Sequence[Entry]:
    """Return the entries that count, in order: those on the way to the last one, or to `through`.

    What was recorded of a call elsewhere follows the end of its answer. It has no `seq`, because
    it has no place on this way.
    """
    last = entries[-1].seq if entries else 0
    end = last if through is None else through
    # Most logs have no rewind and are their own path.
    if end >= last and Rewound not in map(type, entries):
        return entries
    tree = _Tree(entries)
    counting = tree.way_to(end)
    # A question that was answered on another path must not wait on this one.
    settled = {
        entry.approval_id
        for entry in entries
        if isinstance(entry, ApprovalSettled) and entry.seq not in counting
    }
    path: list[Entry] = []
    for entry in entries:
        if entry.seq not in counting:
            # A fork begins at `end`: what its parent did later off this path is not inherited.
            if entry.seq <= end and (left := entry.off_path()) is not None:
                path.append(left)
        elif not isinstance(entry, ApprovalRequested) or entry.approval_id not in settled:
            path.append(entry)
            elsewhere = (fate for fate in tree.fates.get(entry.seq, ()) if fate.seq not in counting)
            path.extend(replace(fate, seq=0) for fate in elsewhere)
    return path


class _Tree:
    """The entries of a log by what each follows, and what was recorded of the calls of answers."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._seqs: list[int] = []
        self._before: dict[int, int] = {}
        self._answers: dict[int, int] = {}
        """For an entry, the end of the answer whose calls are open after it."""
        self.fates: dict[int, list[Entry]] = {}
        """By the end of the answer."""
        for entry in entries:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        before = self._nearest(entry.to_seq if isinstance(entry, Rewound) else entry.seq)
        answer = entry.answer_after(self._answers.get(before, 0))
        if answer and entry.is_fate:
            self.fates.setdefault(answer, []).append(entry)
        self._before[entry.seq] = before
        self._answers[entry.seq] = answer
        self._seqs.append(entry.seq)

    def _nearest(self, seq: int) -> int:
        """Return an entry's `seq`, or that of the last one before it where it cannot be read."""
        index = bisect_right(self._seqs, seq)
        return self._seqs[index - 1] if index else 0

    def way_to(self, seq: int) -> set[int]:
        """Return the `seq` of every entry on the way to one, itself included."""
        way = set()
        seq = self._nearest(seq)
        while seq:
            way.add(seq)
            # It ends for any log: an entry only follows entries that were added before it.
            seq = self._before[seq]
        return way


def landmarks_after(before: Landmarks | None, entries: Sequence[Entry]) -> Landmarks | None:
    """Return the landmarks of a log with those among the entries that follow, of any path."""
    if before is None:
        return None
    after = before.with_rewinds(
        [RewindPlace(each.seq, each.to_seq) for each in entries if type(each) is Rewound]
    )
    for entry in entries:
        if type(entry) is SessionChanged:
            place = entry.state_place
            after = after if place is None else after.with_state(place)
        elif type(entry) is SessionImported:
            after = after.without_states()
    return after


def last_rewind(entries: Sequence[Entry]) -> Rewound | None:
    """Return the rewind that brought the conversation where it is, if one did.

    Taking a rewind back is written as a rewind to no message. It is none itself: who takes back
    twice gets to where the rewind before that one began.
    """
    for entry in reversed(current_path(entries)):
        if isinstance(entry, Rewound) and entry.message_id is not None:
            return entry
    return None
