"""What the ports of a jsonl store share: its folder, threads, readers and held leases."""

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from haptera.model.ids import SessionId
from haptera.stores.jsonl.folder import SessionFolder
from haptera.stores.jsonl.reader import SessionReader
from haptera.stores.jsonl.session_writer import SessionWriter
from haptera.stores.notifications import ChangeNotifier
from haptera.stores.stored_records import closed_error
from haptera.system.processes import ForkGuard

T = TypeVar("T")

# Syncs of several files at once share one commit of the file system's journal: four threads write
# 64 logs eight times as fast as one does, and more threads gain nothing.
WRITERS = 4
READERS = 4


class WorkerThreads:
    """Runs the store's work on files, so that no event loop waits for a disk.

    All writes to one session run on one thread, in order. Reads run beside them on other threads.
    """

    def __init__(self) -> None:
        self._writers = [
            ThreadPoolExecutor(max_workers=1, thread_name_prefix="haptera-write")
            for _ in range(WRITERS)
        ]
        self._readers = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="haptera-read")
        self._fork_guard = ForkGuard()
        self._is_closed = False

    async def write(self, session_id: SessionId, work: Callable[[], T]) -> T:
        """Run work on the thread that writes this session and return its outcome."""
        return await asyncio.wrap_future(self.submit(session_id, work))

    def submit(self, session_id: SessionId, work: Callable[[], T]) -> "Future[T]":
        """Start work on the thread that writes this session; raises CLOSED after closing."""
        self._refuse_closed()
        return self._writer_of(session_id).submit(work)

    def submit_unless_closed(self, session_id: SessionId, work: Callable[[], object]) -> None:
        """Start work on the thread that writes this session; does nothing after closing."""
        # The executor raises it once it was shut down. A renewal may come at that moment.
        with contextlib.suppress(RuntimeError):
            self._writer_of(session_id).submit(work)

    async def read(self, work: Callable[[], T]) -> T:
        """Run work that changes nothing and return its outcome."""
        self._refuse_closed()
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def close(self, last_work: Callable[[], None]) -> None:
        """Finish what was begun, run `last_work`, and end the threads."""
        self._fork_guard.refuse_forks()
        if self._is_closed:
            return
        # First, so that nothing can be asked for behind the last piece of work of each thread.
        self._is_closed = True
        for writer in self._writers:
            # A thread works in order, so this returns when all work that was asked for is done.
            await asyncio.get_running_loop().run_in_executor(writer, lambda: None)
        await asyncio.get_running_loop().run_in_executor(self._readers, last_work)
        for pool in (*self._writers, self._readers):
            pool.shutdown()

    def _writer_of(self, session_id: SessionId) -> ThreadPoolExecutor:
        return self._writers[zlib.crc32(session_id.encode()) % WRITERS]

    def _refuse_closed(self) -> None:
        self._fork_guard.refuse_forks()
        if self._is_closed:
            raise closed_error()


class JsonlResources:
    """The folder, the threads and the leases of one store; nothing is read or written yet."""

    def __init__(self, root: Path, *, lease_seconds: float) -> None:
        self.folder = SessionFolder(root)
        self.reader = SessionReader(self.folder)
        self.threads = WorkerThreads()
        self.notifier = ChangeNotifier(FileSizes(self.folder.log).changed)
        """Wakes those who wait for entries or a lease."""
        self.inbox_notifier = ChangeNotifier(FileSizes(self.folder.inbox).changed)
        """Wakes those who wait for commands. Every holder of a session does, so entries must not
        wake them."""
        self.lease_seconds = lease_seconds
        self.writers: dict[SessionId, SessionWriter] = {}
        """By session; only the thread that writes a session uses its writer."""
        self.deleted_epochs: dict[SessionId, int] = {}
        """The last epoch of sessions that were deleted while held here: it must not come again."""
        self.tickets: set[Path] = set()
        """The files of callers of this store that wait for a lease."""

    def remove_ticket(self, path: Path) -> None:
        """Remove the ticket of a caller of this store; a file that stays behind is no error."""
        self.tickets.discard(path)
        with contextlib.suppress(OSError):
            path.unlink()


class FileSizes:
    """Detects appends by other processes, by the sizes of files."""

    def __init__(self, path_of: Callable[[SessionId], Path]) -> None:
        self._path_of = path_of
        self._seen: dict[SessionId, int] = {}

    def changed(self, watched: Collection[SessionId]) -> list[SessionId]:
        """Return the watched sessions whose file has another size than at the last call."""
        # A session that was not watched before counts as changed: it may have grown before it was.
        now = {session_id: _size(self._path_of(session_id)) for session_id in watched}
        changed = [
            session_id for session_id, size in now.items() if self._seen.get(session_id) != size
        ]
        self._seen = now
        return changed


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    # Not 0: the end of an empty log has to wake its followers, too.
    return -1
