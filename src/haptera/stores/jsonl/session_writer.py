"""The writer of one session: holds its lease and appends to its log."""

import contextlib
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
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
from haptera.stores.jsonl.folder import SessionFolder, blob_finder, save_blob
from haptera.stores.jsonl.lines import encode_append, encode_consumed
from haptera.stores.jsonl.lock_file import LeaseState, LockFile, read_lease_state
from haptera.stores.jsonl.log_file import LogFile
from haptera.stores.jsonl.scan import LogScan
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

# Together 0.2 s.
_LOCK_TRIES = 100
_LOCK_RETRY_SECONDS = 0.002


class SessionWriter:
    """Appends to one log under one lease.

    Owns the lock file and what must be known of the log to accept an append. One thread uses it.

    A log belongs to one lock file: who takes the lease with another lock file than the holder
    before, copies the log. Then a holder that was stopped anywhere, also inside a write, harms
    nothing when it continues. The lock file is replaced first, then the log. Every append checks
    that the lock file is still under its name, before it writes, and again before it reports
    anything as stored; so the copy has everything that was reported. What a former holder still
    writes goes into a file without a name. Who takes the lease opens the log before it checks its
    own lock file, so it cannot have opened the log of a later holder.

    The files that replace others have unique names, and who replaces a lock file removes those of
    all others, so a takeover that was itself stopped cannot finish late.
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
        self.consumed: set[CommandId] = set()
        self._head = 0
        self._seqs: dict[EntryId, int] = {}
        self._unread: list[Entry] | None = None
        self._log = LogFile(folder.log(session_id))
        self._lock: LockFile | None = None

    @property
    def lease(self) -> Lease:
        """The lease as its holder gets it."""
        return Lease(session_id=self.session_id, holder=self.holder, epoch=self.epoch)

    def acquire(self, *, above: int = 0, position: LinePosition = NOT_WAITING) -> None:
        """Take the lease, with an epoch above all earlier ones, and repair the end of the log.

        Raises:
            SessionError: BUSY when another holder keeps the lease, or comes first in line.

        """
        lock, lost_by = self._take_lock(position)
        try:
            before = lost_by or lock.read()
            with self._log_to_begin(before, is_taken_over=lost_by is not None) as descriptor:
                # Written first, so that others see the holder while the log is being read.
                lock.write(_claimed(before, self.holder, self._lease_seconds))
                self._refuse_replaced(lock)
                log = self._note_log(descriptor, before)
                # The lock file may be missing or damaged. The log, and what this store deleted,
                # know more.
                self.epoch = max(before.epoch, above, log.epoch) + 1
                self._lock = lock
                self._write_state(self.holder)
                # Before a copy becomes the log: another takeover may have the session by now.
                self._refuse_replaced(lock)
        except BaseException as error:
            self._lock = None
            lock.close()
            if isinstance(error, FileNotFoundError):
                # Another takeover was faster and removed the copy that was to become the log.
                raise busy_error(self.session_id, self._holder_now()) from None
            raise

    def acquire_again(self) -> None:
        """Take the lease a second time for the same holder: its earlier lease is fenced."""
        self.refuse_fenced(self.epoch)
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
        return self._is_mine(self.epoch) and self._log.is_at_its_path()

    def append(self, epoch: int, entries: Sequence[Entry], consumed: Sequence[CommandId]) -> None:
        """Append what is not stored yet, durably."""
        self.refuse_fenced(epoch)
        fresh = self.fresh(entries)
        consumed = [item for item in consumed if item not in self.consumed]
        if fresh:
            lines = encode_append(list(self._bodies(fresh)), epoch=self.epoch, consumed=consumed)
        elif consumed:
            lines = encode_consumed(consumed, head=self._head, epoch=self.epoch)
        else:
            return
        try:
            self._log.append(lines)
        finally:
            # A process that was stopped while it wrote may have been taken over meanwhile. FENCED
            # tells more than that the log is another file.
            self.refuse_fenced(epoch)
        if not self._log.is_at_its_path():
            raise replaced_file_error(self._log.path)
        self._note(fresh, consumed)
        # The append is durable already: this only tells others how far the log reaches.
        with contextlib.suppress(OSError):
            self._write_state(self.holder)

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

    def renew(self, epoch: int) -> None:
        """Prolong the lease; raises FENCED."""
        self.refuse_fenced(epoch)
        self._write_state(self.holder)

    def release(self) -> None:
        """Release the lease, also when that cannot be written."""
        # Closed after an error, too: the caller has dropped this writer, and the lock of a file
        # that stays open would keep every later holder out. Without the lock, a text that still
        # names the holder counts for nothing.
        with contextlib.closing(self):
            self._write_state(None)

    def close(self) -> None:
        """Close the lock file, whatever its text says."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def refuse_fenced(self, epoch: int) -> None:
        """Raise FENCED unless this is the epoch of the lease, and the lease was not lost."""
        if not self._is_mine(epoch):
            raise fenced_error(self.session_id, self._holder_now())

    def _take_lock(self, position: LinePosition) -> tuple[LockFile, LeaseState | None]:
        """Take the lock, or replace the lock file of a holder that lost it; returns its text."""
        path = self._folder.lease(self.session_id)
        while True:
            lock = LockFile.open(path)
            try:
                lost_by = self._lock_or_loser(lock)
                # Only now: who is first in line counts once no holder keeps the lease.
                tickets = self._folder.side_files("waiting", self.session_id)
                position.refuse_unless_first(self.session_id, tickets)
                is_mine = lost_by is None and lock.is_at_its_path()
            except BaseException:
                lock.close()
                raise
            if is_mine:
                return lock, None
            lock.close()
            if lost_by is not None:
                state = _claimed(lost_by, self.holder, self._lease_seconds)
                return replace_lock(self._folder, self.session_id, state), lost_by

    def _lock_or_loser(self, lock: LockFile) -> LeaseState | None:
        """Take a lock; returns the text of a holder that has it and lost its lease. Raises BUSY."""
        state = LeaseState()
        for _ in range(_LOCK_TRIES):
            if lock.try_lock():
                return None
            state = lock.read()
            if state.holder is not None and self._state_of_loser(state) == "stopped":
                return state
            # Its holder has ended or is just releasing it, or a process only looks at the file.
            threading.Event().wait(_LOCK_RETRY_SECONDS)
        if state.holder is None:
            raise busy_error(self.session_id, "a process that opens or deletes it")
        return state  # a fork of a holder that has ended inherited the open file

    def _log_to_begin(
        self, before: LeaseState, *, is_taken_over: bool
    ) -> AbstractContextManager[int | None]:
        """Open the log, or a copy that replaces it; None of a session that has no log yet."""
        is_known = before.epoch > 0 and not is_taken_over
        if self._log.path.exists():
            if is_known:
                return self._log.open()
        elif not is_taken_over and not before.head:
            return contextlib.nullcontext()
        return self._log.copy(_takeover_file(self._folder, self.session_id, ".jsonl"))

    def _note_log(self, descriptor: int | None, before: LeaseState) -> LogScan:
        """Repair the log and note what it holds."""
        log = LogScan()
        if descriptor is not None:
            log = self._log.repair(
                descriptor,
                reached=before.head,
                find_blob=blob_finder(self._folder.blobs(self.session_id)),
                quarantine=self._folder.quarantine(self.session_id),
            )
        self._head, self.consumed, self._unread = log.head, log.consumed, log.entries
        self._seqs = {entry.id: entry.seq for entry in log.entries}
        is_told = before.size == self._log.end and before.record is not None and log.head
        self.record = before.record if is_told else record_of(log, before.record)
        return log

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

    def _refuse_replaced(self, lock: LockFile) -> None:
        if not lock.is_at_its_path():
            raise busy_error(self.session_id, self._holder_now())

    def _holder_now(self) -> str | None:
        return read_lease_state(self._folder.lease(self.session_id)).holder

    def _bodies(self, entries: Sequence[Entry]) -> Iterator[tuple[int, bytes]]:
        """Yield the stored form of entries; blobs that they point to are durable by then."""
        for entry in entries:
            stored = to_stored_entry(entry)
            if stored.content is not None:
                save_blob(self._folder.blobs(self.session_id), stored.name, stored.content)
            yield entry.seq, stored.body

    def _note(self, entries: Sequence[Entry], consumed: Sequence[CommandId]) -> None:
        self.record = updated_record(self.record, entries)
        # It has grown, so it is no longer the whole log.
        self._unread = None
        for entry in entries:
            self._seqs[entry.id] = entry.seq
            self._head = entry.seq
        self.consumed.update(consumed)

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
            state = LeaseState(
                epoch=self.epoch, head=self._head, record=self.record, size=self._log.end
            )
            if holder is not None:
                state = _claimed(state, holder, self._lease_seconds)
            self._lock.write(state)


