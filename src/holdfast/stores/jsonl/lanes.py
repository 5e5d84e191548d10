"""Threads that do a store's work on files, so that no event loop waits for a disk."""

import asyncio
import contextlib
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from holdfast.stores.processes import ForkGuard
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import SessionId

T = TypeVar("T")

# Syncs of several files at once share one commit of the file system's journal: four threads write
# 64 logs eight times as fast as one does, and more threads gain nothing.
WRITERS = 4
READERS = 4


class Lanes:
    """Each session's writes happen on one thread, in order; reads happen beside them."""

    def __init__(self) -> None:
        self._writers = [
            ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-write")
            for _ in range(WRITERS)
        ]
        self._readers = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="holdfast-read")
        self._fork_guard = ForkGuard()
        self._is_closed = False

    async def write(self, session_id: SessionId, work: Callable[[], T]) -> T:
        """Do something on the thread that writes this session."""
        return await asyncio.wrap_future(self.ask(session_id, work))

    def ask(self, session_id: SessionId, work: Callable[[], T]) -> "Future[T]":
        """Ask for something to be done on the thread that writes this session."""
        self._refuse_closed()
        return self._lane_of(session_id).submit(work)

    def submit(self, session_id: SessionId, work: Callable[[], object]) -> None:
        """Do something on the thread that writes this session, some time, from any thread."""
        # A lane that was closed meanwhile has nobody left to do it for.
        with contextlib.suppress(RuntimeError):
            self._lane_of(session_id).submit(work)

    async def read(self, work: Callable[[], T]) -> T:
        """Do something that changes nothing."""
        self._refuse_closed()
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def close(self, parting: Callable[[], None]) -> None:
        """Finish what was begun, do the last thing, and end the threads."""
        self._fork_guard.refuse_forks()
        if self._is_closed:
            return
        self._is_closed = True
        for lane in self._writers:
            await asyncio.get_running_loop().run_in_executor(lane, lambda: None)
        await asyncio.get_running_loop().run_in_executor(self._readers, parting)
        for pool in (*self._writers, self._readers):
            pool.shutdown()

    def _lane_of(self, session_id: SessionId) -> ThreadPoolExecutor:
        return self._writers[zlib.crc32(session_id.encode()) % WRITERS]

    def _refuse_closed(self) -> None:
        self._fork_guard.refuse_forks()
        if self._is_closed:
            raise SessionError(ErrorCode.CLOSED, "the store is closed")
