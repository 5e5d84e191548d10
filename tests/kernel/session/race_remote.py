"""What other processes do to a session in a race, and wait for: each has an outcome."""

import asyncio
from collections.abc import Awaitable, Callable

from haptera.agent.remote import AgentRemote
from haptera.model.errors import AgentError, ErrorCode
from tests.kernel.session.race_laws import untrue_offers
from tests.kernel.session.race_world import KNOWN_STEPS, World

COMPACTION_REFUSALS = (
    ErrorCode.BUSY,
    ErrorCode.NOTHING_TO_SEND,
    ErrorCode.ABORTED,
)
"""What a compaction may be refused with, or end with: it is a query."""


async def _remote_rewind(world: World) -> None:
    """Go back to a message; the caller may give up, and then it happens once or not at all."""
    await world.until_idle()
    remote = await world.away.remote(world.name)
    messages = await remote.messages()
    if messages:
        target = world.chance.choice(messages[-3:] if world.by_chance(0.7) else messages).id
        await _move(world, remote, lambda: remote.rewind(to=target), ErrorCode.MESSAGE_NOT_FOUND)


async def _remote_undo(world: World) -> None:
    await world.until_idle()
    remote = await world.away.remote(world.name)
    await _move(world, remote, remote.undo_rewind, ErrorCode.NOT_FOUND)


async def _move(
    world: World, remote: AgentRemote, move: Callable[[], Awaitable[object]], *codes: ErrorCode
) -> None:
    if await _waited_for(world, move, ErrorCode.BUSY, *codes):
        world.story.moves += 1
        known = frozenset(world.story.runs)
        world.story.found += untrue_offers(await remote.messages(), known)


async def _waited_for(
    world: World, call: Callable[[], Awaitable[object]], *codes: ErrorCode
) -> bool:
    """Wait for a call, or give it up after a while; whether it returned."""
    seconds = 0.3 if world.by_chance(0.2) else None
    calling = asyncio.ensure_future(call())
    await asyncio.wait({calling}, timeout=seconds)
    calling.cancel()
    await asyncio.wait({calling})
    if calling.cancelled():
        return False
    error = calling.exception()
    if error is None:
        return True
    if not isinstance(error, AgentError):
        raise error
    world.refused(error, *codes)
    return False


async def _remote_configure(world: World) -> None:
    """Change a setting from elsewhere, whatever runs."""
    remote = await world.away.remote(world.name)
    temperature = world.new_temperature()
    if await _waited_for(world, lambda: remote.configure(temperature=temperature)):
        world.story.configured.append(temperature)


async def _remote_compact(world: World) -> None:
    """Have the holder compact the conversation, while others prompt, abort or close."""
    await world.until_idle()
    remote = await world.away.remote(world.name)

    async def compact() -> None:
        world.story.compactions.append((await remote.compact()).id)

    await _waited_for(world, compact, *COMPACTION_REFUSALS)


async def _remote_fork(world: World) -> None:
    """Go on in a branch without holding the session: it knows every call started before."""
    known = frozenset(world.story.runs)
    remote = await world.away.remote(world.name)
    messages = await remote.messages()
    after = world.chance.choice(messages).id if messages and world.by_chance(0.7) else None
    outside = KNOWN_STEPS.set(known)
    try:
        async with await remote.fork(after=after) as branch:
            world.branches.append(str(branch.session_id))
            world.story.found += untrue_offers(branch.messages, known)
            if world.by_chance(0.5):
                await branch.chat("and elsewhere?")
    except AgentError as error:
        world.refused(error, ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.BAD_REQUEST)
    finally:
        KNOWN_STEPS.reset(outside)


REMOTE_HAPPENINGS: dict[str, Callable[[World], Awaitable[object]]] = {
    "remote rewind": _remote_rewind,
    "remote undo": _remote_undo,
    "remote configure": _remote_configure,
    "remote compact": _remote_compact,
    "remote fork": _remote_fork,
}
