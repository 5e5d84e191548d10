"""Rules of appending that are the same in every store: which entries fit, and what the index gets.

Stores call these functions under their own lock or transaction. Nothing here reads or writes.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from haptera.model.believed_values import count_of, time_of, time_or_none
from haptera.model.entry_bytes import UNREADABLE
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import EntryId, SessionId
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.history import Rewound
from haptera.model.log.notes import ContextNoted
from haptera.model.log.queries import InputQueued, QueryEnded, QueryStarted
from haptera.model.log.sessions import FOLDED, SessionChanged, SessionOpened
from haptera.model.messages import Sender
from haptera.model.results import SessionOrder, SessionPhase
from haptera.model.shares import shares_after
from haptera.ports.session_store import SessionFilter, SessionRecord

_CHANGEABLE = {
    "name": str | None,
    "title": str | None,
    "native_session_id": str | None,
    "tags": tuple[str, ...],
    "archived": int | None,
    "deleted": int | None,
}
"""The fields of a record that `session.changed` sets, and their types."""
_TIMES = ("archived", "deleted")
_DESCRIBING = (SessionOpened, SessionChanged, ContextNoted, Compaction, Rewound, InputQueued)
_OF_QUERIES = (QueryStarted, QueryEnded)
RECORDED = _DESCRIBING + _OF_QUERIES
"""The kinds that change more of a record than its time and head."""
_DETAILS = (
    *("spawned_by", "tags", "archived", "deleted", "metadata", "status", "error", "notes"),
    *("compacted", "folded", "shares", "senders"),
)
"""The fields of a record that stores keep together, as JSON."""
_MOST_SENDERS = 1000
"""How many are kept of a session: each append writes them."""
_ORDERS: dict[SessionOrder, tuple[Callable[[SessionRecord], Any], bool]] = {
    "updated": (attrgetter("updated", "id"), True),
    "created": (attrgetter("created", "id"), True),
    "oldest": (attrgetter("created", "id"), False),
    "name": (lambda record: (record.name is None, record.name or "", record.id), False),
}
"""What records are sorted by, and whether the greatest comes first."""


def entries_to_store(
    entries: Sequence[Entry],
    *,
    head: int,
    id_at: Callable[[int], EntryId | None],
    is_stored: Callable[[EntryId], bool],
) -> Sequence[Entry]:
    """Return the entries that are not stored yet.

    Args:
        entries: What is to be appended.
        head: The `seq` of the last stored entry.
        id_at: Returns the id of the entry stored under a `seq`.
        is_stored: Returns whether an id is stored anywhere in the log.

    Raises:
        StoreError: CONFLICT when an entry leaves a gap or contradicts a stored one.

    """
    # A holder whose first attempt failed without an answer appends the same entries again: those
    # that are stored already are compared by id and left out.
    stored = 0
    while stored < len(entries) and entries[stored].seq <= head:
        entry = entries[stored]
        if id_at(entry.seq) != entry.id:
            raise StoreError(
                ErrorCode.CONFLICT, f"a different entry with seq {entry.seq} is already stored"
            )
        stored += 1
    fresh = entries[stored:]
    taken: set[EntryId] = set()
    for expected, entry in enumerate(fresh, start=head + 1):
        if entry.seq != expected:
            raise StoreError(
                ErrorCode.CONFLICT, f"entry {entry.seq} does not follow {expected - 1}"
            )
        if entry.id in taken or is_stored(entry.id):
            raise StoreError(
                ErrorCode.CONFLICT, f"entry {entry.id} is already stored with another seq"
            )
        taken.add(entry.id)
    return fresh


def refuse_other_sessions(session_id: SessionId, entries: Sequence[Entry]) -> None:
    """Raise CONFLICT for an entry that opens another session than the one appended to."""
    for entry in entries:
        if isinstance(entry, SessionOpened) and entry.session_id != session_id:
            raise StoreError(
                ErrorCode.CONFLICT, f"entry {entry.seq} opens {entry.session_id}, not {session_id}"
            )


def updated_record(record: SessionRecord | None, entries: Iterable[Entry]) -> SessionRecord | None:
    """Return the index record of a session after `entries`; None before it was opened."""
    last: Entry | None = None
    query: Entry | None = None
    for last in entries:
        if isinstance(last, _OF_QUERIES):
            query = last  # each overrides the one before, but for who spoke
        prompt = last.message if isinstance(last, QueryStarted) else None
        if isinstance(last, _DESCRIBING) or (prompt is not None and prompt.sender is not None):
            record = _record_after(record, last)
    if record is None or last is None:
        return record
    if query is not None:
        record = msgspec.structs.replace(record, **changed_fields(record, query))
    return msgspec.structs.replace(record, updated=time_of(last.time), head=last.seq)


def _record_after(record: SessionRecord | None, entry: Entry) -> SessionRecord | None:
    if isinstance(entry, SessionOpened):
        return SessionRecord(
            id=entry.session_id,
            owner=entry.owner,
            project=entry.project,
            name=entry.name,
            title=entry.title,
            model=entry.settings.model,
            parent=entry.parent,
            spawned_by=entry.spawned_by,
            native_session_id=entry.native_session_id,
            created=time_of(entry.time),
        )
    if record is None:
        return None
    return msgspec.structs.replace(record, **changed_fields(record, entry))


def changed_fields(record: SessionRecord, entry: Entry) -> dict[str, Any]:
    """Return the fields of a record that an entry sets, beside its time and place."""
    if isinstance(entry, InputQueued | QueryStarted):
        sender = entry.message.sender if entry.message is not None else None
        spoken = {} if sender is None else {"senders": _senders_after(record.senders, sender)}
        is_start = isinstance(entry, QueryStarted)
        return {"status": "running", "error": None, **spoken} if is_start else spoken
    if isinstance(entry, QueryEnded):
        error = entry.error.message if entry.error and entry.stop_reason == "error" else None
        return {"status": phase_after(entry), "error": error}
    if isinstance(entry, Rewound):
        return {"compacted": None}  # it may go back behind the compaction
    if isinstance(entry, Compaction):
        return {"compacted": (entry.seq, entry.reads_from)} if entry.reads_from else {}
    if isinstance(entry, ContextNoted):
        return {"notes": (*record.notes, entry.seq)} if entry.source is None else {}
    return _named_fields(record, entry) if isinstance(entry, SessionChanged) else {}


def _senders_after(senders: tuple[str, ...], sender: Sender) -> tuple[str, ...]:
    user_id = sender.user_id
    if user_id is None or user_id in senders or len(senders) >= _MOST_SENDERS:
        return senders
    return tuple(sorted((*senders, user_id)))


def _named_fields(record: SessionRecord, entry: SessionChanged) -> dict[str, Any]:
    """Return the fields of a record that a change of the session names."""
    changes = entry.changes
    named: dict[str, Any] = {}
    for name, kind in _CHANGEABLE.items():
        # A value that no version of this program writes changes nothing.
        with contextlib.suppress(msgspec.ValidationError, KeyError):
            value = changes[name]
            # A null takes a value away. A record without tags has an empty tuple.
            value = msgspec.convert(() if value is None and name == "tags" else value, kind)
            named[name] = time_or_none(value) if name in _TIMES else value
    if isinstance(metadata := changes.get("metadata"), dict):
        merged = record.metadata | metadata
        named["metadata"] = {key: value for key, value in merged.items() if value is not None}
    if isinstance(forgotten := changes.get("forgotten_notes"), list):
        named["notes"] = tuple(seq for seq in record.notes if seq not in forgotten)
    if "shared" in changes or "unshared" in changes:
        named["shares"] = shares_after(record.shares, changes, time=entry.time)
    if isinstance(folded := changes.get(FOLDED), dict):
        at = count_of(folded.get("at"))
        named["folded"] = (entry.seq, at) if 0 < at < entry.seq else None
    settings = changes.get("settings")
    if isinstance(settings, dict) and isinstance(settings.get("model"), str):
        named["model"] = settings["model"]
    return named


def phase_after(ended: QueryEnded) -> SessionPhase:
    """Return what a session does once a query has ended."""
    if ended.stop_reason == "approval":
        return "waiting"
    return "failed" if ended.stop_reason == "error" else "idle"


def believed(record: SessionRecord) -> SessionRecord:
    """Return a stored record with numbers that can be used, whatever was kept for them."""
    return msgspec.structs.replace(
        record,
        created=time_of(record.created),
        updated=time_of(record.updated),
        head=count_of(record.head),
        archived=time_or_none(record.archived),
        deleted=time_or_none(record.deleted),
    )


def encode_details(record: SessionRecord) -> bytes:
    """Encode the fields of a record that stores keep together."""
    return msgspec.json.encode({name: getattr(record, name) for name in _DETAILS})


def with_details(record: SessionRecord, details: bytes | None) -> SessionRecord | None:
    """Return a record with the fields that were kept together; None when they are damaged."""
    if not details:
        return believed(record)
    try:
        values = msgspec.json.decode(details, type=dict[str, Any])
        fields = {name: values[name] for name in _DETAILS if name in values}
        # Converted as a whole, so that a detail of a wrong type counts as damage.
        return believed(msgspec.convert(msgspec.to_builtins(record) | fields, SessionRecord))
    except UNREADABLE:
        return None


def is_visible(record: SessionRecord, owner: str, project: str | None) -> bool:
    """Whether a session can be found by an owner, in a project or (None) in all projects."""
    is_theirs = record.owner == owner and project in {None, record.project}
    return is_theirs and record.deleted is None


def page_of(
    records: Iterable[SessionRecord],
    matching: SessionFilter,
    *,
    order: SessionOrder = "updated",
    limit: int | None,
    after: SessionId | None,
) -> list[SessionRecord]:
    """Return one page of the records of an owner that match."""
    by, is_descending = _ORDERS[order]
    found = sorted(records, key=by, reverse=is_descending)
    if after is not None:
        indexes = [index for index, record in enumerate(found) if record.id == after]
        found = found[indexes[0] + 1 :] if indexes else []
    # Filtered last: the session that `after` names need not match itself.
    return list(itertools.islice(filter(matching.matches, found), limit))


def fenced_error(session_id: SessionId, holder: str | None) -> StoreError:
    """Make the error of an append or renewal under a lease that is no longer valid.

    `holder` is the present holder of the session; None when there is none.
    """
    by = f" by {holder}" if holder else ""
    return StoreError(ErrorCode.FENCED, f"session {session_id} was released or taken over{by}")


def name_taken_error(name: str) -> StoreError:
    """Make the error of a name that another session of the same owner and project has."""
    return StoreError(ErrorCode.CONFLICT, f"the name {name!r} is taken")
