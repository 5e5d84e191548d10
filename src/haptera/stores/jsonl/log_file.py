"""The log of a session as its writer uses it: durable appends, and repair after a crash.

An append is on the disk or was never there. The file is opened for each use, so that a thousand
live sessions need no descriptors here and no descriptor outlives an error.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from haptera.model.errors import ErrorCode, StoreError
from haptera.stores.jsonl.lines import (
    DamagedBytes,
    encode_append,
    encode_consumed,
    encode_quarantined,
)
from haptera.stores.jsonl.scan import LogScan, LostEnd, lost_at_end, scan_whole
from haptera.stores.stored_records import FindBlob
from haptera.system.atomic_files import create_folder, sync_folder, write_all
from haptera.system.private_files import (
    FILE_MODE,
    open_or_create,
    read_range,
    replaced_file_error,
    store_error_of,
)

_TO_APPEND = os.O_RDWR | os.O_APPEND


class LogFile:
    """Knows which file a log is and where its last whole append ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        self._inode: int | None = None
        """None until the first append of a new session makes the file."""
        self._is_clean = True
        """Whether the file holds nothing but whole, synced appends."""

    @contextlib.contextmanager
    def open(self) -> Iterator[int]:
        """Open the file under this name, which is the log from now on."""
        descriptor = open_log(self.path, _TO_APPEND)
        try:
            self._inode = os.fstat(descriptor).st_ino
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def copy(self, fresh: Path) -> Iterator[int]:
        """Copy the log, which may be missing, to a new file, and rename that to it at the end.

        What another process still writes to the old file then goes into a file without a name.
        """
        descriptor = open_or_create(fresh, _TO_APPEND)
        try:
            self._inode = os.fstat(descriptor).st_ino
            with contextlib.suppress(FileNotFoundError):
                old = open_log(self.path)
                try:
                    write_all(descriptor, read_range(old))
                finally:
                    os.close(old)
            yield descriptor
            # Synced before it gets the name: a power cut must not leave the name on half a log.
            os.fsync(descriptor)
            create_folder(self.path.parent)
            fresh.rename(self.path)
            sync_folder(self.path.parent)
        finally:
            os.close(descriptor)
            # After the rename this name is gone; after an error, the copy is of no use.
            fresh.unlink(missing_ok=True)

    def append(self, lines: bytes) -> None:
        """Write lines at the end and sync them, or leave the file as it was."""
        try:
            descriptor = self._open_own()
        except (FileNotFoundError, FileExistsError):
            raise replaced_file_error(self.path) from None
        try:
            if os.fstat(descriptor).st_ino != self._inode:
                raise replaced_file_error(self.path)
            self.append_to(descriptor, lines)
        finally:
            os.close(descriptor)

    def append_to(self, descriptor: int, lines: bytes) -> None:
        """Append to the open file."""
        size = os.fstat(descriptor).st_size
        if not self._is_clean:
            self._cut(descriptor, self.end)
        elif size != self.end:
            # Only the holder of the lease appends, so no other process may have made it longer.
            raise StoreError(
                ErrorCode.CONFLICT,
                f"{self.path} has {size} bytes instead of {self.end}: another program changed it",
            )
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

    def repair(
        self, descriptor: int, *, reached: int, find_blob: FindBlob, quarantine: Path
    ) -> LogScan:
        """Make the end fit for the next append, and return what is left of the log.

        What is cut off is copied to the quarantine first, durably. `reached` is the `seq` that the
        log is known to have had.
        """
        scan = scan_whole(descriptor, find_blob)
        if scan.torn is not None:
            _set_aside(descriptor, scan.torn, quarantine)
        # A log that lost whole lines at its end looks undamaged. Only the lock file knows of them.
        # There are no bytes to keep: `inspect` reports from the quarantine that they are missing.
        if scan.head < reached:
            _set_aside(descriptor, missing_end(scan, reached), quarantine)
        # Synced also where nothing is cut off: a writer that died may not have done so.
        self._cut(descriptor, scan.end)
        # The line is whole and was perhaps reported as stored; only its end is missing.
        if scan.is_unterminated:
            self.append_to(descriptor, b"\n")
        if not (lost := lost_at_end(scan)):
            return scan
        offset, seq = lost.lines[0].offset, lost.seq
        reason = f"the payload of entry {seq} is gone, and nothing after it can be read"
        _set_aside(descriptor, DamagedBytes(offset, self.end - offset, reason), quarantine)
        self._cut(descriptor, offset)
        self._append_again(descriptor, lost, head=scan_whole(descriptor, find_blob).head)
        return scan_whole(descriptor, find_blob)

    def is_at_its_path(self) -> bool:
        """Return whether the file under this name is the one that was opened or made."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return self._inode is None

    def _open_own(self) -> int:
        if self._inode is not None:
            return open_log(self.path, _TO_APPEND)
        create_folder(self.path.parent)
        # O_EXCL: a holder that has just lost the session does not write to the file of the next.
        descriptor = open_log(self.path, _TO_APPEND | os.O_CREAT | os.O_EXCL)
        self._inode = os.fstat(descriptor).st_ino
        sync_folder(self.path.parent)
        return descriptor

    def _append_again(self, descriptor: int, lost: LostEnd, *, head: int) -> None:
        """Write what can be read of an append that was cut off; consumed commands stay consumed.

        The append went as a whole, because its lines count those that follow.
        """
        epoch = lost.lines[-1].line.epoch
        consumed = [item for place in lost.lines for item in place.line.consumed]
        bodies = [
            (place.line.seq, bytes(place.line.entry))
            for place in lost.lines
            if place.line.has_entry and place.line.seq < lost.seq
        ]
        if bodies:
            self.append_to(descriptor, encode_append(bodies, epoch=epoch, consumed=consumed))
        elif consumed:
            self.append_to(descriptor, encode_consumed(consumed, head=head, epoch=epoch))

    def _cut(self, descriptor: int, end: int) -> None:
        """Make `end` the end of the log, durably."""
        if os.fstat(descriptor).st_size > end:
            os.ftruncate(descriptor, end)
        os.fsync(descriptor)
        self.end = end
        self._is_clean = True

    def _undo_append(self) -> None:
        """Remove what a failed append wrote.

        After a failed sync it is unknown which pages reached the disk, and a later sync of the
        same descriptor may succeed without writing them. So the file is opened again and cut back
        to what was synced. If that fails, too, the next append tries it before it writes. A file
        that has replaced this one belongs to another writer and is not touched.
        """
        with contextlib.suppress(OSError):
            fresh = open_log(self.path, os.O_RDWR)
            try:
                if os.fstat(fresh).st_ino == self._inode:
                    self._cut(fresh, self.end)
            finally:
                os.close(fresh)


def open_log(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a log and return its descriptor; raises FileNotFoundError."""
    # O_NOFOLLOW: a link that was put in the place of a log is refused.
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)


def missing_end(scan: LogScan, reached: int) -> DamagedBytes:
    """Describe the end of a log that had entries up to `reached`."""
    reason = f"the log ends with entry {scan.head}, but had reached {reached}"
    return DamagedBytes(scan.end, 0, reason)


def _set_aside(descriptor: int, damage: DamagedBytes, quarantine: Path) -> None:
    """Copy a piece of a log to its quarantine, durably."""
    content = read_range(descriptor, damage.offset, stop=damage.offset + damage.length)
    aside = open_or_create(quarantine, os.O_WRONLY | os.O_APPEND)
    try:
        write_all(aside, encode_quarantined(damage, content))
        os.fsync(aside)
    finally:
        os.close(aside)
