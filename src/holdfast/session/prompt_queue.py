"""PromptQueue: which query runs, which wait, and how a prompt reaches a busy session."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.blocks.error_classification import to_agent_error
from holdfast.engine.owned_tasks import OwnedTasks
from holdfast.ports.stamps import Stamp
from holdfast.session.query_handle import QueryHandle
from holdfast.session.recorder import SessionRecorder
from holdfast.vocabulary.entries import InputDrained, InputQueued
from holdfast.vocabulary.errors import (
    AgentError,
    ErrorCode,
    RequestError,
    SessionError,
)
from holdfast.vocabulary.ids import new_input_id
from holdfast.vocabulary.messages import UserMessage
from holdfast.vocabulary.results import AgentResult
from holdfast.vocabulary.settings import Delivery


class PromptQueue:
    """Runs one query at a time; the others wait in the log.

    Owns the order of queries. A prompt that waits is an entry, so it survives a crash; a steering
    prompt that its query did not take in becomes a query of its own.
    """

    def __init__(
        self,
        *,
        recorder: SessionRecorder,
        drive: Callable[[QueryHandle], Awaitable[None]],
        tasks: OwnedTasks,
        stamp: Stamp,
    ) -> None:
        self._recorder = recorder
        self._drive = drive
        self._tasks = tasks
        self._stamp = stamp
        self._waiting: deque[QueryHandle] = deque()
        self._unrecorded: set[QueryHandle] = set()
        """Those of the waiting whose entry is on its way to the log."""
        self._claimed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.current: QueryHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether a query runs."""
        return self._claimed

    @property
    def waiting(self) -> tuple[QueryHandle, ...]:
        """The queries that wait, in order."""
        return tuple(self._waiting)

    async def submit(self, handle: QueryHandle, delivery: Delivery) -> None:
        """Run a query now, or let it wait as its delivery says."""
        if not self._claimed:
            self._claimed = True
            self._idle.clear()
            self._start(handle)
            return
        await self._let_wait(handle, delivery)

    async def take_in(self, handle: QueryHandle, delivery: Delivery) -> None:
        """Write a prompt down before anything else, then run it now or let it wait.

        The append that writes it down can consume the command it came with.
        """
        idle = not self._claimed
        self._claimed = True
        self._idle.clear()
        try:
            await self._let_wait(handle, "queue" if idle else delivery)
        finally:
            if idle:
                self._start_next()

    async def _let_wait(self, handle: QueryHandle, delivery: Delivery) -> None:
        message = handle.query.message
        if delivery == "reject" or message is None:
            raise SessionError(ErrorCode.BUSY, "the session is busy with another prompt")
        input_id = new_input_id()
        handle.wait_in(
            input_id,
            lambda: self._tasks.start(self._withdraw(handle), name="holdfast-withdraw"),
        )
        first, running = delivery == "interrupt", self.current
        self._waiting.appendleft(handle) if first else self._waiting.append(handle)
        queued = InputQueued(
            **self._stamp(),
            input_id=input_id,
            message=message,
            delivery=delivery,
            sender=message.sender,
        )
        await self._record(handle, queued)
        if first and running is not None:
            running.abort("interrupted by a new prompt")

    async def _record(self, handle: QueryHandle, queued: InputQueued) -> None:
        """Write a waiting prompt to the log; one that cannot be written does not wait."""
        self._unrecorded.add(handle)
        try:
            await self._recorder.commit([queued])
        except asyncio.CancelledError:
            handle.abort("its caller gave up")
            raise
        except AgentError:
            if handle in self._waiting:
                self._waiting.remove(handle)
            raise
        finally:
            self._unrecorded.discard(handle)

    async def drain(self) -> tuple[UserMessage, ...]:
        """Take every waiting prompt out and return them; whoever waits for one hears of it."""
        handles = [item for item in self._waiting if self._is_queued(item)]
        for item in handles:
            self._waiting.remove(item)
        await self._drain_entries(handles, "the queue was drained")
        foreign = tuple(self._recorder.fold.inputs.values())
        if foreign:
            await self._recorder.commit(
                [
                    InputDrained(**self._stamp(), input_id=item.input_id, reason="drained")
                    for item in foreign
                ]
            )
        messages = [item.query.message for item in handles] + [item.message for item in foreign]
        return tuple(item for item in messages if item is not None)

    @asynccontextmanager
    async def at_rest(self) -> AsyncGenerator[None, None]:
        """Let every prompt wait while the conversation itself is changed.

        Raises:
            SessionError: BUSY while a query runs.

        """
        if self._claimed:
            raise SessionError(ErrorCode.BUSY, "the session is busy; abort or wait first")
        self._claimed = True
        self._idle.clear()
        try:
            await self._recorder.resynchronise()
            yield
        finally:
            self._start_next()

    async def recover(self) -> None:
        """Go on after the store failed, unless a query has yet to end because of it."""
        if not self._claimed:
            await self._recorder.resynchronise()

    def refuse_waiting(self, error: AgentError) -> None:
        """Fail whoever waits; the prompts stay in the log."""
        while self._waiting:
            finish_without_running(self._waiting.popleft(), error)

    async def wait_idle(self) -> None:
        """Wait until no query runs."""
        await self._idle.wait()

    async def settle(self, *, within: float) -> None:
        """Let the running query end by itself for a while, then stop it."""
        current = self.current
        if current is None:
            return
        ended = self._tasks.start(current.wait(), name="holdfast-drain")
        await asyncio.wait({ended}, timeout=within)
        current.abort("the session is closed")
        await current.wait()

    def _start(self, handle: QueryHandle) -> None:
        self.current = handle
        self._tasks.start(self._run(handle), name="holdfast-driver")

    async def _run(self, handle: QueryHandle) -> None:
        try:
            await self._drive(handle)
        except BaseException as error:
            # Whoever waits for this query must hear of its end, even of one that no one foresaw.
            failure = to_agent_error(error)
            finish_without_running(handle, failure)
            if isinstance(error, asyncio.CancelledError):
                self.refuse_waiting(failure)  # the event loop is ending: nothing can start in it
            if not isinstance(error, AgentError):
                raise
        finally:
            self.current = None
            self._go_on(handle)

    def _go_on(self, ended: QueryHandle) -> None:
        """Start the next query, after telling the steering prompts that went into this one."""
        for joined in [item for item in self._waiting if not self._is_queued(item)]:
            self._waiting.remove(joined)
            _finish_like(joined, ended)
        resting = ended.result is not None and ended.result.stop_reason == "approval"
        if resting:
            self._rest()
        else:
            self._start_next()

    def _start_next(self) -> None:
        if self._waiting:
            following = self._waiting.popleft()
            following.promote()
            self._start(following)
        else:
            self._rest()

    def _rest(self) -> None:
        self._claimed = False
        self._idle.set()

    async def _withdraw(self, handle: QueryHandle) -> None:
        """Take a waiting query out; nothing happens to one that runs."""
        if handle in self._waiting:
            self._waiting.remove(handle)
            await self._drain_entries([handle], "its caller gave up")

    def _is_queued(self, handle: QueryHandle) -> bool:
        recorded = handle.input_id is None or handle.input_id in self._recorder.fold.inputs
        return recorded or handle in self._unrecorded

    async def _drain_entries(self, handles: list[QueryHandle], reason: str) -> None:
        drained = [
            InputDrained(**self._stamp(), input_id=item.input_id, reason=reason)
            for item in handles
            if item.input_id is not None
        ]
        try:
            if drained:
                await self._recorder.commit(drained)
        finally:
            for item in handles:
                error = RequestError(ErrorCode.ABORTED, f"not sent: {reason}")
                finish_without_running(item, error)


def finish_without_running(handle: QueryHandle, error: AgentError) -> None:
    """End a query that never ran, or whose end could not be recorded."""
    result: AgentResult[object] = AgentResult(text="", stop_reason="aborted")
    if error.result is None:
        error.result = result
    handle.finish(result, error)
    handle.stream.end(error)


def _finish_like(handle: QueryHandle, other: QueryHandle) -> None:
    """Give a prompt that joined another query the same end."""
    if other.result is not None:
        handle.finish(other.result, other.error)
        handle.stream.end(other.error)
