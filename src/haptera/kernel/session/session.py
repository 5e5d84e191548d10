"""Session: what the queries of one conversation share, for as long as this process holds it."""

from collections.abc import Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator, MakeApprovals
from haptera.kernel.blocks.control_channel.channel import ControlChannel, ControlChannelInterface
from haptera.kernel.blocks.hook_dispatch.dispatch import HookDispatch
from haptera.kernel.blocks.tool_registry.registry import ToolRegistryInterface, registry_of
from haptera.kernel.session.query_handle import QueryHandle
from haptera.kernel.session.recorder import AppendedLog, SessionRecorder
from haptera.kernel.session.session_hooks import SessionHooks
from haptera.kernel.session.token_meter import TokenMeter
from haptera.model.events import Event, Idle, SessionStatus, StatusChanged
from haptera.model.ids import SessionId
from haptera.model.log.session_fold import SessionFold
from haptera.model.messages import Message
from haptera.model.settings import RuntimeSettings, Settings, bounded_settings
from haptera.ports.context_source import ContextSource
from haptera.ports.runner import QueryOutcome, SessionBindings
from haptera.ports.session_store import Lease
from haptera.ports.telemetry import Telemetry
from haptera.system.clock import Clock, Stamp
from haptera.system.owned_tasks import OwnedTasks

if TYPE_CHECKING:
    from haptera.kernel.session.native_link import NativeLive


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
    ceiling: Settings = Settings()
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
        return self.bounded(self.fold.settings)

    @property
    def status(self) -> SessionStatus:
        """What the session is doing; at rest also what it rests on, and what waits behind it."""
        if not isinstance(self._status, Idle):
            return self._status
        return Idle(approvals=len(self.fold.approvals), waiting=len(self.fold.inputs))

    def bounded(self, settings: Settings) -> Settings:
        """Return settings within the ceiling."""
        return bounded_settings(settings, self.host.ceiling)

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
