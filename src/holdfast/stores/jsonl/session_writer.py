"""The writer of one session: holds its lease and appends to its log."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.ports.session_store import Lease, SessionRecord
from holdfast.stores.append_rules import (
    entries_to_store,
    fenced_error,
    refuse_other_sessions,
    updated_record,
)
from holdfast.stores.jsonl.content_files import finder_in, keep_content
from holdfast.stores.jsonl.file_lock import OPENING_PATIENCE_SECONDS, StillLockedError
from holdfast.stores.jsonl.folder import SessionFolder
from holdfast.stores.jsonl.lease_file import LeaseFile, LeaseText, read_lease
from holdfast.stores.jsonl.lines import encode_batch, encode_consumption
from holdfast.stores.jsonl.log_file import LogFile, read_from
from holdfast.stores.jsonl.quarantine import set_aside
from holdfast.stores.jsonl.scan import DamagedBytes, LogScan, entries_of, scan_log, unreadable_end
from holdfast.stores.lease_rules import (
    LEASE_SECONDS,
    NOT_WAITING,
    LinePosition,
    busy_error,
    is_lease_lost,
)
from holdfast.stores.private_files import replaced_file_error
from holdfast.stores.processes import (
    ProcessState,
    monotonic_seconds,
    parse_identity,
    process_state,
    this_process,
)
from holdfast.stores.stored_records import to_stored_entry
from holdfast.vocabulary.commands import CommandId
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.ids import EntryId, SessionId


class SessionWriter:
    """Appends to one log under one lease.

    Owns the lock file and what has to be known of the log to accept an append. One thread uses it.
    Every append holds the lock of the log and looks whether the lease is still its own, before it
    writes and again before it calls anything stored. Who acquires the lease holds the same lock.

    A process that is stopped inside an append keeps that lock, so its lease is taken without it:
    first the lock file is replaced, then the log, by a copy of it. Whatever the stopped process
    had stored by its own account is in the copy, because its second look came before the lock file
    was replaced; whatever it writes later is in a file without a name, and it hears that it was
    fenced. The files that take the place of others have names of their own, and who takes a lease
    removes those of all others, so that a takeover that was itself stopped can do nothing late.
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

    def acquire(self, *, above: int = 0, turn: LinePosition = NOT_WAITING) -> None:
        """Take the lease, with an epoch above all others, and make the log fit; raises BUSY."""
        self._process = str(this_process())
        is_stopped = self._is_holder_stopped()
        tickets = self._folder.all_in("waiting", self.session_id)
        turn.refuse_unless_first(self.session_id, tickets)
        if is_stopped:
            self._take_over(above)
            return
        try:
            with self._log.create(patience=OPENING_PATIENCE_SECONDS) as descriptor:
                lease = self._take_lock()
                with _dropped_on_error(lease):
                    said = lease.read()
                    # Others see who is at work here before the log has been read.
                    lease.write(self._claimed(said))
                    self._begin(lease, said, descriptor=descriptor, above=above)
        except StillLockedError:
            raise busy_error(self.session_id, "a process that opens or deletes it") from None

    def _is_holder_stopped(self) -> bool:
        """Look who holds the lease, without any lock; raises BUSY for one who keeps it."""
        try:
            lease = LeaseFile.open(self._folder.lease(self.session_id), create=False)
        except FileNotFoundError:
            return False
        try:
            said = lease.read() if lease.is_held() else LeaseText()
        finally:
            lease.close()
        return said.holder is not None and self._condition_of(said) == "stopped"

    def _take_over(self, above: int) -> None:
        """Take the lease of a stopped process, whatever locks it has."""
        path = self._folder.lease(self.session_id)
        try:
            old = LeaseFile.open(path, create=False)
            with contextlib.closing(old):
                said = old.read()
                if said.holder is None or self._condition_of(said) != "stopped":
                    raise busy_error(self.session_id, said.holder)
                lease = self._replaced_lock(said)
                with _dropped_on_error(lease):
                    # One that went on meanwhile may be about to remove its empty log.
                    is_gone_on = old.read() != said
                    fresh = self._fresh_file(".jsonl")
                    log = self._log.create() if is_gone_on else self._log.replace(fresh)
                    with log as descriptor:
                        self._begin(lease, said, descriptor=descriptor, above=above)
                        if not lease.is_in_place():
                            raise busy_error(self.session_id, read_lease(path).holder)
        except FileNotFoundError:
            # Another one was faster and has removed what was to take the place of the log.
            raise busy_error(self.session_id, read_lease(path).holder) from None

    def _begin(self, lease: LeaseFile, said: LeaseText, *, descriptor: int, above: int) -> None:
        """Make the log fit and say who writes it from now on."""
        scan = self._recover(descriptor, said)
        self._lease = lease
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
            # A process that was stopped while it wrote may have been taken over meanwhile.
            self._refuse_fenced(epoch, open_log if self._log.is_in_place() else None)
            self._note(fresh, consumed)
            # What is durable stays so; this only tells others how far it goes.
            with contextlib.suppress(OSError):
                self._say(self.holder)
        return self.record

    def fresh(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return what is not stored yet; raises CONFLICT for what may not be appended."""
        refuse_other_sessions(self.session_id, entries)
        places = (
            {place: entry_id for entry_id, place in self._places.items()}
            if (entries and entries[0].seq <= self._head)
            else {}
        )
        return entries_to_store(
            entries, head=self._head, id_at=places.get, is_stored=self._places.__contains__
        )

    def record_after(self, entries: Sequence[Entry]) -> SessionRecord | None:
        """Return what the index will say once these are appended."""
        return updated_record(self.record, entries)

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
                # Who takes over from a stopped process looks at these words after replacing the
                # file: either it sees them and waits for the log, or its file is seen here.
                if not os.fstat(descriptor).st_size and self._lease.is_in_place():
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
        self._condition_of(said)
        return self._replaced_lock(said)

    def _condition_of(self, said: LeaseText) -> ProcessState:
        """Return how a holder is that has lost its lease; raises BUSY for one that keeps it."""
        process = parse_identity(said.process)
        condition = process_state(process) if process else "alive"
        # The lock itself shows that a process we cannot see is alive: it is on this machine.
        condition = "alive" if condition == "unknown" else condition
        if not is_lease_lost(condition, expired=monotonic_seconds() >= said.until):
            raise busy_error(self.session_id, said.holder, process=process.pid if process else None)
        return condition

    def _replaced_lock(self, said: LeaseText) -> LeaseFile:
        """Replace the lock file, and keep those who were about to do the same from doing it."""
        fresh = self._fresh_file(".lock")
        path = self._folder.lease(self.session_id)
        lease = LeaseFile.replace(path, fresh, self._claimed(said))
        for other in self._folder.all_in("takeovers", self.session_id).values():
            other.unlink(missing_ok=True)
        return lease

    def _fresh_file(self, ending: str) -> Path:
        """Name a file that is to take the place of another one, unlike all other such names."""
        return self._folder.named("takeovers", self.session_id, secrets.token_hex(8) + ending)

    def _claimed(self, said: LeaseText) -> LeaseText:
        """Return the words of a lease with another holder."""
        until = monotonic_seconds() + self._lease_seconds
        return msgspec.structs.replace(said, holder=self.holder, process=self._process, until=until)

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
            kept = to_stored_entry(entry)
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
            raise fenced_error(self.session_id, now.holder)
        if descriptor is None:
            raise replaced_file_error(self._log.path)
        return descriptor

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
                    until=monotonic_seconds() + self._lease_seconds,
                    head=self._head,
                    record=self.record,
                )
            )


@contextlib.contextmanager
def _dropped_on_error(lease: LeaseFile) -> Iterator[None]:
    """Let go of a lock file that did not become the writer's own."""
    try:
        yield
    except BaseException:
        lease.close()
        raise
