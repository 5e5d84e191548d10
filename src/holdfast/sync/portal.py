"""Portal: one background event loop per process, and the way in for blocking callers."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")

_CLEANUP_SECONDS = 20.0
"""How long an interrupted caller waits for the loop to clean up: longer than a session closes."""


class Portal:
    """Runs coroutines on a loop in a daemon thread that starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, work: Coroutine[Any, Any, ValueT]) -> ValueT:
        """Run a coroutine to its end; an interrupt from the keyboard cancels it first."""
        loop = self.loop()
        if _is_inside(loop):
            work.close()
            raise RuntimeError("a handler cannot block the loop that it runs in; use a thread")
        ended = threading.Event()
        future: Future[ValueT] = asyncio.run_coroutine_threadsafe(_tell_end(work, ended), loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                # The future is cancelled at once, the work only when its cleanup is done.
                ended.wait(_CLEANUP_SECONDS)
            raise

    def iterate(self, values: AsyncGenerator[ValueT, None]) -> Iterator[ValueT]:
        """Iterate over an async generator from here; leaving early closes it."""
        try:
            while True:
                try:
                    yield self.call(_next(values))
                except StopAsyncIteration:
                    return
        finally:
            self.call(values.aclose())

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, starting its thread if need be."""
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="holdfast-loop", daemon=True
                ).start()
            return self._loop


def _is_inside(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _tell_end(work: Coroutine[Any, Any, ValueT], ended: threading.Event) -> ValueT:
    try:
        return await work
    finally:
        ended.set()


async def _next(values: AsyncGenerator[ValueT, None]) -> ValueT:
    return await anext(values)


# The one background loop: blocking callers of all agents share it.
portal = Portal()
