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
from haptera.model.log.history import HistoryEdited
from haptera.model.log.landmarks import Landmarks
from haptera.model.log.native import NativeSessionState
from haptera.model.log.paths import current_path, landmarks_after
from haptera.model.log.queries import InputQueued, QueryEnded, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.turns import TurnStarted
from haptera.model.log.workspace import ContextLoaded
from haptera.model.messages import KeptOptions
from haptera.model.parts import ReminderPart
from haptera.model.settings import Settings
from haptera.model.stream_parts import FinishKind
from haptera.model.usage import Usage

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
    landmarks: Landmarks | None = None
    """None: they are not known."""


def carried_by(fold: SessionFold, kept_from: MessageId | None) -> tuple[int | None, JsonObject]:
    """Return from which `seq` on entries are needed after a compaction, and what it carries.

    None when all entries are needed: then nothing has to be carried.
    """
    reads_from = fold.compacted.reads_from(kept_from, head=fold.head)
    if reads_from is None:
        return None, {}
    # Plain JSON values, as the log gives them back.
    carried: JsonObject = msgspec.json.decode(msgspec.json.encode(state_of_fold(fold)))
    return reads_from, carried


def state_of_fold(fold: SessionFold) -> CarriedState:
    """Return what a session is beside its messages."""
    opened = fold.open_query
    # Without `raw`, the bytes of entries as they were stored: the log has them already.
    return CarriedState(
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
        landmarks=fold.landmarks,
    )


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
            restore(fold, states.pop(0))
        fold.apply(entry)
    fold.head = entries[-1].seq
    # As in `fold_entries`: over all entries, because a query that was rewound counts, too.
    later = [entry for entry in entries if entry.seq > last.at]
    fold.unended = dict.fromkeys(last.unended)
    for entry in later:
        entry.note_query(fold.unended)
    fold.landmarks = landmarks_after(last.landmarks, later)
    fold.compacted.is_partial = True
    fold.conversation.counts.update()  # as in `fold_entries`
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


def restore(fold: SessionFold, state: CarriedState) -> None:
    """Let a session be what it was, but for its messages."""
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
