"""The writer of one session: holds its lease and appends to its log."""

import contextlib
import os
from collections.abc import Sequence

from holdfast.ports.session_store import Lease, SessionRecord
from holdfast.stores.append_rules import fenced, fresh_entries, refuse_foreign
from holdfast.stores.big_entries import stored
from holdfast.stores.file_failures import vanished
from holdfast.stores.index_record import update_record
from holdfast.stores.jsonl.content_files import finder_in, keep_content
from holdfast.stores.jsonl.folder import SessionFolder
from holdfast.stores.jsonl.lease_file import LeaseFile, LeaseText, read_lease
from holdfast.stores.jsonl.lines import encode_batch, encode_consumption
from holdfast.stores.jsonl.log_file import LogFile, read_from
from holdfast.stores.jsonl.quarantine import set_aside
from holdfast.stores.jsonl.scan import DamagedBytes, LogScan, entries_of, scan_log, unreadable_end
from holdfast.stores.lease_rules import LEASE_SECONDS, held_already, may_be_replaced
from holdfast.stores.machine_clock import machine_seconds
from holdfast.stores.process_identity import condition_of, parse_identity, this_process
from holdfast.vocabulary.commands import CommandId
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.ids import EntryId, SessionId


class SessionWriter:
    """Appends to one log under one lease.

    Owns the lock file and what has to be known of the log to accept an append. One thread uses it.
    Every append holds the lock of the log and looks again whether the lease is still its own; a
    takeover holds the same lock, so nothing can come between the look and the write.
    """

    def __init__(
        self,
        folder: SessionFolder,
        session_id: SessionId,
        *,
        holder: str,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._folder = folder
        self._lease_seconds = lease_seconds
        self.session_id = session_id
        self.holder = holder
        self.epoch = 0
        self.record: SessionRecord | None = None
        self._head = 0
        self._places: dict[EntryId, int] = {}
        self._consumed: set[CommandId] = set()
        self._log = LogFile(folder.log(session_id))
        self._lease: LeaseFile | None = None
        self._process = ""

    @property
    def lease(self) -> Lease:
        """The lease as its holder knows it."""
        return Lease(session_id=self.session_id, holder=self.holder, epoch=self.epoch)

    def acquire(self, *, above: int = 0) -> None:
        """Take the lease, with an epoch above all others, and make the log fit; raises BUSY."""
        with self._log.create() as descriptor:
            lease = self._take_lock()
            try:
                said = lease.read()
                scan = self._recover(descriptor, said)
            except BaseException:
                lease.close()
                raise
            self._lease = lease
            self._process = str(this_process())
            self.epoch = max(said.epoch, above, *(found.line.epoch for found in scan.lines)) + 1
            self._say(self.holder)

    def is_current(self) -> bool:
        """Whether nobody took the lease or deleted the session."""
        with self._log.open() as descriptor:
            return descriptor is not None and self._is_mine(self.epoch)

    def acquire_again(self) -> None:
        """Take the lease a second time: whoever used it before is fenced."""
        with self._log.open() as descriptor:
            self._refuse_fenced(self.epoch, descriptor)
            self.epoch += 1
            self._say(self.holder)

    def append(
        self, epoch: int, entries: Sequence[Entry], consumed: Sequence[CommandId]
    ) -> SessionRecord | None:
        """Append, durably, what is not stored yet; returns the record after it."""
        with self._log.open() as descriptor:
            open_log = self._refuse_fenced(epoch, descriptor)
            fresh = self.fresh(entries)
            consumed = [item for item in consumed if item not in self._consumed]
            if fresh:
                lines = encode_batch(self._bodies(fresh), epoch=self.epoch, consumed=consumed)
            elif consumed:
                lines = encode_consumption(consumed, head=self._head, epoch=self.epoch)
            else:
                return self.record
            self._log.append(open_log, lines)
            self._refuse_vanished()
            self._note(fresh, consumed)
            # What is durable stays so; this only tells others how far it goes.
            with contextlib.suppress(OSError):
                self._say(self.holder)
        return self.record

    def fresh(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return what is not stored yet; raises CONFLICT for what may not be appended."""
        refuse_foreign(self.session_id, entries)
        places = (
            {place: entry_id for entry_id, place in self._places.items()}
            if (entries and entries[0].seq <= self._head)
            else {}
        )
        return fresh_entries(
            entries, head=self._head, id_at=places.get, is_stored=self._places.__contains__
        )

    def record_after(self, entries: Sequence[Entry]) -> SessionRecord | None:
        """Return what the index will say once these are appended."""
        record = self.record
        for entry in entries:
            record = update_record(record, entry)
        return record

    def renew(self, epoch: int) -> None:
        """Say that the holder is still there; raises FENCED."""
        with self._log.open() as descriptor:
            self._refuse_fenced(epoch, descriptor)
            self._say(self.holder)

    def release(self) -> None:
        """Give the lease up and leave no empty log behind."""
        if self._lease is None:
            return
        with self._log.open() as descriptor:
            if descriptor is not None and self._lease.is_in_place():
                self._say(None)
                if not os.fstat(descriptor).st_size:
                    self._log.path.unlink()
        self.drop()

    def drop(self) -> None:
        """Let go of the lock file, whatever it says."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _take_lock(self) -> LeaseFile:
        path = self._folder.lease(self.session_id)
        lease = LeaseFile.open(path)
        if lease.try_lock():
            return lease
        said = lease.read()
        lease.close()
        process = parse_identity(said.process)
        condition = condition_of(process) if process else "alive"
        # The lock itself shows that a process we cannot see is alive: it is on this machine.
        condition = "alive" if condition == "unknown" else condition
        if not may_be_replaced(condition, expired=machine_seconds() >= said.until):
            raise held_already(
                self.session_id, said.holder, process=process.pid if process else None
            )
        return self._replace_lock(said)

    def _replace_lock(self, said: LeaseText) -> LeaseFile:
        lease = LeaseFile.replace(self._folder.lease(self.session_id))
        lease.write(said)
        return lease

    def _recover(self, descriptor: int, said: LeaseText) -> LogScan:
        """Read the log, move a torn tail aside, and sync what a dead writer may have left."""
        content = read_from(descriptor)
        scan = scan_log(content)
        if scan.torn is not None:
            self._set_aside(scan.torn, content[scan.torn.offset :])
        if scan.head < said.head:
            reason = f"the log ends with entry {scan.head}, but had reached {said.head}"
            self._set_aside(DamagedBytes(scan.end, 0, reason), b"")
        self._log.settle(descriptor, scan.end)
        if scan.is_unterminated:
            self._log.append(descriptor, b"\n")
        scan = self._cut_unreadable_end(descriptor, scan)
        for found in scan.lines:
            self._consumed.update(found.line.consumed)
        self.record = said.record if scan.head else None
        self._note(entries_of(scan, finder_in(self._folder.blobs(self.session_id))), ())
        return scan

    def _cut_unreadable_end(self, descriptor: int, scan: LogScan) -> LogScan:
        """Set aside what cannot be read at the end; what it consumed stays consumed."""
        lost = unreadable_end(scan, finder_in(self._folder.blobs(self.session_id)))
        if lost is None:
            return scan
        content = read_from(descriptor, stop=scan.end)
        reason = f"the payload of entry {lost.seq} is gone, and nothing after it can be read"
        damage = DamagedBytes(lost.offset, scan.end - lost.offset, reason)
        self._set_aside(damage, content[lost.offset :])
        self._log.cut(descriptor, lost.offset)
        head, epoch = scan_log(content[: lost.offset]).head, scan.lines[-1].line.epoch
        if lost.kept:
            lines = encode_batch(lost.kept, epoch=epoch, consumed=lost.consumed)
            self._log.append(descriptor, lines)
        elif lost.consumed:
            lines = encode_consumption(lost.consumed, head=head, epoch=epoch)
            self._log.append(descriptor, lines)
        return scan_log(read_from(descriptor))

    def _bodies(self, entries: Sequence[Entry]) -> list[tuple[int, bytes]]:
        """Return what goes into the lines; what is too big for one is on the disk by then."""
        bodies = []
        for entry in entries:
            kept = stored(entry)
            if kept.content is not None:
                keep_content(self._folder.blobs(self.session_id), kept.name, kept.content)
            bodies.append((entry.seq, kept.body))
        return bodies

    def _set_aside(self, damage: DamagedBytes, content: bytes) -> None:
        set_aside(self._folder.quarantine(self.session_id), damage, content)

    def _note(self, entries: Sequence[Entry], consumed: Sequence[CommandId]) -> None:
        self.record = self.record_after(entries)
        for entry in entries:
            self._places[entry.id] = entry.seq
            self._head = entry.seq
        self._consumed.update(consumed)

    def _refuse_fenced(self, epoch: int, descriptor: int | None) -> int:
        if not self._is_mine(epoch):
            now = read_lease(self._folder.lease(self.session_id))
            raise fenced(self.session_id, now.holder)
        if descriptor is None:
            raise vanished(self._log.path)
        return descriptor

    def _refuse_vanished(self) -> None:
        """Refuse to call stored what went into a file that has lost its name meanwhile."""
        if not self._log.is_in_place():
            raise vanished(self._log.path)

    def _is_mine(self, epoch: int) -> bool:
        lease = self._lease
        return (
            lease is not None
            and epoch == self.epoch
            and lease.is_in_place()
            and lease.read().epoch == epoch
        )

    def _say(self, holder: str | None) -> None:
        if self._lease is not None:
            self._lease.write(
                LeaseText(
                    epoch=self.epoch,
                    holder=holder,
                    process=self._process if holder else "",
                    until=machine_seconds() + self._lease_seconds,
                    head=self._head,
                    record=self.record,
                )
            )
