"""CarriedState: what a session is beside its messages, kept in the entry of a compaction.

With it a session can be opened without the entries before the compaction: those from the first kept
message on make the messages, and everything else is here.
"""

from collections.abc import Sequence
from decimal import Decimal

import msgspec
from msgspec.structs import replace

from haptera.model.approvals import Grant
from haptera.model.ids import MessageId, QueryId
from haptera.model.json_types import JsonObject
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.history import HistoryEdited, Rewound
from haptera.model.log.native import NativeSessionState
from haptera.model.log.paths import current_path
from haptera.model.log.queries import InputQueued, QueryEnded, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import FOLDED, SessionChanged, SessionImported
from haptera.model.log.turns import TurnStarted
from haptera.model.log.workspace import ContextLoaded
from haptera.model.messages import KeptOptions
from haptera.model.parts import ReminderPart
from haptera.model.settings import Settings
from haptera.model.stream_parts import FinishKind
from haptera.model.usage import Usage

STORED_EVERY = 5_000
"""How many entries lie between two states that are stored for those who look at a session."""
_TEXTS = ("notes", "untold", "untold_since", "context")
"""What such a state leaves out: only requests need it."""
_OTHER_VIEW = frozenset({"summarise", "tail", "prune"})
"""Strategies of compactions that change what is sent."""
_VERSION = 1
"""Changes when something is carried that was not before. What an earlier version left out cannot be
told from what there was none of, so its sessions are folded from their first entry."""


