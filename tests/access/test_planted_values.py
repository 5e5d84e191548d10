"""Whatever a store holds in a field, every public read returns the rest."""

import asyncio
from pathlib import Path

import pytest

from haptera import AgentError
from haptera.model.ids import SessionId
from haptera.model.log.sessions import SessionOpened
from haptera.ports.session_store import Store
from haptera.testing.store_conformance.samples import opened
from tests.planted_values import Planted, planted_logs, read_everything
from tests.samples import sampled
from tests.scripted_agents import make_agent
from tests.stores.store_factories import STORE_FACTORIES


async def keep(store: Store, planted: Planted) -> SessionId:
    session_id = planted.session_id
    lease = await store.leases.acquire(session_id, "test")
    await store.log.append(lease, planted.entries)
    await store.leases.release(lease)
    return session_id


async def check(store: Store, logs: list[Planted]) -> None:
    agent, _ = make_agent([], store=store, project="p")
    failed: list[str] = []
    async with agent:
        kept = {}
        for planted in logs:
            (outcome,) = await asyncio.gather(keep(store, planted), return_exceptions=True)
            if isinstance(outcome, str):
                kept[outcome] = planted
            elif not isinstance(outcome, AgentError):
                failed.append(f"append: {planted.where}: {outcome!r}")
        listed = {
            each.id
            for archived in (False, True)
            for each in await agent.sessions.list(limit=None, children=True, archived=archived)
        }
        openings = {
            session_id
            for session_id, planted in kept.items()
            if isinstance(planted.entries[0], SessionOpened)
        }
        # A session that is marked as deleted is listed nowhere.
        hidden = {each for each, planted in kept.items() if ".deleted" in planted.where}
        failed += [f"list: {kept[each].where}" for each in openings - listed - hidden]
        await agent.sessions.search("ba")
        await agent.sessions.notes()
        for session_id, planted in kept.items():
            reads = read_everything(agent, session_id)
            (error,) = await asyncio.gather(reads, return_exceptions=True)
            if error is not None:
                failed.append(f"read: {planted.where}: {error!r}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("kind", STORE_FACTORIES)
@sampled(61, 25)
def test_every_read_answers_whatever_a_field_holds(kind: str, sample: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(STORE_FACTORIES[kind](tmp_path)) as store:
            await check(store, list(planted_logs(sample=sample)))

    asyncio.run(scenario())
