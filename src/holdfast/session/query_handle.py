"""QueryHandle: one query from the outside: its events, its result, and the way to stop it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from holdfast.blocks.event_stream import EventStream
from holdfast.engine.query_input import QueryInput
from holdfast.engine.scopes import QueryScope
from holdfast.vocabulary.errors import AgentError, ErrorCode, RequestError
from holdfast.vocabulary.ids import InputId
from holdfast.vocabulary.results import AgentResult


class QueryHandle:
    """A query that waits, runs or has ended.

    Owns the reason for stopping. `abort` may be called from any thread and any number of times;
    the first reason stands.
    """

    def __init__(
        self, query: QueryInput, *, buffer_size: int, total_timeout: float | None = None
    ) -> None:
        self.query = query
        self.total_timeout = total_timeout
        self.stream = EventStream(limit=buffer_size)
        self.input_id: InputId | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._worker: asyncio.Task[Any] | None = None
        self._scope: QueryScope | None = None
        self._ended = asyncio.Event()
        self._result: AgentResult[Any] | None = None
        self._error: AgentError | None = None
        self._withdraw: Callable[[], object] = lambda: None
        self.timer: asyncio.Task[None] | None = None
        """What counts its time, from when it was submitted until it ends."""
        self.stop_error: AgentError | None = None
        """Why the query was stopped from outside, if it was."""

    @property
    def ended(self) -> bool:
        """Whether the query is at rest."""
        return self._ended.is_set()

    @property
    def result(self) -> AgentResult[Any] | None:
        """What came of it, once it has ended."""
        return self._result

    @property
    def error(self) -> AgentError | None:
        """What it failed with, once it has ended."""
        return self._error

    def wait_in(self, input_id: InputId, withdraw: Callable[[], object]) -> None:
        """Note that it waits in a queue, and how to take it out when it is stopped there."""
        self.input_id, self._withdraw = input_id, withdraw

    def begin(self, worker: "asyncio.Task[Any]", scope: QueryScope) -> None:
        """Note who works on it now; a stop that came before takes effect at once."""
        self._worker, self._scope = worker, scope
        if self.stop_error is not None:
            self._stop_now()

    def abort(self, reason: str | None = None) -> None:
        """Stop the query; what was streamed is kept."""
        message = f"aborted: {reason}" if reason else "aborted"
        self._from_any_thread(RequestError(ErrorCode.ABORTED, message))

    def expire(self, seconds: float) -> None:
        """Stop the query because its time is up."""
        self._stop(RequestError(ErrorCode.TIMEOUT, f"the query took longer than {seconds:g} s"))

    def finish(self, result: AgentResult[Any], error: AgentError | None) -> None:
        """Note how it ended; the stream ends, too."""
        self._result, self._error = result, error
        self._worker = self._scope = None
        self._ended.set()
        if self.timer is not None:
            self.timer.cancel()

    async def wait(self) -> None:
        """Wait until it is at rest."""
        await self._ended.wait()

    def _from_any_thread(self, error: AgentError) -> None:
        if threading.get_ident() == self._thread:
            self._stop(error)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop, error)

    def _stop(self, error: AgentError) -> None:
        if self.stop_error is None and not self.ended:
            self.stop_error = error
            self._stop_now()

    def _stop_now(self) -> None:
        self.stream.release()
        if self._scope is not None:
            self._scope.abort.abort(self.stop_error.message if self.stop_error else None)
        if self._worker is not None:
            self._worker.cancel()
        else:
            self._withdraw()

    def promote(self) -> None:
        """Turn a waiting prompt into a query: its message is in the log already."""
        self.query = replace(self.query, message=None, input_id=self.input_id)
