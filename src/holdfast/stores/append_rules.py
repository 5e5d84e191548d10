"""Rules of appending that are the same in every store: which entries fit, and what the index gets.

Stores call these functions under their own lock or transaction. Nothing here reads or writes.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast.ports.session_store import SessionRecord
from holdfast.vocabulary.entries import Entry, SessionChanged, SessionOpened
from holdfast.vocabulary.errors import ErrorCode, StoreError
from holdfast.vocabulary.ids import EntryId, SessionId

_DESCRIBING = (SessionOpened, SessionChanged)
"""The kinds that say more of a session than that it has grown."""
_CHANGEABLE = frozenset({"name", "title", "native_session_id"})


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
    known = 0
    while known < len(entries) and entries[known].seq <= head:
        entry = entries[known]
        if id_at(entry.seq) != entry.id:
            raise StoreError(ErrorCode.CONFLICT, f"another entry is stored as {entry.seq}")
        known += 1
    fresh = entries[known:]
    taken: set[EntryId] = set()
    for expected, entry in enumerate(fresh, start=head + 1):
        if entry.seq != expected:
            raise StoreError(
                ErrorCode.CONFLICT, f"entry {entry.seq} does not follow {expected - 1}"
            )
        if entry.id in taken or is_stored(entry.id):
            raise StoreError(ErrorCode.CONFLICT, f"entry {entry.id} has another place in the log")
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
    for last in entries:
        if isinstance(last, _DESCRIBING):
            record = _record_after(record, last)
    if record is None or last is None:
        return record
    return msgspec.structs.replace(record, updated=last.time, head=last.seq)


def _record_after(
    record: SessionRecord | None, entry: SessionOpened | SessionChanged
) -> SessionRecord | None:
    if isinstance(entry, SessionOpened):
        return SessionRecord(
            id=entry.session_id,
            owner=entry.owner,
            project=entry.project,
            name=entry.name,
            title=entry.title,
            model=entry.settings.model,
            parent=entry.parent,
            native_session_id=entry.native_session_id,
            created=entry.time,
        )
    if record is None:
        return None
    changes = entry.changes
    named = {name: value for name, value in changes.items() if name in _CHANGEABLE}
    if "model" in (settings := changes.get("settings") or {}):
        named["model"] = settings["model"]
    return msgspec.structs.replace(record, **named)


def fenced_error(session_id: SessionId, holder: str | None) -> StoreError:
    """Make the error of an append or renewal under a lease that is no longer valid.

    `holder` is the present holder of the session; None when there is none.
    """
    by = f" by {holder}" if holder else ""
    return StoreError(ErrorCode.FENCED, f"session {session_id} was given up or taken over{by}")


def name_taken_error(name: str) -> StoreError:
    """Make the error of a name that another session of the same owner and project has."""
    return StoreError(ErrorCode.CONFLICT, f"the name {name!r} is taken")
