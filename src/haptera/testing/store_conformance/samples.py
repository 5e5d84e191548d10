"""How a check opens stores, and sessions and entries to try a store with."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import accumulate
from typing import TypeAlias

import msgspec

from haptera.model.ids import (
    EntryId,
    MessageId,
    PartId,
    SessionId,
    new_entry_id,
    new_session_id,
)
from haptera.model.json_types import Json
from haptera.model.log.entry import Entry
from haptera.model.log.notes import HookMessage
from haptera.model.log.queries import QueryStarted
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.model.log.turns import (
    PartCheckpoint,
    PartEnded,
    PartStarted,
    TurnEnded,
    TurnStarted,
)
from haptera.model.messages import UserMessage
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import AbortQuery
from haptera.model.parts import ReasoningPart, TextPart
from haptera.ports.session_store import Lease, Store

OWNER, PROJECT = "ana", "/work/house"

OpenStore: TypeAlias = Callable[[], Store]
"""Opens one more handle on the same content."""


@contextlib.asynccontextmanager
async def opened(open_store: OpenStore) -> AsyncIterator[Store]:
    """Open a handle and close it again."""
    store = open_store()
    try:
        yield store
    finally:
        await store.close()


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
        hook="conformance",
        text=text,
    )


def notes(first: int, last: int) -> list[Entry]:
    """Make one entry for each `seq` from first to last."""
    return [note(seq, f"note {seq}") for seq in range(first, last + 1)]


def change(seq: int, **changes: Json) -> SessionChanged:
    """Make an entry that changes what the index knows."""
    return SessionChanged(id=new_entry_id(), time=seq, seq=seq, changes=changes)


def prompt(seq: int, text: str) -> QueryStarted:
    """Make the entry of a prompt; its message is `msg_<seq>`."""
    message = UserMessage(id=MessageId(f"msg_{seq}"), parts=(TextPart(text=text),))
    return QueryStarted(id=new_entry_id(), time=seq, seq=seq, message=message)


def answer(first: int, *pieces: str, reasoning: str = "", ended: bool = True) -> list[Entry]:
    """Make the entries of a turn that streamed its text in pieces.

    They begin with `seq` `first`; the message is `msg_<first>`, the text part `prt_<first>`, which
    begins three entries later.
    """
    message_id = MessageId(f"msg_{first}")
    part, thought = PartId(f"prt_{first}"), PartId(f"prt_{first}_thought")
    # The last sum is the length of the whole text, at which no piece begins.
    *offsets, _ = accumulate((len(piece) for piece in pieces), initial=0)
    entries: list[Entry] = [
        TurnStarted(id=new_entry_id(), time=0, message_id=message_id, provider="p", model="m"),
        PartStarted(id=new_entry_id(), time=0, part_id=thought, part_kind="reasoning"),
        PartEnded(id=new_entry_id(), time=0, part_id=thought, part=ReasoningPart(text=reasoning)),
        PartStarted(id=new_entry_id(), time=0, part_id=part, part_kind="text"),
    ]
    for offset, piece in zip(offsets[:-1], pieces[:-1], strict=True):
        entries.append(
            PartCheckpoint(id=new_entry_id(), time=0, part_id=part, offset=offset, text=piece)
        )
    rest = TextPart(text=pieces[-1])
    entries.append(
        PartEnded(id=new_entry_id(), time=0, part_id=part, part=rest, offset=offsets[-1])
    )
    if ended:
        entries.append(TurnEnded(id=new_entry_id(), time=0, message_id=message_id, finish="stop"))
    return [msgspec.structs.replace(entry, seq=first + n) for n, entry in enumerate(entries)]


def command(name: str) -> AbortQuery:
    """Make a command with this id."""
    return AbortQuery(id=CommandId(name), by="conformance")


async def new_session(
    store: Store, *, name: str | None = None, owner: str = OWNER, project: str = PROJECT
) -> Lease:
    """Open a new session and return the lease on it."""
    session_id = new_session_id()
    lease = await store.leases.acquire(session_id, "conformance")
    entry = opening(session_id, name=name, owner=owner, project=project)
    await store.log.append(lease, [entry])
    return lease


async def seqs_of(store: Store, session_id: SessionId) -> list[int]:
    """Return what a log holds, by `seq`."""
    return [entry.seq for entry in await store.log.read(session_id)]


def ids_of(entries: Sequence[Entry]) -> list[EntryId]:
    """Return the ids of entries in order."""
    return [entry.id for entry in entries]
