"""The logs of a jsonl store: appending, reading, following, inspecting and deleting."""

import contextlib
import shutil
from collections.abc import AsyncGenerator, Sequence

from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.notes import ContextNoted
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Damage, Lease
from haptera.stores.append_rules import fenced_error, name_taken_error, updated_record
from haptera.stores.jsonl.lines import damaged_commands, quarantined_in
from haptera.stores.jsonl.lock_file import LeaseState, LockFile, read_lease_state
from haptera.stores.jsonl.log_file import missing_end
from haptera.stores.jsonl.resources import JsonlResources
from haptera.stores.jsonl.scan import LogScan
from haptera.stores.jsonl.session_writer import SessionWriter, replace_lock
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
            lambda: self._resources.reader.read(session_id, after=after, limit=limit)
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
            if not any(map(_is_looked_up_by, entries)):
                writer.append(lease.epoch, entries, consumed)
                return
            # Names are taken only under this lock, so the name stays free until it is written.
            with self._folder.names_locked():
                # First: a writer that was taken over gets FENCED, not a CONFLICT with the newer
                # log.
                writer.refuse_fenced(lease.epoch)
                self._refuse_taken_name(writer, entries)
                self._folder.remove_former_caches()
                writer.append(lease.epoch, entries, consumed)

    def _refuse_taken_name(self, writer: SessionWriter, entries: Sequence[Entry]) -> None:
        record = updated_record(writer.record, writer.fresh(entries))
        before = writer.record.name if writer.record else None
        if record is None or record.name in {None, before}:
            return
        wanted = (record.owner, record.project, record.name)
        for other in self._resources.reader.records():
            is_same = (other.owner, other.project, other.name) == wanted
            if is_same and other.id != record.id:
                raise name_taken_error(str(record.name))

    def _inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        path, scan = self._folder.log(session_id), LogScan()
        for piece in self._resources.reader.pieces(session_id):
            scan.damaged += piece.damaged
            scan.head, scan.end, scan.torn = piece.head, piece.end, piece.torn
        with translated_os_errors(path):
            quarantine = read_or_empty(self._folder.quarantine(session_id))
            damage = [*quarantined_in(quarantine), *scan.damaged]
            reached = read_lease_state(self._folder.lease(session_id)).head
            # A holder may be writing just now; only without one is the tail really torn.
            if not self._is_held(session_id):
                damage += [scan.torn] if scan.torn is not None else []
                damage += [missing_end(scan, reached)] if scan.head < reached else []
            inbox = self._folder.inbox(session_id)
            marks = [(path, mark) for mark in damage]
            marks += [(inbox, mark) for mark in damaged_commands(read_or_empty(inbox))]
        return tuple(
            Damage(session_id=session_id, place=f"byte {mark.offset} of {file}", reason=mark.reason)
            for file, mark in marks
        )

    def _is_held(self, session_id: SessionId) -> bool:
        path = self._folder.lease(session_id)
        if not path.exists():
            return False
        # A lock that was free is ours for a moment. Who acquires the session waits for that.
        with contextlib.closing(LockFile.open(path)) as lock:
            return not lock.try_lock()

    def _delete(self, session_id: SessionId) -> None:
        if (writer := self._resources.writers.pop(session_id, None)) is not None:
            self._resources.deleted_epochs[session_id] = writer.epoch
            writer.close()
        with translated_os_errors(self._folder.log(session_id)):
            # There is nothing to lock, and a lock file would have to be made for it.
            if not self._folder.lease(session_id).exists():
                self._remove_files(session_id)
                return
            # As one who takes the session over: its holder gets FENCED, and no other can acquire it
            # meanwhile.
            lock = replace_lock(self._folder, session_id, LeaseState())
            with contextlib.closing(lock):
                self._remove_files(session_id)

    def _remove_files(self, session_id: SessionId) -> None:
        self._folder.remove_former_caches()
        blobs = self._folder.blobs(session_id)
        if blobs.exists():
            shutil.rmtree(blobs)
            sync_folder(blobs.parent)
        remove_durably(self._folder.inbox(session_id))
        remove_durably(self._folder.quarantine(session_id))
        remove_durably(self._folder.log(session_id))
        # Again: one who sends meanwhile finds the log there, and leaves a command.
        remove_durably(self._folder.inbox(session_id))
        # Last: its lock keeps others out. A crash before leaves a session that can be deleted
        # again.
        remove_durably(self._folder.lease(session_id))


def _is_looked_up_by(entry: Entry) -> bool:
    """Return whether an entry can give a session a name, or a note for its project."""
    if isinstance(entry, SessionOpened):
        return entry.name is not None
    if isinstance(entry, SessionChanged):
        return "name" in entry.changes
    return isinstance(entry, ContextNoted)
