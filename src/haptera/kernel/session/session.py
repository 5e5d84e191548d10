"""Session: what the queries of one conversation share, for as long as this process holds it."""

import operator
from collections.abc import Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator, MakeApprovals
from haptera.kernel.blocks.control_channel import ControlChannel, ControlChannelInterface
from haptera.kernel.blocks.hook_dispatch.dispatch import HookDispatch
from haptera.kernel.blocks.token_estimate import estimate_message, estimate_tokens
from haptera.kernel.blocks.tool_registry.registry import ToolRegistryInterface, registry_of
from haptera.kernel.session.query_handle import QueryHandle
from haptera.kernel.session.recorder import AppendedLog, SessionRecorder
from haptera.kernel.session.session_hooks import SessionHooks
from haptera.model.events import Event, Idle, SessionStatus, StatusChanged
from haptera.model.ids import MessageId, SessionId
from haptera.model.log.session_fold import SessionFold
from haptera.model.messages import Message
from haptera.model.requests import ModelRequest
from haptera.model.settings import RuntimeSettings, Settings, bounded_settings
from haptera.model.stream_parts import StreamFinished
from haptera.model.tools import ToolSpec
from haptera.ports.context_source import ContextSource
from haptera.ports.runner import QueryOutcome, SessionBindings
from haptera.ports.session_store import Lease
from haptera.ports.telemetry import Telemetry
from haptera.system.clock import Clock, Stamp
from haptera.system.owned_tasks import OwnedTasks

if TYPE_CHECKING:
    from haptera.kernel.session.native_link import NativeLive

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
