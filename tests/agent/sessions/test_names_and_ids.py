"""Names and ids that no store can keep are refused before any store is asked."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent
from haptera.model.errors import AgentError, ErrorCode
from haptera.ports.session_store import Store
from haptera.testing import ScriptedProvider, says
from haptera.testing.store_conformance.samples import new_session
from tests.stores.store_factories import STORE_FACTORIES, open_store

HALF = "half \ud800 a character"
LONG = "n" * 70_000


@pytest.fixture(params=list(STORE_FACTORIES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(request.param, tmp_path)


def _agent(store: Store) -> Agent:
    provider = ScriptedProvider([says("Yes.")] * 4)
    return Agent(
        "scripted/m", providers=[provider], store=store, owner="ana", project="/work/house"
    )


async def _refusal(attempt: Callable[[], Awaitable[object]]) -> str:
    with pytest.raises(AgentError) as caught:
        await attempt()
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    return caught.value.message


@pytest.mark.parametrize("length", [513, 70_000])
async def test_a_name_that_is_too_long_is_refused_with_the_limit(store: Store, length: int) -> None:
    async with _agent(store) as agent:
        message = await _refusal(lambda: agent.session("n" * length).chat("Hello"))
        assert "512" in message
        assert len(message) < 200
        await agent.session("n" * 512).chat("Hello")
        session = agent.session("short")
        await session.chat("Hello")

        async def fork() -> None:
            await (await session.fork(name="n" * length)).chat("Hello")

        assert "512" in await _refusal(fork)
    await store.close()


async def test_a_session_that_has_a_longer_name_is_still_opened_by_it(store: Store) -> None:
    lease = await new_session(store, name=LONG)
    await store.leases.renew(lease)
    await store.leases.release(lease)
    async with _agent(store) as agent:
        await agent.session(LONG).chat("Hello")
        assert (await agent.remote(LONG)).session_id == lease.session_id
    await store.close()


async def test_half_a_character_in_an_id_for_another_process_is_refused(store: Store) -> None:
    async with _agent(store) as agent:
        await agent.session("here").chat("Hello")
        remote = await agent.remote("here")
        await _refusal(lambda: remote.approve(HALF))
        await _refusal(lambda: remote.deny(HALF))
        await _refusal(lambda: remote.approve("id", arguments={"a": HALF}))
        await _refusal(lambda: remote.deny(7))  # type: ignore[arg-type]
        await _refusal(lambda: agent.remote(HALF))
        assert await store.inbox.pending(remote.session_id) == ()
    await store.close()


def _with_half(state: dict[str, Any], place: str) -> dict[str, Any]:
    first, second = state["messages"]
    match place:
        case "text":
            first["parts"][0]["text"] = HALF
        case "id":
            first["id"] = HALF
        case "model":
            second["model"] = HALF
    return state


@pytest.mark.parametrize("place", ["text", "id", "model"])
async def test_half_a_character_in_a_state_to_restore_is_refused(store: Store, place: str) -> None:
    async with _agent(store) as agent:
        session = agent.session("here")
        await session.chat("Hello")
        state = _with_half((await session.export()).to_dict(), place)

        async def restore() -> None:
            await agent.session("there", restore=state).chat("And?")

        assert "state" in await _refusal(restore)
    await store.close()
