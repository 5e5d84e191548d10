"""A query in a cancel scope of `anyio`, which cancels every wait, is settled when it ends."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from haptera import Agent, AgentSession, run_agent
from haptera.model.events import Idle
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded
from haptera.ports.session_store import Store
from haptera.testing import ScriptedProvider, says
from tests.stores.store_factories import STORE_FACTORIES, open_store


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _provider(answers: int) -> ScriptedProvider:
    said = says("Half", " an answer.")
    return ScriptedProvider([[*said[:3], _for_ever, *said[3:]]] * answers)


async def _chat(session: AgentSession) -> None:
    await session.chat("go")


async def _iterate(session: AgentSession) -> None:
    async for _ in session.stream("go"):
        pass


async def _enter(session: AgentSession) -> None:
    async with session.stream("go") as stream:
        async for _ in stream:
            pass


WAYS: dict[str, Callable[[AgentSession], Awaitable[None]]] = {
    "chat": _chat,
    "iteration": _iterate,
    "async with": _enter,
}


@pytest.mark.parametrize("kind", STORE_FACTORIES)
@pytest.mark.parametrize("way", WAYS)
async def test_what_was_said_is_in_the_log_when_a_scope_ends(
    way: str, kind: str, tmp_path: Path
) -> None:
    store: Store = open_store(kind, tmp_path)
    async with Agent("scripted/m", providers=[_provider(1)], store=store) as agent:
        session = await agent.session("one").open()
        with anyio.move_on_after(0.2) as scope:
            await WAYS[way](session)
        assert scope.cancelled_caught
        assert isinstance(session.status, Idle)
        assert [message.text for message in session.messages] == ["go", "Half"]
        assert session.session_id is not None
        log: list[Entry] = list(await store.log.read(session.session_id))
    assert isinstance(log[-1], QueryEnded)
    assert log[-1].stop_reason == "aborted"
    await store.close()


async def test_nothing_is_held_when_a_scope_around_everything_ends(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = asyncio.all_tasks()
        with anyio.move_on_after(0.2):
            await run_agent("go", model="scripted/m", providers=[_provider(1)])
        assert asyncio.all_tasks() == before
        with anyio.move_on_after(0.2):
            store = f"sqlite:{tmp_path / 'chat.db'}"
            async with (
                Agent("scripted/m", providers=[_provider(1)], store=store) as agent,
                agent.session("one") as session,
            ):
                await session.chat("go")
        assert asyncio.all_tasks() == before
    agent = Agent("scripted/m", providers=[ScriptedProvider()], store=store)
    async with agent, agent.session("one") as session:  # no lease was left behind
        assert [message.text for message in session.messages] == ["go", "Half"]


async def test_a_task_group_that_fails_settles_the_query(tmp_path: Path) -> None:
    store = open_store("sqlite", tmp_path)
    async with Agent("scripted/m", providers=[_provider(1)], store=store) as agent:
        session = await agent.session("one").open()

        async def fail() -> None:
            await anyio.sleep(0.2)
            raise ValueError("something else")

        with pytest.raises(BaseExceptionGroup) as raised:
            async with anyio.create_task_group() as group:
                group.start_soon(_chat, session)
                group.start_soon(fail)
        assert raised.group_contains(ValueError)
        found: Any = session.messages[-1]
        assert (found.text, found.interrupted) == ("Half", True)
    await store.close()
