"""PromptQueue: which query runs, which wait, and how a prompt reaches a busy session."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import copy_context

from msgspec.structs import replace

from haptera.kernel.blocks.approval_coordinator import NEW_PROMPT
from haptera.kernel.blocks.error_classification import to_agent_error
from haptera.kernel.session.deliveries import cancelled_waits
from haptera.kernel.session.recorder import StoreTime
from haptera.kernel.session.session import (
    QueryHandle,
    Session,
    finish_like,
    finish_without_running,
    refuse_waiting_for,
)
from haptera.kernel.session.session_descriptions import (
    has_approved_calls,
    queued_entry,
    queued_input,
    resume_input,
)
from haptera.model.errors import AgentError, ErrorCode, RequestError, SessionError
from haptera.model.ids import InputId, new_input_id
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputDrained
from haptera.model.messages import UserMessage
from haptera.model.operations.operation import CommandId
from haptera.model.results import RESTING
from haptera.model.settings import Delivery
from haptera.ports.runner import QueryInput


class PromptQueue:
    """Runs one query at a time; the others wait in the log.

    Owns the order of queries. A prompt that waits is an entry, so it survives a crash; a steering
    prompt that its query did not take in becomes a query of its own. Prompts behind a query that
    rests on an approval, and those that wait when a session is opened, wait until a query is
    resumed, or until a new prompt makes the approval void and gets in line behind them. Calls that
    were approved and did not run yet run before the prompts that wait.
    """

    def __init__(
        self,
        session: Session,
        *,
        new_handle: Callable[[QueryInput], QueryHandle],
    ) -> None:
        self._recorder = session.recorder
        self._channel = session.channel
        self._session = session
        self._tasks = session.tasks
        self._stamp = session.stamp
        self._approvals = session.approvals
        self._new_handle = new_handle
        self._context = copy_context()
        self._waiting: deque[QueryHandle] = deque()
        self.busy = False
        """Whether a query runs, or is about to."""
        self._moving = asyncio.Lock()
        self._refusal: Callable[[], AgentError] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.current: QueryHandle | None = None

    @property
    def waiting(self) -> tuple[QueryHandle, ...]:
        """The prompts that wait behind the running query, in their order."""
        return tuple(self._waiting)

    @property
    def _has_line(self) -> bool:
        """Whether prompts wait that were here before a new one."""
        return bool(self._waiting or self._recorder.waiting())

    async def submit(self, handle: QueryHandle, delivery: Delivery) -> None:
        """Run a query now, or let it wait as its delivery says."""
        is_prompt = handle.query.message is not None
        if self.busy or (is_prompt and self._has_line):
            await self._admit(handle, delivery)
        else:
            await self._begin(handle)

    async def admit(
        self,
        query: QueryInput,
        delivery: Delivery,
        *,
        consumed: Sequence[CommandId] = (),
        starts: bool = True,
    ) -> None:
        """Take in a prompt whose answer nothing waits for; it is in the log when this returns.

        What it makes void (approvals that the session rests on) and the command that it came with
        are settled by the same append. One that `starts` nothing makes nothing void, either: it
        waits until a query is resumed or sent.

        Raises:
            SessionError: CLOSED, or BUSY when it is not to wait.

        """
        if not starts:
            if delivery == "reject" and self._has_line:
                raise _busy()
            queued = queued_entry(
                query, stamp=self._stamp, input_id=new_input_id(), delivery="queue"
            )
            await self._recorder.commit([queued], consumed=consumed)
            return
        handle = self._new_handle(query)
        handle.stream.abandon()
        await self._admit(handle, delivery, consumed)

    async def _admit(
        self, handle: QueryHandle, delivery: Delivery, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Write a prompt down before anything else, then run it now or let it wait."""
        if self.busy:
            await self._let_wait(handle, delivery, consumed=consumed)
            return
        if delivery == "reject" and self._has_line:
            raise _busy()
        with self._claim():
            await self._recorder.resynchronise()
            self._adopt()
            await self._let_wait(
                handle,
                "interrupt" if delivery == "interrupt" else "queue",
                void=self._voided(),
                consumed=consumed,
            )
        if len(self._waiting) > 1 and has_approved_calls(self._recorder.fold):
            # What was approved runs before the prompts that waited for it. If its query comes to
            # rest on another approval, they make that void.
            carrying_on = resume_input(self._recorder.fold, ())
            self._start(self._unwatched(replace(carrying_on, gives_way=True)))
        else:
            self._start_next()

    async def _begin(self, handle: QueryHandle) -> None:
        """Run a query in an idle session."""
        with self._claim():
            await self._recorder.resynchronise()
            if handle.query.message is None:
                self._adopt(but=handle.query.input_id)
            elif self._recorder.fold.calls and (void := self._voided()):
                await self._recorder.commit(void)
                self._refuse_when_closed()
        self._start(handle)

    def _voided(self) -> list[Entry]:
        """Return the entries that end what a new prompt makes void."""
        waits = cancelled_waits(self._recorder.waits(), NEW_PROMPT, clock=self._stamp.clock)
        return [*self._approvals.cancellations(NEW_PROMPT), *waits]

    @contextmanager
    def _claim(self) -> Generator[None, None, None]:
        """Keep other queries from starting; what fails inside leaves the session as it was."""
        if self._refusal is not None:
            raise self._refusal()
        self.busy = True
        self._idle.clear()
        try:
            yield
        except BaseException:
            self._go_on_unless_resting()
            raise

    def _adopt(self, *, but: str | None = None) -> None:
        """Let the prompts that wait in the log alone wait here, before all others."""
        known = {but, *(item.input_id for item in self._waiting)}
        adopted = []
        for queued in self._recorder.waiting().values():
            if queued.input_id not in known:
                handle = self._unwatched(queued_input(queued))
                self._let_withdraw(handle, queued.input_id)
                adopted.append(handle)
        self._waiting.extendleft(reversed(adopted))  # `extendleft` turns the order around

    def _unwatched(self, query: QueryInput) -> QueryHandle:
        """Return the handle of a query whose submitter is not there any more."""
        handle = self._new_handle(query)
        handle.stream.abandon()
        handle.context = self._context.copy()
        return handle

    async def _let_wait(
        self,
        handle: QueryHandle,
        delivery: Delivery,
        *,
        void: Sequence[Entry] = (),
        consumed: Sequence[CommandId] = (),
    ) -> None:
        if delivery == "reject" or handle.query.message is None:
            raise _busy()
        input_id = new_input_id()
        self._let_withdraw(handle, input_id)
        first, running = delivery == "interrupt", self.current
        # In line before the append: a prompt that comes while the log is written is behind it.
        self._waiting.appendleft(handle) if first else self._waiting.append(handle)
        queued = queued_entry(handle.query, stamp=self._stamp, input_id=input_id, delivery=delivery)
        await self._record(handle, [*void, queued], consumed)
        if first and running is not None:
            running.abort("interrupted by a new prompt")

    def _let_withdraw(self, handle: QueryHandle, input_id: InputId) -> None:
        start = self._tasks.start
        handle.wait_in(input_id, lambda: start(self._withdraw(handle), name="haptera-withdraw"))

    async def _record(
        self, handle: QueryHandle, entries: Sequence[Entry], consumed: Sequence[CommandId]
    ) -> None:
        """Write a waiting prompt to the log; one that cannot be written does not wait."""
        try:
            await self._recorder.commit(entries, consumed=consumed)
        except asyncio.CancelledError:
            if not handle.stream.abandoned:  # a prompt that nothing waits for is the session's
                handle.abort("its caller gave up")
            raise
        except AgentError:
            if handle in self._waiting:
                self._waiting.remove(handle)
            raise

    async def drain(self) -> tuple[UserMessage, ...]:
        """Take every waiting prompt out and return them; callers that wait for one get ABORTED."""
        handles = self._queued()
        for item in handles:
            self._waiting.remove(item)
        await self._drain_entries(handles, "the queue was drained")
        known: set[str | None] = {item.input_id for item in self._waiting}  # they came meanwhile
        if self.current is not None:
            known.add(self.current.query.input_id)  # it may be about to leave the queue
        waiting = self._recorder.waiting().values()
        foreign = tuple(item for item in waiting if item.input_id not in known)
        if foreign:
            ids = [item.input_id for item in foreign]
            await self._recorder.commit(self._drained(ids, "drained"))
        messages = [item.query.message for item in handles] + [item.message for item in foreign]
        return tuple(item for item in messages if item is not None)

    @asynccontextmanager
    async def at_rest(self) -> AsyncGenerator[None, None]:
        """Let every prompt and every answer wait while the conversation itself is moved.

        Raises:
            SessionError: BUSY while a query runs.

        """
        if self.busy:
            raise SessionError(ErrorCode.BUSY, "the session is busy; abort or wait first")
        with self._claim():
            async with self._moving:
                await self._recorder.resynchronise()
                yield
        self._go_on_unless_resting()

    async def recover(self) -> None:
        """Go on after a move of the conversation; what waited before it may not wait any more.

        Also after the store failed, unless a query has yet to end because of it.
        """
        async with self._moving:
            if not self.busy:
                await self._recorder.resynchronise()

    def close(self, refusal: Callable[[], AgentError]) -> None:
        """Start nothing more, and fail the callers that wait; their prompts stay in the log."""
        self._refusal = refusal
        if self._waiting:
            self.refuse_waiting(refusal())

    def _refuse_when_closed(self) -> None:
        if self._refusal is not None:
            raise self._refusal()

    def refuse_waiting(self, error: AgentError) -> None:
        """Fail the callers that wait; their prompts stay in the log."""
        while self._waiting:
            finish_without_running(self._waiting.popleft(), error)

    async def wait_idle(self) -> None:
        """Wait until no query runs; raises BUSY when the one that runs waits for the caller."""
        refuse_waiting_for(self.current)
        await self._idle.wait()

    async def settle(self, *, within: float) -> None:
        """Let the running query end by itself for a while, then suspend it."""
        current = self.current
        if current is None:
            return
        ended = self._tasks.start(current.wait(), name="haptera-drain")
        await asyncio.wait({ended}, timeout=within)
        current.suspend("the session was closed")
        await current.wait()

    def _start(self, handle: QueryHandle) -> None:
        self.current = handle
        follows_cut = handle.query.resumes is None and bool(self._recorder.fold.unended)
        if not follows_cut:
            handle.detach = self._channel.attach(handle.stream)
        running = self._run(handle, follows_cut=follows_cut)
        self._tasks.start(running, name="haptera-driver", context=handle.context)

    async def _end_cut_off(self, handle: QueryHandle) -> None:
        """End in the log what was cut off, before this query's stream could take it for its end."""
        async with StoreTime(handle.stopped):
            with suppress(AgentError):  # a store that fails fails again when the query starts
                await self._recorder.end_cut_off(self._stamp.clock)
        handle.detach = self._channel.attach(handle.stream)

    async def _run(self, handle: QueryHandle, *, follows_cut: bool) -> None:
        try:
            if follows_cut:
                await self._end_cut_off(handle)
            await self._session.host.drive(self._session, handle)
        except BaseException as error:
            # A caller that waits for this query must get its end, also one that was not foreseen.
            failure = to_agent_error(error)
            finish_without_running(handle, failure)
            if isinstance(error, asyncio.CancelledError):
                self.refuse_waiting(failure)  # the event loop is ending: nothing can start in it
            if not isinstance(error, AgentError):
                raise
        finally:
            self.current = None
            handle.detach()
            self._go_on(handle)

    def _go_on(self, ended: QueryHandle) -> None:
        """Start the next query, after telling the steering prompts that went into this one."""
        if self._waiting:
            queued = set(self._queued())
            for joined in [item for item in self._waiting if item not in queued]:
                self._waiting.remove(joined)
                finish_like(joined, ended)
        resting = ended.result is not None and ended.result.stop_reason in RESTING
        if resting and not ended.query.gives_way:
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

    def _go_on_unless_resting(self) -> None:
        """Give the claim up: prompts behind a query that rests on an approval wait on."""
        if self._recorder.fold.is_resting():
            self._rest()
        else:
            self._start_next()

    def _rest(self) -> None:
        self.busy = False
        self._idle.set()

    async def _withdraw(self, handle: QueryHandle) -> None:
        """Take a waiting query out; nothing happens to one that runs.

        A steering prompt that has joined the running query stays in it: only its caller is told.
        """
        if handle in self._waiting:
            self._waiting.remove(handle)
            with suppress(AgentError):  # nothing waits for this; the next append gets the error
                async with StoreTime(handle.stopped):
                    await self._drain_entries([handle], "its caller gave up")

    def _queued(self) -> list[QueryHandle]:
        """Return the prompts that wait here and have not joined the running query."""
        queued = {None, *self._recorder.waiting()}  # once, however many prompts wait
        return [item for item in self._waiting if item.input_id in queued]

    def _drained(self, ids: Sequence[InputId], reason: str) -> list[InputDrained]:
        return [InputDrained(**self._stamp(), input_id=each, reason=reason) for each in ids]

    async def _drain_entries(self, handles: list[QueryHandle], reason: str) -> None:
        waiting = self._recorder.waiting()
        ids = [item.input_id for item in handles if item.input_id in waiting]
        drained = self._drained(ids, reason)
        try:
            if drained:
                await self._recorder.commit(drained)
        finally:
            for item in handles:
                error = RequestError(ErrorCode.ABORTED, f"not sent: {reason}")
                finish_without_running(item, error if item.stop is None else item.stop.error)


def _busy() -> SessionError:
    return SessionError(ErrorCode.BUSY, "the session is busy with another prompt")
