"""LiveSession: one session that this process holds: it takes prompts and runs them in order."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import suppress

import msgspec

from haptera.kernel.blocks.control_channel import Subscription
from haptera.kernel.session.branching import Branches
from haptera.kernel.session.command_effects import Answering, HeldSession, refuse_misfit
from haptera.kernel.session.deliveries import end_when_due
from haptera.kernel.session.inbox import SessionCommands
from haptera.kernel.session.left_children import LeftChildren, children_at_rest
from haptera.kernel.session.observers import observe
from haptera.kernel.session.prompt_queue import PromptQueue
from haptera.kernel.session.recorder import STORE_SECONDS, StoreTime
from haptera.kernel.session.session import QueryHandle, Session, SessionHost, refuse_waiting_for
from haptera.kernel.session.titles import MakeTitle, SessionTitle
from haptera.model.approvals import Decision
from haptera.model.errors import AgentError, ErrorCode, SessionError, StoreError
from haptera.model.events import (
    Event,
    Instrumented,
)
from haptera.model.ids import ApprovalId, SessionId
from haptera.model.json_types import JsonObject
from haptera.model.log import stored_state
from haptera.model.log.queries import QueryEnded
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import FOLDED, ChangeOrigin, SessionChanged
from haptera.model.log.tools import ToolWaiting
from haptera.model.messages import Message
from haptera.model.operations.operation import CommandId
from haptera.model.settings import Delivery
from haptera.ports.runner import QueryInput, SessionBindings
from haptera.ports.session_store import Lease, Store, WatchedLeases, watched_leases
from haptera.system.clock import until_limit
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks

_logger = scrubbed_logger(__name__)

_FORCED_SECONDS = 0.5
"""How long a closing session waits for what it has cancelled."""
_DUE_SECONDS = 5.0
"""How long an opening waits until the answer of a call is recorded whose time is up."""
_LAST_EVENTS_SECONDS = 0.25
"""How long handlers may go on when a session is closed by force."""
_FORCED_CLOSE_SECONDS = 2.0
"""How long the caller of a forced close waits in all."""


class SessionResources(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent opens its sessions with."""

    host: SessionHost
    store: Store
    instrumentation: Callable[[Instrumented], None] | None = None
    make_title: MakeTitle | None = None
    title_model: str = ""
    answering: Answering = Answering()


