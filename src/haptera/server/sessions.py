"""The sessions of owners as routes use them: open in this process, or held by another one."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import TypeAlias

from haptera import (
    Agent,
    AgentError,
    AgentRemote,
    AgentSession,
    AgentSessions,
    ApprovalSettled,
    SessionDescription,
)
from haptera.access.failure_log import FailureLog
from haptera.access.pool import CloseReason, PoolLimits, QueryStats, SessionPool
from haptera.access.unowned import LeftQueries
from haptera.access.worker import is_running
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.events import QuerySuspended
from haptera.model.ids import QueryId, parse_session_id
from haptera.server.cut_off_queries import CutOffQueries
from haptera.server.feeds import Overview, SessionFeed, Source
from haptera.server.limits import CallerPlaces, OpenLimit, ServerSettings
from haptera.server.loop_slices import LoopSlices
from haptera.server.problems import ProblemError
from haptera.server.shutdown import when_told_to_end
from haptera.server.store_health import StoreHealth
from haptera.system.owned_tasks import OwnedTasks

_failures = FailureLog(
    __name__,
    message="the agent of an owner could not be made",
    expects=(AgentError, ProblemError),
)
SessionHandle: TypeAlias = AgentSession | AgentRemote
"""A session to talk to: open here, or reached through the inbox of the process that holds it."""


class Hub:
    """Keeps sessions open for all owners, and tells feeds where sessions are open.

    Owns the pool, the feeds and what carries queries on. It ends them when it is closed; the agents
    belong to the caller. The first of the `owners`, which may change, is the server's own.
    """

    def __init__(
        self,
        agents: Callable[[str], Agent | None],
        settings: ServerSettings,
        *,
        owners: Callable[[], Sequence[str]],
    ) -> None:
        self._agents = agents
        self._known_owners = owners
        self.settings = settings
        self.streams = OpenLimit("streams", each=settings.streams_per_owner, total=settings.streams)
        self.loop = LoopSlices()
        self.decoding = CallerPlaces(1)
        """Of large bodies."""
        self.importing = CallerPlaces(2)
        self.exporting = CallerPlaces(2)
        """Of exports, piece by piece, and of what links show."""
        limits = PoolLimits(
            sessions=settings.sessions,
            # Not all of them: one owner with many sessions must not keep the others out.
            per_owner=settings.sessions_per_owner or max(1, settings.sessions * 3 // 4),
            idle_seconds=settings.idle_seconds,
            queries=settings.queries,
            pending=settings.pending_queries,
            when_full=settings.when_queries_full,
            pending_seconds=settings.pending_seconds,
        )
        self._pool: SessionPool[AgentSession] = SessionPool(
            self._open_session, limits=limits, on_closed=self._note_closed
        )
        self._owners: dict[str, OwnerSessions] = {}
        self._open: dict[tuple[str, str], AgentSession] = {}
        self._feeds: dict[tuple[str, str], set[SessionFeed]] = defaultdict(set)
        self._overviews: dict[str, set[Overview]] = defaultdict(set)
        self.cut_off = CutOffQueries(self._pool, self._open, settings)
        self.health = StoreHealth(self._ask_store, settings)
        self._aborting = OwnedTasks()
        self._is_started = False
        self._hear_no_more: Callable[[], None] = lambda: None
        self.closing = asyncio.Event()
        """Set when the server shuts down."""

    @property
    def is_closing(self) -> bool:
        """Whether the server shuts down."""
        return self.closing.is_set()

    @property
    def queries(self) -> QueryStats:
        """What became of the queries that were asked for."""
        return self._pool.stats.queries

    def start(self) -> None:
        """Carry on what was cut off, and watch the store.

        The lifespan of the application does it. Without one, the first request does.
        """
        if self._is_started or self.is_closing:
            return
        self._is_started = True
        self._hear_no_more = when_told_to_end(self.end_streams)
        self.cut_off.start(self._stores)
        # Files of this machine are asked when a request needs them; only a network can be away.
        if not isinstance(self._stores()[0].unowned, LeftQueries):
            self.health.start()

    def owner(self, owner: str) -> "OwnerSessions":
        """Return the sessions of an owner, for a request.

        Raises:
            ProblemError: 403 when no agent serves this owner, 500 when making it failed.

        """
        self.start()
        return self._owner(owner)

    def _owner(self, owner: str) -> "OwnerSessions":
        if owner not in self._owners:
            agent = self._agent_of(owner)
            # For the server's own owner, too: its key may be anywhere, and runs no code.
            agent.sessions.restrict_plugins()
            if owner != self._known_owners()[0]:
                agent.sessions.restrict_models(files=self.settings.local_files)
            self._owners[owner] = OwnerSessions(self, agent, pool=self._pool, owner=owner)
        return self._owners[owner]

    def _agent_of(self, owner: str) -> Agent:
        """Ask the program for the agent of an owner; what it fails with concerns this owner only.

        Raises:
            ProblemError: 403 when there is none, 500 when the program failed.
            AgentError: when the agent cannot be made.

        """
        with _failures:
            agent = self._agents(owner)
            if agent is None:
                raise ProblemError(403, "OWNER_UNKNOWN", "this server has no agent for this owner")
            return agent
        # Reached when the block above has swallowed, and logged, what the program raised.
        raise ProblemError(500, "INTERNAL", "the server failed; its log says why")

    def end_streams(self) -> None:
        """End every stream and begin no other: the server shuts down."""
        self.closing.set()
        for key, feeds in self._feeds.items():
            last = _suspended(self._open.get(key))
            for feed in feeds:
                feed.stop(last)
        for overviews in self._overviews.values():
            for overview in overviews:
                overview.end()

    def suspend_queries(self) -> None:
        """Close the sessions without waiting for their queries, which are carried on later."""
        self.end_streams()
        for session in self._open.values():
            self._aborting.start(_close_now(session), name="haptera-close-now")

    def abort_queries(self) -> None:
        """Close the sessions by force: their queries end now, as aborted in the log."""
        self.end_streams()
        for session in self._open.values():
            closing = _close_now(session, abort=True)
            self._aborting.start(closing, name="haptera-close-now")

    async def close(self) -> None:
        """End streams, then close the sessions: running queries may end by themselves."""
        self.end_streams()
        # The worker before the pool, or it would open sessions that are just being closed. Aborted
        # sessions after it: the pool closes them, too, and both wait for the same close.
        await self.health.close()
        await self.cut_off.stop()
        await self._pool.close()
        await asyncio.gather(*self._aborting)
        await self.cut_off.close()
        self._hear_no_more()

    def open_here(self, owner: str, session_id: str) -> AgentSession | None:
        """Return a session that is open in this process."""
        session = self._open.get((owner, session_id))
        return None if session is None or session.closed or session.taken_over else session

    def is_taken_over(self, owner: str, session_id: str) -> bool:
        """Return whether a session that was open here has another holder now."""
        session = self._open.get((owner, session_id))
        return session is not None and session.taken_over

    @contextlib.contextmanager
    def feeding(self, owner: str, feed: SessionFeed) -> Generator[None, None, None]:
        """Tell a feed where its session is open, while the block runs."""
        key = (owner, feed.session_id)
        self._feeds[key].add(feed)
        if self.is_closing:  # its request came before, and streams were ended meanwhile
            feed.stop()
        try:
            yield
        finally:
            self._feeds[key].discard(feed)
            if not self._feeds[key]:
                del self._feeds[key]

    @contextlib.contextmanager
    def showing(self, owner: str, overview: Overview) -> Generator[None, None, None]:
        """Publish what happens in every session that is, or will be, open here."""
        self._overviews[owner].add(overview)
        for (its_owner, session_id), session in self._open.items():
            if its_owner == owner and not session.closed:
                overview.show(session, session_id)
        try:
            yield
        finally:
            self._overviews[owner].discard(overview)
            overview.leave()

    def _stores(self) -> list[AgentSessions]:
        """Return the sessions of every owner that has an agent."""
        stores: list[AgentSessions] = []
        for owner in self._known_owners():
            with contextlib.suppress(ProblemError, AgentError):  # its requests get it, too
                stores.append(self._owner(owner).agent.sessions)
        return stores

    async def _ask_store(self) -> None:
        await self._owner(self._known_owners()[0]).agent.sessions.list(limit=1)

    async def _open_session(self, owner: str, session_id: str) -> AgentSession:
        session = await self._owner(owner).agent.session(session_id, must_exist=True).open()
        self._open[owner, session_id] = session
        # An answer may come from any process, through the inbox; a query that rests does not go on
        # alone.
        session.on(ApprovalSettled, lambda _: self._after_approval(session))
        for overview in self._overviews[owner]:
            overview.show(session, session_id)
        for feed in tuple(self._feeds.get((owner, session_id), ())):
            # Before the session is handed out: streams see what the first request in it does.
            await feed.move()
        return session

    def _after_approval(self, session: AgentSession) -> None:
        """Carry a query on when the last of the approvals that it rests on was answered."""
        left = session.unfinished
        if left.resting and not left.approvals and not is_running(session.status):
            self.cut_off.carry_on(session)

    def _note_closed(self, owner: str, session_id: str, reason: CloseReason) -> None:
        del reason
        self._open.pop((owner, session_id), None)


async def _close_now(session: AgentSession, *, abort: bool = False) -> None:
    with contextlib.suppress(AgentError):  # the pool closes it as well, and says what failed
        await session.close(force=True, abort=abort)


def _suspended(session: AgentSession | None) -> list[QuerySuspended]:
    """Return what streams of a session are told last when its server shuts down."""
    if session is None or session.closed or not is_running(session.status):
        return []
    query_id = session.unfinished.query_id
    reason = "the server shuts down; the query goes on elsewhere, or when it is back"
    return [QuerySuspended(query_id=query_id, reason=reason)] if query_id else []


class OwnerSessions:
    """What one owner can reach. The sessions of other owners do not exist for it."""

    def __init__(
        self, hub: Hub, agent: Agent, *, pool: SessionPool[AgentSession], owner: str
    ) -> None:
        self.hub = hub
        self.agent = agent
        self.owner = owner
        self.importing = asyncio.Lock()
        """Held while a file comes and a session is made from it."""
        self._pool = pool

    async def describe(self, session_id: str) -> SessionDescription:
        """Describe a session by its id; names are not looked up.

        Raises:
            SessionError: NOT_FOUND, also for the session of another owner.

        """
        if parse_session_id(session_id) is None:
            raise SessionError(ErrorCode.NOT_FOUND, f"there is no session {session_id[:60]!r}")
        try:
            return await self.agent.sessions.get(session_id)
        except SessionError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            # The error of the library may name other projects: a client gets the same for all.
            message = f"there is no session {session_id!r}"
            raise SessionError(ErrorCode.NOT_FOUND, message) from None

    @contextlib.asynccontextmanager
    async def handle(
        self, session_id: str, *, carries_on: bool = True, is_known: bool = False
    ) -> AsyncGenerator[SessionHandle, None]:
        """Open a session here, or reach it where another process holds it.

        What was cut off is carried on first, unless the request is about the history. `is_known`:
        the caller has described the session already, so that it is there and the owner's.
        """
        if not is_known:
            await self.describe(session_id)
        async with contextlib.AsyncExitStack() as stack:
            handle: SessionHandle
            try:
                session = await stack.enter_async_context(self._use(session_id))
                if carries_on:
                    await self.hub.cut_off.before_request(session)
                handle = session
            except SessionError as error:
                if error.code is not ErrorCode.BUSY:
                    raise
                # Held by another process: everything that follows goes through its inbox.
                handle = await self.agent.remote(session_id)
            yield handle

    async def begin(
        self, handle: SessionHandle, start: Callable[[], Awaitable[QueryId]]
    ) -> QueryId:
        """Call what begins a query; in a session that is open here, when there is a turn for it."""
        if isinstance(handle, AgentRemote):
            return await start()
        return await self._pool.begin(handle, start)

    @contextlib.asynccontextmanager
    async def _use(self, session_id: str) -> AsyncGenerator[AgentSession, None]:
        """Use a session of the pool; one that another process has taken is opened anew."""
        if self.hub.is_taken_over(self.owner, session_id):
            await self.discard(session_id)
        async with contextlib.AsyncExitStack() as stack:
            try:
                using = self._pool.use(session_id, owner=self.owner)
                used = await stack.enter_async_context(using)
            except SessionError as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    raise
                # The session exists, or this raises NOT_FOUND; so the agent did not find it in its
                # own project.
                project = (await self.describe(session_id)).project
                message = f"this server only reads it: it is of project {project!r}; import a copy"
                raise ProblemError(409, "OTHER_PROJECT", message) from error
            yield used

    async def discard(self, session_id: str, *, force: bool = False) -> None:
        """Close a session that is open here; by force, its query does not end by itself."""
        if force and (session := self.hub.open_here(self.owner, session_id)) is not None:
            await session.close(abort=True)
        await self._pool.discard(session_id, owner=self.owner)

    def feed(self, session_id: str, *, after: int) -> SessionFeed:
        """Return the events of a session after a `seq`; use it inside `hub.feeding`."""

        async def open_source(seen: int) -> AgentSession | Source:
            session = self.hub.open_here(self.owner, session_id)
            if session is not None:
                return session
            return (await self.agent.remote(session_id)).events(after=seen)

        return SessionFeed(open_source, session_id=session_id, after=after)
