"""SessionWorker: carries on queries whose node has gone, without being asked.

agent = Agent(store="postgresql://…", owner="ana", tools=[…])
worker = SessionWorker(agent.sessions, lambda query: agent.session(query.session_id))
async with agent, worker:
    ...
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Generic, Protocol, Self, TypeVar

import msgspec

from haptera.kernel.session.session_descriptions import Unfinished
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.events import Busy, Retrying, SessionStatus
from haptera.model.option import Option
from haptera.options.checks import checked_fields
from haptera.ports.session_store import UnownedQueries, UnownedQuery
from haptera.system.clock import Clock, SystemClock
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks

_logger = scrubbed_logger(__name__)

_STOP_SECONDS = 15.0
_HARMLESS = frozenset({ErrorCode.BUSY, ErrorCode.FENCED, ErrorCode.NOT_FOUND})
"""Another node was faster, or the session has been deleted since."""


class SharedStore(Protocol):
    """What knows queries without an owner: the PostgreSQL store, or `agent.sessions`."""

    @property
    def unowned(self) -> UnownedQueries:
        """The queries that no process carries on."""
        ...


class WorkedSession(Protocol):
    """What a worker needs of a session. `AgentSession` is one."""

    async def __aenter__(self) -> object:
        """Open it."""
        ...

    async def __aexit__(self, *exc: object) -> None:
        """Close it."""
        ...

    @property
    def unfinished(self) -> Unfinished:
        """What waits to be carried on."""
        ...

    def resume(self) -> Awaitable[object]:
        """Carry on what is unfinished."""
        ...

    async def wait_idle(self) -> object:
        """Wait until no query runs."""
        ...


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often a worker looks, and how hard it tries."""

    pause_seconds: Annotated[float, Option("Seconds between two looks.", above=0)] = 5.0
    at_once: Annotated[
        int, Option("The most sessions that it carries on at the same time.", least=1)
    ] = 4
    most_attempts: Annotated[
        int,
        Option(
            "How often a session is tried before it is left to people; a query that ends resets "
            "it.",
            least=1,
        ),
    ] = 5
    first_pause_seconds: Annotated[
        float,
        Option(
            "Seconds between the first attempt at a session and the second; they double with every "
            "attempt.",
            least=0,
        ),
    ] = 1.0
    longest_pause_seconds: Annotated[
        float, Option("Seconds that no pause between two attempts exceeds.", least=0)
    ] = 300.0


class WorkerStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has done so far."""

    running: int
    resumed: int
    """How many were carried on to a rest."""
    failed: int
    passed_on: int
    """How many another node carried on first."""


class SessionWorker:
    """Looks for sessions whose lease has expired with an unfinished query, and resumes them.

    A session is resumed as after a crash: what was started and has no recorded end is unknown, and
    the model is told so. One that rests on a call is left as it is until a command answers it.
    Prompts that were sent to a session which no node holds are carried out, too. Owns the tasks
    that carry sessions on; closing it stops them as a closing session does.
    """

    def __init__(
        self,
        store: SharedStore,
        open_session: Callable[[UnownedQuery], WorkedSession],
        *,
        settings: WorkerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._open_session = open_session
        self._settings = checked_fields(settings or WorkerSettings())
        self._clock = clock or SystemClock()
        self._tasks = OwnedTasks()
        self._running: set[asyncio.Task[None]] = set()
        self._resumed = self._failed = self._passed_on = 0

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to look, until it is closed. `async with` does it, too."""
        self._tasks.start(self._look_for_ever(), name="haptera-worker")

    @property
    def stats(self) -> WorkerStats:
        """What the worker has done so far."""
        return WorkerStats(
            running=len(self._running),
            resumed=self._resumed,
            failed=self._failed,
            passed_on=self._passed_on,
        )

    async def look(self) -> int:
        """Claim what can be carried on now, and begin with it; returns how many there were."""
        free = self._settings.at_once - len(self._running)
        if free <= 0:
            return 0
        claimed = await self._store.unowned.claim(
            limit=free,
            most_attempts=self._settings.most_attempts,
            first_pause=self._settings.first_pause_seconds,
            longest_pause=self._settings.longest_pause_seconds,
        )
        for query in claimed:
            task = self._tasks.start(self._carry_on(query), name="haptera-carry-on")
            # Apart from the tasks as a whole: the one that looks is no session that is carried on.
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return len(claimed)

    async def wait(self) -> None:
        """Wait until everything that was begun has come to rest."""
        # Again, because the worker may have begun with others meanwhile.
        while self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """Look no more, and stop what runs; another node carries it on."""
        await self._tasks.cancel(within=_STOP_SECONDS)

    async def _look_for_ever(self) -> None:
        while True:
            try:
                await self.look()
            except AgentError as error:
                # A store that is away comes back; a worker that ended with it would have to be
                # started again.
                _logger.warning("the worker could not look for queries: %s", error)
            await self._clock.sleep(self._settings.pause_seconds)

    async def _carry_on(self, query: UnownedQuery) -> None:
        _logger.info(
            "session %s has an unfinished query and no owner; attempt %d of %d",
            *(query.session_id, query.attempt, self._settings.most_attempts),
        )
        try:
            session = self._open_session(query)
            async with session:
                # More than once: prompts that waited behind the query are work of their own.
                while can_go_on(session.unfinished):
                    await _resume(session)
                    await session.wait_idle()
                # A query that others began in the session counts as nothing to go on with.
                await session.wait_idle()
            self._resumed += 1
        except AgentError as error:
            if error.code in _HARMLESS:
                self._passed_on += 1
            else:
                self._failed += 1
                _logger.warning("session %s could not be carried on: %s", query.session_id, error)


class SessionInUse(Protocol):
    """What a worker needs of a session that others use, too. `AgentSession` is one."""

    @property
    def status(self) -> SessionStatus:
        """What the session is doing."""
        ...

    @property
    def unfinished(self) -> Unfinished:
        """What waits to be carried on."""
        ...

    async def wait_idle(self) -> object:
        """Wait until no query runs."""
        ...


SharedT = TypeVar("SharedT", bound=SessionInUse)


class SharedWork(Generic[SharedT]):
    """A session that others use, as a worker has it: it stays open when the worker has done.

    `used` gives the session, and `resume` carries on what is unfinished in it.
    """

    def __init__(
        self,
        used: AbstractAsyncContextManager[SharedT],
        resume: Callable[[SharedT], Awaitable[object]],
    ) -> None:
        self._used = used
        self._resume = resume
        self._session: SharedT | None = None

    async def __aenter__(self) -> Self:
        self._session = await self._used.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        # Not the exception: that a query failed is no reason for the pool to close the session.
        await self._used.__aexit__(None, None, None)

    @property
    def unfinished(self) -> Unfinished:
        """What waits to be carried on; nothing while a query runs."""
        # The log of a running query looks as if it had been cut off.
        if self._session is None or is_running(self._session.status):
            return Unfinished()
        return self._session.unfinished

    async def resume(self) -> None:
        """Carry on what is unfinished."""
        if self._session is not None:
            await self._resume(self._session)

    async def wait_idle(self) -> None:
        """Wait until no query runs."""
        if self._session is not None:
            await self._session.wait_idle()


def is_running(status: SessionStatus) -> bool:
    """Return whether a query runs."""
    return isinstance(status, Busy | Retrying)


def can_go_on(left: Unfinished) -> bool:
    """Return whether a session has work that does not wait for an answer, or for its user.

    After a rewind a query may be without an end that had one: its user goes on from there.
    """
    waits = left.resting and left.is_unanswered
    is_cut_off = left.query_id is not None and not left.rewound
    return not waits and (is_cut_off or bool(left.inputs))


async def _resume(session: WorkedSession) -> None:
    """Resume a session; what waited in it may be running already, or have ended."""
    try:
        await session.resume()
    except AgentError as error:
        if error.code is not ErrorCode.NOTHING_TO_SEND:
            raise
