"""AnsweredCommands: rewinds, compactions and changes of settings, asked for here or elsewhere.

A command of another process has one end in the log, `command.ended`, in the append that holds its
effect or, for one that was refused, in an append of its own. Its sender waits for that entry.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, assert_never

import msgspec

from haptera.kernel.session.branching import Branches
from haptera.kernel.session.file_history import FileHistory
from haptera.kernel.session.prompt_queue import PromptQueue
from haptera.kernel.session.query_handle import QueryHandle
from haptera.kernel.session.recorder import SessionRecorder
from haptera.model.commands import (
    AnsweredCommand,
    CommandId,
    CompactSession,
    ConfigureSession,
    RewindSession,
    UndoRewind,
)
from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    HookError,
    RequestError,
    SessionError,
    StoreError,
)
from haptera.model.file_snapshots import RewindReport
from haptera.model.ids import SessionId, query_id_for
from haptera.model.json_types import JsonObject, writable_or_none
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import CommandEnded
from haptera.model.messages import CompactOrder
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


class AnsweringSession(Protocol):
    """What such commands need of the session that they are for."""

    session_id: SessionId
    store: Store
    stamp: Stamp
    queue: PromptQueue
    recorder: SessionRecorder
    branches: Branches

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


class AnsweredCommands:
    """Carries out what changes a session as a whole, and answers commands of other processes.

    Owns nothing but the compactions that it has started; they are tasks of the session.
    """

    def __init__(self, live: AnsweringSession, answering: Answering, *, tasks: OwnedTasks) -> None:
        self._live = live
        self._tasks = tasks
        self._answering = answering

    # For callers that hold the session.

    async def rewind(
        self, order: RewindSession, *, consumed: Sequence[CommandId] = ()
    ) -> RewindReport:
        """Make a message the last one, with `files` also for the workspace.

        Raises:
            SessionError: BUSY while a query runs, MESSAGE_NOT_FOUND when there is no such message.
            StoreError: CONFLICT when others changed files that would be overwritten; UNAVAILABLE
                when the files of that time are not known. Nothing is changed then.
            ConfigError: CONFIG_MISSING when the agent takes no snapshots of files.

        """
        self._live.check_open()
        if order.dry_run:
            report = await self._preview(order)
            # A preview changes nothing, but its sender in another process waits for an end.
            if consumed:
                await self._live.recorder.commit(self._ended(consumed, report), consumed=consumed)
            return report
        # Asked for before anything is moved: an agent that takes no snapshots refuses the rewind.
        files, report = self.files() if order.files else None, RewindReport()

        async def move(entries: Sequence[Entry], seq: int) -> Sequence[Entry]:
            nonlocal report
            also: Sequence[Entry] = ()
            if files is not None:
                report, also = await files.bring_back(entries, seq, order.to, force=order.force)
            # The end is in the append of the move: a crash leaves the move, its end and the
            # consumed command, or none of them.
            return [*also, *self._ended(consumed, report)]

        await self._live.branches.rewind(order.to, moving=move, consumed=consumed)
        return report

    async def undo_rewind(
        self, order: UndoRewind, *, consumed: Sequence[CommandId] = ()
    ) -> RewindReport:
        """Take the last rewind back, with what it did to files.

        Raises:
            SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound.
            StoreError: CONFLICT when such files were changed since, unless forced.

        """
        self._live.check_open()
        # Unlike a rewind, an undo is not told about files: without snapshots there are none to
        # bring forward.
        files = self.files() if self._answering.snapshotter else None
        if files is not None and (cut_off := await self._take_back(files, consumed)) is not None:
            return cut_off
        report = RewindReport()

        async def move(entries: Sequence[Entry], _seq: int) -> Sequence[Entry]:
            nonlocal report
            also: Sequence[Entry] = ()
            if files is not None:
                report, also = await files.bring_forward(entries, force=order.force)
            return [*also, *self._ended(consumed, report)]

        await self._live.branches.undo_rewind(moving=move, consumed=consumed)
        return report

    async def _take_back(
        self, files: FileHistory, consumed: Sequence[CommandId]
    ) -> RewindReport | None:
        """Take back what a rewind did to files whose process died before it moved anything else."""
        async with self._live.queue.at_rest():
            done = await files.take_back(await self._live.branches.entries())
            if done is None:
                return None
            report, after = done
            ended = self._ended(consumed, report)
            await self._live.recorder.commit([after, *ended], consumed=consumed)
        return report

    def compaction(self, order: CompactSession) -> QueryInput:
        """Return the query that compacts the conversation; its id follows from the command's.

        Raises:
            SessionError: BUSY while a query is unfinished or waits for an approval.
            ConfigError: CONFIG_INVALID with a native agent, which compacts its own history.

        """
        fold = self._live.fold
        if self._answering.is_native(fold.settings.model):
            told = "a native agent compacts its own history; send /compact"
            raise ConfigError(ErrorCode.CONFIG_INVALID, told)
        # A rewind to an answer takes the end of its query back, too, but leaves nothing to do.
        is_done = fold.is_answered() and not fold.unended
        if fold.approvals or (fold.unfinished_query() is not None and not is_done):
            told = "a query is unfinished; answer its approvals or resume it first"
            if self._live.queue.busy:
                told = "the session is busy; abort or wait first"
            raise SessionError(ErrorCode.BUSY, told)
        compact = CompactOrder(instructions=writable_or_none(order.instructions) or None)
        return QueryInput(query_id=query_id_for(order.id), message=None, compact=compact)

    def compaction_made(self, order: CompactSession, result: AgentResult[Any]) -> Compaction:
        """Return what the query of `compaction` made, once it has ended without an error.

        Raises:
            HookError: HOOK_FAILED when a hook blocked the query.
            RequestError: TIMEOUT when a watchdog ended it.

        """
        done = self._live.fold.compacted.last
        # The last one may be of an earlier query: one that is refused makes none.
        if done is not None and done.query_id == query_id_for(order.id):
            return done
        if result.stop_reason == "limit":
            told = f"the compaction was stopped: {result.stop_detail}"
            raise RequestError(ErrorCode.TIMEOUT, told)
        told = f"a hook blocked the compaction: {result.stop_detail}"
        raise HookError(ErrorCode.HOOK_FAILED, told)

    def files(self) -> FileHistory:
        """Return what the session did to files.

        Raises:
            ConfigError: CONFIG_MISSING when no snapshots are taken.

        """
        self._live.check_open()
        live, snapshotter = self._live, self._answering.snapshotter
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

    # For commands of the inbox.

    async def carry_out(self, command: AnsweredCommand, *, opening: bool) -> None:
        """Carry a command of another process out, and record its end.

        A compaction goes on after this returns, so that an abort reaches it. While the session is
        opened, none is begun.

        Raises:
            AgentError: why it is refused; nothing was changed then.

        """
        consumed = (command.id,)
        match command:
            case RewindSession():
                await self.rewind(command, consumed=consumed)
            case UndoRewind():
                await self.undo_rewind(command, consumed=consumed)
            case ConfigureSession(settings=settings):
                # Before the append: an entry that is in the log is never taken back.
                self._refuse_invalid(settings)
                ended = self._ended(consumed)
                await self._live.change({"settings": settings}, consumed=consumed, also=ended)
            case CompactSession():
                if opening:
                    told = "the session was opened anew before it was compacted; ask again"
                    raise SessionError(ErrorCode.BUSY, told)
                await self._begin_compaction(command)
            case _:
                assert_never(command)

    async def refuse(self, command: AnsweredCommand, error: AgentError) -> None:
        """Record why a command is refused, unless its end is in the log already."""
        # An error can follow the append that held the end (reading the log again, for one): the
        # command must not get a second end.
        pending = await self._live.store.inbox.pending(self._live.session_id)
        if any(item.id == command.id for item in pending):
            ended = CommandEnded(**self._live.stamp(), command_id=command.id, error=error.report)
            await self._live.recorder.commit([ended], consumed=(command.id,))

    async def _begin_compaction(self, command: CompactSession) -> None:
        live = self._live
        handle = live.new_handle(self.compaction(command))
        # Nothing reads its events, and an unread stream would make the query wait for space.
        handle.stream.abandon()
        await live.submit(handle, "reject")

        async def answer() -> None:
            await handle.wait()
            ended = CommandEnded(**live.stamp(), command_id=command.id)
            try:
                if handle.error is not None or handle.result is None:
                    raise handle.error or SessionError(ErrorCode.CLOSED, "the session was closed")
                made = self.compaction_made(command, handle.result)
                ended = msgspec.structs.replace(ended, result={"compaction_id": made.id})
            except AgentError as error:
                ended = msgspec.structs.replace(ended, error=error.report)
            await self._record_end(ended)

        # Not awaited: commands are carried out one after the other, and the abort of this
        # compaction would wait behind it.
        self._tasks.start(answer(), name="haptera-answer")

    async def _record_end(self, ended: CommandEnded) -> None:
        """Record an end as soon as the store takes it, unless the session is another's by then."""
        while True:
            try:
                # After a failed append the recorder refuses everything until the log has been read
                # again.
                await self._live.queue.recover()
                await self._live.recorder.commit([ended], consumed=(ended.command_id,))
            except SessionError:
                return  # it is closed: the next holder answers
            except StoreError as error:
                # The command is still in the inbox: the process that took over answers it.
                if error.code is ErrorCode.FENCED:
                    return
                await self._live.stamp.clock.sleep(_REST_SECONDS)
            else:
                return

    async def _preview(self, order: RewindSession) -> RewindReport:
        """Say which messages and files a rewind would change."""
        branches = self._live.branches
        left = await branches.left_by_rewind(order.to)
        report = await self.files().preview(order.to) if order.files else RewindReport()
        return msgspec.structs.replace(report, is_done=False, messages=left)

    def _refuse_invalid(self, settings: JsonObject) -> None:
        try:
            changed = changed_settings(self._live.fold.settings, settings)
        except msgspec.ValidationError as error:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"settings: {error}") from error
        if settings.keys() & SETTINGS_WITH_MODELS:
            self._answering.check_models(changed)

    def _ended(
        self, consumed: Sequence[CommandId], report: RewindReport | None = None
    ) -> list[Entry]:
        """Return the end of each command that is carried out; a call of this process has none."""
        result = msgspec.to_builtins(report.writable()) if report is not None else None
        return [
            CommandEnded(**self._live.stamp(), command_id=each, result=result) for each in consumed
        ]
