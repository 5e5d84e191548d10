"""WriterThread: one thread that writes what was asked for meanwhile as groups, in order."""

import asyncio
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from haptera.model.errors import ErrorCode, StoreError
from haptera.stores.stored_records import closed_error
from haptera.system.processes import ForkGuard

WriteT = TypeVar("WriteT")


class WriterThread(ABC, Generic[WriteT]):
    """Owns the thread of a writer, and what waits for it. Does not know what a write is."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="haptera-write")
        # Over what waits and whether it is closed: callers are on any number of event loops and
        # threads.
        self._lock = threading.Lock()
        self._waiting: list[WriteT] = []
        self._fork_guard = ForkGuard()
        self._is_closed = False

    @abstractmethod
    def _write_waiting(self) -> None:
        """Write what `_take_waiting` returns, which may be nothing, in the thread of the writer.

        Every write of it is settled, whatever happens to another one.
        """

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connection, in the thread of the writer."""

    async def close(self) -> None:
        """Finish the work that was asked for, then end the thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        # The thread works in order, so this comes after every write that was accepted.
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown()

    def _enqueue(self, write: WriteT) -> None:
        """Let a write wait for its turn, from any thread.

        Raises:
            SessionError: CLOSED.
            StoreError: UNAVAILABLE when the system has no thread for it.

        """
        self._fork_guard.refuse_forks()
        with self._lock:
            if self._is_closed:
                raise closed_error()
            # The task takes all that waits when it runs, so the first one that waits asks for it.
            if not self._waiting:
                self._ask_for_thread()
            # Last: what waits without a task would wait for ever, and all that comes later as well.
            self._waiting.append(write)

    def _ask_for_thread(self) -> None:
        try:
            self._thread.submit(self._write_waiting)
        # Raised when the system starts no more threads, and once the interpreter is shutting down.
        except RuntimeError as error:
            message = f"the store has no thread to write with: {error}"
            raise StoreError(ErrorCode.UNAVAILABLE, message) from error

    def _take_waiting(self) -> list[WriteT]:
        """Return the writes that wait; what is asked for from now on waits for the next call."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting
