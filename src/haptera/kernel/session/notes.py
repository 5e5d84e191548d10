"""Notes of a project: found in the logs of its sessions, merged, and written into new sessions."""

import bisect
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from haptera.model.ids import SessionId
from haptera.model.log.notes import ContextNoted
from haptera.ports.session_store import SessionFilter, SessionRecord, Store
from haptera.system.clock import Stamp

_MOST_SESSIONS = 200
"""How many sessions are asked for their notes, the last updated ones."""
_MOST_NOTES = 100
_MOST_CHARACTERS = 20_000
"""How much of a project's notes a new session begins with, the newest ones."""


class ProjectNote(msgspec.Struct, frozen=True, kw_only=True):
    """A note that was made for all sessions of a project."""

    text: str
    session_id: SessionId
    """The session that it was made in."""
    seq: int
    time: int
    """Milliseconds since 1970."""


async def project_notes(
    store: Store, *, owner: str, project: str, is_each_text_once: bool = True
) -> tuple[ProjectNote, ...]:
    """Return the notes of a project, the oldest first; of the same text only the last one."""
    records = await _noted_sessions(store, owner=owner, project=project)
    found = [note for record in records for note in await _notes_of(store, record)]
    # By more than the time: notes that were made in the same millisecond keep one order in all
    # processes.
    found.sort(key=_age_of)
    # Later notes replace earlier ones with the same text.
    last = {note.text.strip(): note for note in found}
    return tuple(note for note in found if not is_each_text_once or last[note.text.strip()] is note)


async def _noted_sessions(store: Store, *, owner: str, project: str) -> Sequence[SessionRecord]:
    return await store.index.browse(
        owner, project, matching=SessionFilter(noted=True), limit=_MOST_SESSIONS
    )


async def _notes_of(store: Store, record: SessionRecord) -> list[ProjectNote]:
    found = [await _note_at(store, record.id, seq) for seq in record.notes]
    return [note for note in found if note is not None]


async def _note_at(store: Store, session_id: SessionId, seq: int) -> ProjectNote | None:
    for entry in await store.log.read(session_id, after=seq - 1, limit=1):
        # `read` leaves a damaged entry out, and returns the one after it.
        if isinstance(entry, ContextNoted) and entry.seq == seq:
            return ProjectNote(text=entry.text, session_id=session_id, seq=seq, time=entry.time)
    return None


async def _newest_first(
    store: Store, records: Sequence[SessionRecord]
) -> AsyncGenerator[ProjectNote, None]:
    """Yield the notes of sessions, and read only those that are asked for, and the one before each.

    A session stands in line with its last note that was not yielded; before one was read, with the
    time of its last change, which no note is after.
    """
    notes = {record.id: list(record.notes) for record in records}
    line: list[tuple[int, SessionId, ProjectNote | None]]
    line = sorted((record.updated, record.id, None) for record in records)
    while line:
        _, session_id, newest = line.pop()
        if newest is not None:
            yield newest
        seqs, before = notes[session_id], None
        while seqs and before is None:
            before = await _note_at(store, session_id, seqs.pop())
        if before is not None:
            # No two in line have one session, so notes are never compared.
            bisect.insort(line, (before.time, session_id, before))


async def inherited_notes(
    store: Store, *, owner: str, project: str, stamp: Stamp
) -> list[ContextNoted]:
    """Return the entries by which a new session gets the newest notes of its project."""
    records = await _noted_sessions(store, owner=owner, project=project)
    kept: dict[str, ProjectNote] = {}
    characters = 0
    async with aclosing(_newest_first(store, records)) as notes:
        async for note in notes:
            if (text := note.text.strip()) in kept:
                continue  # a later note has replaced it
            characters += len(note.text)
            if len(kept) == _MOST_NOTES or characters > _MOST_CHARACTERS:
                break
            kept[text] = note
    return [
        ContextNoted(**stamp(), text=note.text, source=note.session_id)
        for note in sorted(kept.values(), key=_age_of)
    ]


def _age_of(note: ProjectNote) -> tuple[int, SessionId, int]:
    return note.time, note.session_id, note.seq
