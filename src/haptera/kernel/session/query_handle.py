"""QueryHandle: one query from the outside: its events, its result, and the way to stop it."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple

from msgspec.structs import replace

from haptera.kernel.blocks.control_channel.subscription import Subscription
from haptera.model.errors import (
    AgentError,
    ErrorCode,
    RequestError,
    SessionError,
    without_frames,
)
from haptera.model.events import Event, StreamPhase
from haptera.model.ids import InputId, SessionId
from haptera.model.log.turns import PartStarted
from haptera.model.results import AgentResult
from haptera.ports.runner import QueryInput
from haptera.system.abort import AbortController, AbortSignal
from haptera.system.clock import Clock

# A weak reference: contexts are copied into tasks and threads that may outlive the query.
_worked_for: ContextVar["weakref.ref[QueryHandle] | None"] = ContextVar(
    "haptera_query", default=None
)
"""The query on whose behalf something runs: a tool, an approver, a hook, and what they start."""


_SUSPENDED = "the session was closed"


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
        total_timeout: float | None = None,
    ) -> None:
        self.query, self.session_id = query, session_id
        self.clock, self.submitted_at = clock, clock.now()
        self.waiting = waiting
        """What waits in its session's queue."""
        self.asker: QueryHandle | None = query_in_context()
        self.context = copy_context()
        """What the query runs in: a copy of its submitter's context."""
        self.gives_way = False
        """Whether approvals that it comes to rest on are void at once: prompts wait behind it."""
        self.total_timeout = total_timeout
        self.stream: Subscription[Event] = Subscription(limit=buffer_size)
        self.input_id: InputId | None = None
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._work: _Work | None = None
        self._ended = asyncio.Event()
        self._withdraw: Callable[[], object] = lambda: None
        self.phase: StreamPhase = "idle"
        """What its stream is doing."""
        self.detach: Callable[[], None] = lambda: None
        """Ends what its stream is told; while it does not run, nothing is."""
        self.timer: asyncio.Task[None] | None = None
        """What counts its time, from when it was submitted until it ends."""
        self.stop_error: AgentError | None = None
        """Why the query was stopped from outside, if it was."""
        self.suspends = False
        """Whether it was stopped to be carried on later, and so gets no end."""
        self.stopped: asyncio.Future[None] = self._loop.create_future()
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
        if self.stop_error is not None:
            self._stop_now()

    def see(self, events: Sequence[Event]) -> None:
        """Note by what was recorded whether the provider answers."""
        # A provider that answers is not looked for in every delta.
        if self.phase != "connected" and any(isinstance(event, PartStarted) for event in events):
            self.phase = "connected"

    def abort(self, reason: str | None = None) -> None:
        """Stop the query; what was streamed is kept."""
        message = f"aborted: {reason}" if reason else "aborted"
        self._from_any_thread(RequestError(ErrorCode.ABORTED, message))

    def suspend(self, reason: str) -> None:
        """Stop the query without an end; it is carried on when its session is open again."""
        if self.stop_error is None and not self.ended:
            self.suspends = True
            self._stop(RequestError(ErrorCode.ABORTED, f"suspended: {reason}; resume() goes on"))

    def follow(self, signal: AbortSignal) -> None:
        """Stop as a signal says, from any thread."""
        if not signal.suspends:
            self.abort(signal.reason)
        elif threading.get_ident() == self._thread:
            self.suspend(signal.reason or _SUSPENDED)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.suspend, signal.reason or _SUSPENDED)

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

    def _from_any_thread(self, error: AgentError) -> None:
        # At once in the thread of the loop, so that what follows `abort()` finds the query stopped.
        if threading.get_ident() == self._thread:
            self._stop(error)
        # With its loop every query has ended, and `call_soon_threadsafe` would raise.
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop, error)

    def _stop(self, error: AgentError) -> None:
        if self.stop_error is None and not self.ended:
            self.stop_error = error
            self.stopped.set_result(None)
            self._stop_now()

    def _stop_now(self) -> None:
        if self._work is None:
            # It still waits, or it was promoted and nothing works on it yet: `begin` stops it then.
            self._withdraw()
            return
        # The signal first: the recorder refuses from then on, whatever the worker does.
        message = self.stop_error.message if self.stop_error else None
        self._work.abort.abort(message, suspends=self.suspends)
        self._work.worker.cancel()

    def promote(self) -> None:
        """Turn a waiting prompt into a query: its message is in the log already."""
        self.query = replace(self.query, message=None, input_id=self.input_id)


def duration_ms_of(handle: QueryHandle) -> int:
    """Return how long a query has taken so far, from when it was submitted; 1 at least."""
    return max(1, int((handle.clock.now() - handle.submitted_at) * 1000))


def finish_without_running(handle: QueryHandle, error: AgentError) -> None:
    """End a query that never ran, or whose end could not be recorded."""
    result: AgentResult[object] = AgentResult(
        text="",
        stop_reason="aborted" if error.code is ErrorCode.ABORTED else "error",
        session_id=handle.session_id,
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
            prompts = (query, *query.waiting())
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