def _claimed(before: LeaseState, holder: str, seconds: float) -> LeaseState:
    """Return the text of a lock file with a holder in this process."""
    return msgspec.structs.replace(
        before, holder=holder, process=str(this_process()), until=monotonic_seconds() + seconds
    )


def replace_lock(folder: SessionFolder, session_id: SessionId, state: LeaseState) -> LockFile:
    """Replace a lock file, and remove the files of takeovers, so that those fail."""
    fresh = _takeover_file(folder, session_id, ".lock")
    lock = LockFile.replace(folder.lease(session_id), fresh, state)
    # Another takeover either renamed its lock file before, which is replaced by now, or fails
    # because the file that it wants to rename is gone.
    for other in folder.side_files("takeovers", session_id).values():
        other.unlink(missing_ok=True)
    return lock


def _takeover_file(folder: SessionFolder, session_id: SessionId, ending: str) -> Path:
    """Return a unique path for a file that is to replace another one."""
    return folder.side_file("takeovers", session_id, secrets.token_hex(8) + ending)


def record_of(log: LogScan, known: SessionRecord | None) -> SessionRecord | None:
    """Return the index record of a session as its log says.

    What is known already makes up for the entry that opened the session, if that is damaged.
    """
    return updated_record(known, log.entries) if log.head else None
