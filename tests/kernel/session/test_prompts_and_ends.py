"""Prompts that meet the end of a query, or whose caller gives up: each leaves the queue once."""

import asyncio

from haptera import AgentSession, QueryEnded, tool
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputDrained, InputPromoted
from haptera.model.log.sessions import SessionChanged
from haptera.stores.memory import MemoryStore
from haptera.testing import Gate, calls, says
from tests.attacks.moments import others_run, until
from tests.attacks.slow_store import HeldStore
from tests.scripted_agents import events_of, live_of, make_agent


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def _entries(session: AgentSession) -> list[Entry]:
    live = await live_of(session)
    return await live.store.log.read(live.session_id)


async def _others() -> None:
    for _ in range(20):
        await others_run()


async def test_nothing_comes_after_the_terminal_event_of_a_stream() -> None:
    """Another's commit appends the end, and a prompt is recorded before the query hears of it."""
    store, gate = HeldStore(), Gate()
    agent, _ = make_agent([[says("one")[0], gate], says("two")], store=store)
    async with agent, agent.session() as session:
        watching = asyncio.ensure_future(events_of(session))
        await gate.reached.wait()
        store.log.hold = lambda entries: any(isinstance(item, SessionChanged) for item in entries)

        async def configure_and_steer() -> None:
            await session.configure(max_tokens=20)
            await session.steer("more")

        first = asyncio.ensure_future(session.configure(max_tokens=10))
        await store.log.held.wait()
        session.abort()
        await _others()
        second = asyncio.ensure_future(configure_and_steer())
        await _others()
        store.log.go_on.set()
        events = await watching
        await asyncio.gather(first, second)
        assert [isinstance(event, QueryEnded) for event in events].index(True) == len(events) - 1


async def test_a_steering_prompt_stays_in_its_query_when_its_caller_gives_up() -> None:
    before, after = Gate(), Gate()
    first, second = calls(("look", {})), says("both")
    steps = [[first[0], before, *first[1:]], [second[0], after, *second[1:]]]
    agent, provider = make_agent(steps, store=MemoryStore(), tools=[look])
    async with agent, agent.session() as session:
        asking = asyncio.ensure_future(session.chat("go"))
        await before.reached.wait()
        steering = asyncio.ensure_future(session.chat("also", delivery="steer"))
        await until(lambda: session.unfinished.inputs)
        before.open()
        await after.reached.wait()
        steering.cancel()
        await asyncio.wait({steering})
        after.open()
        assert (await asking).text == "both"
        entries = await _entries(session)
        assert sum(isinstance(entry, InputPromoted) for entry in entries) == 1
        assert not any(isinstance(entry, InputDrained) for entry in entries)
    assert "also" in provider.requests[-1].messages[-1].text


async def test_a_prompt_that_is_being_started_is_not_drained() -> None:
    agent, provider = make_agent([says("one")], store=MemoryStore())
    async with agent, agent.session() as session:
        await session.steer("go")
        assert await session.drain_queue() == ()
        await session.wait_idle()
        assert not any(isinstance(entry, InputDrained) for entry in await _entries(session))
    assert [message.text for message in provider.requests[0].messages] == ["go"]
