"""What the memory store holds: its sessions by id, and which have a name, notes or an origin."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TypeVar

from haptera.model.ids import EntryId, SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import Command
from haptera.ports.session_store import SessionFilter, SessionRecord

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
