"""Waiting, the same way for every store that other processes write to, too."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from holdfast.ports.session_store import Lease, SessionLog
from holdfast.stores.bells import Bells
from holdfast.vocabulary.commands import Command, CommandId
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.errors import AgentError, ErrorCode, SessionError
from holdfast.vocabulary.ids import SessionId

T = TypeVar("T")


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


async def carried_out(work: "Future[T]") -> T:
    """Wait for what another thread was told to do; it is done even if the caller is cancelled."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def tell(_: "Future[T]") -> None:
        with suppress(RuntimeError):  # a loop that is closed has no caller left to tell
            loop.call_soon_threadsafe(done.set)

    work.add_done_callback(tell)
    await done.wait()
    return work.result()


async def granted(asked: "Future[Lease]", give_back: Callable[[], "Future[None]"]) -> Lease:
    """Return the lease that another thread was asked for.

    A caller that is cancelled hears of it when the thread has given back what it may have granted:
    `give_back` asks for that, and the thread does it after what it was asked for before.
    """
    try:
        return await asyncio.wrap_future(asked)
    except asyncio.CancelledError:
        with suppress(AgentError):  # a store that was closed meanwhile has given everything back
            await carried_out(give_back())
        raise
