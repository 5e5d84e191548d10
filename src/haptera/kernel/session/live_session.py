"""LiveSession: one session that this process holds: it takes prompts and runs them in order."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator
from haptera.kernel.blocks.control_channel.channel import ControlChannel
from haptera.kernel.blocks.control_channel.subscription import Subscription
from haptera.kernel.blocks.hook_dispatch.dispatch import HookDispatch
from haptera.kernel.blocks.tool_registry.registry import ToolRegistry, registry_of
from haptera.kernel.engine.query_scope import QueryScope, SessionScope
from haptera.kernel.engine.session_hooks import SessionHooks
from haptera.kernel.session.answered_commands import AnsweredCommands, Answering
from haptera.kernel.session.branching import Branches
from haptera.kernel.session.commands import SessionCommands, refuse_misfit
from haptera.kernel.session.left_children import LeftChildren
from haptera.kernel.session.observers import observe
from haptera.kernel.session.prompt_queue import PromptQueue
from haptera.kernel.session.query_driver import QueryDriver
from haptera.kernel.session.query_handle import QueryHandle, refuse_waiting_for
from haptera.kernel.session.recorder import SessionRecorder, store_answers
from haptera.kernel.session.session_descriptions import SessionBindings
from haptera.kernel.session.titles import MakeTitle, SessionTitle
from haptera.model.approvals import Decision
from haptera.model.commands import CommandId
from haptera.model.errors import AgentError, ErrorCode, SessionError, StoreError
from haptera.model.events import (
    Event,
    Idle,
    Instrumented,
    Retrying,
    SessionStatus,
    StatusChanged,
)
from haptera.model.ids import ApprovalId, SessionId
from haptera.model.json_types import JsonObject
from haptera.model.log.queries import QueryEnded
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import ChangeOrigin, SessionChanged
from haptera.model.settings import Delivery, RuntimeSettings, Settings
from haptera.ports.runner import QueryInput, Runner
from haptera.ports.session_store import Lease, Store, WatchedLeases, watched_leases
from haptera.ports.telemetry import Telemetry
from haptera.ports.tools import Approver, Unanswered
from haptera.system.clock import Clock, Stamp, until_limit
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks

_logger = scrubbed_logger(__name__)

_FORCED_SECONDS = 0.5
"""How long a closing session waits for what it has cancelled."""
_LAST_EVENTS_SECONDS = 0.25
"""How long handlers may go on when a session is closed by force."""
_FORCED_CLOSE_SECONDS = 2.0
"""How long the caller of a forced close waits in all."""


class SessionResources(msgspec.Struct, frozen=True, kw_only=True):
    """What sessions of one agent share."""

    store: Store
    runner: Runner[QueryScope]
    tools: ToolRegistry
    clock: Clock
    runtime: RuntimeSettings
    approver: Approver | None = None
    unanswered: Unanswered = "stop"
    deps: object = None
    cwd: Path = Path()
    telemetry: Telemetry | None = None
    instrumentation: Callable[[Instrumented], None] | None = None
    hooks: HookDispatch = msgspec.field(default_factory=HookDispatch)
    make_title: MakeTitle | None = None
    title_model: str = ""
    answering: Answering = Answering()
    ceiling: Settings = Settings()
    """What no setting of a session or a query can exceed; see `bounded_settings`."""


class LiveSession:
    """Holds one session: its lease, its recorder, its queue and its listeners.

    Owns who runs when: one query at a time. Does not own how a query runs (the engine) or what
    users see (the agent).
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
        self._resources = resources
        self.registry = registry_of(bindings.tools, resources.tools)
        """What its queries offer, unless they bring tools of their own."""
        self._lease = lease
        self.store = resources.store
        self.session_id: SessionId = lease.session_id
        self.stamp = Stamp(resources.clock)
        """The stamp of entries that belong to no query."""
        self._status: SessionStatus = Idle()
        self.closed = self._forced = self.taken_over = False
        self.channel = ControlChannel(limit=resources.runtime.buffer_size)
        self._tasks = OwnedTasks()
        self.recorder = SessionRecorder(
            log=resources.store.log,
            lease=lease,
            fold=fold,
            channel=self.channel,
            tasks=self._tasks,
            appended=self._after_append,
        )
        self._approvals = ApprovalCoordinator(
            unanswered=self.recorder.unanswered, commit=self.recorder.commit, clock=resources.clock
        )
        self._shown_status = self.status
        self.hooks = self._new_hooks(bindings)
        self._scope = scope = self._new_scope(fold, bindings)
        self._native = scope.native
        self.queue = PromptQueue(
            scope=scope,
            recorder=self.recorder,
            channel=self.channel,
            drive=self._new_driver(scope).drive,
            stamp=self.stamp,
            new_handle=self.new_handle,
        )
        self.branches = Branches(
            self.session_id,
            store=resources.store,
            recorder=self.recorder,
            queue=self.queue,
            stamp=self.stamp,
        )
        self.answered = AnsweredCommands(self, resources.answering, tasks=self._tasks)
        self.commands = self._new_commands()
        self._title = self._new_title()

    def _new_driver(self, scope: SessionScope) -> QueryDriver:
        return QueryDriver(
            runner=self._resources.runner,
            session=scope,
            recorder=self.recorder,
            channel=self.channel,
            children=LeftChildren(self._resources.store, self._resources.clock),
            whole_fold=self._whole_fold,
        )

    async def _whole_fold(self) -> SessionFold:
        return await self.branches.whole_fold()

    def _new_title(self) -> SessionTitle:
        make, model = self._resources.make_title, self._resources.title_model
        return SessionTitle(
            make, model=model, recorder=self.recorder, stamp=self.stamp, tasks=self._tasks
        )

    def _new_hooks(self, bindings: SessionBindings) -> SessionHooks:
        return SessionHooks(
            self._resources.hooks,
            session_id=self.session_id,
            tasks=self._tasks,
            stamp=self.stamp,
            log=self.recorder,
            deps=self._resources.deps if bindings.deps is None else bindings.deps,
        )

    def _new_scope(self, fold: SessionFold, bindings: SessionBindings) -> SessionScope:
        resources = self._resources
        return SessionScope(
            session_id=self.session_id,
            fold=fold,
            waiting=self.recorder.waiting,
            approvals=self._approvals,
            tasks=self._tasks,
            set_status=self._set_status,
            registry=self.registry,
            approver=bindings.approver or resources.approver,
            unanswered=bindings.unanswered or resources.unanswered,
            deps=resources.deps if bindings.deps is None else bindings.deps,
            face=bindings.face,
            cwd=resources.cwd,
            telemetry=resources.telemetry,
            hooks=self.hooks,
            ceiling=resources.ceiling,
        )

    def _new_commands(self) -> SessionCommands:
        return SessionCommands(
            self,
            queue=self.queue,
            store=self._resources.store,
            recorder=self.recorder,
            clock=self._resources.clock,
        )

    async def start(self) -> None:
        """Take in what other processes asked for while it was closed, then listen to them.

        Prompts among it wait: opening a session starts no query.
        """
        await self.commands.carry_out_pending(opening=True)
        self._listen()
        if (leases := watched_leases(self._resources.store.leases)) is not None:
            self._tasks.start(self._watch_lease(leases), name="haptera-lease")

    def _listen(self) -> None:
        """Carry out what comes into the inbox, in the event loop that runs now."""
        self._command_pump = self._tasks.start(self.commands.pump(), name="haptera-commands")

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
    def fold(self) -> SessionFold:
        """The session as it is now."""
        return self.recorder.fold

    @property
    def settings(self) -> Settings:
        """The settings in force: those of its log, within the ceiling."""
        return self._scope.bounded(self.fold.settings)

    @property
    def has_native_open(self) -> bool:
        """Whether a native agent is open that has the conversation."""
        live, fold = self._native.live, self.fold
        is_known = live is not None and fold.native.knows(fold.messages())
        return is_known and live is not None and live.driver.usable

    @property
    def status(self) -> SessionStatus:
        """What the session is doing; at rest also what it rests on, and what waits behind it."""
        if not isinstance(self._status, Idle):
            return self._status
        return Idle(approvals=len(self.fold.approvals), waiting=len(self.fold.inputs))

    def new_handle(self, query: QueryInput, *, total_timeout: float | None = None) -> QueryHandle:
        """Make the handle of a query that is to be submitted."""
        self.check_open()
        return QueryHandle(
            query,
            session_id=self.session_id,
            waiting=lambda: self.queue.waiting,
            buffer_size=self._resources.runtime.buffer_size,
            clock=self._resources.clock,
            total_timeout=total_timeout,
        )

    async def submit(self, handle: QueryHandle, delivery: Delivery) -> None:
        """Take in a query; it runs now, later, or joins the one that runs.

        Raises:
            SessionError: CLOSED, or BUSY when it is not to wait, or would wait for itself.

        """
        self.check_open()
        if delivery != "interrupt" and not handle.stream.abandoned:
            refuse_waiting_for(self.queue.current)
        self.channel.excuse()  # the caller may be a handler, and wait for the answer
        if handle.total_timeout:
            handle.timer = self._tasks.start(self._expire(handle), name="haptera-timeout")
        try:
            async with store_answers(handle.stopped):
                await self.queue.submit(handle, delivery)
        except BaseException:
            if handle.timer is not None:
                handle.timer.cancel()
            raise

    async def _expire(self, handle: QueryHandle) -> None:
        seconds = handle.total_timeout or 0.0
        await until_limit(self._resources.clock, seconds)
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
            is_first = await self._approvals.settle(approval_id, decision, consumed=consumed)
        except asyncio.CancelledError:
            # The answer is staged and stands: a call may wait for it.
            if not self.closed:
                self._tasks.start(self._approvals.flush(), name="haptera-answer")
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
        limit = self._resources.runtime.observer_buffer
        return observe(
            self.channel,
            self._resources.store.log,
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
        drain = self._resources.runtime.close_drain_seconds
        # What can still append ends first: the query, then hooks, then all other tasks.
        await self.queue.settle(within=drain)
        await self._native.close()
        await self.hooks.end()
        await self._tasks.cancel(within=_FORCED_SECONDS)
        await self.channel.close(within=_LAST_EVENTS_SECONDS if self._forced else drain)
        with suppress(AgentError):  # the caller of that append got the error
            await self.recorder.commit(())  # what is on its way to the log comes before the release
        self.recorder.close(self._closed_error)  # what comes later is not to meet the next holder
        await self._resources.store.leases.release(self._lease)

    def _set_status(self, status: SessionStatus) -> None:
        self._status = status
        self._show_status()
        if isinstance(status, Retrying) and self.queue.current is not None:
            self.queue.current.phase = "reconnecting"

    def _show_status(self) -> None:
        status = self.status
        if status != self._shown_status:
            self._shown_status = status
            self.recorder.show([StatusChanged(status=status)])

    def _after_append(self, events: Sequence[Event]) -> None:
        """Do what follows from entries that are in the log now."""
        current, end = self.queue.current, events[-1]
        if current is not None:
            current.see(events)
        if current and isinstance(end, QueryEnded) and end.query_id == current.query.query_id:
            current.detach()  # nothing comes after its terminal event
            self._title.after(end)
        self._approvals.wake(events)
        if not self.queue.busy:
            self._show_status()  # what the session rests on, or what waits behind it, may be others
