"""The store in memory: sessions as lists of their entries, by id, name, notes and origin."""

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, TypeVar

from haptera.model.errors import SessionError
from haptera.model.ids import EntryId, SessionId
from haptera.model.late_names import on_first_use
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import Command
from haptera.model.results import SessionOrder
from haptera.ports.session_store import (
    ANY_SESSION,
    Damage,
    Lease,
    SearchHit,
    SessionFilter,
    SessionRecord,
)
from haptera.stores.append_rules import (
    entries_to_store,
    fenced_error,
    is_visible,
    name_taken_error,
    page_of,
    refuse_other_sessions,
    updated_record,
)
from haptera.stores.lease_rules import WaitersFirstError, busy_error
from haptera.stores.stored_records import blob_name, blob_not_found_error, no_session_error

if TYPE_CHECKING:
    from haptera.stores import text_search
else:
    text_search = on_first_use("haptera.stores.text_search")

KeyT = TypeVar("KeyT")
_KEYS = attrgetter(
    *("owner", "project", "name", "notes", "parent", "spawned_by"),
    *("tags", "metadata", "senders"),
)
"""What sessions are looked up by, beside their ids."""


class MemorySession:
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
        self.waiting: list[asyncio.Event] = []
        """Set by a new command and a removal, one for each that waits, so that no append wakes what
        waits for a command."""
        self._changed: asyncio.Event | None = None

    def announce(self) -> None:
        """Wake all tasks that wait for a change."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def next_change(self) -> asyncio.Event:
        """Return what the next change sets. Most sessions have nothing that waits for one."""
        if self._changed is None:
            self._changed = asyncio.Event()
        return self._changed

    def wake(self) -> None:
        """Let those that wait for a command look again."""
        for waiting in self.waiting:
            waiting.set()


class MemorySessions:
    """All sessions of a store by id, those with a name or notes, and those that came of others."""

    def __init__(self) -> None:
        self._by_id: dict[SessionId, MemorySession] = {}
        self._noted: set[SessionId] = set()
        self._names: dict[tuple[str, str], dict[str, SessionId]] = {}
        """By owner and name: the session of each project that has the name."""
        self._came_of: dict[SessionId, set[SessionId]] = {}
        """By session: its forks, and what its tool calls made."""
        self._labelled: dict[str, set[SessionId]] = {}

    def get(self, session_id: SessionId) -> MemorySession | None:
        """Return a session; None when the store has nothing of it."""
        return self._by_id.get(session_id)

    def get_or_create(self, session_id: SessionId) -> MemorySession:
        """Return a session; one that the store has nothing of is empty."""
        session = self._by_id.get(session_id)
        if session is None:
            session = self._by_id[session_id] = MemorySession()
        return session

    def all(self) -> Iterator[tuple[SessionId, MemorySession]]:
        """Yield every session with its id; sessions may be removed meanwhile."""
        yield from tuple(self._by_id.items())

    def records(self, matching: SessionFilter | None = None) -> list[SessionRecord]:
        """Return what the index knows of all sessions, or of those that alone can match."""
        sessions: Iterable[MemorySession] = self._by_id.values()
        came_of = matching and (matching.parent or matching.spawned_by)
        if came_of:
            sessions = [self._by_id[each] for each in self._came_of.get(came_of, ())]
        elif matching and matching.noted:
            sessions = [self._by_id[each] for each in self._noted]
        elif matching and matching.labels:
            labelled = (self._labelled.get(label, set()) for label in matching.labels)
            sessions = [self._by_id[each] for each in min(labelled, key=len)]
        return [session.record for session in sessions if session.record is not None]

    def ids_of_name(self, owner: str, name: str) -> Mapping[str, SessionId]:
        """Return the sessions of an owner that have a name, by their projects."""
        return self._names.get((owner, name), {})

    def set_record(self, session: MemorySession, record: SessionRecord | None) -> None:
        """Replace what the index knows of a session, with what it is looked up by."""
        before, session.record = session.record, record
        # Compared, because every append comes here, and few change these.
        if before is not None and record is not None and _KEYS(before) == _KEYS(record):
            return
        if before is not None:
            self._forget(before)
        if record is None:
            return
        if record.name is not None:
            bearers = self._names.setdefault((record.owner, record.name), {})
            bearers[record.project] = record.id
        if record.notes:
            self._noted.add(record.id)
        for origin in filter(None, (record.parent, record.spawned_by)):
            self._came_of.setdefault(origin, set()).add(record.id)
        for label in record.labels:
            self._labelled.setdefault(label, set()).add(record.id)

    def _forget(self, record: SessionRecord) -> None:
        self._noted.discard(record.id)
        for origin in filter(None, (record.parent, record.spawned_by)):
            _discard(self._came_of, origin, record.id)
        for label in record.labels:
            _discard(self._labelled, label, record.id)
        if record.name is not None:
            key = record.owner, record.name
            bearers = self._names.get(key, {})
            bearers.pop(record.project, None)
            if not bearers:
                self._names.pop(key, None)

    def remove(self, session_id: SessionId) -> None:
        """Remove a session with its name."""
        if (session := self._by_id.pop(session_id, None)) is not None:
            self.set_record(session, None)
            session.announce()
            session.wake()


def _discard(sessions: dict[KeyT, set[SessionId]], key: KeyT, session_id: SessionId) -> None:
    """Take a session from one of several sets, and the set away that is empty then."""
    left = sessions.get(key, set())
    left.discard(session_id)
    if not left:
        sessions.pop(key, None)


class MemoryStore:
    """All ports of a store over plain dictionaries. One event loop at a time uses it."""

    def __init__(self) -> None:
        self._sessions = MemorySessions()
        self.log = MemoryLog(self._sessions)
        self.index = MemoryIndex(self._sessions)
        self.leases = MemoryLeases(self._sessions)
        self.inbox = MemoryInbox(self._sessions)
        self.blobs = MemoryBlobs(self._sessions)
        self.search = MemorySearch(self._sessions)

    async def close(self) -> None:
        """Do nothing: the store keeps its sessions as long as it is referenced."""


class MemoryLog:
    """The logs, as lists of the entries themselves."""

    def __init__(self, sessions: MemorySessions) -> None:
        self._sessions = sessions

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append entries that already have their `seq`."""
        self.append_now(lease, entries, consumed=consumed)

    def append_now(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append without awaiting: memory has nothing to wait for."""
        session = self._sessions.get_or_create(lease.session_id)
        if session.holder is None or lease.epoch != session.epoch:
            raise fenced_error(lease.session_id, session.holder)
        refuse_other_sessions(lease.session_id, entries)
        fresh = entries_to_store(
            entries,
            head=len(session.entries),
            id_at=lambda seq: session.entries[seq - 1].id if seq > 0 else None,
            is_stored=session.entry_ids.__contains__,
        )
        record = updated_record(session.record, fresh)
        # All checks come before the first change: an append that is refused leaves nothing behind.
        self._refuse_taken_name(record)
        self._sessions.set_record(session, record)
        session.entries.extend(fresh)
        session.entry_ids.update(entry.id for entry in fresh)
        session.commands |= dict.fromkeys(consumed)
        session.announce()

    def _refuse_taken_name(self, record: SessionRecord | None) -> None:
        if record is not None and record.name is not None:
            bearers = self._sessions.ids_of_name(record.owner, record.name)
            bearer = bearers.get(record.project)
            if bearer not in {None, record.id}:
                raise name_taken_error(record.name)

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order; an unknown session has none."""
        session = self._sessions.get(session_id)
        if session is None:
            return []
        first = max(after, 0)
        return session.entries[first : None if limit is None else first + limit]

    async def follow(
        self, session_id: SessionId, *, after: int = 0
    ) -> AsyncGenerator[list[Entry], None]:
        """Yield entries as they are appended, until closed or deleted."""
        if after and self._sessions.get(session_id) is None:
            return
        session = self._sessions.get_or_create(session_id)
        while True:
            changed = session.next_change()
            if page := session.entries[after:]:
                after += len(page)
                yield page
            elif self._sessions.get(session_id) is session:
                await changed.wait()
            elif after:
                return
            else:  # it was removed without an entry, and may be made again
                session = self._sessions.get_or_create(session_id)

    async def inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        """Report nothing: objects in memory are never damaged."""
        del session_id
        return ()

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session with everything that belongs to it."""
        self._sessions.remove(session_id)


class MemoryIndex:
    """Finds sessions by the records that each append updates."""

    def __init__(self, sessions: MemorySessions) -> None:
        self._sessions = sessions

    async def find(
        self,
        owner: str,
        project: str | None,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of another owner or project is not found."""
        for candidate in (session_id, self._id_of_name(owner, project, name)):
            session = None if candidate is None else self._sessions.get(candidate)
            record = None if session is None else session.record
            if record is not None and is_visible(record, owner, project):
                return record
        return None

    async def browse(
        self,
        owner: str,
        project: str | None,
        *,
        matching: SessionFilter = ANY_SESSION,
        order: SessionOrder = "updated",
        limit: int | None = None,
        after: SessionId | None = None,
    ) -> Sequence[SessionRecord]:
        """List sessions in an order."""
        # Every new session asks for those with notes, and every turn with a budget for those that
        # its tool calls made: not by a look at all sessions. The one that `after` names need not
        # match.
        owned = self._owned(owner, project, matching if after is None else None)
        return page_of(owned, matching, order=order, limit=limit, after=after)

    async def count(
        self, owner: str, project: str | None, *, matching: SessionFilter = ANY_SESSION
    ) -> int:
        """Count sessions."""
        return sum(map(matching.matches, self._owned(owner, project, matching)))

    def _owned(
        self, owner: str, project: str | None, matching: SessionFilter | None
    ) -> list[SessionRecord]:
        return [
            record
            for record in self._sessions.records(matching)
            if record.owner == owner and project in {None, record.project}
        ]

    def _id_of_name(self, owner: str, project: str | None, name: str | None) -> SessionId | None:
        if name is None:
            return None
        bearers = self._sessions.ids_of_name(owner, name)
        if project is not None:
            return bearers.get(project)
        sessions = [self._sessions.get(each) for each in bearers.values()]
        records = [session.record for session in sessions if session and session.record]
        page = page_of(records, SessionFilter(name=name), limit=1, after=None)
        return page[0].id if page else None

    async def rebuild(self) -> int:
        """Derive the records again from the logs."""
        records = 0
        for _, session in self._sessions.all():
            self._sessions.set_record(session, updated_record(None, session.entries))
            records += session.record is not None
        return records


class MemoryLeases:
    """Leases among the holders in one process."""

    def __init__(self, sessions: MemorySessions) -> None:
        self._sessions = sessions
        # Epochs never repeat, not even for a session that is deleted and made again.
        self._last_epoch = 0
        self._lines: dict[SessionId, list[object]] = {}
        """One ticket per caller that asks for a session, in the order in which they asked."""

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer of a session."""
        ticket = object()
        line = self._lines.setdefault(session_id, [])
        # Also for a caller that does not wait, so that it does not overtake those who do.
        line.append(ticket)
        try:
            while True:
                session = self._sessions.get_or_create(session_id)
                is_first = session.holder is None and line[0] is ticket
                if is_first or session.holder == holder:
                    return self._grant(session, session_id, holder)
                if busy == "reject":
                    raise self._refusal(session_id, session.holder)
                await session.next_change().wait()
        finally:
            self._leave(session_id, ticket)

    async def renew(self, lease: Lease) -> None:
        """Stay the writer; raises FENCED when another holder took over."""
        session = self._sessions.get(lease.session_id)
        if session is None or session.holder is None or session.epoch != lease.epoch:
            raise fenced_error(lease.session_id, session.holder if session else None)

    async def release(self, lease: Lease) -> None:
        """Let another holder become the writer."""
        session = self._sessions.get(lease.session_id)
        if session is not None and session.epoch == lease.epoch:
            session.holder = None
            session.announce()

    def _grant(self, session: MemorySession, session_id: SessionId, holder: str) -> Lease:
        session.holder = holder
        self._last_epoch += 1
        session.epoch = self._last_epoch
        return Lease(session_id=session_id, holder=holder, epoch=session.epoch)

    def _refusal(self, session_id: SessionId, holder: str | None) -> SessionError:
        if holder is None:
            return WaitersFirstError(session_id, "")
        return busy_error(session_id, holder, process=os.getpid())

    def _leave(self, session_id: SessionId, ticket: object) -> None:
        """Remove a ticket, and wake the other waiters: one of them is first now."""
        self._lines[session_id].remove(ticket)
        if not self._lines[session_id]:
            del self._lines[session_id]
        elif (session := self._sessions.get(session_id)) is not None:
            session.announce()


class MemoryInbox:
    """Commands for the holder of a session."""

    def __init__(self, sessions: MemorySessions) -> None:
        self._sessions = sessions

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder; raises NOT_FOUND."""
        session = self._sessions.get(session_id)
        # Without entries it is only waited for, perhaps since it was deleted.
        if session is None or not session.entries:
            raise no_session_error(session_id)
        session.commands.setdefault(command.id, command)
        session.wake()

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Return the commands that are not consumed yet."""
        session = self._sessions.get(session_id)
        commands = session.commands.values() if session else ()
        return tuple(command for command in commands if command is not None)

    async def wait(self, session_id: SessionId, *, seen: Collection[CommandId] = ()) -> None:
        """Wait for a command that is not among those `seen`."""
        while all(command.id in seen for command in await self.pending(session_id)):
            # Each time: a session that was removed may have been made again.
            session = self._sessions.get_or_create(session_id)
            # One for each wait: an event belongs to the loop in which it was first waited for.
            waiting = asyncio.Event()
            session.waiting.append(waiting)
            try:
                await waiting.wait()
            finally:
                session.waiting.remove(waiting)


class MemoryBlobs:
    """Content by its SHA-256."""

    def __init__(self, sessions: MemorySessions) -> None:
        self._sessions = sessions

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Store content and return its name."""
        name = blob_name(content)
        self._sessions.get_or_create(session_id).blobs[name] = content
        return name

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND."""
        session = self._sessions.get(session_id)
        if session is None or name not in session.blobs:
            raise blob_not_found_error(session_id, name)
        return session.blobs[name]


class MemorySearch:
    """Finds texts by reading the logs of all sessions of an owner."""

    def __init__(self, sessions: MemorySessions) -> None:
        self._sessions = sessions

    async def find(
        self,
        query: str,
        *,
        owner: str,
        project: str | None = None,
        limit: int = 50,
        prefix: bool = False,
    ) -> Sequence[SearchHit]:
        """Find texts that hold every word of the query, the best first."""
        logs = [
            (session_id, tuple(session.entries))
            for session_id, session in self._sessions.all()
            if session.record is not None and is_visible(session.record, owner, project)
        ]
        # Large logs take a while, so the event loop does not wait for them.
        texts = text_search.TextScan(query, limit=limit, prefix=prefix)
        return await asyncio.to_thread(texts.scan_all, logs)
