"""The store behind `jsonl:DIR`: sessions as files that any tool can read. Also its two small ports.

The inbox is a file of commands beside each log. Commands stay in it; the log says which of them
were consumed, in the lines of the append that answers them. Blobs are files named by their content.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from haptera.model.errors import StoreError
from haptera.model.ids import SessionId
from haptera.model.operations.session import Command
from haptera.stores.jsonl.folder import descriptor_lock, find_blob, save_blob
from haptera.stores.jsonl.index import JsonlIndex, JsonlSearch
from haptera.stores.jsonl.leases import JsonlLeases
from haptera.stores.jsonl.lines import commands_in, encode_command
from haptera.stores.jsonl.log import JsonlLog
from haptera.stores.jsonl.resources import JsonlResources, make_resources
from haptera.stores.lease_rules import LOCAL_LEASE_SECONDS
from haptera.stores.notifications import NotifiedInbox
from haptera.stores.stored_records import (
    blob_name,
    blob_not_found_error,
    is_blob_name,
    no_session_error,
    verified_blob,
)
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
        self._resources = make_resources(root, lease_seconds=lease_seconds)
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
        self._resources.summaries.save()


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
                    if not self._resources.folder.log(session_id).exists():
                        path.unlink(missing_ok=True)
                        raise no_session_error(session_id)
            finally:
                os.close(descriptor)

    def _pending(self, session_id: SessionId) -> tuple[Command, ...]:
        path = self._resources.folder.inbox(session_id)
        with translated_os_errors(path):
            # The inbox is read before the log: the other way round, a command that came and was
            # consumed in between would look pending.
            commands = commands_in(read_or_empty(path))
            if not commands:
                return ()
            consumed = self._resources.summaries.of(session_id).consumed
        return tuple(item for key, item in commands.items() if key not in consumed)


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
        if content is None:
            raise blob_not_found_error(session_id, name)
        return verified_blob(name, content)


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
