"""The store behind `jsonl:DIR`: sessions as files that any tool can read. Also its small ports.

The index and the search read the folder, and store nothing themselves.

The inbox is a file of commands beside each log. Commands stay in it; the log says which of them
were consumed, in the lines of the append that answers them. Blobs are files named by their content.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from haptera.model.errors import StoreError
from haptera.model.ids import SessionId, parse_session_id
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import Command
from haptera.model.results import SessionOrder
from haptera.ports.session_store import (
    ANY_SESSION,
    SearchHit,
    SessionFilter,
    SessionRecord,
)
from haptera.stores.append_rules import is_visible, page_of
from haptera.stores.jsonl.folder import descriptor_lock, find_blob, save_blob
from haptera.stores.jsonl.leases import JsonlLeases
from haptera.stores.jsonl.lines import commands_in, encode_command
from haptera.stores.jsonl.lock_file import read_lease_state
from haptera.stores.jsonl.log import JsonlLog
from haptera.stores.jsonl.resources import JsonlResources
from haptera.stores.lease_rules import LOCAL_LEASE_SECONDS
from haptera.stores.notifications import NotifiedInbox
from haptera.stores.stored_records import (
    blob_name,
    blob_not_found_error,
    blob_or_error,
    is_blob_name,
    no_session_error,
)
from haptera.stores.text_search import SEARCHABLE_KINDS, TextScan
from haptera.system.atomic_files import write_all
from haptera.system.own_places import hold_store
from haptera.system.private_files import (
    open_or_create,
    read_or_empty,
    read_range,
    translated_os_errors,
)


class JsonlStore:
    """All ports of a store over a folder. Any number of event loops may use it."""

    def __init__(self, root: Path, *, lease_seconds: float = LOCAL_LEASE_SECONDS) -> None:
        self.files_at = root
        """The folder."""
        hold_store(self, folder=root)
        self._resources = JsonlResources(root, lease_seconds=lease_seconds)
        self.log = JsonlLog(self._resources)
        self.index = JsonlIndex(self._resources)
        self.leases = JsonlLeases(self._resources)
        self.inbox = JsonlInbox(self._resources)
        self.blobs = JsonlBlobs(self._resources)
        self.search = JsonlSearch(self._resources)

    async def close(self) -> None:
        """Release the leases held here and end the threads; what was appended stays."""
        self.leases.stop_renewing()
        self._resources.notifier.close()
        self._resources.inbox_notifier.close()
        await self._resources.threads.close(self._release_all)

    def _release_all(self) -> None:
        # The threads that write have nothing left to do, so this thread may use their writers.
        for writer in self._resources.writers.values():
            # It is released also when that cannot be written.
            with contextlib.suppress(OSError, StoreError):
                writer.release()
        self._resources.writers.clear()
        for ticket in tuple(self._resources.tickets):
            self._resources.remove_ticket(ticket)


class JsonlIndex:
    """Finds sessions by the records in their lock files."""

    def __init__(self, resources: JsonlResources) -> None:
        self._reader = resources.reader
        self._threads = resources.threads

    async def find(
        self,
        owner: str,
        project: str | None,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of another owner or project is not found."""

        def find_record() -> SessionRecord | None:
            if session_id is not None and parse_session_id(session_id) is not None:
                record = self._reader.record(session_id)
                if record is not None and is_visible(record, owner, project):
                    return record
            named = SessionFilter(name=name)
            owned = [] if name is None else self._owned(owner, project)
            page = page_of(owned, named, limit=1, after=None)
            return page[0] if page else None

        return await self._threads.read(find_record)

    async def browse(
        self,
        owner: str,
        project: str | None,
        *,
        matching: SessionFilter = ANY_SESSION,
        order: SessionOrder = "updated",
        limit: int | None = None,
        after: SessionId | None = None,
    ) -> Sequence[SessionRecord]:
        """List sessions in an order."""

        def list_records() -> list[SessionRecord]:
            owned = self._owned(owner, project)
            return page_of(owned, matching, order=order, limit=limit, after=after)

        return await self._threads.read(list_records)

    async def count(
        self, owner: str, project: str | None, *, matching: SessionFilter = ANY_SESSION
    ) -> int:
        """Count sessions."""
        return await self._threads.read(
            lambda: sum(map(matching.matches, self._owned(owner, project)))
        )

    async def rebuild(self) -> int:
        """Derive the index again from the logs."""
        return await self._threads.read(self._reader.rebuild)

    def _owned(self, owner: str, project: str | None) -> list[SessionRecord]:
        return [
            record
            for record in self._reader.records()
            if record.owner == owner and project in {None, record.project}
        ]


