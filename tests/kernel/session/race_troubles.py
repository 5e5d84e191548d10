"""What happens to a session when its store fails, and when what is asked is asked twice."""

import asyncio
from collections.abc import Awaitable, Callable

from haptera.model.errors import AgentError
from haptera.testing.promises import require
from tests.kernel.session.race_world import World
from tests.scripted_agents import live_of

_GIVEN_UP_SECONDS = 10.0
"""Virtual seconds in which a caller that gave an opening up goes on, whatever the store does."""


async def _hang(world: World) -> None:
    """Let the store answer nothing for a while."""
    world.has_trouble = True
    world.answers.clear()
    await world.wait(world.chance.choice((0.3, 2, 10)))
    world.answers.set()


async def _late_open(world: World) -> None:
    """Give up an opening that a silent store carries out later: no one's lease is left."""
    agent = world.chance.choice((world.home, world.away))
    session = agent.session(world.name, busy=world.chance.choice(("wait", "reject")))
    opening = asyncio.ensure_future(session.open())
    await world.turns(world.chance.randint(0, 12))
    world.has_trouble = True
    world.answers.clear()
    await world.wait(world.chance.choice((0, 0.1, 3)))
    opening.cancel()
    _, left = await asyncio.wait({opening}, timeout=_GIVEN_UP_SECONDS)
    require(not left, "a caller that gave up goes on")
    world.answers.set()
    if session.session_id is not None:
        await world.close(session)


async def _failed_release(world: World) -> None:
    """Close the session while its store fails to release it; that happens later."""
    world.has_trouble = True
    world.store.leases.failures += 1
    await world.close(world.session, force=world.by_chance(0.5))


async def _cancelled_close(world: World) -> None:
    """Give a closing up at any step: the session is closed all the same."""
    closing = asyncio.ensure_future(world.close(world.session, force=world.by_chance(0.7)))
    await world.turns(world.chance.randint(0, 12))
    closing.cancel()
    await asyncio.wait({closing})


async def _suspend(world: World) -> None:
    """Close the session at once: a query that was not stopped before has no end by that."""
    session = world.session
    try:
        live = await live_of(session)
    except AgentError as error:
        world.refused(error)
        return
    current = live.queue.current
    if current is not None and current.stop is None and not current.ended:
        world.story.suspended.append(str(current.query.query_id))
    await world.close(session, force=True)


async def _twice(world: World) -> None:
    """Send one message several times at once, from here and elsewhere: it is taken in once.

    What is appended meanwhile reaches the store twice.
    """
    text = world.new_prompt("repeated")
    message_id = text.replace(" ", "_")
    remote = await world.away.remote(world.name)
    world.store.log.repeats += world.chance.choice((1, 3, 10))

    async def send(*, is_remote: bool) -> None:
        await world.turns(world.chance.choice((0, 0, 1, 5)))
        try:
            if is_remote:
                await remote.send(text, message_id=message_id)
            else:
                await world.session.send(text, message_id=message_id)
        except AgentError as error:
            world.refused(error)
        else:
            world.keep(text)

    senders = range(world.chance.choice((2, 3, 8)))
    await asyncio.gather(*(send(is_remote=world.by_chance(0.4)) for _ in senders))


TROUBLES: dict[str, Callable[[World], Awaitable[object]]] = {
    "hang": _hang,
    "late open": _late_open,
    "failed release": _failed_release,
    "cancelled close": _cancelled_close,
    "suspend": _suspend,
    "twice": _twice,
}
