"""SessionPool: the sessions that a server keeps open, at most so many, each shared by its callers.

It also lets so many queries run at once, where programs begin them through it.

pool = SessionPool(lambda owner, name: agents[owner].session(name).open(), limits=limits)
async with pool, pool.use("ana-1", owner="ana") as session:
    await session.chat("hello")
"""

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

import msgspec

from haptera.model.errors import AgentError, ConfigError, ErrorCode, RequestError, SessionError
from haptera.model.events import Busy, Retrying, SessionStatus
from haptera.model.ids import DEFAULT_OWNER, OWNER_NAME
from haptera.model.option import Option
from haptera.model.secrets import without_secrets
from haptera.model.settings import PoolSettings
from haptera.options.checks import checked_fields
from haptera.options.declarations import declared_fields
from haptera.system.clock import Clock, SystemClock
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks

_logger = scrubbed_logger(__name__)

CloseReason: TypeAlias = Literal["manual", "idle", "evicted", "failed", "shutdown"]
"""`evicted`: another session needed the place. `failed`: it was closed, or another process took it
over."""
WhenQueueFull: TypeAlias = Literal["suspend", "dropping", "sliding"]
QueryTurn: TypeAlias = Literal["started", "queued", "refused", "expired", "ended"]
"""What happened to a query that was begun through a pool."""

# The same names as in the file of API keys, whose owners these are.
_SHORTEST_PAUSE_SECONDS = 1.0
_STOP_SECONDS = 15.0
_DEFAULTS = PoolSettings()
_SETTINGS = declared_fields(PoolSettings)


class PooledSession(Protocol):
    """What a pool needs of a session. `AgentSession` is one."""

    @property
    def status(self) -> SessionStatus:
        """What the session is doing."""
        ...

    async def wait_idle(self) -> object:
        """Wait until no query runs and none is about to."""
        ...

    async def close(self) -> None:
        """Close the session; a running query may end by itself for a while."""
        ...


SessionT = TypeVar("SessionT", bound=PooledSession)
BegunT = TypeVar("BegunT")
PoolKey: TypeAlias = tuple[str, str]
"""Owner and reference."""


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions a pool keeps open, and for how long; how many queries run and wait."""

    sessions: Annotated[int, _SETTINGS["max_concurrent_sessions"].brief().option] = (
        _DEFAULTS.max_concurrent_sessions
    )
    per_owner: Annotated[
        int | None, Option("How many of them one owner may have; None: all.", least=1)
    ] = None
    idle_seconds: Annotated[float, _SETTINGS["session_timeout"].brief().option] = (
        _DEFAULTS.session_timeout
    )
    queries: Annotated[
        int | None,
        Option(
            "Queries that run at the same time; None: all that are begun. Others wait for a turn.",
            least=1,
        ),
    ] = 4
    pending: Annotated[int, Option("Queries that wait for a turn.", least=0)] = 64
    when_full: Annotated[
        WhenQueueFull,
        Option(
            "What happens to a new query when as many wait: it waits outside (`suspend`), is "
            "refused (`dropping`), or takes the place of the one that has waited longest "
            "(`sliding`)."
        ),
    ] = "suspend"
    pending_seconds: Annotated[
        float,
        Option("Seconds that a query waits for its turn before its caller gets TIMEOUT.", least=0),
    ] = 30.0
    events: Annotated[int, Option("How many of the last events about turns are kept.", least=0)] = (
        256
    )


class QueryStats(msgspec.Struct, frozen=True, kw_only=True):
    """How many queries that were begun through a pool run and wait, and what became of the rest."""

    running: int
    pending: int
    """Those that wait, without those that are suspended because the line is full."""
    started: int
    refused: int
    expired: int


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool holds at one moment, and what it has done so far."""

    open: int
    in_use: int
    opened: int
    refused: int
    closed: dict[str, int]
    """By reason."""
    queries: QueryStats


