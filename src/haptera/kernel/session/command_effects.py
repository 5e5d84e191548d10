"""What a held session does with each command that it is told, here or by another process.

A command of another process is consumed by the append that holds its effect. One whose sender waits
has one end in the log, `command.ended`, in the same append.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from haptera.kernel.blocks.tool_registry.registry import (
    InvalidInput,
    ToolRegistryInterface,
)
from haptera.kernel.session.branching import Branches, ReadEntries
from haptera.kernel.session.deliveries import delivered, require_delivered, wait_named
from haptera.kernel.session.file_history import FileHistory
from haptera.kernel.session.prompt_queue import PromptQueue
from haptera.kernel.session.recorder import SessionRecorder
from haptera.kernel.session.session import QueryHandle
from haptera.model.approvals import Approve, Decision, Deny
from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    HookError,
    RequestError,
    SessionError,
    StoreError,
    ToolError,
)
from haptera.model.file_snapshots import RewindReport
from haptera.model.ids import ApprovalId, MessageId, SessionId, new_query_id, query_id_for
from haptera.model.json_types import JsonObject, writable_or_none
from haptera.model.log.approvals import ApprovalRequested
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import CommandEnded
from haptera.model.messages import CompactOrder
from haptera.model.operations.operation import CommandId, handles
from haptera.model.operations.session import (
    AbortQuery,
    ApproveCall,
    ChangeSession,
    CompactSession,
    ConfigureSession,
    DeliverResult,
    DenyCall,
    RewindSession,
    SendPrompt,
    UndoRewind,
)
from haptera.model.parts import Part, ToolCallPart
from haptera.model.results import AgentResult
from haptera.model.settings import (
    SETTINGS_WITH_MODELS,
    Delivery,
    Settings,
    changed_settings,
)
from haptera.ports.runner import QueryInput
from haptera.ports.session_store import Store
from haptera.ports.snapshots import Snapshotter
from haptera.system.clock import Stamp
from haptera.system.owned_tasks import OwnedTasks

_REST_SECONDS = 1.0
"""How long a store that failed is left alone before the end of a compaction is recorded again."""


class Answering(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions of an agent need of it to carry such commands out."""

    snapshotter: Snapshotter | None = None
    """Records the files of the workspace; None when no snapshots are taken."""
    is_native: Callable[[str], bool] = lambda _model: False
    """Whether an agent that keeps its own session answers for a model."""
    check_models: Callable[[Settings], None] = lambda _settings: None
    """Raises CONFIG_INVALID where settings name a model that sessions may not use."""


