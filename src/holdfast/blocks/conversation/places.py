"""Places: where in a log a message is the last one of the conversation."""

from collections.abc import Sequence

from holdfast.blocks.conversation.fold import SessionFold
from holdfast.blocks.conversation.paths import current_path
from holdfast.vocabulary.entries import (
    Entry,
    InputPromoted,
    QueryStarted,
    SessionOpened,
    ToolEnded,
    TurnEnded,
)
from holdfast.vocabulary.ids import MessageId

_ADDING = (QueryStarted, InputPromoted, TurnEnded, ToolEnded)
"""What can add to the last message, or complete it."""


def seq_of_message(
    entries: Sequence[Entry], message_id: MessageId, *, inherited: Sequence[Entry] = ()
) -> int | None:
    """Return the `seq` after which a message is the last one; None when there is no such message.

    A message that the session began with is at its opening. What was rewound is found, too, unless
    the message is still there.
    """
    for path in (current_path(entries), entries):
        seq = _last_place(path, message_id, inherited)
        if seq is not None:
            return seq
    return None


def _last_place(
    entries: Sequence[Entry], message_id: MessageId, inherited: Sequence[Entry]
) -> int | None:
    fold = SessionFold()
    for entry in inherited:
        fold.apply(entry)
    found: int | None = None
    for entry in entries:
        fold.apply(entry)
        if isinstance(entry, SessionOpened):
            began_with = [item.id for item in fold.messages()]
            found = entry.seq if message_id in began_with else None
        elif entry.seq and isinstance(entry, _ADDING) and _ends_with(fold, message_id):
            found = entry.seq
    return found


def _ends_with(fold: SessionFold, message_id: MessageId) -> bool:
    tip = fold.conversation.tip
    if tip is None:
        return False
    return tip.id == message_id or (bool(fold.calls) and f"{tip.id}_results" == message_id)
