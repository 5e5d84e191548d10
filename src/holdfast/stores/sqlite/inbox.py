"""The inbox of a SQLite store: rows that an append empties."""

from collections.abc import Collection, Sequence

import apsw
import msgspec

from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import key_made_for, key_of
from holdfast.stores.waiting import wait_for_command
from holdfast.vocabulary.commands import Command, CommandId
from holdfast.vocabulary.ids import SessionId

_decoder = msgspec.json.Decoder(Command)


class SqliteInbox:
    """Commands from anyone to the process that holds a session."""

    def __init__(self, room: SqliteRoom) -> None:
        self._room = room

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder."""
        await self._room.writer.write(lambda connection: _put(connection, session_id, command))
        self._room.inbox_bells.ring(session_id)

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Look at the commands that nobody has consumed."""
        return await self._room.readers.read(lambda connection: _pending(connection, session_id))

    async def wait(self, session_id: SessionId, *, seen: Collection[CommandId] = ()) -> None:
        """Wait for a command that is not among those `seen`."""
        await wait_for_command(
            self._room.inbox_bells,
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
    rows = connection.execute(
        "SELECT body FROM command WHERE session = ? AND body IS NOT NULL ORDER BY arrived",
        (key_of(connection, session_id),),
    )
    decoded = (_decoded(body) for (body,) in rows)
    return tuple(command for command in decoded if command is not None)


def _decoded(body: bytes) -> Command | None:
    """Read a command; one of a newer version waits for a holder that knows it."""
    try:
        command: Command = _decoder.decode(body)
    except msgspec.DecodeError:
        return None
    return command
