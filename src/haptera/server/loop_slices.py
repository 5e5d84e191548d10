"""Slices of the event loop: how long it works in one go, without looking at any other client.

All clients wait meanwhile, so this tells whether a server keeps up, and whether one request holds
up the others. It is measured in CPU time: time in which the machine runs other programs is none of
the server's.
"""

import asyncio
import contextlib
import time
from collections.abc import Generator

_STEP = 0.01
"""Between two looks, in seconds. A slice is told at most this much too long, never too short."""
_MILLISECONDS = 1000
_BOUNDS = (25, 50, 100, 250, 1000)
"""Of how many milliseconds the longer ones are counted."""


class Durations:
    """The longest of some durations, and how many were long; in milliseconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.longer = dict.fromkeys(_BOUNDS, 0)
        """How many were longer than each bound."""

    def add(self, seconds: float) -> None:
        """Take one in."""
        duration = seconds * _MILLISECONDS
        self.longest = max(self.longest, duration)
        for bound in _BOUNDS:
            self.longer[bound] += duration > bound


class LoopSlices:
    """Looks at a timer, while requests are in progress, for how much work has delayed it."""

    def __init__(self) -> None:
        self.slices = Durations()
        """How long the event loop worked in one go."""
        self.delays = Durations()
        """How long it was kept from its work by any thread of the process, itself included.

        A thread that computes can keep the interpreter's lock for long.
        """
        self._in_progress = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def watched(self) -> Generator[None, None, None]:
        """Look while the block runs."""
        self._in_progress += 1
        if self._timer is None:
            self._look_again()
        try:
            yield
        finally:
            self._in_progress -= 1  # it looks once more: the last request may be what took long

    def _look_again(self) -> None:
        due, own, all_ = time.perf_counter() + _STEP, time.thread_time(), time.process_time()
        self._timer = asyncio.get_running_loop().call_later(_STEP, self._look, due, own, all_)

    def _look(self, due: float, own: float, all_: float) -> None:
        self._timer = None
        # What ran since the last look, but for what was over before this one was due.
        most = time.perf_counter() - due + _STEP
        self.slices.add(min(time.thread_time() - own, most))
        self.delays.add(min(time.process_time() - all_, most))
        if self._in_progress:
            self._look_again()


async def next_turn() -> None:
    """Let everything else that is ready have its turn."""
    is_over = asyncio.Event()
    asyncio.get_running_loop().call_soon(is_over.set)
    await is_over.wait()
