"""Paths: which entries of a log count after rewinds.

A log is a list, but what happened is a tree: each entry follows the one before it, except that a
rewind follows the entry it goes back to. What counts is the way from the last entry to the root.
So rewinding can be rewound, and nothing is ever removed.
"""

from collections.abc import Sequence

from holdfast.vocabulary.entries import (
    Entry,
    InputDrained,
    InputPromoted,
    InputQueued,
    Rewound,
    SessionChanged,
    SessionOpened,
)

_ALWAYS = (SessionOpened, SessionChanged, InputQueued, InputDrained)
"""What is true of the session, whatever became of the conversation."""


def current_path(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries that count, in order."""
    if not any(isinstance(entry, Rewound) for entry in entries):
        return entries
    before: dict[int, int] = {}
    tip = 0
    for entry in entries:
        before[entry.seq] = entry.to_seq if isinstance(entry, Rewound) else tip
        tip = entry.seq
    counting = set()
    while tip:
        counting.add(tip)
        tip = before.get(tip, 0)
    return [
        kept
        for entry in entries
        if (kept := entry if entry.seq in counting else _off_path(entry)) is not None
    ]


def _off_path(entry: Entry) -> Entry | None:
    """Return what remains of an entry that was rewound: a promoted prompt still left the queue."""
    if isinstance(entry, InputPromoted):
        return InputDrained(id=entry.id, time=entry.time, seq=entry.seq, input_id=entry.input_id)
    return entry if isinstance(entry, _ALWAYS) else None


def last_rewind(entries: Sequence[Entry]) -> Rewound | None:
    """Return the rewind that brought the conversation where it is, if one did.

    Taking a rewind back is written as a rewind to no message. It is none itself: who takes back
    twice gets to where the rewind before that one began.
    """
    for entry in reversed(current_path(entries)):
        if isinstance(entry, Rewound) and entry.message_id is not None:
            return entry
    return None
