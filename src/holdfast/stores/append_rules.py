"""What may be appended to a log: the same answer in every store."""

from collections.abc import Callable, Sequence

from holdfast.vocabulary.entries import Entry, SessionOpened
from holdfast.vocabulary.errors import ErrorCode, StoreError
from holdfast.vocabulary.ids import EntryId, SessionId


def fresh_entries(
    entries: Sequence[Entry],
    *,
    head: int,
    id_at: Callable[[int], EntryId | None],
    is_stored: Callable[[EntryId], bool],
) -> Sequence[Entry]:
    """Return the entries that are not stored yet; raises CONFLICT unless each one follows.

    `head` is the last stored `seq`, `id_at` tells what is stored there, `is_stored` whether an id
    has a place anywhere in the log.
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


def refuse_foreign(session_id: SessionId, entries: Sequence[Entry]) -> None:
    """Raise CONFLICT for an entry that opens another session than the one appended to."""
    for entry in entries:
        if isinstance(entry, SessionOpened) and entry.session_id != session_id:
            raise StoreError(
                ErrorCode.CONFLICT, f"entry {entry.seq} opens {entry.session_id}, not {session_id}"
            )


def fenced(session_id: SessionId, holder: str | None) -> StoreError:
    """Make the error of an append or renewal that came after somebody else took over."""
    by = f" by {holder}" if holder else ""
    return StoreError(ErrorCode.FENCED, f"session {session_id} was given up or taken over{by}")


def name_taken(name: str) -> StoreError:
    """Make the error of a name that another session of the same owner and project has."""
    return StoreError(ErrorCode.CONFLICT, f"the name {name!r} is taken")
