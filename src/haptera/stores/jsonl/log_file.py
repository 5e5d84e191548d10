"""The log of a session as its writer uses it: durable appends, and repair after a crash.

An append is on the disk or was never there. The file is opened for each use, so that a thousand
live sessions need no descriptors here and no descriptor outlives an error.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from haptera.model.errors import ErrorCode, StoreError
from haptera.stores.jsonl.folder import LOCK_TIMEOUT_SECONDS, descriptor_lock
from haptera.stores.jsonl.lines import (
    DamagedBytes,
    encode_append,
    encode_consumed,
    encode_quarantined,
)
from haptera.stores.jsonl.scan import (
    LogScan,
    WholeLog,
    find_unreadable_end,
    read_undamaged,
    scan_log,
    whole_log,
)
from haptera.stores.stored_records import FindBlob
from haptera.system.atomic_files import sync_folder, write_all
from haptera.system.private_files import (
    open_or_create,
    read_or_empty,
    read_range,
    store_error_of,
)


class LogFile:
    """Knows which file a log is and where its last whole append ends.

    `create`, `replace` and `open` yield a descriptor for the duration of a block. `create` and
    `open` hold the lock of the log meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        self._inode = 0
        self._is_clean = True
        """Whether the file holds nothing but whole, synced appends."""

    @contextlib.contextmanager
    def create(self, *, timeout: float = LOCK_TIMEOUT_SECONDS) -> Iterator[int]:
        """Open the file, creating it if it is missing."""
        while True:
            descriptor = open_or_create(self.path, os.O_RDWR | os.O_APPEND)
            try:
                with descriptor_lock(descriptor, self.path, timeout=timeout):
                    self._inode = os.fstat(descriptor).st_ino
                    # The process that had the lock before may have deleted the session.
                    if self.is_at_its_path():
                        yield descriptor
                        return
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def replace(self, fresh: Path) -> Iterator[int]:
        """Copy the log to a new file, without its lock, and rename that to the log at the end.

        What another process still writes to the old file then goes into a file without a name.
        """
        descriptor = open_or_create(fresh, os.O_RDWR | os.O_APPEND)
        try:
            self._inode = os.fstat(descriptor).st_ino
            write_all(descriptor, read_or_empty(self.path))
            yield descriptor
            # Synced before it gets the name: a power cut must not leave the name on half a log.
            os.fsync(descriptor)
            fresh.rename(self.path)
            sync_folder(self.path.parent)
        finally:
            os.close(descriptor)
            # After the rename this name is gone; after an error, the copy is of no use.
            fresh.unlink(missing_ok=True)

    @contextlib.contextmanager
    def open(self) -> Iterator[int | None]:
        """Open the file that was created or replaced before; None when it is gone."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            yield None
            return
        try:
            with descriptor_lock(descriptor, self.path):
                # Compared under the lock: the file may have been deleted or replaced while it was
                # waited for.
                is_same = os.fstat(descriptor).st_ino == self._inode and self.is_at_its_path()
                yield descriptor if is_same else None
        finally:
            os.close(descriptor)

    def append(self, descriptor: int, lines: bytes) -> None:
        """Write lines at the end and sync them, or leave the file as it was."""
        self._clean_up(descriptor)
        try:
            write_all(descriptor, lines)
            # This syncs the new size, too: only times and modes are left out.
            os.fdatasync(descriptor)
        except OSError as error:
            # Set first: it stays False if undoing fails, and then the next append cuts the file
            # back.
            self._is_clean = False
            self._undo_append()
            raise store_error_of(error, self.path) from error
        self.end += len(lines)

    def settle(self, descriptor: int, end: int) -> None:
        """Make `end` the end of the log, durably: a writer that died may not have synced."""
        if os.fstat(descriptor).st_size > end:
            self.cut(descriptor, end)
        else:
            os.fsync(descriptor)
            self.end = end

    def cut(self, descriptor: int, end: int) -> None:
        """Remove everything from `end` on, durably."""
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
        self.end = end
        self._is_clean = True

    def is_at_its_path(self) -> bool:
        """Return whether the file under this name is the one that was opened."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _clean_up(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if not self._is_clean:
            self.cut(descriptor, self.end)
        elif size != self.end:
            # Only the holder of the lease appends, so no other process may have made it longer.
            raise StoreError(
                ErrorCode.CONFLICT,
                f"{self.path} has {size} bytes instead of {self.end}: another program changed it",
            )

    def _undo_append(self) -> None:
        """Remove what a failed append wrote.

        After a failed sync it is unknown which pages reached the disk, and a later sync of the
        same descriptor may succeed without writing them. So the file is opened again and cut back
        to what was synced. If that fails, too, the next append tries it before it writes. A file
        that has replaced this one belongs to another writer and is not touched.
        """
        with contextlib.suppress(OSError):
            fresh = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if os.fstat(fresh).st_ino == self._inode:
                    self.cut(fresh, self.end)
            finally:
                os.close(fresh)


