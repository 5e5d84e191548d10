"""Catalogue: the sessions of one owner and project in a store, for the handlers that work on them.

It reads and writes the store, and needs no session to be open. What is changed is an entry of the
session's log, so that every process sees it.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from haptera.access.descriptions import (
    FoundPrompt,
    SessionDescription,
    SessionEvent,
    describe,
)
from haptera.kernel.session.log_reading import fold_log, inherited_entries
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.ids import MessageId, SessionId, new_id, parse_session_id
from haptera.model.json_types import JsonObject, writable
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionChanged
from haptera.model.messages import UserMessage
from haptera.model.operations.operation import new_command_id
from haptera.model.operations.session import ChangeSession
from haptera.ports.session_store import Lease, SessionFilter, SessionLog, SessionRecord
from haptera.system.clock import Stamp

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition

_ELSEWHERE = 3
"""How many other projects an error names."""
_MOST_LOGS = 32
"""How many logs are remembered, those that were asked for last."""


class Catalogue:
    """The sessions of one owner and project. Needs no session to be open.

    A session is named by its id or its name. Sessions of other projects are seen only where
    `everywhere` is asked for; those of other owners never. Owns who is told what happens to
    sessions, and what it remembers of logs.
    """

    def __init__(self, composition: "Composition", *, owner: str, project: str) -> None:
        self.composition = composition
        self.owner = owner
        self.project = project
        self.sent_prompts = SentPrompts()
        self._handlers: list[Callable[[SessionEvent], object]] = []

    async def record(self, reference: str) -> SessionRecord:
        """Find a session of this project by its id or name, or of any project by its id.

        Raises:
            SessionError: NOT_FOUND.

        """
        if writable(reference) != reference:  # no store can keep such a name, or look for it
            raise SessionError(ErrorCode.NOT_FOUND, f"there is no session {reference!r}")
        # An id is unique in the whole store, a name only in its project.
        session_id = parse_session_id(reference)
        index = self.composition.store.index
        record = await index.find(
            self.owner,
            self.project if session_id is None else None,
            session_id=session_id,
            name=None if session_id else reference,
        )
        if record is None:
            raise await self._not_found(reference)
        return record

    async def folded(
        self, session_id: SessionId, *, through: int | None = None
    ) -> tuple[SessionFold, Sequence[Entry]]:
        """Return a session as its log leaves it, and its entries with those that it inherits.

        With `through` as it was after this `seq`.
        """
        log = self.composition.store.log
        entries = await log.read(session_id, limit=through)
        if through is not None:  # a log may have gaps
            entries = [entry for entry in entries if entry.seq <= through]
        inherited = await inherited_entries(log, entries[0] if entries else None)
        return await fold_log(log, entries), (*inherited, *entries)

    async def browse(self, matching: SessionFilter) -> Sequence[SessionRecord]:
        """Return the records of the owner's sessions that match."""
        return await self.composition.store.index.browse(self.owner, None, matching=matching)

    async def change(self, record: SessionRecord, changes: JsonObject) -> SessionDescription:
        """Record a change of a session, by the process that holds it if there is one."""
        live = self.composition.held(record.id)
        if live is not None:
            await live.change(changes)
        else:
            await self._change_closed(record.id, changes)
        self.announce("updated", record.id)
        return describe(await self.record(record.id))

    def on(self, handler: Callable[[SessionEvent], object]) -> Callable[[], None]:
        """Call `handler` when a session is created, updated, deleted or switched to by this agent.

        Returns a function that ends this.
        """
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler) if handler in self._handlers else None

    def announce(
        self, kind: Literal["created", "updated", "deleted", "switched"], session_id: SessionId
    ) -> None:
        """Tell the handlers that something happened to a session."""
        # A copy: a handler may end its own registration.
        for handler in tuple(self._handlers):
            handler(SessionEvent(kind=kind, session_id=session_id))

    async def acquire(self, session_id: SessionId) -> Lease:
        """Take the lease of a session; BUSY when another process holds it."""
        return await self.composition.store.leases.acquire(session_id, new_id("adm"))

    async def append(self, lease: Lease, changes: JsonObject) -> None:
        """Record a change of a session whose lease is held."""
        store = self.composition.store
        record = await store.index.find(self.owner, None, session_id=lease.session_id)
        if record is None:
            raise await self._not_found(lease.session_id)
        # Another session can have the name from now on.
        if "deleted" in changes:
            changes = {**changes, "name": None}
        stamp = Stamp(self.composition.clock)()
        changed = SessionChanged(**stamp, seq=record.head + 1, changes=changes)
        await store.log.append(lease, [changed])

    async def _change_closed(self, session_id: SessionId, changes: JsonObject) -> None:
        try:
            lease = await self.acquire(session_id)
        except SessionError as error:
            if error.code is not ErrorCode.BUSY:
                raise
            # Only the holder of a session can append to its log.
            command = ChangeSession(id=new_command_id(), changes=changes)
            await self.composition.store.inbox.put(session_id, command)
            return
        try:
            await self.append(lease, changes)
        finally:
            await self.composition.store.leases.release(lease)

    async def _not_found(self, reference: str) -> SessionError:
        message = f"there is no session {reference!r} in project {self.project!r}"
        named = SessionFilter(name=reference)
        others = await self.composition.store.index.browse(
            self.owner, None, matching=named, limit=_ELSEWHERE
        )
        if others:
            message += f"; there is one in {', '.join(repr(each.project) for each in others)}"
        return SessionError(ErrorCode.NOT_FOUND, message)


class _ReadPrompts(msgspec.Struct, kw_only=True):
    """What was read of one log so far."""

    created: int
    head: int = 0
    places: dict[MessageId, int] = msgspec.field(default_factory=dict)

    def take(self, entry: Entry) -> None:
        """Note an entry; of two with one message the first counts."""
        self.head = max(self.head, entry.seq)
        if (message := _prompt_of(entry)) is not None:
            self.places.setdefault(message.id, entry.seq)


class SentPrompts:
    """Finds prompts by the ids of their messages. Owns only what it remembers of the logs.

    A sender that gives its messages ids asks before each of them, so every entry is read once.
    """

    def __init__(self) -> None:
        self._logs: OrderedDict[SessionId, _ReadPrompts] = OrderedDict()

    async def find(
        self, log: SessionLog, record: SessionRecord, message_id: str
    ) -> FoundPrompt | None:
        """Find the prompt with this id in the log of a session; None without one."""
        prompts = self._known(record)
        for entry in await log.read(record.id, after=prompts.head):
            prompts.take(entry)
        seq = prompts.places.get(MessageId(message_id))
        for entry in () if seq is None else await log.read(record.id, after=seq - 1, limit=1):
            message = _prompt_of(entry)
            if message is not None and message.id == message_id:
                query_id = message.query_id or entry.query_id
                return FoundPrompt(seq=entry.seq, query_id=query_id, parts=message.parts)
        return None

    def _known(self, record: SessionRecord) -> _ReadPrompts:
        prompts = self._logs.get(record.id)
        # Another session may have been made with the id of one that was deleted.
        if prompts is None or prompts.created != record.created or prompts.head > record.head:
            prompts = self._logs[record.id] = _ReadPrompts(created=record.created)
        self._logs.move_to_end(record.id)
        while len(self._logs) > _MOST_LOGS:
            self._logs.popitem(last=False)
        return prompts


def _prompt_of(entry: Entry) -> UserMessage | None:
    return entry.message if isinstance(entry, InputQueued | QueryStarted) else None
