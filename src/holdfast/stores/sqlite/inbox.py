"""The inbox of a SQLite store: rows that an append empties."""

from collections.abc import Collection, Iterator, Sequence

import apsw
import msgspec

from holdfast.stores.notifications import wait_for_command
from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import as_bytes, key_made_for, key_of
from holdfast.stores.stored_records import command_damage, decode_command
from holdfast.vocabulary.commands import Command, CommandId
from holdfast.vocabulary.ids import SessionId


class SqliteInbox:
    """Commands from anyone to the process that holds a session."""

    def __init__(self, room: SqliteRoom) -> None:
        self._room = room

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder."""
        await self._room.writer.write(lambda connection: _put(connection, session_id, command))
        self._room.inbox_notifier.notify(session_id)

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Look at the commands that nobody has consumed."""
        return await self._room.readers.read(lambda connection: _pending(connection, session_id))

    async def wait(self, session_id: SessionId, *, seen: Collection[CommandId] = ()) -> None:
        """Wait for a command that is not among those `seen`."""
        await wait_for_command(
            self._room.inbox_notifier,
            lambda: self.pending(session_id),
            session_id=session_id,
            seen=seen,
        )


def _put(connection: apsw.Connection, session_id: SessionId, command: Command) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO command (session, id, body) VALUES (?, ?, ?)",
        (key_made_for(connection, session_id), command.id, msgspec.json.encode(command)),
    )


def _pending(connection: apsw.Connection, session_id: SessionId) -> tuple[Command, ...]:
    bodies = _bodies(connection, key_of(connection, session_id))
    decoded = (decode_command(body) for _, body in bodies)
    return tuple(command for command in decoded if command is not None)


def damaged_commands(connection: apsw.Connection, key: int) -> list[tuple[str, str]]:
    """Return the place of each command that is not even JSON, and what is wrong with it."""
    found = []
    for arrived, body in _bodies(connection, key):
        if (reason := command_damage(body)) is not None:
            found.append((f"command {arrived}", reason))
    return found


def _bodies(connection: apsw.Connection, key: int | None) -> list[tuple[int, bytes]]:
    rows: Iterator[tuple[int, bytes]] = connection.execute(
        f"SELECT arrived, {as_bytes('body')} FROM command"  # noqa: S608
        " WHERE session = ? AND body IS NOT NULL ORDER BY arrived",
        (key,),
    )
    return list(rows)
