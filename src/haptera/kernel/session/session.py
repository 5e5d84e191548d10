"""Session and QueryHandle: what queries of one conversation share, and each from the outside."""

import asyncio
import operator
import threading
import weakref
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator, MakeApprovals
from haptera.kernel.blocks.control_channel import (
    ControlChannel,
    ControlChannelInterface,
    Subscription,
)
from haptera.kernel.blocks.hook_dispatch.dispatch import HookDispatch
from haptera.kernel.blocks.token_estimate import estimate_message, estimate_tokens
from haptera.kernel.blocks.tool_registry.registry import ToolRegistryInterface, registry_of
from haptera.kernel.session.recorder import AppendedLog, SessionRecorder
from haptera.kernel.session.session_hooks import SessionHooks
from haptera.model.errors import (
    AgentError,
    ErrorCode,
    RequestError,
    SessionError,
    without_frames,
)
from haptera.model.events import Event, Idle, SessionStatus, StatusChanged, StreamPhase
from haptera.model.ids import InputId, MessageId, SessionId
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.turns import PartStarted
from haptera.model.messages import Message
from haptera.model.requests import ModelRequest
from haptera.model.results import AgentResult
from haptera.model.settings import RuntimeSettings, Settings, bounded_settings
from haptera.model.stream_parts import StreamFinished
from haptera.model.tools import ToolSpec
from haptera.ports.context_source import ContextSource
from haptera.ports.runner import QueryInput, QueryOutcome, SessionBindings
from haptera.ports.session_store import Lease
from haptera.ports.telemetry import Telemetry
from haptera.system.abort import AbortController, AbortSignal
from haptera.system.clock import Clock, Stamp
from haptera.system.owned_tasks import OwnedTasks

if TYPE_CHECKING:
    from haptera.kernel.session.native_link import NativeLive

# A weak reference: contexts are copied into tasks and threads that may outlive the query.
_worked_for: ContextVar["weakref.ref[QueryHandle] | None"] = ContextVar(
    "haptera_query", default=None
)
"""The query on whose behalf something runs: a tool, an approver, a hook, and what they start."""


_SUSPENDED = "the session was closed"


class Submission(NamedTuple):
    """Where and when a query was submitted."""

    session_id: SessionId
    waiting: "Callable[[], Sequence[QueryHandle]]"
    """What waits in its session's queue."""
    clock: Clock
    at: float
    thread: int


class Stop(NamedTuple):
    """Why a query was stopped from outside."""

    error: AgentError
    suspends: bool = False
    """Whether it is to be carried on later, and so gets no end."""


class _Work(NamedTuple):
    """What works on a query that runs."""

    worker: "asyncio.Task[Any]"
    abort: AbortController
    trouble: Callable[[], str | None]
    """Says what keeps the query from its answer, if anything does."""


