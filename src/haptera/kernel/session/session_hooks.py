"""SessionHooks: the hooks of one open session, and what is recorded and reported of them."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from haptera.kernel.blocks.hook_dispatch.dispatch import HookDispatch, WaitLimits
from haptera.kernel.session.recorder import SessionRecorder
from haptera.model.errors import AgentError, HookError
from haptera.model.events import HookFailed
from haptera.model.ids import QueryId, SessionId
from haptera.model.log.compactions import Compaction, CompactionTrigger
from haptera.model.log.entry import Entry
from haptera.model.log.notes import HookMessage
from haptera.model.log.session_fold import SessionFold
from haptera.ports.hooks import (
    AfterCompaction,
    BeforeCompaction,
    Block,
    HookInput,
    HookPoint,
    SessionEnd,
    SessionResume,
    SessionStart,
)
from haptera.system.clock import Stamp
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks

_logger = scrubbed_logger(__name__)

_HURRIED_SECONDS = 0.25
"""How long observers may go on when a session is closed by force."""

ValueT = TypeVar("ValueT")
InputT = TypeVar("InputT", bound=HookInput)


class HookCaller(ABC):
    """What the hooks of a session and those of a query have in common."""

    def __init__(
        self, dispatch: HookDispatch, *, session_id: SessionId, tasks: OwnedTasks, deps: object
    ) -> None:
        self._dispatch = dispatch
        self.session_id = session_id
        self._tasks = tasks
        self._deps = deps

    async def before_compaction(
        self,
        *,
        trigger: CompactionTrigger,
        tokens: int | None = None,
        context_window: int | None = None,
    ) -> str | None:
        """Ask before a compaction; returns why it is not to be made, or None.

        Raises:
            HookError: HOOK_FAILED when a hook fails; nothing may be compacted then.

        """
        if not self._has("before_compaction"):
            return None
        given = self._given(
            BeforeCompaction,
            query_id=self._stamp_now.query_id,
            trigger=trigger,
            tokens=tokens,
            context_window=context_window,
        )
        return await self._reason("before_compaction", given)

    async def after_compaction(self, made: Compaction) -> None:
        """Tell of a compaction that is in the log."""
        if self._has("after_compaction"):
            given = self._given(
                AfterCompaction,
                query_id=self._stamp_now.query_id,
                trigger=made.trigger,
                strategy=made.strategy,
                tokens_before=made.tokens_before,
                tokens_after=made.tokens_after,
            )
            await self._observe("after_compaction", given)

    def _has(self, point: HookPoint) -> bool:
        return bool(self._dispatch.hooks.at(point))

    def _given(self, kind: type[InputT], **fields: object) -> InputT:
        facts: dict[str, Any] = {**fields}
        return kind(session_id=self.session_id, deps=self._deps, **facts)

    async def _reason(self, point: HookPoint, given: HookInput) -> str | None:
        """Ask the gates of a point; returns why one of them refuses, or None."""
        verdict = await self._ask(point, given, self._dispatch.gate(point, given, self._tasks))
        return verdict.reason if isinstance(verdict, Block) else None

    async def _ask(self, point: HookPoint, given: HookInput, asking: Awaitable[ValueT]) -> ValueT:
        """Wait for gates or transforms, and record what they said, also if one failed."""
        try:
            answer = await asking
        except HookError:
            await self._record(messages_of(point, given, self._stamp_now))
            raise
        await self._record(messages_of(point, given, self._stamp_now))
        return answer

    @property
    @abstractmethod
    def _stamp_now(self) -> Stamp:
        """The stamp of what is recorded now."""

    @abstractmethod
    async def _observe(self, point: HookPoint, given: HookInput) -> None:
        """Call observers; what goes wrong with them is reported, and changes nothing else."""

    @abstractmethod
    async def _record(self, said: Sequence[Entry]) -> None:
        """Record what gates and transforms said."""


class SessionHooks(HookCaller):
    """The hooks of one open session. Made for every session; without hooks it does nothing.

    Owns which of its points were reached. Does not own the functions or their order
    (`HookDispatch`), or the log: `commit` and `show` are the session's.
    """

    def __init__(
        self,
        dispatch: HookDispatch,
        *,
        session_id: SessionId,
        tasks: OwnedTasks,
        stamp: Stamp,
        log: SessionRecorder,
        deps: object = None,
    ) -> None:
        super().__init__(dispatch, session_id=session_id, tasks=tasks, deps=deps)
        self.dispatch = dispatch
        self._stamp = stamp
        self._log = log
        self._is_open = False
        self._hurried: asyncio.Future[None] | None = None

    async def open(self, fold: SessionFold, *, is_new: bool) -> None:
        """Tell that the session is open: new, or as the log left it."""
        # Before observers are called: a close while they work tells of the end, too.
        self._is_open = True
        point: HookPoint = "session_start" if is_new else "session_resume"
        if not self._has(point):
            return
        opened = fold.opened  # None when that entry is damaged
        facts: dict[str, Any] = {
            "owner": opened.owner if opened is not None else "",
            "project": opened.project if opened is not None else "",
            "name": opened.name if opened is not None else None,
        }
        given: HookInput
        if is_new:
            parent = opened.parent if opened is not None else None
            given = self._given(SessionStart, parent=parent, **facts)
        else:
            given = self._given(SessionResume, unfinished=fold.unfinished_query(), **facts)
        await self._observe(point, given)

    async def end(self) -> None:
        """Tell that the session is being closed, if it was told that it is open."""
        if self._is_open and self._has("session_end"):
            await self._observe("session_end", self._given(SessionEnd))

    def hurry(self) -> None:
        """Wait for observers no longer than a moment: the session is closed by force."""
        if not self.dispatch.is_empty:
            asyncio.get_running_loop().call_later(_HURRIED_SECONDS, _settle, self._hurry)

    @property
    def _hurry(self) -> "asyncio.Future[None]":
        if self._hurried is None:
            self._hurried = asyncio.get_running_loop().create_future()
        return self._hurried

    async def observe_for(
        self,
        point: HookPoint,
        given: HookInput,
        *,
        query_id: QueryId | None = None,
        seconds: float | None = None,
        dispatch: HookDispatch | None = None,
    ) -> None:
        """Call observers, and report those that fail: a query's own, or those of the session."""
        limits = WaitLimits(seconds=seconds, unless=(self._hurry,))
        failures = await (dispatch or self._dispatch).observe(
            point, given, self._tasks, limits=limits
        )
        for error in failures:
            _logger.warning("%s", error.message)
            failed = HookFailed(
                session_id=self.session_id,
                query_id=query_id or QueryId(""),
                point=point,
                error=error.report,
            )
            self._log.show([failed])

    async def record_last(self, point: HookPoint, given: HookInput) -> None:
        """Record what observers said that belongs to no query any more, if the store takes it."""
        if given.said:
            with suppress(AgentError):  # observers change nothing, and the session may be closed
                await self._log.commit(messages_of(point, given, self._stamp))

    @property
    def _stamp_now(self) -> Stamp:
        return self._stamp

    async def _observe(self, point: HookPoint, given: HookInput) -> None:
        await self.observe_for(point, given)
        await self.record_last(point, given)

    async def _record(self, said: Sequence[Entry]) -> None:
        if said:
            await self._log.commit(said)


def messages_of(point: HookPoint, given: HookInput, stamp: Stamp) -> list[Entry]:
    """Return what hooks said as entries."""
    return [
        HookMessage(**stamp(), hook=point, text=note.text, display=note.display)
        for note in given.said
    ]


def _settle(hurried: "asyncio.Future[None]") -> None:
    if not hurried.done():
        hurried.set_result(None)
