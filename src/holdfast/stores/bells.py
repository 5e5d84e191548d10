"""Bells: tell waiting readers, on any event loop, that something of a session changed."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Iterator

from holdfast.stores.ticker import Ticker
from holdfast.vocabulary.ids import SessionId

POLL_SECONDS = 0.05

Poll = Callable[[Collection[SessionId]], Collection[SessionId]]
"""Returns which of the watched sessions may have changed by the hand of another process."""


class Bell:
    """One waiter's bell. A ring between two waits is not lost."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the waiter, from any thread."""
        # A loop that is closed has nobody left to wake.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float | None = None) -> None:
        """Return after a ring, or after `seconds` without one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


class Bells:
    """All bells of a store.

    Rings at once for changes of this process, and polls for those of others while anybody waits.
    Does not know what changed: whoever is woken looks.
    """

    def __init__(self, poll: Poll) -> None:
        self._poll = poll
        self._lock = threading.Lock()
        self._hung: dict[SessionId, set[Bell]] = {}
        self._ticker = Ticker("holdfast-poll", POLL_SECONDS, self._look)
        self.closed = False

    @contextlib.contextmanager
    def hang(self, session_id: SessionId) -> Iterator[Bell]:
        """Hang up a bell for as long as the caller waits for changes of a session."""
        bell = Bell(session_id)
        with self._lock:
            self._hung.setdefault(session_id, set()).add(bell)
        self._ticker.start()
        try:
            yield bell
        finally:
            self._take_down(bell)

    def ring(self, session_id: SessionId) -> None:
        """Wake everyone who waits for this session."""
        with self._lock:
            bells = tuple(self._hung.get(session_id, ()))
        for bell in bells:
            bell.ring()

    def close(self) -> None:
        """Wake everyone for the last time."""
        self.closed = True
        self._ticker.stop()
        self._ring_all()

    def _take_down(self, bell: Bell) -> None:
        with self._lock:
            bells = self._hung[bell.session_id]
            bells.discard(bell)
            if not bells:
                del self._hung[bell.session_id]
            if not self._hung:
                self._ticker.stop()

    def _look(self) -> None:
        with self._lock:
            watched = tuple(self._hung)
        for session_id in self._poll(watched):
            self.ring(session_id)

    def _ring_all(self) -> None:
        with self._lock:
            watched = tuple(self._hung)
        for session_id in watched:
            self.ring(session_id)
