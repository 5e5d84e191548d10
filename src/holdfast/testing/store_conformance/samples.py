"""Sessions and entries to try a store with."""

from collections.abc import Sequence

from holdfast.ports.session_store import Lease, Store
from holdfast.vocabulary.commands import AbortQuery, CommandId
from holdfast.vocabulary.entries import Entry, HookMessage, SessionChanged, SessionOpened
from holdfast.vocabulary.ids import EntryId, SessionId, new_entry_id, new_session_id
from holdfast.vocabulary.json_types import Json

OWNER, PROJECT = "ana", "/work/house"


def opening(
    session_id: SessionId, *, name: str | None = None, owner: str = OWNER, project: str = PROJECT
) -> SessionOpened:
    """Make the first entry of a session."""
    return SessionOpened(
        id=new_entry_id(),
        time=1,
        seq=1,
        session_id=session_id,
        owner=owner,
        project=project,
        name=name,
    )


def note(
    seq: int, text: str = "a note", *, entry_id: str | None = None, time: int | None = None
) -> HookMessage:
    """Make an entry that changes nothing but the log."""
    return HookMessage(
        id=EntryId(entry_id or new_entry_id()),
        time=seq if time is None else time,
        seq=seq,
        hook="exam",
        text=text,
    )


def notes(first: int, last: int) -> list[Entry]:
    """Make one entry for each `seq` from first to last."""
    return [note(seq, f"note {seq}") for seq in range(first, last + 1)]


def change(seq: int, **changes: Json) -> SessionChanged:
    """Make an entry that changes what the index knows."""
    return SessionChanged(id=new_entry_id(), time=seq, seq=seq, changes=changes)


def command(name: str) -> AbortQuery:
    """Make a command with this id."""
    return AbortQuery(id=CommandId(name), by="exam")


async def new_session(
    store: Store, *, name: str | None = None, owner: str = OWNER, project: str = PROJECT
) -> Lease:
    """Open a new session and return the lease on it."""
    session_id = new_session_id()
    lease = await store.leases.acquire(session_id, "exam")
    entry = opening(session_id, name=name, owner=owner, project=project)
    await store.log.append(lease, [entry])
    return lease


async def seqs_of(store: Store, session_id: SessionId) -> list[int]:
    """Return what a log holds, by `seq`."""
    return [entry.seq for entry in await store.log.read(session_id)]


def ids_of(entries: Sequence[Entry]) -> list[EntryId]:
    """Return the ids of entries in order."""
    return [entry.id for entry in entries]
