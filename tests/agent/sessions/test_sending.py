"""Sending a prompt without waiting for its answer, to a session here or in another process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from haptera import (
    AgentRemote,
    AgentSession,
    ErrorCode,
    MediaPart,
    QueryEnded,
)
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued
from haptera.model.messages import Sender
from haptera.model.operations.session import SendPrompt
from haptera.stores.memory import MemoryStore
from haptera.testing import Gate, ScriptedProvider, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of, live_of, make_agent, texts_in

EITHER_WAY = pytest.mark.parametrize("sent_to", ["session", "remote"])


@asynccontextmanager
async def _opened(
    sent_to: str, steps: list[Step]
) -> AsyncIterator[tuple[AgentSession, AgentSession | AgentRemote, ScriptedProvider]]:
    """Hold a session, and yield it with what prompts are sent to: itself, or its remote."""
    agent, provider = make_agent(steps, store=MemoryStore())
    async with agent, agent.session("ana") as session:
        yield session, await agent.remote("ana") if sent_to == "remote" else session, provider
    provider.check()


async def _entries(session: AgentSession) -> list[Entry]:
    live = await live_of(session)
    return await live.store.log.read(live.session_id)


async def _ended(session: AgentSession, count: int = 1) -> list[QueryEnded]:
    """Wait until so many queries have ended, and return their ends."""
    found: list[QueryEnded] = []
    async for event in session.events():
        if isinstance(event, QueryEnded):
            found.append(event)
            if len(found) == count:
                break
    return found


@EITHER_WAY
async def test_a_sent_prompt_becomes_a_query_with_the_id_that_send_returned(sent_to: str) -> None:
    async with _opened(sent_to, [says("one"), says("two")]) as (session, told, provider):
        first = await told.send("a")
        second = await told.send("b")
        ends = await _ended(session, 2)
        assert [end.query_id for end in ends] == [first, second]
        assert [message.text for message in session.messages] == ["a", "one", "b", "two"]
    assert texts_in(provider.requests[1]) == ["a", "one", "b"]


async def test_a_sent_prompt_is_in_the_store_when_send_returns() -> None:
    gate = Gate()
    async with _opened("session", [[gate, *says("one")], says("two")]) as (session, _, _provider):
        asking = asyncio.ensure_future(session.chat("first"))
        await gate.reached.wait()
        query_id = await session.send("second")
        queued = [entry for entry in await _entries(session) if isinstance(entry, InputQueued)]
        assert [entry.message.query_id for entry in queued] == [query_id]
        gate.open()
        await asking
        await _ended(session, 2)


async def test_a_prompt_for_a_session_that_is_not_held_is_in_its_inbox_when_send_returns() -> None:
    store = MemoryStore()
    agent, _ = make_agent([], store=store)
    async with agent:
        async with agent.session("ana"):
            pass
        remote = await agent.remote("ana")
        query_id = await remote.send("later")
        (command,) = await store.inbox.pending(remote.session_id)
    assert isinstance(command, SendPrompt)
    assert command.message.query_id == query_id


@EITHER_WAY
async def test_a_sender_that_goes_away_does_not_stop_what_it_sent(sent_to: str) -> None:
    gate = Gate()
    async with _opened(sent_to, [[gate, *says("there")]]) as (session, told, _):

        async def send_and_wait_for_ever() -> None:
            await told.send("go")
            await asyncio.Event().wait()

        sending = asyncio.ensure_future(send_and_wait_for_ever())
        await gate.reached.wait()
        sending.cancel()
        await asyncio.wait([sending])
        gate.open()
        (end,) = await _ended(session)
        assert end.stop_reason == "complete"
        assert session.messages[-1].text == "there"


async def test_a_sent_prompt_can_be_aborted() -> None:
    gate = Gate()
    async with _opened("session", [[gate]]) as (session, _, _provider):
        await session.send("go")
        await gate.reached.wait()
        session.abort("enough")
        (end,) = await _ended(session)
        assert end.stop_reason == "aborted"


@EITHER_WAY
async def test_a_sent_prompt_takes_the_options_that_belong_to_its_message(sent_to: str) -> None:
    photo = MediaPart(mime="image/png", url="https://example.org/a.png")
    sender = Sender(kind="agent", user_id="bot")
    async with _opened(sent_to, [says("nice")]) as (session, told, provider):
        await told.send("look", attachments=[photo], sender=sender)
        await _ended(session)
        assert session.messages[0].sender == sender  # type: ignore[union-attr]
    assert provider.requests[0].messages[0].parts[-1] == photo


async def test_a_prompt_that_is_not_to_wait_is_refused_while_the_session_is_busy() -> None:
    gate = Gate()
    async with _opened("session", [[gate, *says("one")]]) as (session, _, _provider):
        asking = asyncio.ensure_future(session.chat("first"))
        await gate.reached.wait()
        error = await failure_of(session.send("second", delivery="reject"))
        assert error.code is ErrorCode.BUSY
        gate.open()
        await asking


@EITHER_WAY
@pytest.mark.parametrize("options", [{"delivery": "qeue"}, {"attachments": 7}], ids=str)
async def test_what_cannot_be_meant_is_refused_before_anything_is_stored(
    sent_to: str, options: dict[str, Any]
) -> None:
    async with _opened(sent_to, []) as (session, told, _):
        assert (await failure_of(told.send("go", **options))).code is ErrorCode.CONFIG_INVALID
        assert (await failure_of(told.send(" "))).code is ErrorCode.CONFIG_INVALID
        assert len(await _entries(session)) == 1


async def test_a_closed_session_takes_no_prompts() -> None:
    agent, _ = make_agent([])
    async with agent:
        session = await agent.session().open()
        await session.close()
        assert (await failure_of(session.send("go"))).code is ErrorCode.CLOSED


async def test_opening_a_session_returns_it() -> None:
    agent, _ = make_agent([])
    async with agent:
        session = agent.session("ana")
        assert await session.open() is session
        assert session.session_id is not None
        assert await session.open() is session