class CommandedSession(Protocol):
    """What commands need of the session that they are for."""

    session_id: SessionId
    store: Store
    stamp: Stamp
    queue: PromptQueue
    recorder: SessionRecorder
    branches: Branches
    registry: ToolRegistryInterface

    @property
    def fold(self) -> SessionFold:
        """The session as it is now."""
        ...

    def check_open(self) -> None:
        """Raise CLOSED once the session is closed."""
        ...

    def new_handle(self, query: QueryInput) -> QueryHandle:
        """Make the handle of a query that is to be submitted."""
        ...

    async def submit(self, handle: QueryHandle, delivery: Delivery) -> None:
        """Take in a query."""
        ...

    async def change(
        self, changes: JsonObject, *, consumed: Sequence[CommandId] = (), also: Sequence[Entry] = ()
    ) -> None:
        """Record a change of the session and consume the commands in one append."""
        ...

    def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Stop the running query; with an id, only if it is that one."""
        ...

    async def decide(
        self,
        approval_id: ApprovalId,
        decision: Decision,
        *,
        consumed: Sequence[CommandId] = (),
        refuses_misfit: bool = False,
    ) -> None:
        """Record an answer to an approval and consume the commands in one append."""
        ...


class CommandOrigin(msgspec.Struct, frozen=True):
    """How a command was asked for."""

    consumed: Sequence[CommandId] = ()
    """The commands of the inbox that are carried out; none for a caller of this process."""
    opening: bool = False
    """Whether the session is being opened: prompts only wait then."""


HERE = CommandOrigin()


class HeldSession:
    """A session that this process holds, as handlers use it.

    Owns nothing but the compactions that it has started, which are tasks of the session, and what
    it remembers of the prompts in the log.
    """

    def __init__(self, live: CommandedSession, answering: Answering, *, tasks: OwnedTasks) -> None:
        self.live = live
        self.tasks = tasks
        self.answering = answering
        self.prompts: dict[MessageId, tuple[Part, ...]] | None = None
        """The prompts of the log by their id, once they were asked for."""
        self.one_admits = asyncio.Lock()

    def branches(self) -> Branches:
        """Return the points of the conversation, of a session that is open."""
        self.live.check_open()
        return self.live.branches

    def files(self) -> FileHistory:
        """Return what the session did to files.

        Raises:
            ConfigError: CONFIG_MISSING when no snapshots are taken.

        """
        self.live.check_open()
        live, snapshotter = self.live, self.answering.snapshotter
        if snapshotter is None:
            told = "no snapshots of files are taken: they need `workspace=`, and `snapshots` on"
            raise ConfigError(ErrorCode.CONFIG_MISSING, told)
        return FileHistory(
            live.branches,
            snapshotter,
            session=live.session_id,
            recorder=live.recorder,
            stamp=live.stamp,
        )

    def ended(
        self, consumed: Sequence[CommandId], report: RewindReport | None = None
    ) -> list[Entry]:
        """Return the end of each command that is carried out; a call of this process has none."""
        result = msgspec.to_builtins(report.writable()) if report is not None else None
        return [
            CommandEnded(**self.live.stamp(), command_id=each, result=result) for each in consumed
        ]


@handles(RewindSession)
async def rewind(
    held: HeldSession, order: RewindSession, origin: CommandOrigin = HERE
) -> RewindReport:
    """Make a message the last one, with `files` also for the workspace."""
    held.live.check_open()
    if order.dry_run:
        report = await _preview(held, order)
        # A preview changes nothing, but its sender in another process waits for an end.
        if origin.consumed:
            await held.live.recorder.commit(
                held.ended(origin.consumed, report), consumed=origin.consumed
            )
        return report
    # Asked for before anything is moved: an agent that takes no snapshots refuses the rewind.
    files, report = held.files() if order.files else None, RewindReport()

    async def move(entries: ReadEntries, seq: int) -> Sequence[Entry]:
        nonlocal report
        also: Sequence[Entry] = ()
        if files is not None:
            report, also = await files.bring_back(await entries(), seq, order.to, force=order.force)
        # The end is in the append of the move: a crash leaves the move, its end and the
        # consumed command, or none of them.
        return [*also, *held.ended(origin.consumed, report)]

    await held.live.branches.rewind(order.to, moving=move, consumed=origin.consumed)
    return report


async def _preview(held: HeldSession, order: RewindSession) -> RewindReport:
    """Say which messages and files a rewind would change."""
    branches = held.live.branches
    left = await branches.left_by_rewind(order.to)
    report = await held.files().preview(order.to) if order.files else RewindReport()
    return msgspec.structs.replace(report, is_done=False, messages=left)


@handles(UndoRewind)
async def undo_rewind(
    held: HeldSession, order: UndoRewind, origin: CommandOrigin = HERE
) -> RewindReport:
    """Take the last rewind back, with what it did to files."""
    held.live.check_open()
    # Unlike a rewind, an undo is not told about files: without snapshots there are none to
    # bring forward.
    files = held.files() if held.answering.snapshotter else None
    if files is not None and (cut_off := await _take_back(held, files, origin)) is not None:
        return cut_off
    report = RewindReport()

    async def move(entries: ReadEntries, _seq: int) -> Sequence[Entry]:
        nonlocal report
        also: Sequence[Entry] = ()
        if files is not None:
            report, also = await files.bring_forward(await entries(), force=order.force)
        return [*also, *held.ended(origin.consumed, report)]

    await held.live.branches.undo_rewind(moving=move, consumed=origin.consumed)
    return report


async def _take_back(
    held: HeldSession, files: FileHistory, origin: CommandOrigin
) -> RewindReport | None:
    """Take back what a rewind did to files whose process died before it moved anything else."""
    async with held.live.queue.at_rest():
        done = await files.take_back(await held.live.branches.entries())
        if done is None:
            return None
        report, after = done
        ended = held.ended(origin.consumed, report)
        await held.live.recorder.commit([after, *ended], consumed=origin.consumed)
    return report


def compaction_query(held: HeldSession, order: CompactSession) -> QueryInput:
    """Return the query that compacts the conversation; its id follows from the command's.

    Raises:
        SessionError: BUSY while a query is unfinished or waits for an approval.
        ConfigError: CONFIG_INVALID with a native agent, which compacts its own history.

    """
    fold = held.live.fold
    if held.answering.is_native(fold.settings.model):
        told = "a native agent compacts its own history; send /compact"
        raise ConfigError(ErrorCode.CONFIG_INVALID, told)
    # A rewind to an answer takes the end of its query back, too, but leaves nothing to do.
    is_done = fold.is_answered() and not fold.unended
    if fold.approvals or (fold.unfinished_query() is not None and not is_done):
        told = "a query is unfinished; answer its approvals or resume it first"
        if held.live.queue.busy:
            told = "the session is busy; abort or wait first"
        raise SessionError(ErrorCode.BUSY, told)
    compact = CompactOrder(instructions=writable_or_none(order.instructions) or None)
    return QueryInput(query_id=query_id_for(order.id), message=None, compact=compact)


def compaction_made(
    held: HeldSession, order: CompactSession, result: AgentResult[Any]
) -> Compaction:
    """Return what the query of `compaction_query` made, once it has ended without an error.

    Raises:
        HookError: HOOK_FAILED when a hook blocked the query.
        RequestError: TIMEOUT when a watchdog ended it.

    """
    done = held.live.fold.compacted.last
    # The last one may be of an earlier query: one that is refused makes none.
    if done is not None and done.query_id == query_id_for(order.id):
        return done
    if result.stop_reason == "limit":
        told = f"the compaction was stopped: {result.stop_detail}"
        raise RequestError(ErrorCode.TIMEOUT, told)
    told = f"a hook blocked the compaction: {result.stop_detail}"
    raise HookError(ErrorCode.HOOK_FAILED, told)


@handles(CompactSession)
async def compact(held: HeldSession, order: CompactSession, origin: CommandOrigin) -> None:
    """Begin a compaction for another process; it goes on after this, so that an abort reaches it.

    While the session is opened, none is begun.
    """
    if origin.opening:
        told = "the session was opened anew before it was compacted; ask again"
        raise SessionError(ErrorCode.BUSY, told)
    live = held.live
    handle = live.new_handle(compaction_query(held, order))
    # Nothing reads its events, and an unread stream would make the query wait for space.
    handle.stream.abandon()
    await live.submit(handle, "reject")

    async def answer() -> None:
        await handle.wait()
        ended = CommandEnded(**live.stamp(), command_id=order.id)
        try:
            if handle.error is not None or handle.result is None:
                raise handle.error or SessionError(ErrorCode.CLOSED, "the session was closed")
            made = compaction_made(held, order, handle.result)
            ended = msgspec.structs.replace(ended, result={"compaction_id": made.id})
        except AgentError as error:
            ended = msgspec.structs.replace(ended, error=error.report)
        await _record_end(held, ended)

    # Not awaited: commands are carried out one after the other, and the abort of this
    # compaction would wait behind it.
    held.tasks.start(answer(), name="haptera-answer")


async def _record_end(held: HeldSession, ended: CommandEnded) -> None:
    """Record an end as soon as the store takes it, unless the session is another's by then."""
    while True:
        try:
            # After a failed append the recorder refuses everything until the log has been read
            # again.
            await held.live.queue.recover()
            await held.live.recorder.commit([ended], consumed=(ended.command_id,))
        except SessionError:
            return  # it is closed: the next holder answers
        except StoreError as error:
            # The command is still in the inbox: the process that took over answers it.
            if error.code is ErrorCode.FENCED:
                return
            await held.live.stamp.clock.sleep(_REST_SECONDS)
        else:
            return