class QueryHandle:
    """A query that waits, runs or has ended.

    Owns the reason for stopping. `abort` may be called from any thread and any number of times;
    the first reason stands. Knows the query from which it was asked, if one was, by context: tasks
    and threads that a tool starts belong to the tool's query, too.
    """

    result: AgentResult[Any] | None = None
    """What came of it, once it has ended."""
    error: AgentError | None = None
    """What it failed with, once it has ended."""

    def __init__(
        self,
        query: QueryInput,
        *,
        session_id: SessionId,
        waiting: "Callable[[], Sequence[QueryHandle]]",
        buffer_size: int,
        clock: Clock,
    ) -> None:
        self.query = query
        self.submission = Submission(session_id, waiting, clock, clock.now(), threading.get_ident())
        self.asker: QueryHandle | None = query_in_context()
        self.context = copy_context()
        """What the query runs in: a copy of its submitter's context."""
        self.stream: Subscription[Event] = Subscription(limit=buffer_size)
        self.input_id: InputId | None = None
        self._work: _Work | None = None
        self._ended = asyncio.Event()
        self._withdraw: Callable[[], object] = lambda: None
        self.phase: StreamPhase = "idle"
        """What its stream is doing."""
        self.detach: Callable[[], None] = lambda: None
        """Ends what its stream is told; while it does not run, nothing is."""
        self.timer: asyncio.Task[None] | None = None
        """What counts its time, from when it was submitted until it ends."""
        self.stop: Stop | None = None
        """Why the query was stopped from outside, if it was."""
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it was stopped."""

    @property
    def ended(self) -> bool:
        """Whether the query is at rest."""
        return self._ended.is_set()

    def wait_in(self, input_id: InputId, withdraw: Callable[[], object]) -> None:
        """Note that it waits in a queue, and how to take it out when it is stopped there."""
        self.input_id, self._withdraw = input_id, withdraw

    def work_for_it(self) -> None:
        """Say that the current task, and whatever it starts, works for this query."""
        _worked_for.set(weakref.ref(self))

    def begin(
        self,
        worker: "asyncio.Task[Any]",
        work: AbortController,
        trouble: Callable[[], str | None],
    ) -> None:
        """Note what works on it now; a stop that came before takes effect at once.

        `trouble` says what keeps it from its answer, if anything does.
        """
        self._work = _Work(worker, work, trouble)
        if self.stop is not None:
            self._stop_now(self.stop)

    def see(self, events: Sequence[Event]) -> None:
        """Note by what was recorded whether the provider answers."""
        if any(isinstance(event, PartStarted) for event in events):
            self.phase = "connected"

    def abort(self, reason: str | None = None) -> None:
        """Stop the query; what was streamed is kept."""
        message = f"aborted: {reason}" if reason else "aborted"
        self._from_any_thread(partial(self._stop, RequestError(ErrorCode.ABORTED, message)))

    def suspend(self, reason: str) -> None:
        """Stop the query without an end; it is carried on when its session is open again."""
        error = RequestError(ErrorCode.ABORTED, f"suspended: {reason}; resume() goes on")
        self._stop(error, suspends=True)

    def follow(self, signal: AbortSignal) -> None:
        """Stop as a signal says, from any thread."""
        if not signal.suspends:
            self.abort(signal.reason)
        else:
            self._from_any_thread(partial(self.suspend, signal.reason or _SUSPENDED))

    def expire(self, seconds: float) -> None:
        """Stop the query because its time is up; the error says what it was waiting for."""
        cause = self._work.trouble() if self._work is not None else None
        if self._work is None and self.input_id is not None:
            cause = "while it waited in the queue"
        message = f"the query took longer than {seconds:g} s"
        self._stop(RequestError(ErrorCode.TIMEOUT, f"{message} {cause}" if cause else message))

    def finish(self, result: AgentResult[Any], error: AgentError | None) -> None:
        """Note how it ended; the stream ends, too."""
        # It may be finished twice: by its driver, and by the queue when the driver fails after
        # that.
        if not self.ended:
            self.phase = "closed" if error is None else "error"
        self.result, self.error = result, error and without_frames(error)
        # A handle that its caller keeps must not keep the work, or the queries that asked, alive.
        self._work = self.asker = None
        self._ended.set()
        self.stream.end(error)
        if self.timer is not None:
            self.timer.cancel()

    async def wait(self) -> None:
        """Wait until it is at rest."""
        await self._ended.wait()

    def _from_any_thread(self, stop: Callable[[], None]) -> None:
        loop = self.stopped.get_loop()
        # At once in the thread of the loop, so that what follows `abort()` finds the query stopped.
        if threading.get_ident() == self.submission.thread:
            stop()
        # With its loop every query has ended, and `call_soon_threadsafe` would raise.
        elif not loop.is_closed():
            loop.call_soon_threadsafe(stop)

    def _stop(self, error: AgentError, *, suspends: bool = False) -> None:
        if self.stop is None and not self.ended:
            self.stop = Stop(error, suspends)
            self.stopped.set_result(None)
            self._stop_now(self.stop)

    def _stop_now(self, stop: Stop) -> None:
        if self._work is None:
            # It still waits, or it was promoted and nothing works on it yet: `begin` stops it then.
            self._withdraw()
            return
        # The signal first: the recorder refuses from then on, whatever the worker does.
        self._work.abort.abort(stop.error.message, suspends=stop.suspends)
        self._work.worker.cancel()

    def promote(self) -> None:
        """Turn a waiting prompt into a query: its message is in the log already."""
        self.query = replace(self.query, message=None, input_id=self.input_id)


def duration_ms_of(handle: QueryHandle) -> int:
    """Return how long a query has taken so far, from when it was submitted; 1 at least."""
    submission = handle.submission
    return max(1, int((submission.clock.now() - submission.at) * 1000))


def finish_without_running(handle: QueryHandle, error: AgentError) -> None:
    """End a query that never ran, or whose end could not be recorded."""
    result: AgentResult[object] = AgentResult(
        text="",
        stop_reason="aborted" if error.code is ErrorCode.ABORTED else "error",
        session_id=handle.submission.session_id,
        duration_ms=duration_ms_of(handle),
    )
    if error.result is None:
        error.result = result
    handle.finish(result, error)


def finish_like(handle: QueryHandle, other: QueryHandle) -> None:
    """Give a prompt that joined another query the same end."""
    if other.result is not None:
        handle.finish(other.result, other.error)


def query_in_context() -> QueryHandle | None:
    """Return the query on whose behalf the caller runs, unless it has ended."""
    found = _worked_for.get()
    handle = found() if found is not None else None
    return handle if handle is not None and not handle.ended else None


def waiting_for_caller() -> set[QueryHandle]:
    """Return the queries that cannot end before the caller has what it wants.

    They are the one on whose behalf the caller runs, the queries that asked for it, and those that
    asked for what waits behind it, however many sessions lie between.
    """
    found: set[QueryHandle] = set()
    todo = [query_in_context()]
    while todo:
        query = todo.pop()
        if query is not None and query not in found and not query.ended:
            found.add(query)
            prompts = (query, *query.submission.waiting())
            # Nothing waits for the answer to a prompt whose stream was abandoned.
            todo += [each.asker for each in prompts if not each.stream.abandoned]
    return found


def refuse_waiting_for(query: QueryHandle | None) -> None:
    """Refuse a wait that could never end: the query waits for the caller itself.

    Raises:
        SessionError: BUSY, saying what to do instead.

    """
    if query is not None and query in waiting_for_caller():
        raise SessionError(
            ErrorCode.BUSY,
            "a tool, an approver or a hook cannot wait for an answer of the session that waits "
            "for it, directly or through other sessions; use session.steer(), which does not wait, "
            "or another session",
        )


_UNSETTLED = 2
"""So many messages at the end of a view may still be replaced by longer ones."""
_NEAR_THE_END = 6
"""So many messages at the end of a view may hold the last answer."""


class TokenMeter:
    """Measures requests of one session; each message is estimated once.

    What the provider counted for the last answer, with an estimate of what was added since, is
    better than an estimate of everything, and is used unless it is less than half of that: some
    providers report no usage, or not all of it.
    """

    def __init__(self) -> None:
        self._settled: tuple[Message | None, Message | None] = (None, None)
        """The first and the last message that are in the sum."""
        self._count = self._sum = 0
        self._fixed_of: tuple[Sequence[str], Sequence[ToolSpec]] | None = None
        self._fixed = 0
        self._answer: tuple[MessageId, int] | None = None
        self.waits_until = 0
        """Tokens up to which no summary is asked for again, after one that could not be used."""

    def learn(self, message_id: MessageId, finished: StreamFinished) -> None:
        """Take in what a provider counted for a request and its answer."""
        known = finished.context_tokens
        tokens = finished.usage.total if known is None else known
        self._answer = (message_id, tokens) if tokens else None

    def forget(self) -> None:
        """Take in that something else is sent from now on."""
        self._answer, self.waits_until = None, 0
        self._count = self._sum = 0

    def fixed(self, system: Sequence[str], tools: tuple[ToolSpec, ...]) -> int:
        """Return the tokens that every request holds beside its messages."""
        known = self._fixed_of
        if known is None or known[0] != system or not _are_same(known[1], tools):
            self._fixed_of = (system, tools)
            request = ModelRequest(model="", messages=(), system=tuple(system), tools=tools)
            self._fixed = estimate_tokens(request).tokens
        return self._fixed

    def measure(
        self, view: Sequence[Message], *, system: Sequence[str], tools: tuple[ToolSpec, ...]
    ) -> int:
        """Return the tokens of a request with these messages."""
        settled = max(0, len(view) - _UNSETTLED)
        self._add_up(view, settled)
        estimate = self.fixed(system, tools) + self._sum + estimate_all(view[settled:])
        counted = self._counted(view)
        return counted if 2 * counted >= estimate else estimate

    def _add_up(self, view: Sequence[Message], settled: int) -> None:
        """Let the sum hold the first messages of a view."""
        first, last = self._settled
        count = self._count
        # Messages are frozen and shared between views: if the first and the last one counted are
        # still in place, so is what lies between.
        is_grown = 0 < count <= settled and view[0] is first and view[count - 1] is last
        if not is_grown:
            self._sum = count = 0
        self._sum += estimate_all(view[count:settled])
        self._count = settled
        self._settled = (view[0], view[settled - 1]) if settled else (None, None)

    def _counted(self, view: Sequence[Message]) -> int:
        """Return what the provider counted and what was added since; 0 when it is not known."""
        if self._answer is None:
            return 0
        message_id, tokens = self._answer
        for index in range(len(view) - 1, max(-1, len(view) - 1 - _NEAR_THE_END), -1):
            if view[index].id == message_id:
                return tokens + estimate_all(view[index + 1 :])
        return 0


def _are_same(known: Sequence[ToolSpec], tools: Sequence[ToolSpec]) -> bool:
    """Say whether tools are those that are known.

    By identity, since schemas are slow to compare. One by one, since every view of a registry's
    tools is another tuple of the same specifications.
    """
    return len(known) == len(tools) and all(map(operator.is_, known, tools))


def estimate_all(messages: Sequence[Message]) -> int:
    """Estimate the tokens of several messages."""
    return sum(map(estimate_message, messages))


class SessionHost(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What an agent gives each of its sessions; it outlives them."""

    registry: ToolRegistryInterface
    """What is offered in sessions that bring no tools of their own."""
    clock: Clock
    runtime: RuntimeSettings
    drive: "Callable[[Session, QueryHandle], Coroutine[Any, Any, QueryOutcome]]"
    """Runs a query to its end."""
    hooks: HookDispatch = msgspec.field(default_factory=HookDispatch)
    approvals: MakeApprovals = ApprovalCoordinator
    """Makes what settles the approvals of a session."""
    channel: Callable[[], ControlChannelInterface] | None = None
    """Makes the channel of a session; None: the default one."""
    bindings: SessionBindings = SessionBindings()
    """What sessions have that bring nothing of their own."""
    cwd: Path = Path()
    """The folder that the agent works in."""
    telemetry: Telemetry | None = None
    context: ContextSource | None = None
    """Reads context files and skills; None when there are none to look for."""
    ceiling: Settings | None = None
    """What no setting of a session or a query can exceed; see `bounded_settings`."""

    def new_channel(self) -> ControlChannelInterface:
        """Make the channel of a session."""
        make = self.channel
        return ControlChannel(limit=self.runtime.buffer_size) if make is None else make()


