"""StoredState: what a session was after an entry, recorded now and then in its log.

Who looks at a long session, or goes back in it, begins there: it has everything but the messages,
and of those the ids that were added since the state before.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from haptera.model.ids import MessageId
from haptera.model.json_types import JsonObject
from haptera.model.log.carried_state import CarriedState, restore, state_of_fold
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.history import HistoryEdited
from haptera.model.log.landmarks import MOST_REWINDS
from haptera.model.log.native import NativeSessionState
from haptera.model.log.paths import current_path, landmarks_after
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import FOLDED, SessionChanged, SessionImported, SessionOpened
from haptera.model.messages import AssistantMessage

STORED_EVERY = 5_000
"""How many entries lie between two states."""
_MOST_LISTED = 20_000
"""How many ids a state lists at most."""
_TEXTS = ("notes", "untold", "untold_since", "context")
"""What a state leaves out: only requests need it, and they need all messages, too."""
_OTHER_VIEW = frozenset({"summarise", "tail", "prune"})
"""Strategies of compactions that change what is sent."""
_VERSION = 2
"""Changes when a state has other contents. One of another version is not used: the next is made of
the whole log."""


class StoredState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a session after the entry `at`, without texts."""

    at: int
    version: int
    state: CarriedState
    tip: AssistantMessage
    """The last message, without its parts: what follows is joined to it, or not."""
    listed: tuple[MessageId, ...] | None = None
    """The messages since the state before, in their order; None: they are too many, or cannot be
    told."""
    rewound_at: int | None = None


def state_to_store(fold: SessionFold) -> JsonObject | None:
    """Return what a session is, without texts, for those who look at it later.

    None while something is open, and soon after the last one or a compaction.
    """
    compaction, tip = fold.compacted.last, fold.tip_answer()
    last = max(fold.folded_at, compaction.seq if compaction is not None else 0)
    is_open = fold.open_query or fold.open_turn or fold.unfinished_query()
    if fold.head - last < STORED_EVERY or is_open or tip is None:
        return None
    if fold.calls or fold.approvals or fold.child_answers or fold.inputs:
        return None
    if fold.landmarks is not None and len(fold.landmarks.rewinds) > MOST_REWINDS:
        return None
    stored = StoredState(
        at=fold.head,
        version=_VERSION,
        state=state_of_fold(fold),
        tip=replace(tip, parts=()),
        listed=_unlisted(fold),
        rewound_at=fold.rewound_at,
    )
    value: JsonObject = msgspec.json.decode(msgspec.json.encode(stored))
    value["state"] = {name: each for name, each in value["state"].items() if name not in _TEXTS}
    return value


def _unlisted(fold: SessionFold) -> tuple[MessageId, ...] | None:
    """Return the messages that no state lists yet."""
    ids: list[MessageId] = []
    for message in reversed(fold.conversation.messages):
        if message.id == fold.listed:
            break
        if len(ids) == _MOST_LISTED:
            return None
        ids.append(message.id)
    else:
        if fold.listed is not None or fold.compacted.is_partial:
            return None
    return tuple(reversed(ids))


def stored_state(entry: Entry | None) -> StoredState | None:
    """Return the state that an entry has; None if it has none that this version can use."""
    if not isinstance(entry, SessionChanged) or entry.state_place is None:
        return None
    try:
        stored = msgspec.convert(entry.changes[FOLDED], StoredState)
    except msgspec.ValidationError:
        return None
    return stored if stored.version == _VERSION else None


def fold_at_state(opened: Entry | None, entry: Entry | None) -> SessionFold | None:
    """Return a session as it was where a state was stored; None if the state cannot be used.

    It lacks the texts of messages and notes from before.
    """
    stored = stored_state(entry)
    if stored is None or not isinstance(opened, SessionOpened):
        return None
    fold = SessionFold()
    fold.apply(replace(opened, history=()))
    fold.opened = opened
    fold.conversation.set_history([stored.tip])
    restore(fold, stored.state)
    fold.head, fold.listed, fold.rewound_at = stored.at, stored.tip.id, stored.rewound_at
    fold.unended = dict.fromkeys(stored.state.unended)
    fold.landmarks = stored.state.landmarks
    fold.compacted.is_partial = fold.lacks_texts = True
    return fold


def fold_further(known: SessionFold, later: Sequence[Entry]) -> None:
    """Let a session at a stored state know what is after it of what concerns no messages."""
    known.head = later[-1].seq if later else known.head
    for entry in later:
        entry.note_query(known.unended)
    known.landmarks = landmarks_after(known.landmarks, later)


def fold_on(
    base: SessionFold, near: Sequence[Entry], later: Sequence[Entry], *, between: SessionFold
) -> SessionFold | None:
    """Fold a session from a stored state on, by what follows it and what comes later in its log.

    What was rewound in the gap is not read; what it leaves behind all the same, `between` has,
    which is the session behind the gap. Without a gap, `near` is empty. None where that does not
    suffice: messages were edited, or a native agent has a session of its own, whose cost so far
    is told by entries of the gap.
    """
    if needs_messages(near) or needs_messages(later):
        return None
    if near and not base.native == between.native == NativeSessionState():
        return None
    end = near[-1].seq if near else base.head
    path = current_path([*near, *later])
    before = next((index for index, each in enumerate(path) if each.seq > end), len(path))
    base.apply_all(path[:before])
    if near:
        base.title, base.context = between.title, between.context
        base.settings, base.configured = between.settings, between.configured
        base.inputs = dict(between.inputs)
    base.apply_all(path[before:])
    base.head, base.landmarks = between.head, between.landmarks
    base.unended = dict(between.unended)
    return base


def needs_messages(entries: Sequence[Entry]) -> bool:
    """Whether some of the entries change messages from before them."""
    kinds = {type(entry) for entry in entries}
    if not kinds.isdisjoint({HistoryEdited, SessionImported}):
        return True
    compactions = [entry for entry in entries if isinstance(entry, Compaction)]
    return any(entry.strategy in _OTHER_VIEW for entry in compactions)
