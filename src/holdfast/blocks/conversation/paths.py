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
    QueryStarted,
    Rewound,
    SessionChanged,
    SessionOpened,
    ToolEnded,
    TurnEnded,
)
from holdfast.vocabulary.ids import MessageId

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


def seq_of_message(entries: Sequence[Entry], message_id: MessageId) -> int | None:
    """Return the `seq` after which a message is the last one; None when the log has no such."""
    queued: dict[str, MessageId] = {}
    turns: dict[MessageId, str | None] = {}
    found: int | None = None
    for entry in entries:
        match entry:
            case InputQueued(input_id=input_id, message=message):
                queued[input_id] = message.id
            case QueryStarted(message=message) if message is not None and message.id == message_id:
                found = entry.seq
            case InputPromoted(input_id=input_id) if queued.get(input_id) == message_id:
                found = entry.seq
            case TurnEnded():
                turns[MessageId(f"{entry.message_id}_results")] = entry.turn_id
                if entry.message_id == message_id:
                    found = entry.seq
            case ToolEnded(turn_id=turn_id) if turn_id and turns.get(message_id) == turn_id:
                found = entry.seq
    return found


def last_rewind(entries: Sequence[Entry]) -> Rewound | None:
    """Return the rewind that brought the conversation where it is, if one did."""
    for entry in reversed(current_path(entries)):
        if isinstance(entry, Rewound):
            return entry
    return None