class NativeSlot:
    """Keeps the open native session of a session, and closes it with the session."""

    def __init__(self) -> None:
        self.live: NativeLive | None = None
        self.closed = False

    async def clear(self) -> None:
        """Close what is open."""
        # Taken out before the wait, so that no query can use what is being closed.
        live, self.live = self.live, None
        if live is not None:
            live.link.end()
            await live.driver.close(within=0)

    async def close(self) -> None:
        """Close what is open; nothing is opened any more."""
        self.closed = True
        await self.clear()


class Session:
    """A conversation that this process holds, as its queries see it.

    Owns what lives as long as it is held: the recorder with the fold, the approvals, the hooks, the
    native session, the tasks and the status. Does not own who runs when: `LiveSession` has a queue
    and a store, `UnstoredSession` runs one query at a time and stores nothing.
    """

    def __init__(
        self,
        host: SessionHost,
        fold: SessionFold,
        *,
        log: AppendedLog,
        lease: Lease,
        bindings: SessionBindings,
        channel: ControlChannelInterface | None = None,
    ) -> None:
        self.host = host
        self.session_id: SessionId = lease.session_id
        self.fold = fold
        self.channel = host.new_channel() if channel is None else channel
        self.bindings = bindings.over(host.bindings)
        self.registry = registry_of(bindings.tools, host.registry)
        """What its queries offer, unless they bring tools of their own."""
        self.stamp = Stamp(host.clock)
        """The stamp of entries that belong to no query."""
        self.tasks = OwnedTasks()
        self.recorder = SessionRecorder(
            log=log,
            lease=lease,
            fold=fold,
            channel=self.channel,
            tasks=self.tasks,
            appended=self._after_append,
        )
        self.approvals = host.approvals(
            unanswered=self.recorder.unanswered, commit=self.recorder.commit, clock=host.clock
        )
        self.hooks = SessionHooks(
            host.hooks,
            session_id=self.session_id,
            tasks=self.tasks,
            stamp=self.stamp,
            log=self.recorder,
            deps=self.bindings.deps,
        )
        self.native = NativeSlot()
        """The session that a native agent keeps open for it."""
        self.meter = TokenMeter()
        """How many tokens its next request holds."""
        self._status: SessionStatus = Idle()
        self._shown_status = self.status

    @property
    def settings(self) -> Settings:
        """The settings in force: those of its log, within the ceiling."""
        ceiling = self.host.ceiling
        settings = self.fold.settings
        return settings if ceiling is None else bounded_settings(settings, ceiling)

    @property
    def status(self) -> SessionStatus:
        """What the session is doing; at rest also what it rests on, and what waits behind it."""
        if not isinstance(self._status, Idle):
            return self._status
        return Idle(approvals=len(self.fold.approvals), waiting=len(self.fold.inputs))

    def set_status(self, status: SessionStatus) -> None:
        """Note what the session is doing, and show it."""
        self._status = status
        self._show_status()

    def resting_children(self) -> Collection[SessionId]:
        """Return the sessions of sub-agents that calls of the last turn may wait for."""
        return ()

    async def end_children(self, children: Collection[SessionId]) -> None:
        """End what those sessions left unfinished."""

    async def read_texts(self) -> None:
        """Read the messages that the fold lacks, where the session was opened without them."""

    async def store_state(self) -> None:
        """Record what the session is, where others look at it."""

    async def earlier_messages(self) -> tuple[Message, ...]:
        """Return the beginning of the conversation, where the fold does not hold it."""
        return ()

    def _show_status(self) -> None:
        status = self.status
        if status != self._shown_status:
            self._shown_status = status
            self.recorder.show([StatusChanged(status=status)])

    def _after_append(self, events: Sequence[Event]) -> None:
        """Do what follows from entries that are in the log now."""
        self.approvals.wake(events)