class _PooledSession(Generic[SessionT]):
    """One session of a pool: being opened, or open; and how many callers have it."""

    def __init__(self, opening: "asyncio.Task[SessionT]", now: float) -> None:
        self.opening = opening
        self.callers = 0
        self.last_used = now

    @property
    def session(self) -> SessionT | None:
        """The session; None while it is opened, or when that failed."""
        task = self.opening
        # `exception` of a cancelled task raises, so the order of these matters.
        if not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    @property
    def is_idle(self) -> bool:
        """Whether it may be closed: no caller has it, and no query runs in it."""
        session = self.session
        if self.callers or session is None:
            return False
        return not isinstance(session.status, Busy | Retrying)


class SessionPool(Generic[SessionT]):
    """Keeps sessions open between calls, and hands the same one to every caller in the process.

    Owns the open sessions and when they are closed. Does not own what is said in them, nor who may
    say it: a server compares the caller with the owner before it asks. A session whose query runs
    counts as in use, also when its caller has gone.
    """

    def __init__(
        self,
        open_session: Callable[[str, str], Awaitable[SessionT]],
        *,
        limits: PoolLimits,
        clock: Clock | None = None,
        on_closed: Callable[[str, str, CloseReason], None] | None = None,
    ) -> None:
        self._open_session = open_session
        self._limits = checked_fields(limits)
        self._clock = clock or SystemClock()
        self._on_closed = on_closed
        self._pooled: OrderedDict[PoolKey, _PooledSession[SessionT]] = OrderedDict()
        """The least recently used first."""
        self._tasks = OwnedTasks()
        self._sweeping: asyncio.Task[None] | None = None
        self._is_closed = False
        self._opened = self._refused = 0
        self._closed: Counter[str] = Counter()
        self._running = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._turns: Counter[QueryTurn] = Counter()
        self.events: deque[QueryTurn] = deque(maxlen=self._limits.events)
        """The last events about turns; the oldest go first."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def stats(self) -> PoolStats:
        """What the pool holds now."""
        return PoolStats(
            open=len(self._pooled),
            in_use=sum(not pooled.is_idle for pooled in self._pooled.values()),
            opened=self._opened,
            refused=self._refused,
            closed=dict(self._closed),
            queries=QueryStats(
                running=self._running,
                pending=min(len(self._line), self._limits.pending),
                started=self._turns["started"],
                refused=self._turns["refused"],
                expired=self._turns["expired"],
            ),
        )

    @contextlib.asynccontextmanager
    async def use(
        self, reference: str, *, owner: str = DEFAULT_OWNER
    ) -> AsyncGenerator[SessionT, None]:
        """Have a session open while the block runs; it stays open afterwards.

        Raises:
            SessionError: POOL_FULL when every place is in use, CLOSED once the pool is closed.
            ConfigError: CONFIG_INVALID when the owner's name is not valid.

        """
        if OWNER_NAME.fullmatch(owner) is None:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"owner: {owner[:40]!r} is not 1 to 128 letters, digits, dots, dashes and "
                "underscores, the first of them a letter or digit",
            )
        pooled = await self._pooled_session((owner, reference))
        # No wait since it was found: without callers it could be evicted.
        pooled.callers += 1
        try:
            yield await self._session_of(pooled)
        except AgentError as error:
            if error.code in {ErrorCode.CLOSED, ErrorCode.FENCED}:
                # The next caller opens the session anew.
                await self._close_pooled((owner, reference), pooled, "failed")
            raise
        finally:
            pooled.callers -= 1
            pooled.last_used = self._clock.now()
            # By identity: it may have been closed meanwhile, and another one be there under the
            # same key.
            if self._pooled.get((owner, reference)) is pooled:
                self._pooled.move_to_end((owner, reference))

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Wait for a turn to run a query, and have it while the block runs.

        Raises:
            SessionError: POOL_FULL when too many wait already, CLOSED once the pool is closed.
            RequestError: TIMEOUT when the turn did not come in time.

        """
        await self._take_turn()
        try:
            yield
        finally:
            self._end_turn()

    async def begin(self, session: SessionT, start: Callable[[], Awaitable[BegunT]]) -> BegunT:
        """Call what begins a query in a session, which has a turn until it is idle again.

        A prompt for a session in which a query runs needs no turn of its own.

        Raises:
            SessionError: POOL_FULL when too many wait already, CLOSED once the pool is closed.
            RequestError: TIMEOUT when the turn did not come in time.

        """
        if isinstance(session.status, Busy | Retrying):
            return await start()
        await self._take_turn()
        try:
            begun = await start()
        except BaseException:
            self._end_turn()
            raise
        self._tasks.start(self._keep_turn(session), name="haptera-pool-turn")
        return begun

    async def discard(self, reference: str, *, owner: str = DEFAULT_OWNER) -> bool:
        """Close a session now, also while callers use it; returns whether it was open."""
        pooled = self._pooled.get((owner, reference))
        if pooled is None:
            return False
        await asyncio.wait({pooled.opening})
        # What is being opened cannot be closed yet, and would be open afterwards.
        await self._close_pooled((owner, reference), pooled, "manual")
        return True

    async def close(self) -> None:
        """Take no more callers, and close every session: running queries may end by themselves."""
        self._is_closed = True
        while self._line:
            if not (waiting := self._line.popleft()).done():
                waiting.set_exception(SessionError(ErrorCode.CLOSED, "the pool was closed"))
        # Openings first, not waited for: one may wait for as long as another process has the
        # session. Its callers are told.
        await self._tasks.cancel(within=_STOP_SECONDS)
        # A copy: each that is closed takes itself out. All at once, because each may wait for a
        # query.
        open_now = list(self._pooled.items())
        await asyncio.gather(
            *(self._close_pooled(key, pooled, "shutdown") for key, pooled in open_now)
        )

    async def _take_turn(self) -> None:
        if self._is_closed:
            raise SessionError(ErrorCode.CLOSED, "the pool is closed")
        limit = self._limits.queries
        # Also behind a line, though a turn is free: a newcomer must not overtake those in it.
        if limit is not None and (self._running >= limit or self._line):
            try:
                async with asyncio.timeout(self._limits.pending_seconds):
                    await self._wait_in_line()
            except TimeoutError:
                self._note("expired")
                raise RequestError(
                    ErrorCode.TIMEOUT,
                    f"the query did not start within {self._limits.pending_seconds:g} s; try again",
                ) from None
        else:
            self._running += 1
        # A caller that has waited is counted by the one that handed the turn over.
        self._note("started")

    async def _wait_in_line(self) -> None:
        """Wait until the turn was handed over; raises POOL_FULL as `when_full` says."""
        # A caller that is suspended stands in the same line: it only does not count as pending.
        if len(self._line) >= self._limits.pending and self._limits.when_full != "suspend":
            if self._limits.when_full == "dropping" or not self._line:
                raise self._refusal()
            oldest = self._line.popleft()
            # A caller that was cancelled stays in the line until it runs, and counts no more.
            if not oldest.done():
                oldest.set_exception(self._refusal())
        self._note("queued")
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._line:
                self._line.remove(turn)
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                # The turn came together with the cancellation: the next one gets it.
                self._pass_turn()
            raise

    async def _keep_turn(self, session: SessionT) -> None:
        try:
            with contextlib.suppress(AgentError):  # it was closed
                await session.wait_idle()
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        self._pass_turn()
        self._note("ended")

    def _pass_turn(self) -> None:
        """Hand the turn to the caller that has waited longest, or leave it free."""
        self._running -= 1
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                # Handed over without being free in between, so that no newcomer can overtake.
                self._running += 1
                turn.set_result(None)
                return

    def _refusal(self) -> SessionError:
        self._note("refused")
        return SessionError(
            ErrorCode.POOL_FULL,
            f"{self._limits.pending} queries are already waiting; try again later",
        )

    def _note(self, event: QueryTurn) -> None:
        self.events.append(event)
        self._turns[event] += 1

    async def _pooled_session(self, key: PoolKey) -> _PooledSession[SessionT]:
        """Return a session of the pool, after making space for a new one."""
        # Closing takes time: meanwhile another caller may have opened this session, or taken the
        # free place. So everything is looked at again.
        while True:
            if self._is_closed:
                raise SessionError(ErrorCode.CLOSED, "the pool is closed")
            if (pooled := self._pooled.get(key)) is not None:
                return pooled
            if not await self._make_space(key[0]):
                break
        # No wait since the last look: the space that was free is still free.
        opening = self._tasks.start(self._open(key), name="haptera-pool-open")
        pooled = self._pooled[key] = _PooledSession(opening, self._clock.now())
        # Not left to the callers: all of them may have been cancelled by the time that it fails.
        opening.add_done_callback(lambda _: self._drop_failed(key, pooled))
        # Only now: a pool may be made without a running loop.
        if self._sweeping is None:
            self._sweeping = self._tasks.start(self._sweep(), name="haptera-pool-sweep")
        return pooled

    async def _make_space(self, owner: str) -> bool:
        """Close an idle session if one must go; returns whether one did.

        Raises:
            SessionError: POOL_FULL when none can go.

        """
        quota = self._limits.per_owner
        own = [key for key in self._pooled if key[0] == owner] if quota is not None else []
        if quota is not None and len(own) >= quota:
            candidates, whose = own, f" of owner {owner!r}"
        elif len(self._pooled) >= self._limits.sessions:
            candidates, whose = list(self._pooled), ""
        else:
            return False
        for key in candidates:
            if self._pooled[key].is_idle:
                await self._close_pooled(key, self._pooled[key], "evicted")
                return True
            # Used right now: behind the others, so that the next search need not pass it again.
            self._pooled.move_to_end(key)
        self._refused += 1
        raise SessionError(
            ErrorCode.POOL_FULL,
            f"all {len(candidates)} sessions{whose} are in use; close one, or try again later",
        )

    async def _open(self, key: PoolKey) -> SessionT:
        session = await self._open_session(*key)
        self._opened += 1
        return session

    def _drop_failed(self, key: PoolKey, pooled: _PooledSession[SessionT]) -> None:
        """Free the space of a session that could not be opened."""
        if pooled.session is None and self._pooled.get(key) is pooled:
            del self._pooled[key]

    async def _session_of(self, pooled: _PooledSession[SessionT]) -> SessionT:
        # Several callers wait for one opening; one that is cancelled leaves it to the others.
        await asyncio.wait({pooled.opening})
        if pooled.opening.cancelled():
            raise SessionError(
                ErrorCode.CLOSED, "the pool was closed while the session was being opened"
            )
        return pooled.opening.result()

    async def _close_pooled(
        self, key: PoolKey, pooled: _PooledSession[SessionT], reason: CloseReason
    ) -> None:
        # Another caller closes it, or has closed it; each session is counted and reported once.
        if self._pooled.get(key) is not pooled:
            return
        del self._pooled[key]
        # Out of the pool before the wait, so that no caller gets a session that is being closed.
        if (session := pooled.session) is None:
            return
        try:
            await session.close()
        except AgentError as error:
            # The caller that needs its space did not ask for this session, and gets no error of it.
            _logger.warning("a session of the pool failed to close: %s", without_secrets(error))
        self._closed[reason] += 1
        if self._on_closed is not None:
            self._on_closed(*key, reason)

    async def _sweep(self) -> None:
        """Close what has been idle for too long, every half of that time."""
        pause = max(_SHORTEST_PAUSE_SECONDS, self._limits.idle_seconds / 2)
        while True:
            await self._clock.sleep(pause)
            now = self._clock.now()
            # A copy, because closing waits and other callers change the pool meanwhile.
            for key, pooled in list(self._pooled.items()):
                if pooled.is_idle and now - pooled.last_used >= self._limits.idle_seconds:
                    await self._close_pooled(key, pooled, "idle")