class CarriedState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a session after the entry `at`, without its messages."""

    at: int
    version: int = 0
    settings: Settings
    title: str | None = None
    configured: tuple[str, ...] = ()
    query_options: KeptOptions = KeptOptions()
    native: NativeSessionState = NativeSessionState()
    open_query: QueryStarted | None = None
    """Without its prompt, which is a message."""
    last_query: QueryEnded | None = None
    unended: tuple[QueryId, ...] = ()
    last_finish: FinishKind | None = None
    inputs: tuple[InputQueued, ...] = ()
    grants: tuple[Grant, ...] = ()
    policy: JsonObject | None = None
    notes: tuple[ReminderPart, ...] = ()
    untold: tuple[ReminderPart, ...] = ()
    untold_since: int | None = None
    usage: Usage = Usage()
    cost: Decimal | None = Decimal(0)
    context: ContextLoaded | None = None
    snapshot_error: str | None = None


def carried_by(fold: SessionFold, kept_from: MessageId | None) -> tuple[int | None, JsonObject]:
    """Return from which `seq` on entries are needed after a compaction, and what it carries.

    None when all entries are needed: then nothing has to be carried.
    """
    reads_from = fold.compacted.reads_from(kept_from, head=fold.head)
    if reads_from is None:
        return None, {}
    opened = fold.open_query
    # Without `raw`, the bytes of entries as they were stored: the log has them already.
    state = CarriedState(
        at=fold.head,
        version=_VERSION,
        settings=fold.settings,
        title=fold.title,
        configured=tuple(sorted(fold.configured)),
        query_options=fold.query_options,
        native=fold.native,
        open_query=replace(opened, message=None, raw=None) if opened else None,
        last_query=replace(fold.last_query, raw=None) if fold.last_query else None,
        unended=tuple(fold.unended),
        last_finish=fold.last_finish,
        inputs=tuple(replace(item, raw=None) for item in fold.inputs.values()),
        grants=tuple(fold.standing.grants),
        policy=fold.standing.policy,
        notes=tuple(fold.notes.noted),
        untold=tuple(fold.notes.untold),
        untold_since=fold.notes.since,
        usage=fold.usage,
        cost=fold.cost,
        context=replace(fold.context, raw=None) if fold.context else None,
        snapshot_error=fold.snapshot_error,
    )
    # Plain JSON values, as the log gives them back.
    carried: JsonObject = msgspec.json.decode(msgspec.json.encode(state))
    return reads_from, carried


def state_to_store(fold: SessionFold) -> JsonObject | None:
    """Return what a session is, without messages and notes, for those who look at it later.

    None while something is open, and soon after the last one or a compaction.
    """
    compaction = fold.compacted.last
    last = max(fold.folded_at, compaction.seq if compaction is not None else 0)
    is_open = fold.open_query or fold.open_turn or fold.unfinished_query()
    if fold.head - last < STORED_EVERY or is_open:
        return None
    if fold.calls or fold.approvals or fold.child_answers or fold.inputs:
        return None
    _, carried = carried_by(fold, None)
    return {name: value for name, value in carried.items() if name not in _TEXTS}


def fold_from_stored_state(entries: Sequence[Entry], seq: int) -> SessionFold | None:
    """Fold what a session is from its opening and what follows a stored state; `seq` names that.

    It lacks the messages and notes from before. None when the state does not hold: it cannot be
    read, another version wrote it, or the conversation went back to before it or was edited since.
    """
    stored = next((entry for entry in entries if entry.seq == seq), None)
    if not isinstance(stored, SessionChanged):
        return None
    try:
        state = msgspec.convert(stored.changes.get(FOLDED), CarriedState)
    except msgspec.ValidationError:
        return None
    later = [entry for entry in entries if entry.seq > state.at]
    if state.version != _VERSION or any(_needs_earlier(entry, state.at) for entry in later):
        return None
    fold = SessionFold()
    fold.apply(entries[0])
    _restore(fold, state)
    fold.apply_all(current_path([entries[0], *later])[1:])
    fold.head = entries[-1].seq
    fold.unended = dict.fromkeys(state.unended)
    for entry in later:
        entry.note_query(fold.unended)
    fold.compacted.is_partial = True
    return fold


def _needs_earlier(entry: Entry, at: int) -> bool:
    if isinstance(entry, Rewound):
        return entry.to_seq < at
    is_other_view = isinstance(entry, Compaction) and entry.strategy in _OTHER_VIEW
    return is_other_view or isinstance(entry, HistoryEdited | SessionImported)


def fold_from_compaction(entries: Sequence[Entry], seq: int) -> SessionFold | None:
    """Fold a session from the opening and the entries that a compaction needs.

    None when they do not suffice: the compaction is not among them, was rewound, or cannot be read,
    another one among them needs more, or messages were edited, which may be others than those that
    the entries make.
    """
    path = current_path(entries)
    if any(isinstance(entry, HistoryEdited) for entry in path):
        return None
    compactions = [item for item in path if isinstance(item, Compaction) and item.carried]
    reads_from = next((item.reads_from for item in compactions if item.seq == seq), None)
    # One that needs earlier entries than were read would be applied without what it keeps.
    if reads_from is None or any((item.reads_from or 0) < reads_from for item in compactions):
        return None
    try:
        states = [msgspec.convert(item.carried, CarriedState) for item in compactions]
    except msgspec.ValidationError:  # another version wrote it
        return None
    if any(state.version != _VERSION for state in states):
        return None
    fold, last = SessionFold(), states[-1]
    fold.apply(path[0])
    fold.open_query = _running_before(path[1:])
    for entry in path[1:]:
        # Restored where it was taken: entries before only make messages, later ones change it.
        while states and entry.seq > states[0].at:
            _restore(fold, states.pop(0))
        fold.apply(entry)
    fold.head = entries[-1].seq
    # As in `fold_entries`: over all entries, because a query that was rewound counts, too.
    fold.unended = dict.fromkeys(last.unended)
    for entry in entries:
        if entry.seq > last.at:
            entry.note_query(fold.unended)
    fold.compacted.is_partial = True
    return fold


def _running_before(path: Sequence[Entry]) -> QueryStarted | None:
    """Return the query that was running where the entries begin: its start is not among them.

    What becomes of a call depends on whether its query runs.
    """
    for entry in path:
        match entry:
            case QueryStarted():
                return None
            case TurnStarted(query_id=query_id) | QueryEnded(query_id=query_id) if query_id:
                return QueryStarted(id=entry.id, time=entry.time, query_id=query_id)
    return None


def _restore(fold: SessionFold, state: CarriedState) -> None:
    fold.title = state.title
    fold.settings, fold.configured = state.settings, frozenset(state.configured)
    fold.query_options = state.query_options
    fold.native = state.native
    fold.open_query, fold.last_query = state.open_query, state.last_query
    fold.last_finish = state.last_finish
    fold.inputs = {item.input_id: item for item in state.inputs}
    fold.standing.grants[:] = state.grants
    fold.standing.policy = state.policy
    fold.notes.noted, fold.notes.untold = [*state.notes], [*state.untold]
    fold.notes.since = state.untold_since
    fold.usage, fold.cost = state.usage, state.cost
    fold.context, fold.snapshot_error = state.context, state.snapshot_error
