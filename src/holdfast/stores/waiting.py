"""Waiting, the same way for every store that other processes write to, too."""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence

from holdfast.ports.session_store import Lease, SessionLog
from holdfast.stores.bells import Bells
from holdfast.vocabulary.commands import Command, CommandId
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import SessionId

_SHORTEST_WAIT = 0.05
_JITTER = 0.1


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


async def wait_for_lease(
    bells: Bells, acquire: Callable[[], Awaitable[Lease]], session_id: SessionId
) -> Lease:
    """Try to acquire until nobody else holds the session.

    A release in this process wakes the waiter; that of another is found by trying again.
    """
    with bells.hang(session_id) as bell:
        while True:
            try:
                return await acquire()
            except SessionError as error:
                if error.code is not ErrorCode.BUSY:
                    raise
            await bell.wait(_SHORTEST_WAIT + _JITTER * secrets.randbelow(1000) / 1000)