@handles(ConfigureSession)
async def configure(
    held: HeldSession, order: ConfigureSession, origin: CommandOrigin = HERE
) -> None:
    """Change settings; those of another process are checked by the models of this one."""
    # Before the append: an entry that is in the log is never taken back.
    if origin.consumed:
        _refuse_invalid(held, order.settings)
    ended = held.ended(origin.consumed)
    await held.live.change({"settings": order.settings}, consumed=origin.consumed, also=ended)


def _refuse_invalid(held: HeldSession, settings: JsonObject) -> None:
    try:
        changed = changed_settings(held.live.fold.settings, settings)
    except msgspec.ValidationError as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"settings: {error}") from error
    if settings.keys() & SETTINGS_WITH_MODELS:
        held.answering.check_models(changed)


@handles(ChangeSession)
async def change_session(
    held: HeldSession, order: ChangeSession, origin: CommandOrigin = HERE
) -> None:
    """Record facts of the session."""
    await held.live.change(order.changes, consumed=origin.consumed)


@handles(AbortQuery)
async def abort(held: HeldSession, order: AbortQuery, origin: CommandOrigin = HERE) -> None:
    """Stop the query that runs."""
    # Its effect cannot be in the append that consumes it: the driver of the query records the end.
    held.live.abort(order.reason, query_id=order.query_id)
    if origin.consumed:
        await held.live.recorder.commit((), consumed=origin.consumed)


