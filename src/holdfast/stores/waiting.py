"""Waiting, the same way for every store that other processes write to, too."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence

from holdfast.ports.session_store import SessionLog
from holdfast.stores.bells import Bells
from holdfast.vocabulary.commands import Command, CommandId
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import SessionId


async def follow_log(
    bells: Bells,
    log: SessionLog,
    *,
    session_id: SessionId,
    after: int,
) -> AsyncGenerator[list[Entry], None]:
    """Yield what is read after `after`, and then whatever is appended, until the store closes."""
    with bells.hang(session_id) as bell:
        while not bells.closed:
            if page := await log.read(session_id, after=after):
                after = page[-1].seq
                yield page
            else:
                await bell.wait()


async def wait_for_command(
    bells: Bells,
    pending: Callable[[], Awaitable[Sequence[Command]]],
    *,
    session_id: SessionId,
    seen: Collection[CommandId],
) -> None:
    """Return once a command is pending that was not seen."""
    with bells.hang(session_id) as bell:
        while all(command.id in seen for command in await pending()):
            if bells.closed:
                raise SessionError(ErrorCode.CLOSED, "the store was closed")
            await bell.wait()