class LogRepair:
    """Makes the end of a log fit for the next append.

    What is cut off is copied to the quarantine first, durably.
    """

    def __init__(self, log: LogFile, descriptor: int, *, quarantine: Path) -> None:
        self._log = log
        self._descriptor = descriptor
        self._quarantine_path = quarantine

    def repair(self, *, reached: int, find_blob: FindBlob) -> WholeLog:
        """Cut off a torn tail, sync what a dead writer may have left, and return what is left.

        `reached` is the `seq` that the log is known to have had.
        """
        log = read_undamaged(self._descriptor)
        # A log that lost whole lines at its end looks undamaged. Only the lock file knows of them.
        if log is not None and log.head >= reached:
            self._log.settle(self._descriptor, log.end)
            return log
        content = read_range(self._descriptor)
        scan = scan_log(content)
        if scan.torn is not None:
            self._quarantine(scan.torn, content[scan.torn.offset :])
        if scan.head < reached:
            reason = f"the log ends with entry {scan.head}, but had reached {reached}"
            # There are no bytes to keep: `inspect` reports from this line that entries are missing.
            self._quarantine(DamagedBytes(scan.end, 0, reason), b"")
        self._log.settle(self._descriptor, scan.end)
        # The line is whole and was perhaps reported as stored; only its end is missing.
        if scan.is_unterminated:
            self._log.append(self._descriptor, b"\n")
        return whole_log(self._cut_unreadable_end(scan, find_blob), find_blob)

    def _cut_unreadable_end(self, scan: LogScan, find_blob: FindBlob) -> LogScan:
        """Cut off entries at the end whose blobs are gone; consumed commands stay consumed."""
        lost = find_unreadable_end(scan, find_blob)
        if lost is None:
            return scan
        content = read_range(self._descriptor, stop=scan.end)
        reason = f"the payload of entry {lost.seq} is gone, and nothing after it can be read"
        damage = DamagedBytes(lost.offset, scan.end - lost.offset, reason)
        self._quarantine(damage, content[lost.offset :])
        # The append goes as a whole, because its lines count those that follow. What of it can be
        # read is written again as an append of its own.
        self._log.cut(self._descriptor, lost.offset)
        head, epoch = scan_log(content[: lost.offset]).head, scan.lines[-1].line.epoch
        if lost.kept:
            lines = encode_append(lost.kept, epoch=epoch, consumed=lost.consumed)
            self._log.append(self._descriptor, lines)
        elif lost.consumed:
            lines = encode_consumed(lost.consumed, head=head, epoch=epoch)
            self._log.append(self._descriptor, lines)
        return scan_log(read_range(self._descriptor))

    def _quarantine(self, damage: DamagedBytes, content: bytes) -> None:
        descriptor = open_or_create(self._quarantine_path, os.O_WRONLY | os.O_APPEND)
        try:
            write_all(descriptor, encode_quarantined(damage, content))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
