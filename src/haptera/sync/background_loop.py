"""The background loop: one event loop per process, which blocking callers share.

`BackgroundLoop` runs coroutines for any thread. `LoopAccess` is one agent's use of it, which ends
where the process forks.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent import futures
from typing import Any, Generic, TypeVar

from haptera.model.errors import AgentError, ErrorCode, SessionError, without_frames
from haptera.system.owned_tasks import OwnedTasks

ValueT = TypeVar("ValueT")

_CLEANUP_SECONDS = 20.0
"""How long an interrupted caller waits for the loop to clean up: longer than a session closes."""


class BackgroundLoop:
    """Runs coroutines on a loop in a daemon thread that starts with the first call.

    A thread does not come along when a process forks: the child starts a loop of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parents: list[asyncio.AbstractEventLoop | None] = []
        self.generation = 0
        """How many forks lie between the first process and this one."""

    def call(self, work: Coroutine[Any, Any, ValueT]) -> ValueT:
        """Run a coroutine to its end; an interrupt from the keyboard cancels it first."""
        loop = self.loop()
        if _is_inside(loop):
            # Otherwise Python warns that the coroutine was never awaited.
            work.close()
            raise RuntimeError(
                "a handler must not block its event loop; call this from another thread"
            )
        submitted = _Submitted(work)
        # The interrupt may come at any point, also before the loop has got the work.
        try:
            loop.call_soon_threadsafe(submitted.start)
            return submitted.outcome.result()
        except AgentError as error:
            # The frames are those of the other thread.
            raise without_frames(error) from error.__cause__
        except BaseException:
            # An interrupt, or `SystemExit`: the work goes on in the other thread unless it is
            # stopped.
            if not submitted.outcome.done():
                loop.call_soon_threadsafe(submitted.stop)
                futures.wait([submitted.outcome], timeout=_CLEANUP_SECONDS)
            raise

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, starting its thread if need be."""
        with self._lock:
            # Under the lock: two threads that call for the first time must not start two loops.
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="haptera-loop", daemon=True
                ).start()
            return self._loop

    def begin_anew(self) -> None:
        """Leave the loop to the parent of a fork."""
        # Kept as it is: taking it apart would reach into files that the parent still uses.
        self._parents.append(self._loop)
        self._loop = None
        self._lock = threading.Lock()  # no thread is left to release the other one
        self.generation += 1


class _Submitted(Generic[ValueT]):
    """One coroutine on its way through the loop. Its outcome is there when its cleanup is done."""

    def __init__(self, work: Coroutine[Any, Any, ValueT]) -> None:
        self._work = work
        self._task: asyncio.Task[ValueT] | None = None
        self.outcome: futures.Future[ValueT] = futures.Future()

    def start(self) -> None:
        """Begin, in the loop's thread."""
        self._task = OwnedTasks().start(self._work, name="haptera-blocking-call")
        self._task.add_done_callback(self._settle)

    def stop(self) -> None:
        """Cancel the work, in the loop's thread."""
        if self._task is not None:
            # The outcome is set by `_settle`, when the work has cleaned up.
            self._task.cancel()
        else:
            # `start` was never scheduled: the interrupt came before that.
            self._work.close()
            self._give_up()

    def _settle(self, task: "asyncio.Task[ValueT]") -> None:
        if task.cancelled():
            self._give_up()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())

    def _give_up(self) -> None:
        self.outcome.cancel()
        self.outcome.set_running_or_notify_cancel()  # the waiting caller is told by this alone


def _is_inside(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


# The one background loop: blocking callers of all agents share it.
background_loop = BackgroundLoop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=background_loop.begin_anew)


class LoopAccess:
    """One agent's use of the loop; its sessions and streams share it.

    It belongs to the process in which it is used first: connections, stores and tasks that were
    made through it stay there. In a child that was forked later every call raises, and closing
    does nothing, because it is the parent's to close. An agent that has not been used yet can be
    used in the child.
    """

    def __init__(self) -> None:
        self._generation: int | None = None

    def call(self, work: Coroutine[Any, Any, ValueT]) -> ValueT:
        """Run a coroutine to its end.

        Raises:
            SessionError: CLOSED in a child that was forked since the first call.

        """
        if not self._is_here():
            work.close()
            # Its agent lives in a loop whose thread does not exist in this process.
            raise SessionError(
                ErrorCode.CLOSED,
                "this was in use before the process forked; make an agent in the child",
            )
        return background_loop.call(work)

    def iterate(self, values: AsyncGenerator[ValueT, None]) -> Iterator[ValueT]:
        """Iterate over an async generator from here; leaving early closes it."""
        try:
            while True:
                try:
                    yield self.call(_next(values))
                except StopAsyncIteration:
                    return
        finally:
            self.close(values.aclose)

    def close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close something, unless it is the parent's."""
        if self._is_here():
            background_loop.call(close())

    def _is_here(self) -> bool:
        if self._generation is None:
            self._generation = background_loop.generation
        return self._generation == background_loop.generation


async def _next(values: AsyncGenerator[ValueT, None]) -> ValueT:
    # A task takes a coroutine, and what `anext` returns is only an awaitable.
    return await anext(values)
