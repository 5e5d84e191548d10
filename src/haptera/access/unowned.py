"""Queries that no process carries on, where the store itself cannot name them.

A `SessionWorker` carries on what its source of queries claims. The PostgreSQL store is a source of
its own. Here are the others: what earlier processes left in a store of one machine, what was cut
off in sessions that this process holds, and several sources as one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from haptera.model.errors import AgentError
from haptera.model.ids import SessionId
from haptera.model.log.queries import InputQueued
from haptera.ports.session_store import (
    SessionFilter,
    SessionRecord,
    SharedQueries,
    UnownedQueries,
    UnownedQuery,
)
from haptera.system.clock import Clock, SystemClock

if TYPE_CHECKING:
    from haptera.access.worker import SharedStore
    from haptera.ports.session_store import Store

_RECENT_MS = 24 * 3600 * 1000
_MOST_SESSIONS = 200
"""How many sessions are looked at, the last updated first."""


def unowned_queries(store: "Store", *, owner: str, project: str, clock: Clock) -> UnownedQueries:
    """Return what a worker carries on of a store: its own list, or what earlier processes left."""
    shared: SharedQueries | None = getattr(store, "unowned", None)
    if shared is not None:
        # An agent opens the sessions of its own project only. What it claimed of another would
        # count as an attempt there.
        return shared.of_project(project)
    return LeftQueries(store, owner=owner, project=project, clock=clock)


class LeftQueries:
    """What earlier processes left unfinished in a store of one machine; each is claimed once.

    Found by the index, at the first claim: the sessions of one owner and project that were last
    updated in the day before, with a query that has no end, prompts that wait, or commands. What
    began later is left to the process that began it. A process that still runs keeps its sessions:
    they cannot be opened.
    """

    def __init__(self, store: "Store", *, owner: str, project: str, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._project = project
        # Of the start: a query that begins later has a process that runs it.
        self._until = clock.time_ms()
        self._found: deque[UnownedQuery] | None = None

    async def claim(
        self, *, limit: int, most_attempts: int, first_pause: float, longest_pause: float
    ) -> Sequence[UnownedQuery]:
        """Take some of them."""
        del most_attempts, first_pause, longest_pause  # none is claimed twice
        if self._found is None:
            self._found = deque(await self._find())
        return [self._found.popleft() for _ in range(min(limit, len(self._found)))]

    async def _find(self) -> list[UnownedQuery]:
        recent = SessionFilter(
            spawned=False, updated_after=self._until - _RECENT_MS, updated_before=self._until
        )
        records = await self._store.index.browse(
            self._owner, self._project, matching=recent, limit=_MOST_SESSIONS
        )
        return [
            UnownedQuery(session_id=record.id, owner=self._owner, project=self._project, attempt=1)
            for record in records
            if record.status == "running" or await self._has_input(record)
        ]

    async def _has_input(self, record: SessionRecord) -> bool:
        """Return whether a prompt or command came to a session and nothing came of it."""
        if await self._store.inbox.pending(record.id):
            return True
        # A prompt that waits behind an approval waits on.
        if record.status == "waiting" or not record.head:
            return False
        last = await self._store.log.read(record.id, after=record.head - 1, limit=1)
        # The index has no field for prompts that wait. One that is the last entry has not begun.
        return bool(last) and isinstance(last[0], InputQueued)


class HeldQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A session that this process holds and whose work does not go on."""

    session_id: SessionId
    owner: str
    head: int
    """The `seq` of its last entry: when it is another than before, attempts are counted anew."""


class _Attempts(msgspec.Struct):
    head: int
    count: int = 0
    not_before: float = 0.0


class HeldQueries:
    """Queries that were cut off in sessions which this process holds, as by a store that failed.

    No other process claims them while this one renews its leases.
    """

    def __init__(
        self, held: Callable[[], Iterable[HeldQuery]], *, clock: Clock | None = None
    ) -> None:
        self._held = held
        self._clock = clock or SystemClock()
        self._attempts: dict[tuple[str, SessionId], _Attempts] = {}

    @property
    def unowned(self) -> UnownedQueries:
        """The queries that no process carries on."""
        return self

    async def claim(
        self, *, limit: int, most_attempts: int, first_pause: float, longest_pause: float
    ) -> Sequence[UnownedQuery]:
        """Take some of them, and count the attempt."""
        now, claimed = self._clock.now(), list[UnownedQuery]()
        held = {(query.owner, query.session_id): query for query in self._held()}
        # Only of sessions that are still cut off at the same entry: progress ends the count, and
        # what went on by itself is forgotten.
        records = {
            key: self._attempts[key]
            for key, query in held.items()
            if key in self._attempts and self._attempts[key].head == query.head
        }
        self._attempts = records
        for key, query in held.items():
            tried = records.get(key) or _Attempts(query.head)
            if len(claimed) >= limit or tried.count >= most_attempts or tried.not_before > now:
                continue
            tried.not_before = now + min(longest_pause, first_pause * 2**tried.count)
            tried.count += 1
            records[key] = tried
            claimed.append(
                UnownedQuery(
                    session_id=query.session_id, owner=query.owner, project="", attempt=tried.count
                )
            )
        return claimed


class JoinedQueries:
    """Several sources of queries as one. A claim begins with the source after the last one's."""

    def __init__(self, sources: "Callable[[], Sequence[SharedStore]]") -> None:
        self._sources = sources
        self._first = 0

    @property
    def unowned(self) -> UnownedQueries:
        """The queries that no process carries on."""
        return self

    async def claim(
        self, *, limit: int, most_attempts: int, first_pause: float, longest_pause: float
    ) -> Sequence[UnownedQuery]:
        """Take some of them from each source in turn, up to the limit.

        A source that fails is passed over; its error is raised when the others have nothing.
        """
        sources = self._sources()
        claimed: list[UnownedQuery] = []
        failure: AgentError | None = None
        for offset in range(len(sources)):
            if len(claimed) >= limit:
                break
            source = sources[(self._first + offset) % len(sources)]
            try:
                claimed += await source.unowned.claim(
                    limit=limit - len(claimed),
                    most_attempts=most_attempts,
                    first_pause=first_pause,
                    longest_pause=longest_pause,
                )
            except AgentError as error:
                failure = error
        # Otherwise the first source could take the whole limit each time, and the others starve.
        self._first += 1
        if failure is not None and not claimed:
            raise failure
        return claimed
