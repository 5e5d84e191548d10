"""The logs of a jsonl store: appending, reading, following, inspecting and deleting."""

import contextlib
import os
import shutil
from collections.abc import AsyncGenerator, Sequence

from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Damage, Lease, SessionRecord
from haptera.stores.append_rules import fenced_error, name_taken_error
from haptera.stores.jsonl.folder import StillLockedError, blob_finder, try_lock
from haptera.stores.jsonl.lines import DamagedBytes, damaged_commands, quarantined_in
from haptera.stores.jsonl.lock_file import read_lease_state
from haptera.stores.jsonl.log_file import LogFile
from haptera.stores.jsonl.lookup import LookupKey, keys_of, may_be_looked_up_by
from haptera.stores.jsonl.resources import JsonlResources
from haptera.stores.jsonl.scan import decode_scanned, scan_log
from haptera.stores.jsonl.session_writer import SessionWriter
from haptera.stores.notifications import follow_log
from haptera.system.atomic_files import sync_folder
from haptera.system.private_files import (
    read_or_empty,
    remove_durably,
    translated_os_errors,
)


class JsonlLog:
    """One file per session. An append returns once its lines are synced."""

    def __init__(self, resources: JsonlResources) -> None:
        self._resources = resources
        self._folder = resources.folder

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append entries that already have their `seq`."""
        await self._resources.threads.write(
            lease.session_id, lambda: self._append(lease, entries, consumed)
        )
        # Not before it is durable: those who wake up read the file, and show what they find.
        self._resources.notifier.notify(lease.session_id)

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order; an unknown session has none."""
        # A session that was just opened is read whole, and its writer has decoded the log already.
        if not after and limit is None and session_id in self._resources.writers:
            entries = await self._resources.threads.write(
                session_id, lambda: self._take_unread(session_id)
            )
            if entries is not None:
                return entries
        return await self._resources.threads.read(
            lambda: self._resources.summaries.read_entries(session_id, after=after, limit=limit)
        )

    def follow(self, session_id: SessionId, *, after: int = 0) -> AsyncGenerator[list[Entry], None]:
        """Yield entries as they are appended, by any process, until closed or deleted."""
        return follow_log(
            self._resources.notifier,
            self,
            session_id=session_id,
            after=after,
            exists=lambda: self._resources.threads.read(self._folder.log(session_id).exists),
        )

    async def inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        """Report what cannot be read, and what was moved aside."""
        return await self._resources.threads.read(lambda: self._inspect(session_id))

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session with everything that belongs to it."""
        await self._resources.threads.write(session_id, lambda: self._delete(session_id))
        self._resources.notifier.notify(session_id)

    def _take_unread(self, session_id: SessionId) -> list[Entry] | None:
        writer = self._resources.writers.get(session_id)
        return None if writer is None else writer.take_unread()

    def _append(
        self, lease: Lease, entries: Sequence[Entry], consumed: Sequence[CommandId]
    ) -> None:
        writer = self._resources.writers.get(lease.session_id)
        with translated_os_errors(self._folder.log(lease.session_id)):
            if writer is None:
                holder = read_lease_state(self._folder.lease(lease.session_id)).holder
                raise fenced_error(lease.session_id, holder)
            taken = self._newly_looked_up_by(writer, lease, entries)
            if not taken:
                begins = writer.record is None
                writer.append(lease.epoch, entries, consumed)
                if begins:
                    self._begin_lookup()
                return
            # Names are taken only under this lock, so the name stays free until it is written.
            lookup = self._resources.lookup
            with lookup.locked():
                after = writer.record_after(writer.fresh(entries))
                before = writer.record.name if writer.record else None
                if after is not None and after.name not in {None, before}:
                    self._refuse_taken_name(after)
                for key in sorted(taken):
                    # A folder of an earlier version has no such file. One that began with this name
                    # alone would hide all other names, because the file counts as complete.
                    if lookup.sessions(key) is None:
                        lookup.write_all(self._resources.summaries.records())
                    lookup.add(key, lease.session_id)
                writer.append(lease.epoch, entries, consumed)

    def _newly_looked_up_by(
        self, writer: SessionWriter, lease: Lease, entries: Sequence[Entry]
    ) -> set[LookupKey]:
        """Return what a session is to be looked up by from these entries on."""
        if not any(map(may_be_looked_up_by, entries)):
            return set()
        # First: a writer that was taken over gets FENCED, not a CONFLICT with the newer log.
        writer.renew(lease.epoch)
        return keys_of(writer.record_after(writer.fresh(entries))) - keys_of(writer.record)

    def _begin_lookup(self) -> None:
        """Write the file of names if the folder has none: new sessions look for notes in it.

        The file only saves work, so this neither waits for another process nor fails, and takes no
        space before the session has what it needs.
        """
        lookup = self._resources.lookup
        with contextlib.suppress(OSError, StillLockedError):
            if lookup.exists():
                return
            with lookup.locked(timeout=0):
                if not lookup.exists():
                    lookup.write_all(self._resources.summaries.records())

    def _refuse_taken_name(self, record: SessionRecord) -> None:
        name = str(record.name)
        for other in self._resources.named(record.owner, record.project, name):
            if other.id != record.id:
                raise name_taken_error(name)

    def _inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        path = self._folder.log(session_id)
        with translated_os_errors(path):
            scan = scan_log(read_or_empty(path))
            decode_scanned(scan, blob_finder(self._folder.blobs(session_id)))
            quarantine = read_or_empty(self._folder.quarantine(session_id))
            found = [*quarantined_in(quarantine), *scan.damaged]
            reached = read_lease_state(self._folder.lease(session_id)).head
            if not self._is_held(session_id):
                # A holder may be writing just now; only without one is the tail really torn.
                if scan.torn is not None:
                    found.append(scan.torn)
                if scan.head < reached:
                    reason = f"the log ends with entry {scan.head}, but had reached {reached}"
                    found.append(DamagedBytes(scan.end, 0, reason))
            inbox = self._folder.inbox(session_id)
            marks = [(path, mark) for mark in found]
            marks += [(inbox, mark) for mark in damaged_commands(read_or_empty(inbox))]
        return tuple(
            Damage(session_id=session_id, place=f"byte {mark.offset} of {file}", reason=mark.reason)
            for file, mark in marks
        )

    def _is_held(self, session_id: SessionId) -> bool:
        try:
            descriptor = os.open(self._folder.lease(session_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # A lock that was free is ours until the file is closed. `LockFile.try_lock` waits for
            # that.
            return not try_lock(descriptor)
        finally:
            os.close(descriptor)

    def _delete(self, session_id: SessionId) -> None:
        if (writer := self._resources.writers.pop(session_id, None)) is not None:
            self._resources.deleted_epochs[session_id] = writer.epoch
            writer.close()
        with translated_os_errors(self._folder.log(session_id)):
            # There is nothing to lock, and `create` would make an empty log.
            if not self._folder.log(session_id).exists():
                self._remove_files(session_id)
                return
            # Under the lock of the log, so that no process is inside an append to it.
            with LogFile(self._folder.log(session_id)).create():
                self._remove_files(session_id)

    def _remove_files(self, session_id: SessionId) -> None:
        blobs = self._folder.blobs(session_id)
        if blobs.exists():
            shutil.rmtree(blobs)
            sync_folder(blobs.parent)
        remove_durably(self._folder.inbox(session_id))
        remove_durably(self._folder.quarantine(session_id))
        # The lock file goes before the log, so that a holder gets FENCED and not UNAVAILABLE. A
        # crash before the last line leaves a session that can be deleted again.
        remove_durably(self._folder.lease(session_id))
        remove_durably(self._folder.log(session_id))
        # Again: one who sends meanwhile finds the log there, and leaves a command.
        remove_durably(self._folder.inbox(session_id))
