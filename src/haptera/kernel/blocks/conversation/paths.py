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

from haptera.model.compactions import Compaction
from haptera.model.entries import (
    ApprovalRequested,
    ApprovalSettled,
    Entry,
    HistoryEdited,
    InputDrained,
    InputPromoted,
    QueryStarted,
    Rewound,
    SessionImported,
    SessionOpened,
    ToolEnded,
    ToolStarted,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
)

_SETTLING = (
    SessionOpened,
    SessionImported,
    InputPromoted,
    TurnStarted,
    TurnDiscarded,
    Compaction,
    HistoryEdited,
)
"""After these, and a prompt, no call of an earlier answer waits for anything."""


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
            path.extend(_off_path(entry) if entry.seq <= end else ())
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
        answer = _open_answer(entry, self._answers.get(before, 0))
        if _is_fate(entry) and answer:
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


def _open_answer(entry: Entry, before: int) -> int:
    """Return the `seq` at which the answer ended whose calls are open after an entry; 0 if none."""
    if isinstance(entry, TurnEnded):
        return entry.seq
    prompted = isinstance(entry, QueryStarted) and entry.message is not None
    return 0 if prompted or isinstance(entry, _SETTLING) else before


def _is_fate(entry: Entry) -> bool:
    """Whether an entry says for good what became of a call.

    A permission is none: it is for the moment in which it is given. Nor is a question that was
    withdrawn.
    """
    denied = isinstance(entry, ApprovalSettled) and entry.decision == "denied"
    return denied or isinstance(entry, ToolStarted | ToolEnded)


def _off_path(entry: Entry) -> tuple[Entry, ...]:
    """Return what remains of an entry that was rewound: a promoted prompt still left the queue."""
    if isinstance(entry, InputPromoted):
        left = InputDrained(id=entry.id, time=entry.time, seq=entry.seq, input_id=entry.input_id)
        return (left,)
    return (entry,) if entry.survives_rewind else ()


def last_rewind(entries: Sequence[Entry]) -> Rewound | None:
    """Return the rewind that brought the conversation where it is, if one did.

    Taking a rewind back is written as a rewind to no message. It is none itself: who takes back
    twice gets to where the rewind before that one began.
    """
    for entry in reversed(current_path(entries)):
        if isinstance(entry, Rewound) and entry.message_id is not None:
            return entry
    return None