@handles(ApproveCall)
async def approve(held: HeldSession, order: ApproveCall, origin: CommandOrigin = HERE) -> None:
    """Record that a call may run."""
    decision = Approve(
        arguments=order.arguments, scope=order.scope, by=order.by, feedback=order.feedback
    )
    # A caller that is here can mend its arguments; one that is gone cannot.
    is_here = not origin.consumed
    await held.live.decide(
        order.approval_id, decision, consumed=origin.consumed, refuses_misfit=is_here
    )


@handles(DenyCall)
async def deny(held: HeldSession, order: DenyCall, origin: CommandOrigin = HERE) -> None:
    """Record that a call must not run."""
    denial = Deny(order.reason, by=order.by)
    await held.live.decide(order.approval_id, denial, consumed=origin.consumed)


@handles(DeliverResult)
async def deliver(held: HeldSession, order: DeliverResult, origin: CommandOrigin = HERE) -> None:
    """Record the answer of a call that waits; one that has this answer is left as it is."""
    live = held.live
    live.check_open()
    await live.queue.recover()
    command_ends, clock = held.ended(origin.consumed), live.stamp.clock
    waiting = wait_named(live.recorder.waits(), order.call)
    if waiting is None:
        await live.recorder.commit(())  # an answer that is staged is to be seen in the log
        entries = await live.store.log.read(live.session_id)
        require_delivered(entries, order, clock=clock)
        await live.recorder.commit(command_ends, consumed=origin.consumed)
        return
    # No wait between the look-up and staging the answer: the next one finds this one staged.
    ended = delivered(waiting, order, clock=clock)
    try:
        await live.recorder.commit([ended, *command_ends], consumed=origin.consumed)
    except asyncio.CancelledError:
        # The answer is staged and stands: the next one is refused.
        held.tasks.start(_flush(live.recorder), name="haptera-delivery")
        raise


async def _flush(recorder: SessionRecorder) -> None:
    with suppress(AgentError):  # the next caller gets it
        await recorder.commit(())


@handles(SendPrompt)
async def send(held: HeldSession, order: SendPrompt, origin: CommandOrigin = HERE) -> None:
    """Take in a prompt; one that is to be taken in once, unless the log has it.

    Raises:
        StoreError: CONFLICT when the log has another message with its id, and its sender is in
            this process.

    """
    message = order.message
    if not order.once:
        await _admit(held, order, origin)
        return
    # Two commands with one message would both find that the log does not have it yet.
    async with held.one_admits:
        if held.prompts is None:
            held.prompts = await _prompts_in_log(held.live)
        known = held.prompts.get(message.id)
        if known is None:
            try:
                await _admit(held, order, origin)
            except BaseException:
                held.prompts = None  # whether it is in the log is to be seen there
                raise
            held.prompts[message.id] = message.parts
        # Its sender cannot be told of a conflict, so the command has no effect.
        elif origin.consumed:
            await held.live.recorder.commit((), consumed=origin.consumed)
        elif known != message.parts:
            told = f"the session has another message with the id {message.id!r}"
            raise StoreError(ErrorCode.CONFLICT, told)


async def _admit(held: HeldSession, order: SendPrompt, origin: CommandOrigin) -> None:
    message = order.message
    query_id = message.query_id or new_query_id()
    query = QueryInput(query_id=query_id, message=message, sender=message.sender)
    await held.live.queue.admit(
        query, order.delivery, consumed=origin.consumed, starts=not origin.opening
    )


async def _prompts_in_log(live: CommandedSession) -> dict[MessageId, tuple[Part, ...]]:
    # All entries and not the current path: a prompt that was rewound has been sent, too. One that
    # waited is in `input.queued`, one that began at once in `query.started`.
    entries = await live.store.log.read(live.session_id)
    prompts = [entry.message for entry in entries if isinstance(entry, InputQueued | QueryStarted)]
    return {message.id: message.parts for message in prompts if message is not None}


def refuse_misfit(
    tools: ToolRegistryInterface, asked: ApprovalRequested | None, decision: Decision
) -> None:
    """Refuse an approval with arguments that the tool would not take.

    Raises:
        ToolError: TOOL_INVALID_INPUT saying why; the approval goes on waiting.

    """
    if asked is None or not isinstance(decision, Approve) or decision.arguments is None:
        return
    if asked.child is not None:
        return  # the tool is the sub-agent's
    call = ToolCallPart(call_id=asked.call_id, name=asked.tool, arguments=decision.arguments)
    resolution = tools.current().resolve(call)
    if isinstance(resolution, InvalidInput):
        raise ToolError(
            ErrorCode.TOOL_INVALID_INPUT,
            f"{asked.tool} does not take these arguments: {resolution.message}",
        )
