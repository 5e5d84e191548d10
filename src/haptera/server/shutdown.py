"""Shutdown: lets responses that stream end as soon as the process is told to end.

A web server that gets SIGTERM waits for open responses before it tells an application to shut down.
So a stream that follows a session would keep the process for ever.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import FrameType
from typing import Any, TypeAlias, TypeVar

from haptera.system.owned_tasks import OwnedTasks

ValueT = TypeVar("ValueT")
SignalHandler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None
"""What `signal.getsignal` returns."""

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class _Listener:
    """Calls a function in its event loop at a signal, then what was called there before."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._before: dict[int, SignalHandler] = {}
        # One object, so that it is found again: each access makes another bound method.
        self._handler = self._handle
        with contextlib.suppress(ValueError):  # not in the main thread
            for number in _NUMBERS:
                before = signal.getsignal(number)
                signal.signal(number, self._handler)
                self._before[number] = before

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told)
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
        elif before is signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def stop(self) -> None:
        """Listen no more. Only the last one that listens can be taken out; others pass it on."""
        self._told = _nothing
        for number, before in self._before.items():
            if signal.getsignal(number) is self._handler and before is not None:
                signal.signal(number, before)


def when_told_to_end(on_signal: Callable[[], None]) -> Callable[[], None]:
    """Call `told` in this event loop when the process gets SIGTERM or SIGINT; returns the way out.

    What handled the signals before still does. Outside of the main thread, where Python handles no
    signals, nothing is called.
    """
    return _Listener(on_signal).stop


async def until_shutdown(values: AsyncIterator[ValueT]) -> AsyncGenerator[ValueT, None]:
    """Yield what an iterator yields, until the process is told to end.

    For responses of a web application that follow a session: `until_shutdown(session.events())`.
    """
    ended = asyncio.Event()
    stop = when_told_to_end(ended.set)
    try:
        async with OwnedTasks() as tasks:
            ending = tasks.start(_wait_for(ended), name="haptera-shutdown")
            while True:
                coming = tasks.start(_next_of(values), name="haptera-until-shutdown")
                await asyncio.wait({coming, ending}, return_when=asyncio.FIRST_COMPLETED)
                reached = coming.result() if coming.done() else ()
                if not reached:
                    return
                yield reached[0]
    finally:
        stop()
        if isinstance(values, AsyncGenerator):
            await values.aclose()


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def _next_of(values: AsyncIterator[ValueT]) -> tuple[ValueT, ...]:
    """Return the next value; nothing at the end, for a task cannot raise `StopAsyncIteration`."""
    async for value in values:
        return (value,)
    return ()


def _nothing() -> None:
    return