class JsonlSearch:
    """Finds texts by reading the logs of all sessions of an owner, some appends at a time."""

    def __init__(self, resources: JsonlResources) -> None:
        self._reader = resources.reader
        self._threads = resources.threads

    async def find(
        self,
        query: str,
        *,
        owner: str,
        project: str | None = None,
        limit: int = 50,
        prefix: bool = False,
    ) -> Sequence[SearchHit]:
        """Find texts that hold every word of the query, the best first."""

        def scan() -> list[SearchHit]:
            texts = TextScan(query, limit=limit, prefix=prefix)
            for record in [] if texts.is_pointless else self._reader.records():
                if is_visible(record, owner, project):
                    texts.scan(record.id, self._searchable_entries(record.id))
            return texts.hits()

        return await self._threads.read(scan)

    def _searchable_entries(self, session_id: SessionId) -> Iterator[Entry]:
        for piece in self._reader.pieces(session_id, kinds=SEARCHABLE_KINDS):
            yield from piece.entries


class JsonlInbox(NotifiedInbox):
    """Commands from any process to the process that holds a session."""

    def __init__(self, resources: JsonlResources) -> None:
        super().__init__(resources.inbox_notifier)
        self._resources = resources

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder; raises NOT_FOUND."""
        await self._resources.threads.write(session_id, lambda: self._put(session_id, command))
        self._notifier.notify(session_id)

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Return the commands that are not consumed yet."""
        return await self._resources.threads.read(lambda: self._pending(session_id))

    def _put(self, session_id: SessionId, command: Command) -> None:
        path = self._resources.folder.inbox(session_id)
        with translated_os_errors(path):
            descriptor = open_or_create(path, os.O_RDWR | os.O_APPEND)
            try:
                with descriptor_lock(descriptor, path):
                    # Under the lock, so that two senders of the same command do not both find it
                    # missing.
                    content = read_range(descriptor)
                    if command.id not in commands_in(content):
                        _append_line(descriptor, content, encode_command(command))
                    # Last: a deletion removes the log, and the commands after it.
                    if not self._is_there(session_id):
                        path.unlink(missing_ok=True)
                        raise no_session_error(session_id)
            finally:
                os.close(descriptor)

    def _is_there(self, session_id: SessionId) -> bool:
        folder = self._resources.folder
        # A session that was just opened has a holder, and no log before its first entries.
        is_held = read_lease_state(folder.lease(session_id)).holder is not None
        return is_held or folder.log(session_id).exists()

    def _pending(self, session_id: SessionId) -> tuple[Command, ...]:
        path = self._resources.folder.inbox(session_id)
        with translated_os_errors(path):
            # The inbox is read before the log: the other way round, a command that came and was
            # consumed in between would look pending.
            commands = commands_in(read_or_empty(path))
            if not commands:
                return ()
            consumed = self._consumed(session_id)
        return tuple(item for key, item in commands.items() if key not in consumed)

    def _consumed(self, session_id: SessionId) -> set[CommandId]:
        writer = self._resources.writers.get(session_id)
        now = read_lease_state(self._resources.folder.lease(session_id))
        # What a holder here knows saves reading the log, unless another took over.
        if writer is not None and writer.epoch == now.epoch:
            return writer.consumed
        return self._resources.reader.consumed(session_id)


class JsonlBlobs:
    """Content by its SHA-256, kept as long as its session."""

    def __init__(self, resources: JsonlResources) -> None:
        self._resources = resources

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Store content durably and return its name."""
        return await self._resources.threads.write(
            session_id, lambda: self._put(session_id, content)
        )

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND, or CORRUPT when it does not match its name."""
        return await self._resources.threads.read(lambda: self._get(session_id, name))

    def _put(self, session_id: SessionId, content: bytes) -> str:
        name = blob_name(content)
        folder = self._resources.folder.blobs(session_id)
        with translated_os_errors(folder / name):
            save_blob(folder, name, content)
        return name

    def _get(self, session_id: SessionId, name: str) -> bytes:
        folder = self._resources.folder.blobs(session_id)
        if not is_blob_name(name):
            raise blob_not_found_error(session_id, name)
        with translated_os_errors(folder / name):
            content = find_blob(folder, name)
        return blob_or_error(session_id, name, content)


def _append_line(descriptor: int, content: bytes, line: bytes) -> None:
    # A last line that a crash cut off is ended first, so that it does not spoil this one.
    if content and not content.endswith(b"\n"):
        line = b"\n" + line
    try:
        write_all(descriptor, line)
        os.fdatasync(descriptor)
    except OSError:
        # The sender is told that it failed, so the command must not be carried out.
        os.ftruncate(descriptor, len(content))
        raise
