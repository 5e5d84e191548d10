"""The store in memory: the same promises as any other, for as long as the process lives."""

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Literal

from holdfast.ports.session_store import Damage, Lease, SessionRecord
from holdfast.stores.append_rules import fenced, fresh_entries, name_taken, refuse_foreign
from holdfast.stores.blob_names import name_of_content, no_such_blob
from holdfast.stores.index_record import update_record
from holdfast.stores.lease_rules import held_already
from holdfast.stores.turns import OutOfTurnError
from holdfast.vocabulary.commands import Command, CommandId
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.errors import SessionError
from holdfast.vocabulary.ids import EntryId, SessionId


class _Session:
    """Everything the store holds of one session."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.entry_ids: set[EntryId] = set()
        self.record: SessionRecord | None = None
        self.epoch = 0
        self.holder: str | None = None
        self.commands: dict[CommandId, Command | None] = {}
        """None once consumed: the same command cannot come again."""
        self.blobs: dict[str, bytes] = {}
        self.changed = asyncio.Event()

    def announce(self) -> None:
        """Wake everyone who waits for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryStore:
    """All five ports of a store over plain dictionaries. One event loop at a time uses it."""

    def __init__(self) -> None:
        self._sessions: dict[SessionId, _Session] = {}
        self.log = MemoryLog(self._sessions)
        self.index = MemoryIndex(self._sessions)
        self.leases = MemoryLeases(self._sessions)
        self.inbox = MemoryInbox(self._sessions)
        self.blobs = MemoryBlobs(self._sessions)

    def forget_all(self) -> None:
        """Forget every session that nobody holds."""
        for session_id in [key for key, item in self._sessions.items() if item.holder is None]:
            del self._sessions[session_id]

    async def close(self) -> None:
        """Forget nothing: the store lives as long as it is referenced."""


class MemoryLog:
    """The logs, as lists of the entries themselves."""

    def __init__(self, sessions: dict[SessionId, _Session]) -> None:
        self._sessions = sessions

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append entries that already have their `seq`."""
        self.append_now(lease, entries, consumed=consumed)

    def append_now(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append without waiting, because nothing here has to be waited for."""
        session = self._sessions.setdefault(lease.session_id, _Session())
        if session.holder is None or lease.epoch != session.epoch:
            raise fenced(lease.session_id, session.holder)
        refuse_foreign(lease.session_id, entries)
        fresh = fresh_entries(
            entries,
            head=len(session.entries),
            id_at=lambda seq: session.entries[seq - 1].id if seq > 0 else None,
            is_stored=session.entry_ids.__contains__,
        )
        record = session.record
        for entry in fresh:
            record = update_record(record, entry)
        if record is not None and record.name is not None:
            self._refuse_taken_name(record)
        session.record = record
        session.entries.extend(fresh)
        session.entry_ids.update(entry.id for entry in fresh)
        session.commands |= dict.fromkeys(consumed)
        session.announce()

    def _refuse_taken_name(self, record: SessionRecord) -> None:
        for other in self._sessions.values():
            taken = other.record
            if (
                taken
                and taken.id != record.id
                and (taken.owner, taken.project, taken.name)
                == (
                    record.owner,
                    record.project,
                    record.name,
                )
            ):
                raise name_taken(str(record.name))

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order; an unknown session has none."""
        session = self._sessions.get(session_id)
        if session is None:
            return []
        return session.entries[after : None if limit is None else after + limit]

    async def follow(
        self, session_id: SessionId, *, after: int = 0
    ) -> AsyncGenerator[list[Entry], None]:
        """Yield entries as they are appended, until closed."""
        session = self._sessions.setdefault(session_id, _Session())
        while True:
            changed = session.changed
            if page := session.entries[after:]:
                after += len(page)
                yield page
            else:
                await changed.wait()

    async def inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        """Report nothing: memory does not rot."""
        del session_id
        return ()

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session with everything that belongs to it."""
        if (session := self._sessions.pop(session_id, None)) is not None:
            session.announce()