class LiveSession(Session):
    """A session in a store that this process holds: its lease, its queue and its listeners.

    Owns who runs when: one query at a time. Does not own how a query runs (`Query`) or what users
    see (the agent).
    """

    _command_pump: asyncio.Task[None] | None = None
    """What carries out commands of other processes, once it was started."""
    _closing: asyncio.Task[None] | None = None

    def __init__(
        self,
        resources: SessionResources,
        lease: Lease,
        fold: SessionFold,
        *,
        bindings: SessionBindings,
    ) -> None:
        self.store = resources.store
        super().__init__(
            resources.host,
            fold,
            log=resources.store.log,
            lease=lease,
            bindings=bindings,
        )
        self._lease = lease
        self.closed = self._forced = self.taken_over = False
        self._children = LeftChildren(resources.store, self.host.clock)
        self._before_opening: tuple[Message, ...] | None = None
        """The messages that a session opened from a compaction on does not hold, once read."""
        self.queue = PromptQueue(self, new_handle=self.new_handle)
        self.branches = Branches(
            self.session_id,
            store=resources.store,
            recorder=self.recorder,
            queue=self.queue,
            stamp=self.stamp,
        )
        self.held = HeldSession(self, resources.answering, tasks=self.tasks)
        self.commands = SessionCommands(self.held, clock=self.host.clock)
        make_title = resources.make_title
        self._title = make_title and SessionTitle(
            make_title,
            model=resources.title_model,
            recorder=self.recorder,
            stamp=self.stamp,
            tasks=self.tasks,
        )

    def resting_children(self) -> Collection[SessionId]:
        """Return the sessions of sub-agents that calls of the last turn may wait for."""
        return children_at_rest(self.fold)

    async def end_children(self, children: Collection[SessionId]) -> None:
        """End what those sessions left unfinished, in their own logs."""
        await self._children.end(children)

    async def read_texts(self) -> None:
        """Read the messages that the fold lacks, where the session was opened without them."""
        await self.branches.read_texts()

    async def store_state(self) -> None:
        """Now and then, record what the session is, for those who look at it without opening it."""
        if self.fold.head - self.fold.folded_at < stored_state.STORED_EVERY:
            return
        state = stored_state.state_to_store(self.fold)
        if state is not None:
            with suppress(AgentError):  # the end is recorded; this can be made anew
                changed = SessionChanged(**self.stamp(), changes={FOLDED: state})
                await self.recorder.commit([changed])

    async def earlier_messages(self) -> tuple[Message, ...]:
        """Return the beginning of the conversation, where the session was opened without it."""
        if self.fold.lacks_texts:
            return ()  # the query ended while they were read
        if self._before_opening is None:
            held = self.fold.messages()
            try:
                async with StoreTime(self.recorder.stopped, within=STORE_SECONDS):
                    whole = (await self.branches.whole_fold()).messages()
            except StoreError:
                return ()  # the end of the query is told also when the store has gone
            first = held[0].id if held else None
            ends = next((at for at, each in enumerate(whole) if each.id == first), len(whole))
            self._before_opening = whole[:ends]
        return self._before_opening

    async def start(self) -> None:
        """Take in what other processes asked for while it was closed, then listen to them.

        Prompts among it wait: opening a session starts no query.
        """
        await self.commands.carry_out_pending(opening=True)
        self._listen()
        overdue: list[asyncio.Task[None]] = []
        for waiting in self.recorder.waits():
            if waiting.until is not None:
                watching = self._watch_time(waiting)
                overdue += [watching] if waiting.until <= self.host.clock.time_ms() else []
        if overdue:
            await asyncio.wait(overdue, timeout=_DUE_SECONDS)
        if (leases := watched_leases(self.store.leases)) is not None:
            self.tasks.start(self._watch_lease(leases), name="haptera-lease")

    def _watch_time(self, waiting: ToolWaiting) -> "asyncio.Task[None]":
        """See that a call is answered when its time is up."""
        ending = end_when_due(
            waiting,
            recorder=self.recorder,
            recover=self.queue.recover,
            clock=self.host.clock,
        )
        return self.tasks.start(ending, name="haptera-due")

    def _listen(self) -> None:
        """Carry out what comes into the inbox, in the event loop that runs now."""
        self._command_pump = self.tasks.start(self.commands.pump(), name="haptera-commands")

    async def _watch_lease(self, leases: WatchedLeases) -> None:
        """Stop the query, and with it its tools, when another process has taken the session."""
        await leases.lost(self._lease)
        self.taken_over = True
        # First the recorder: the end of the aborted query must not be appended any more.
        self.recorder.close(
            lambda: StoreError(ErrorCode.FENCED, f"session {self.session_id} was taken over")
        )
        self.abort("another process has taken the session over")

    @property
    def has_native_open(self) -> bool:
        """Whether a native agent is open that has the conversation."""
        live, fold = self.native.live, self.fold
        is_known = live is not None and fold.native.knows(fold.messages())
        return is_known and live is not None and live.driver.usable

    def new_handle(self, query: QueryInput) -> QueryHandle:
        """Make the handle of a query that is to be submitted."""
        self.check_open()
        return QueryHandle(
            query,
            session_id=self.session_id,
            waiting=lambda: self.queue.waiting,
            buffer_size=self.host.runtime.buffer_size,
            clock=self.host.clock,
        )

    async def submit(
        self, handle: QueryHandle, delivery: Delivery, *, total_timeout: float | None = None
    ) -> None:
        """Take in a query; it runs now, later, or joins the one that runs.

        Raises:
            SessionError: CLOSED, or BUSY when it is not to wait, or would wait for itself.

        """
        self.check_open()
        current = self.queue.current
        if current is not None and delivery != "interrupt" and not handle.stream.abandoned:
            refuse_waiting_for(current)
        self.channel.excuse()  # the caller may be a handler, and wait for the answer
        if total_timeout:
            expiring = self._expire(handle, total_timeout)
            handle.timer = self.tasks.start(expiring, name="haptera-timeout")
        try:
            async with StoreTime(handle.stopped):
                await self.queue.submit(handle, delivery)
        except BaseException:
            if handle.timer is not None:
                handle.timer.cancel()
            raise

    async def _expire(self, handle: QueryHandle, seconds: float) -> None:
        await until_limit(self.host.clock, seconds)
        handle.expire(seconds)

    async def decide(
        self,
        approval_id: ApprovalId,
        decision: Decision,
        *,
        consumed: Sequence[CommandId] = (),
        refuses_misfit: bool = False,
    ) -> None:
        """Answer an approval; the answer is in the log when this returns.

        Raises:
            SessionError: NOT_FOUND when it was answered already or never asked.
            ToolError: TOOL_INVALID_INPUT, if asked for, when the tool does not take new arguments.

        """
        self.check_open()
        await self.queue.recover()
        if refuses_misfit:
            refuse_misfit(self.registry, self.fold.approvals.get(approval_id), decision)
        try:
            is_first = await self.approvals.settle(approval_id, decision, consumed=consumed)
        except asyncio.CancelledError:
            # The answer is staged and stands: a call may wait for it.
            if not self.closed:
                self.tasks.start(self.approvals.flush(), name="haptera-answer")
            raise
        if not is_first:
            raise SessionError(
                ErrorCode.NOT_FOUND, f"no approval {approval_id!r} waits for an answer"
            )

    async def change(
        self,
        changes: JsonObject,
        *,
        origin: ChangeOrigin = "configure",
        consumed: Sequence[CommandId] = (),
        also: Sequence[Event] = (),
    ) -> None:
        """Change settings or facts of the session, from the next turn on."""
        self.check_open()
        await self.queue.recover()
        changed = SessionChanged(**self.stamp(), changes=changes, origin=origin)
        await self.recorder.commit([changed, *also], consumed=consumed)

    def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Stop the running query, from any thread; with an id, only if it is or resumes that."""
        current = self.queue.current
        if current is None:
            return
        if query_id in {None, current.query.query_id, current.query.resumes}:
            current.abort(reason)

    def events(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Observe the session from a `seq` on."""
        self.check_open()
        limit = self.host.runtime.observer_buffer
        return observe(
            self.channel,
            self.store.log,
            self.session_id,
            subscription=Subscription(limit=limit, when_full="lag"),
            after=after,
            head=lambda: self.recorder.fold.head,
        )

    def check_open(self) -> None:
        """Raise CLOSED once the session is closed."""
        if self.closed:
            raise self._closed_error()
        # A program may use the session in one event loop after the other; the end of a loop ends
        # its tasks.
        pump = self._command_pump
        if pump is not None and (pump.cancelled() or pump.get_loop().is_closed()):
            self._listen()

    def _closed_error(self) -> SessionError:
        return SessionError(ErrorCode.CLOSED, f"session {self.session_id} is closed")

    async def close(self, *, force: bool = False, abort: bool = False) -> None:
        """Close the session; callers that close it at the same time share the outcome.

        A running query may end by itself for a while, and is suspended then; with `force` it is
        suspended at once, and with `abort` it ends now, as aborted.
        """
        self.closed = True
        if abort:
            self.abort("the session is closed")
        if force or abort:
            self._forced = True
            if self.queue.current is not None:
                self.queue.current.suspend("the session was closed")
            self.channel.hurry(within=_LAST_EVENTS_SECONDS)
            self.hooks.hurry()
        if self._closing is None:
            self.queue.close(self._closed_error)
            if self._command_pump is not None and not self.queue.busy:
                self._command_pump.cancel()  # now, so that the next task need not wait for it
            # Not among `_tasks`, which it cancels.
            self._closing = OwnedTasks().start(self._close(), name="haptera-close")
        self.channel.excuse(closing=True)
        if not (force or abort):
            await asyncio.shield(self._closing)
            return
        await asyncio.wait({self._closing}, timeout=_FORCED_CLOSE_SECONDS)
        if self._closing.done():
            self._closing.result()
        else:
            _logger.warning("session %s was left while it closes: its store hangs", self.session_id)

    async def _close(self) -> None:
        drain = self.host.runtime.close_drain_seconds
        try:
            # What can still append ends first: the query, then hooks, then all other tasks.
            await self.queue.settle(within=drain)
            await self.native.close()
            await self.hooks.end()
            await self.tasks.cancel(within=_FORCED_SECONDS)
            await self.channel.close(within=_LAST_EVENTS_SECONDS if self._forced else drain)
            with suppress(AgentError):  # the caller of that append got the error
                await self.recorder.commit(())  # what is on its way to the log comes before
        finally:
            # Whatever failed, nothing is appended any more and another process may go on.
            self.recorder.close(self._closed_error)
            await self.store.leases.release(self._lease)

    def _after_append(self, events: Sequence[Event]) -> None:
        """Do what follows from entries that are in the log now."""
        current, end = self.queue.current, events[-1]
        # A provider that answers is not looked for in every delta.
        if current is not None and current.phase != "connected":
            current.see(events)
        if current and isinstance(end, QueryEnded) and end.query_id == current.query.query_id:
            current.detach()  # nothing comes after its terminal event
            if self._title is not None:
                self._title.after(end)
        self.approvals.wake(events)
        for event in events if self.fold.calls else ():
            if isinstance(event, ToolWaiting) and event.until is not None:
                self._watch_time(event)
        if not self.queue.busy:
            self._show_status()  # what the session rests on, or what waits behind it, may be others
