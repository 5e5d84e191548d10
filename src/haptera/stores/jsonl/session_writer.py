"""The writer of one session: holds its lease and appends to its log."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from haptera.model.ids import EntryId, SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Lease, SessionRecord
from haptera.stores.append_rules import (
    entries_to_store,
    fenced_error,
    refuse_other_sessions,
    updated_record,
)
from haptera.stores.jsonl.folder import (
    OPENING_LOCK_TIMEOUT_SECONDS,
    SessionFolder,
    StillLockedError,
    blob_finder,
    save_blob,
)
from haptera.stores.jsonl.lines import encode_append, encode_consumed
from haptera.stores.jsonl.lock_file import LeaseState, LockFile, read_lease_state
from haptera.stores.jsonl.log_file import LogFile, LogRepair
from haptera.stores.jsonl.scan import WholeLog
from haptera.stores.lease_rules import (
    LOCAL_LEASE_SECONDS,
    NOT_WAITING,
    LinePosition,
    busy_error,
    is_lease_lost,
)
from haptera.stores.stored_records import to_stored_entry
from haptera.system.private_files import replaced_file_error
from haptera.system.processes import (
    ProcessState,
    monotonic_seconds,
    parse_identity,
    process_state,
    this_process,
)


class SessionWriter:
    """Appends to one log under one lease.

    Owns the lock file and what must be known of the log to accept an append. One thread uses it.
    Every append holds the lock of the log and checks that the lease is still its own: before it
    writes, and again before it reports anything as stored. A process that acquires the lease holds
    the lock of the log, too.

    A process that is stopped inside an append keeps the lock of the log, so its lease is taken
    without that lock. First the lock file is replaced, then the log, by a copy of it. The copy has
    everything that the stopped process reported as stored, because its second check came before
    the lock file was replaced. What it writes when it continues goes into a file without a name,
    and it gets FENCED. The files that replace others have unique names, and a process that takes a
    lease removes those of all others, so a takeover that was itself stopped cannot finish late.
    """

    def __init__(
        self,
        folder: SessionFolder,
        session_id: SessionId,
        *,
        holder: str,
        lease_seconds: float = LOCAL_LEASE_SECONDS,
    ) -> None:
        self._folder = folder
        self._lease_seconds = lease_seconds
        self.session_id = session_id
        self.holder = holder
        self.epoch = 0
        self.record: SessionRecord | None = None
        self._head = 0
        self._seqs: dict[EntryId, int] = {}
        self._consumed: set[CommandId] = set()
        self._unread: list[Entry] | None = None
        self._log = LogFile(folder.log(session_id))
        self._lock: LockFile | None = None
        self._process = ""

    @property
    def lease(self) -> Lease:
        """The lease as its holder gets it."""
        return Lease(session_id=self.session_id, holder=self.holder, epoch=self.epoch)

    def acquire(self, *, above: int = 0, position: LinePosition = NOT_WAITING) -> None:
        """Take the lease, with an epoch above all earlier ones, and repair the end of the log.

        Raises:
            SessionError: BUSY when another holder keeps the lease, or comes first in line.

        """
        self._process = str(this_process())
        # Before any lock is waited for: a holder that is stopped inside an append keeps that of the
        # log.
        is_stopped = self._is_holder_stopped()
        # Only now: who is first in line counts once no holder keeps the lease.
        tickets = self._folder.side_files("waiting", self.session_id)
        position.refuse_unless_first(self.session_id, tickets)
        if is_stopped:
            self._take_over(above)
            return
        try:
            with self._log.create(timeout=OPENING_LOCK_TIMEOUT_SECONDS) as descriptor:
                lock = self._take_lock()
                with _closed_on_error(lock):
                    before = lock.read()
                    # Written first, so that others see the holder while the log is being read.
                    lock.write(self._claimed(before))
                    self._begin(lock, before, descriptor=descriptor, above=above)
        except StillLockedError:
            raise busy_error(self.session_id, "a process that opens or deletes it") from None

    def acquire_again(self) -> None:
        """Take the lease a second time for the same holder: its earlier lease is fenced."""
        with self._log.open() as descriptor:
            self._refuse_fenced(self.epoch, descriptor)
            self.epoch += 1
            try:
                self._write_state(self.holder)
            except OSError:
                # No caller got a lease of the new epoch. Under it, the release of the earlier lease
                # would end nothing.
                self.epoch -= 1
                raise

    def is_current(self) -> bool:
        """Return whether the lease was not taken over and the session not deleted."""
        with self._log.open() as descriptor:
            return descriptor is not None and self._is_mine(self.epoch)

    def append(
        self, epoch: int, entries: Sequence[Entry], consumed: Sequence[CommandId]
    ) -> SessionRecord | None:
        """Append what is not stored yet, durably, and return the session's record after it."""
        with self._log.open() as descriptor:
            open_log = self._refuse_fenced(epoch, descriptor)
            fresh = self.fresh(entries)
            consumed = [item for item in consumed if item not in self._consumed]
            if fresh:
                lines = encode_append(self._bodies(fresh), epoch=self.epoch, consumed=consumed)
            elif consumed:
                lines = encode_consumed(consumed, head=self._head, epoch=self.epoch)
            else:
                return self.record
            self._log.append(open_log, lines)
            # A process that was stopped while it wrote may have been taken over meanwhile.
            self._refuse_fenced(epoch, open_log if self._log.is_at_its_path() else None)
            self._note(fresh, consumed)
            # The append is durable already: this only tells others how far the log reaches.
            with contextlib.suppress(OSError):
                self._write_state(self.holder)
        return self.record

    def take_unread(self) -> list[Entry] | None:
        """Return the whole log as it was read for the lease, once and unless it has grown since.

        A session that is opened is read next, and need not be read and decoded twice.
        """
        entries, self._unread = self._unread, None
        return entries

    def fresh(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return what is not stored yet; raises CONFLICT for what may not be appended."""
        refuse_other_sessions(self.session_id, entries)
        # Only an append that repeats stored entries needs their ids by `seq`.
        is_repeated = bool(entries) and entries[0].seq <= self._head
        ids = {seq: entry_id for entry_id, seq in self._seqs.items()} if is_repeated else {}
        return entries_to_store(
            entries, head=self._head, id_at=ids.get, is_stored=self._seqs.__contains__
        )

    def record_after(self, entries: Sequence[Entry]) -> SessionRecord | None:
        """Return the index record that the session will have once these are appended."""
        return updated_record(self.record, entries)

    def renew(self, epoch: int) -> None:
        """Prolong the lease; raises FENCED."""
        with self._log.open() as descriptor:
            self._refuse_fenced(epoch, descriptor)
            self._write_state(self.holder)

    def release(self) -> None:
        """Release the lease, also when that cannot be written; a log without entries is removed."""
        if self._lock is None:
            return
        # Closed after an error, too: the caller has dropped this writer, and the lock of a file
        # that stays open would keep every later holder out. Without the lock, a text that still
        # names the holder counts for nothing.
        with contextlib.closing(self), self._log.open() as descriptor:
            if descriptor is not None and self._lock.is_at_its_path():
                self._write_state(None)
                # A process that takes over reads this text after it replaced the lock file. Either
                # it sees that the lease was released and waits for the log, or its file is seen
                # here and the log is left to it.
                if not os.fstat(descriptor).st_size and self._lock.is_at_its_path():
                    self._log.path.unlink()

    def close(self) -> None:
        """Close the lock file, whatever its text says."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _is_holder_stopped(self) -> bool:
        """Check the present holder without any lock; raises BUSY when it keeps the lease."""
        try:
            lock = LockFile.open(self._folder.lease(self.session_id), create=False)
        except FileNotFoundError:
            return False
        try:
            state = lock.read() if lock.is_held() else LeaseState()
        finally:
            lock.close()
        return state.holder is not None and self._state_of_loser(state) == "stopped"

    def _take_lock(self) -> LockFile:
        lock = LockFile.open(self._folder.lease(self.session_id))
        if lock.try_lock():
            return lock
        state = lock.read()
        lock.close()
        self._state_of_loser(state)
        # The holder has ended, and still its lock is held: by a fork that inherited the open file.
        return self._replace_lock(state)

    def _take_over(self, above: int) -> None:
        """Take the lease of a stopped process, whatever locks it has."""
        path = self._folder.lease(self.session_id)
        try:
            old = LockFile.open(path, create=False)
            with contextlib.closing(old):
                before = old.read()
                # Checked again: it may have continued or released its lease since it was looked at.
                if before.holder is None or self._state_of_loser(before) != "stopped":
                    raise busy_error(self.session_id, before.holder)
                lock = self._replace_lock(before)
                with _closed_on_error(lock):
                    # A holder that continued meanwhile may be about to remove its empty log.
                    has_continued = old.read() != before
                    fresh = self._takeover_file(".jsonl")
                    log = self._log.create() if has_continued else self._log.replace(fresh)
                    with log as descriptor:
                        self._begin(lock, before, descriptor=descriptor, above=above)
                        # Another takeover may have replaced this one's lock file meanwhile. Then
                        # it has the session.
                        if not lock.is_at_its_path():
                            raise busy_error(self.session_id, read_lease_state(path).holder)
        except FileNotFoundError:
            # Another takeover was faster and removed the copy that was to replace the log.
            raise busy_error(self.session_id, read_lease_state(path).holder) from None

    def _state_of_loser(self, lease: LeaseState) -> ProcessState:
        """Return the state of a holder that has lost its lease; raises BUSY if it keeps it."""
        process = parse_identity(lease.process)
        state = process_state(process) if process else "alive"
        # A process that cannot be seen has the lock, so it runs on this machine.
        state = "alive" if state == "unknown" else state
        if not is_lease_lost(state, expired=monotonic_seconds() >= lease.until):
            raise busy_error(
                self.session_id, lease.holder, process=process.pid if process else None
            )
        return state

    def _replace_lock(self, before: LeaseState) -> LockFile:
        """Replace the lock file, and remove the files of other takeovers, so that they fail."""
        path = self._folder.lease(self.session_id)
        lock = LockFile.replace(path, self._takeover_file(".lock"), self._claimed(before))
        # Another takeover either renamed its lock file before, which is replaced by now, or fails
        # because the file that it wants to rename is gone.
        for other in self._folder.side_files("takeovers", self.session_id).values():
            other.unlink(missing_ok=True)
        return lock

    def _takeover_file(self, ending: str) -> Path:
        """Return a unique path for a file that is to replace another one."""
        return self._folder.side_file("takeovers", self.session_id, secrets.token_hex(8) + ending)

    def _claimed(self, before: LeaseState) -> LeaseState:
        """Return the text of a lock file with this writer as the holder."""
        until = monotonic_seconds() + self._lease_seconds
        return msgspec.structs.replace(
            before, holder=self.holder, process=self._process, until=until
        )

    def _begin(self, lock: LockFile, before: LeaseState, *, descriptor: int, above: int) -> None:
        """Repair the log, choose the epoch and become the holder."""
        log = self._repaired_log(descriptor, before)
        self._lock = lock
        # The lock file may be missing or damaged. The log, and what this store deleted, know more.
        self.epoch = max(before.epoch, above, log.epoch) + 1
        self._write_state(self.holder)

    def _repaired_log(self, descriptor: int, before: LeaseState) -> WholeLog:
        """Repair the log and note what it holds."""
        find_blob = blob_finder(self._folder.blobs(self.session_id))
        quarantine = self._folder.quarantine(self.session_id)
        repair = LogRepair(self._log, descriptor, quarantine=quarantine)
        log = repair.repair(reached=before.head, find_blob=find_blob)
        self._head, self._consumed = log.head, log.consumed
        self._seqs = {entry.id: entry.seq for entry in log.entries}
        # The lock file has the record of a log of `before.size` bytes. For a log of another size
        # the entries are applied to it: a damaged entry that opened the session is then made up
        # for.
        self.record = before.record if log.head else None
        if before.size != self._log.end:
            self.record = self.record_after(log.entries)
        self._unread = log.entries
        return log

    def _bodies(self, entries: Sequence[Entry]) -> list[tuple[int, bytes]]:
        """Return the stored form of entries; blobs that they point to are durable by then."""
        bodies = []
        for entry in entries:
            stored = to_stored_entry(entry)
            if stored.content is not None:
                save_blob(self._folder.blobs(self.session_id), stored.name, stored.content)
            bodies.append((entry.seq, stored.body))
        return bodies

    def _note(self, entries: Sequence[Entry], consumed: Sequence[CommandId]) -> None:
        self.record = self.record_after(entries)
        # It has grown, so it is no longer the whole log.
        self._unread = None
        for entry in entries:
            self._seqs[entry.id] = entry.seq
            self._head = entry.seq
        self._consumed.update(consumed)

    def _refuse_fenced(self, epoch: int, descriptor: int | None) -> int:
        """Return the descriptor of the log; raises FENCED, or UNAVAILABLE when the log is gone."""
        # Before the log is looked at: a takeover replaces that as well, and FENCED tells more.
        if not self._is_mine(epoch):
            now = read_lease_state(self._folder.lease(self.session_id))
            raise fenced_error(self.session_id, now.holder)
        if descriptor is None:
            raise replaced_file_error(self._log.path)
        return descriptor

    def _is_mine(self, epoch: int) -> bool:
        lock = self._lock
        return (
            lock is not None
            and epoch == self.epoch
            and lock.is_at_its_path()
            and lock.read().epoch == epoch
        )

    def _write_state(self, holder: str | None) -> None:
        if self._lock is not None:
            self._lock.write(
                LeaseState(
                    epoch=self.epoch,
                    holder=holder,
                    process=self._process if holder else "",
                    until=monotonic_seconds() + self._lease_seconds,
                    head=self._head,
                    record=self.record,
                    size=self._log.end,
                )
            )


@contextlib.contextmanager
def _closed_on_error(lock: LockFile) -> Iterator[None]:
    """Close a lock file when the block fails before the writer owns it."""
    try:
        yield
    except BaseException:
        lock.close()
        raise
