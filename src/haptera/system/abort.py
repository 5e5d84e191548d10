"""Abort signals: a thread-safe way to stop work, and to learn that it is to stop."""

import asyncio
import threading
import weakref
from collections.abc import Callable

from haptera.model.errors import ErrorCode, RequestError
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)


class AbortSignal:
    """Tells whether work should stop, and calls listeners once when it should.

    Safe to use from any thread. A listener runs in the thread that aborts, and is forgotten
    afterwards; one that is added too late is called at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.aborted = False
        """Whether work should stop. Only for reading; a property would cost a call per delta."""
        self._reason: str | None = None
        self.suspends = False
        """Whether the work is to be carried on later: what it has begun gets no end."""
        self._listeners: dict[object, Callable[[], None]] = {}
        self._sources: tuple[AbortSignal, ...] = ()
        """The signals that this one follows; they live as long as it does."""

    @property
    def reason(self) -> str | None:
        """The reason, if one was given."""
        return self._reason

    @property
    def listener_count(self) -> int:
        """How many listeners are waiting; 0 after every query has ended."""
        return len(self._listeners)

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` once on abort; returns a function that removes it again."""
        key = object()

        def forget() -> None:
            # Needs no lock: `pop` of a dictionary is atomic.
            self._listeners.pop(key, None)

        with self._lock:
            if not self.aborted:
                self._listeners[key] = listener
                return forget
        # Outside the lock, which is not reentrant: a listener may use the signal.
        listener()
        return forget

    @staticmethod
    def timeout(seconds: float) -> "AbortSignal":
        """Return a signal that aborts itself after `seconds`."""
        signal = AbortSignal()
        expire = signal._stopper(f"timed out after {seconds:g} s")
        try:
            asyncio.get_running_loop().call_later(seconds, expire)
        except RuntimeError:
            # No event loop runs in this thread.
            timer = threading.Timer(seconds, expire)
            timer.daemon = True
            timer.start()
        return signal

    @staticmethod
    def any(*signals: "AbortSignal") -> "AbortSignal":
        """Return a signal that aborts when the first of `signals` does."""
        merged = AbortSignal()
        merged._sources = signals
        for signal in signals:
            forget = signal.add_listener(merged._stopper(signal))
            # A source may outlive many that follow it.
            weakref.finalize(merged, forget).atexit = False
        return merged

    def _abort(self, reason: str | None, *, suspends: bool = False) -> None:
        with self._lock:
            if self.aborted:
                return
            self.aborted, self.suspends = True, suspends
            self._reason = reason
            listeners = list(self._listeners.values())
            self._listeners.clear()
        # Outside the lock, too. One that fails must not keep the others from being told.
        for listener in listeners:
            try:
                listener()
            except Exception:
                _logger.exception("a listener to an abort failed")

    def _stopper(self, reason: "str | AbortSignal") -> Callable[[], None]:
        """Make a function that aborts this signal, without keeping it alive."""
        abort = weakref.WeakMethod(self._abort)

        def stop() -> None:
            if (alive := abort()) is None:
                return
            if isinstance(reason, str):
                alive(reason)
            else:
                alive(reason.reason, suspends=reason.suspends)

        return stop


class AbortController:
    """Aborts its `signal`, which is what others get to see."""

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: str | None = None, *, suspends: bool = False) -> None:
        """Abort the signal; a second call has no effect. `suspends`: to be carried on later."""
        abort = self.signal._abort  # noqa: SLF001 - only this module may abort a signal
        abort(reason, suspends=suspends)


async def until_aborted(signal: AbortSignal) -> None:
    """Wait until a signal says that work should stop, whichever thread aborts it."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        loop.call_soon_threadsafe(stopped.set)

    forget = signal.add_listener(stop)
    try:
        await stopped.wait()
    finally:
        forget()


def query_stopped() -> RequestError:
    """Make the error for work that goes on after its query was stopped."""
    return RequestError(ErrorCode.ABORTED, "the query was stopped")
