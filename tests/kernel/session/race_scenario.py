"""One session under fire: everything that can happen to it, at times drawn by chance."""

import asyncio

from haptera import AgentSession, Approve, QueryEnded, QueryStarted
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.events import Failed, Idle, QuerySuspended
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.parts import ToolResultPart
from haptera.testing import says
from tests.kernel.session.race_happenings import answer, deliver, draw, happen
from tests.kernel.session.race_laws import (
    Story,
    check_all_settled,
    check_log,
    check_story,
    untrue_offers,
)
from tests.kernel.session.race_world import WatchingProvider, World
from tests.scripted_agents import live_of

_ROUNDS = 60
"""How often a session is resumed until it must be at rest."""

_MEANWHILE = (
    ErrorCode.NOTHING_TO_SEND,
    ErrorCode.BAD_REQUEST,
    ErrorCode.ABORTED,
    ErrorCode.BUSY,
)
"""What resuming may end with: commands are still carried out, and the script has errors."""


async def play(seed: int, theme: str | None = None) -> Story:
    """Run one race and check what must hold whatever happened; without a theme one is drawn."""
    story, _ = await _play(seed, theme)
    return story


async def play_log(seed: int) -> list[Entry]:
    """Run one race and return the log that it leaves."""
    _, log = await _play(seed, None)
    return log


async def _play(seed: int, theme: str | None) -> tuple[Story, list[Entry]]:
    world = World(seed)
    await world.session.open()
    await _race(world, theme)
    await _leave(world)
    session_id = await _reopen(world)
    log = await world.store.log.read(session_id)
    check_story(world.story, log)
    check_all_settled(log)
    await _check_store(world, session_id)
    return world.story, log


async def _race(world: World, theme: str | None) -> None:
    """Let a query and everything that is drawn happen at the same time."""
    wanted, related = draw(world, theme)
    timeout = world.moment() + 0.01 if world.by_chance(0.3) else None
    async with asyncio.TaskGroup() as group:
        group.create_task(_consume(world, timeout))
        if timeout is not None:
            group.create_task(_note_at(world, timeout, "timeout"))
        for name in wanted:
            group.create_task(happen(world, name, related))


async def _note_at(world: World, seconds: float, happening: str) -> None:
    await world.wait(seconds)
    world.note(happening)


async def _consume(world: World, timeout: float | None) -> None:
    """Watch a query: it has one terminal event, unless it never began."""
    session, text = world.session, world.new_prompt("first")
    begun = ends = 0
    error: AgentError | None = None
    try:
        async for event in session.stream(text, total_timeout=timeout):
            assert ends == 0, "an event came after the terminal one"
            begun += isinstance(event, QueryStarted)
            ends += isinstance(event, QueryEnded | QuerySuspended)
            if isinstance(event, QuerySuspended):
                world.story.suspended.append(str(event.query_id))
    except AgentError as caught:
        error = caught
    assert ends == 1 or (error is not None and not begun), f"{ends} terminal events, {error!r}"
    if begun:
        world.story.prompts[text] = "logged"


async def _leave(world: World) -> None:
    """Check that the session goes on if it is open; close it, and see that it is free at once."""
    session = world.session
    world.is_over = True
    try:
        await _bring_to_rest(world, session)
    except AgentError as error:
        assert error.code is ErrorCode.CLOSED
    else:
        await _check_next_query(world, session, world.provider)
    world.store.leases.failures = 0
    await world.close(session)
    await world.store.rest()  # a lease that came too late for its caller is given back first
    await world.check_free(world.away, world.name)
    await world.close(world.away)
    await world.close(world.home)


async def _bring_to_rest(world: World, session: AgentSession) -> None:
    """Approve what waits and resume until every command is carried out and nothing is left."""
    live = await live_of(session)
    for _ in range(_ROUNDS):
        await session.wait_idle()
        for request in session.unfinished.approvals:
            await answer(world, session, request.id, "approved")
        for call in session.unfinished.waiting:
            await deliver(world, session, call.call_id, world.new_answer())
        try:
            await session.resume()
        except AgentError as error:
            assert error.code in _MEANWHILE
        has_commands = await world.store.inbox.pending(live.session_id)
        await session.wait_idle()
        if not has_commands and _is_at_rest(session):
            return
        await world.wait(0.1)
    raise AssertionError("the session does not come to rest")


def _is_at_rest(session: AgentSession) -> bool:
    """Whether nothing is left to be done."""
    left = session.unfinished
    is_idle = isinstance(session.status, Idle | Failed)
    return is_idle and (left.query_id, left.inputs, left.approvals) == (None, (), ())


async def _check_next_query(
    world: World, session: AgentSession, provider: WatchingProvider
) -> None:
    """Whatever came before, the next query runs: its tool is approved and its answer kept."""
    provider.replace_rest(world.calls(1), says("all is well"))
    world.defers = False
    text = world.new_prompt("last")
    world.story.prompts[text] = "logged"
    result = await session.chat(text)
    if result.stop_reason == "approval":
        for request in result.pending:
            await session.approve(request.id)
        result = await session.resume()
    assert result.text == "all is well"
    outcomes = [
        part.outcome
        for message in result.new_messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]
    assert outcomes == ["ok"]


async def _reopen(world: World) -> SessionId:
    """Open the session in a new agent, at once, and bring it to rest."""
    provider = WatchingProvider(world.story, [])

    async def decide(_request: object) -> Approve:
        return Approve()

    heir = world.new_agent(provider, approver=decide)
    async with heir, heir.session(world.name, must_exist=True) as session:
        world.story.found += untrue_offers(session.messages, world.story.runs)
        await _bring_to_rest(world, session)
        await _check_next_query(world, session, provider)
        session_id = session.session_id
    assert session_id is not None
    await world.store.rest()
    for each in (world.provider, provider):
        assert each.open_streams == 0
    return session_id


async def _check_store(world: World, session_id: SessionId) -> None:
    """Check that no command is left, no lease is held, and what branches did is in order."""
    assert list(await world.store.inbox.pending(session_id)) == []
    lease = await world.store.leases.acquire(session_id, "checker", busy="reject")
    await world.store.leases.release(lease)
    for branch in world.branches:
        check_log(await world.store.log.read(SessionId(branch)))
