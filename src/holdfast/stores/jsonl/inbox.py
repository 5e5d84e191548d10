"""The inbox of a jsonl store: a file of commands beside each log.

Commands stay in their file. Which of them were consumed is written into the log, in the same write
as the entries that answer them.
"""

import os
from collections.abc import Collection, Sequence

from holdfast.stores.jsonl.file_lock import locked
from holdfast.stores.jsonl.lines import encode_command, parse_inbox_line
from holdfast.stores.jsonl.log_file import read_from
from holdfast.stores.jsonl.room import JsonlRoom
from holdfast.stores.jsonl.scan import DamagedBytes
from holdfast.stores.notifications import wait_for_command
from holdfast.stores.private_files import open_or_create, read_or_empty, translated_os_errors
from holdfast.stores.stored_records import command_damage, decode_command
from holdfast.vocabulary.commands import Command, CommandId
from holdfast.vocabulary.ids import SessionId


class JsonlInbox:
    """Commands from anyone to the process that holds a session."""

    def __init__(self, room: JsonlRoom) -> None:
        self._room = room

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder."""
        await self._room.lanes.write(session_id, lambda: self._put(session_id, command))
        self._room.inbox_notifier.notify(session_id)

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Look at the commands that nobody has consumed."""
        return await self._room.lanes.read(lambda: self._pending(session_id))

    async def wait(self, session_id: SessionId, *, seen: Collection[CommandId] = ()) -> None:
        """Wait for a command that is not among those `seen`."""
        await wait_for_command(
            self._room.inbox_notifier,
            lambda: self.pending(session_id),
            session_id=session_id,
            seen=seen,
        )

    def _put(self, session_id: SessionId, command: Command) -> None:
        path = self._room.folder.inbox(session_id)
        with translated_os_errors(path):
            descriptor = open_or_create(path, os.O_RDWR | os.O_APPEND)
            try:
                with locked(descriptor, path):
                    content = read_from(descriptor)
                    if command.id not in _commands_in(content):
                        _append(descriptor, content, encode_command(command))
            finally:
                os.close(descriptor)

    def _pending(self, session_id: SessionId) -> tuple[Command, ...]:
        path = self._room.folder.inbox(session_id)
        with translated_os_errors(path):
            # The inbox first: a command seen here cannot be consumed in an older log.
            commands = _commands_in(read_or_empty(path))
            if not commands:
                return ()
            consumed = self._room.summaries.of(session_id).consumed
        return tuple(item for key, item in commands.items() if key not in consumed)


def _append(descriptor: int, content: bytes, line: bytes) -> None:
    # A line that a crash cut off must not swallow this one.
    if content and not content.endswith(b"\n"):
        line = b"\n" + line
    size = len(content)
    try:
        written = os.write(descriptor, line)
        while written < len(line):
            written += os.write(descriptor, line[written:])
        os.fdatasync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _commands_in(content: bytes) -> dict[CommandId, Command]:
    commands: dict[CommandId, Command] = {}
    for line in content.split(b"\n"):
        parsed = parse_inbox_line(line)
        if parsed is not None:
            command = decode_command(bytes(parsed.command))
            if command is not None:
                commands.setdefault(command.id, command)
    return commands


def damaged_commands(content: bytes) -> list[DamagedBytes]:
    """Find the lines of an inbox that hold no command of any version."""
    found, offset = [], 0
    # What has no line end was cut off by a crash: nobody was told that it is stored.
    for line in content.split(b"\n")[:-1]:
        parsed = parse_inbox_line(line)
        if line and parsed is None:
            found.append(DamagedBytes(offset, len(line), "a command cannot be read"))
        elif parsed is not None and (reason := command_damage(bytes(parsed.command))):
            found.append(DamagedBytes(offset, len(line), reason))
        offset += len(line) + 1
    return found