class MemoryIndex:
    """The index: the records that the log keeps up to date."""

    def __init__(self, sessions: dict[SessionId, _Session]) -> None:
        self._sessions = sessions

    async def find(
        self,
        owner: str,
        project: str,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of somebody else is not found."""
        for record in self._records(owner, project):
            if record.id == session_id or (name is not None and record.name == name):
                return record
        return None

    async def browse(
        self, owner: str, project: str, *, limit: int | None = None, after: SessionId | None = None
    ) -> Sequence[SessionRecord]:
        """List sessions, the last updated first."""
        records = sorted(
            self._records(owner, project), key=lambda item: (item.updated, item.id), reverse=True
        )
        if after is not None:
            places = [place for place, record in enumerate(records) if record.id == after]
            records = records[places[0] + 1 :] if places else []
        return records[:limit]

    async def rebuild(self) -> int:
        """Make the records anew from the logs."""
        for session in self._sessions.values():
            session.record = None
            for entry in session.entries:
                session.record = update_record(session.record, entry)
        return sum(session.record is not None for session in self._sessions.values())

    def _records(self, owner: str, project: str) -> list[SessionRecord]:
        return [
            session.record
            for session in self._sessions.values()
            if session.record and (session.record.owner, session.record.project) == (owner, project)
        ]


class MemoryLeases:
    """Leases among the sessions of one process."""

    def __init__(self, sessions: dict[SessionId, _Session]) -> None:
        self._sessions = sessions
        # Epochs never repeat, not even for a session that is deleted and made again.
        self._last_epoch = 0
        self._lines: dict[SessionId, list[object]] = {}
        """Those who ask for a session, in the order in which they did."""

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer of a session."""
        turn = object()
        line = self._lines.setdefault(session_id, [])
        line.append(turn)
        try:
            while True:
                session = self._sessions.setdefault(session_id, _Session())
                is_first = session.holder is None and line[0] is turn
                if is_first or session.holder == holder:
                    return self._taken(session, session_id, holder)
                if busy == "reject":
                    raise self._refusal(session_id, session.holder)
                await session.changed.wait()
        finally:
            self._leave(session_id, turn)

    async def renew(self, lease: Lease) -> None:
        """Stay the writer; raises FENCED when somebody else took over."""
        session = self._sessions.get(lease.session_id)
        if session is None or session.holder is None or session.epoch != lease.epoch:
            raise fenced(lease.session_id, session.holder if session else None)

    async def release(self, lease: Lease) -> None:
        """Let somebody else become the writer."""
        session = self._sessions.get(lease.session_id)
        if session is not None and session.epoch == lease.epoch:
            session.holder = None
            session.announce()

    def _taken(self, session: _Session, session_id: SessionId, holder: str) -> Lease:
        session.holder = holder
        self._last_epoch += 1
        session.epoch = self._last_epoch
        return Lease(session_id=session_id, holder=holder, epoch=session.epoch)

    def _refusal(self, session_id: SessionId, holder: str | None) -> SessionError:
        if holder is None:
            return OutOfTurnError(session_id, "")
        return held_already(session_id, holder, process=os.getpid())

    def _leave(self, session_id: SessionId, turn: object) -> None:
        """Leave the line, and let the next one see that it is its turn."""
        self._lines[session_id].remove(turn)
        if not self._lines[session_id]:
            del self._lines[session_id]
        elif (session := self._sessions.get(session_id)) is not None:
            session.announce()


class MemoryInbox:
    """Commands for the holder of a session."""

    def __init__(self, sessions: dict[SessionId, _Session]) -> None:
        self._sessions = sessions

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder."""
        session = self._sessions.setdefault(session_id, _Session())
        session.commands.setdefault(command.id, command)
        session.announce()

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Look at the commands that nobody has consumed."""
        session = self._sessions.get(session_id)
        commands = session.commands.values() if session else ()
        return tuple(command for command in commands if command is not None)

    async def wait(self, session_id: SessionId, *, seen: Collection[CommandId] = ()) -> None:
        """Wait for a command that is not among those `seen`."""
        session = self._sessions.setdefault(session_id, _Session())
        while all(command.id in seen for command in await self.pending(session_id)):
            await session.changed.wait()


class MemoryBlobs:
    """Big payloads by their SHA-256."""

    def __init__(self, sessions: dict[SessionId, _Session]) -> None:
        self._sessions = sessions

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Store content and return its name."""
        name = name_of_content(content)
        self._sessions.setdefault(session_id, _Session()).blobs[name] = content
        return name

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND."""
        session = self._sessions.get(session_id)
        if session is None or name not in session.blobs:
            raise no_such_blob(session_id, name)
        return session.blobs[name]
