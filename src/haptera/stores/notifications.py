"""Wakes readers when a session changes: followers of a log, waiters for commands and leases.

A change made by this process wakes them at once. A change made by another process is found by
polling, which runs only while a reader waits.
"""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence

from haptera.model.errors import ErrorCode, SessionError
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import Command
from haptera.ports.session_store import SessionLog

LOCAL_POLL_SECONDS = 0.05
_PAGE = 256
"""The most entries that a follower of a log reads at once."""

Poll = Callable[[Collection[SessionId]], Collection[SessionId]]
"""Returns which of the watched sessions another process may have changed since the last call."""


class PeriodicThread:
    """Calls a function every `seconds` between `start` and `stop`, on a thread of its own.

    Owns the thread. Does not handle errors of the function: one that raises ends the thread.
    """

    def __init__(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self._name = name
        self._seconds = seconds
        self._call = call
        self._lock = threading.Lock()
        self._stopped: threading.Event | None = None

    def start(self) -> None:
        """Start the thread unless it runs already."""
        with self._lock:
            if self._stopped is None:
                # One event for each thread: a thread that was stopped stays so when another is
                # started.
                self._stopped = threading.Event()
                # A daemon, so that a program that never closes its store can still end.
                threading.Thread(
                    target=self._run, args=(self._stopped,), name=self._name, daemon=True
                ).start()

    def stop(self) -> None:
        """Make no more calls; does not wait for a call that is under way."""
        with self._lock:
            if self._stopped is not None:
                self._stopped.set()
                self._stopped = None

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._seconds):
            self._call()


class ChangeWaiter:
    """Waits on one event loop for changes of one session. A change between two waits is kept."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """End the wait, from any thread."""
        # The loop may have been closed meanwhile; then nothing waits on it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self, seconds: float | None = None) -> None:
        """Return after a change, or after `seconds` without one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()


class ChangeNotifier:
    """Knows who waits for changes of which session, on any number of event loops.

    Owns the waiters and the polling thread. Does not know what changed: a reader that is woken
    reads the session again.
    """

    def __init__(self, poll: Poll) -> None:
        self._poll = poll
        self._lock = threading.Lock()
        self._waiters: dict[SessionId, set[ChangeWaiter]] = {}
        self._polling = PeriodicThread("haptera-poll", LOCAL_POLL_SECONDS, self._poll_once)
        self.closed = False

    @contextlib.contextmanager
    def watch(self, session_id: SessionId) -> Iterator[ChangeWaiter]:
        """Wake the yielded waiter at every change of a session while the block runs."""
        waiter = ChangeWaiter(session_id)
        with self._lock:
            self._waiters.setdefault(session_id, set()).add(waiter)
            # Under the lock, so that the polling thread does not stop meanwhile without waiters.
            self._polling.start()
        try:
            yield waiter
        finally:
            self._remove(waiter)

    def notify(self, session_id: SessionId) -> None:
        """Wake every waiter of a session, from any thread."""
        with self._lock:
            waiters = tuple(self._waiters.get(session_id, ()))
        for waiter in waiters:
            waiter.wake()

    def close(self) -> None:
        """Stop polling and wake all waiters; each of them then sees `closed`."""
        self.closed = True
        self._polling.stop()
        for session_id in self._watched():
            self.notify(session_id)

    def _remove(self, waiter: ChangeWaiter) -> None:
        with self._lock:
            waiters = self._waiters[waiter.session_id]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[waiter.session_id]

    def _poll_once(self) -> None:
        with self._lock:
            if not self._waiters:
                # Not before: sessions that follow one another would each start a thread.
                self._polling.stop()
                return
        for session_id in self._poll(self._watched()):
            self.notify(session_id)

    def _watched(self) -> tuple[SessionId, ...]:
        with self._lock:
            return tuple(self._waiters)


async def follow_log(
    notifier: ChangeNotifier,
    log: SessionLog,
    *,
    session_id: SessionId,
    after: int,
    exists: Callable[[], Awaitable[bool]],
) -> AsyncGenerator[list[Entry], None]:
    """Yield entries after `after`, then those that are appended, until the store closes.

    Ends also when the session no longer `exists`. One that has never had entries may be created.
    """
    was_there = after > 0
    with notifier.watch(session_id) as waiter:
        while not notifier.closed:
            # Watched before it is read: what is appended after the read ends the next wait at once.
            if page := await log.read(session_id, after=after, limit=_PAGE):
                after, was_there = page[-1].seq, True
                yield page
            elif was_there and not await exists():
                return
            # A short page ends with the log. What is appended meanwhile ends the wait at once.
            if len(page) < _PAGE:
                await waiter.wait()


class NotifiedInbox(ABC):
    """Waits for the commands of an inbox whose notifier is told of each new one."""

    def __init__(self, notifier: ChangeNotifier) -> None:
        self._notifier = notifier

    @abstractmethod
    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Return the commands that are not consumed yet."""

    async def wait(self, session_id: SessionId, *, seen: Collection[CommandId] = ()) -> None:
        """Wait for a command that is not among those `seen`; CLOSED when the store closes."""
        with self._notifier.watch(session_id) as waiter:
            while all(command.id in seen for command in await self.pending(session_id)):
                if self._notifier.closed:
                    raise SessionError(ErrorCode.CLOSED, "the store was closed")
                await waiter.wait()
