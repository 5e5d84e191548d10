"""A thread that does one small thing again and again, while somebody needs it."""

import threading
from collections.abc import Callable


class Ticker:
    """Calls `tick` every `seconds` between `start` and `stop`.

    Owns the thread. Does not own what happens in a tick: a tick that raises ends the thread, so
    it deals with its own errors.
    """

    def __init__(self, name: str, seconds: float, tick: Callable[[], None]) -> None:
        self._name = name
        self._seconds = seconds
        self._tick = tick
        self._lock = threading.Lock()
        self._stopped: threading.Event | None = None

    def start(self) -> None:
        """Begin to tick, unless it ticks already."""
        with self._lock:
            if self._stopped is None:
                self._stopped = threading.Event()
                threading.Thread(
                    target=self._tick_until, args=(self._stopped,), name=self._name, daemon=True
                ).start()

    def stop(self) -> None:
        """Cease to tick; does not wait for a tick under way."""
        with self._lock:
            if self._stopped is not None:
                self._stopped.set()
                self._stopped = None

    def _tick_until(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._seconds):
            self._tick()
