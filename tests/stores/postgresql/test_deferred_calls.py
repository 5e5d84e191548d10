"""Calls that wait on a shared database: answered from another node, and carried on by a worker."""

from typing import Any

import pytest

from haptera import Agent, ErrorCode, Later, ToolEnded, tool
from haptera.access.worker import SessionWorker
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

pytestmark = pytest.mark.slow
OWNER = "ana"


@tool
async def order(what: str) -> str:
    """Order something."""
    raise Later(ref=f"order of {what}", until=60, otherwise="nothing came")


ORDER: Step = calls(("order", {"what": "tea"}), ids=["one"])


def _node(
    postgres: PostgresServer, database: str, steps: list[Step], **options: Any
) -> tuple[Agent, PostgresStore]:
    store = PostgresStore(postgres.url(database, role=APP_ROLE), owner=OWNER)
    fixed = {"environment": {}, "owner": OWNER, "project": "p", "tools": [order]}
    provider = ScriptedProvider(steps)
    return Agent("scripted/a", providers=[provider], store=store, **{**fixed, **options}), store


async def test_a_call_is_answered_from_another_node_once_and_a_worker_goes_on(
    postgres: PostgresServer, database: str
) -> None:
    agent, store = _node(postgres, database, [ORDER])
    async with agent, agent.session("s") as session:
        result = await session.chat("go")
        assert (result.stop_reason, [item.ref for item in result.waiting]) == (
            "waiting",
            ["order of tea"],
        )
        held, held_store = _node(postgres, database, [])
        async with held:
            remote = await held.remote("s")
            error = await failure_of(remote.deliver("two", 1))
            assert error.code is ErrorCode.NOT_FOUND
        await held_store.close()
    second, second_store = _node(postgres, database, [says("fine")])
    async with second:
        worker = SessionWorker(
            second_store, lambda query: second.session(query.session_id, must_exist=True)
        )
        assert await worker.look() == 0
        remote = await second.remote("s")
        await remote.deliver("order of tea", "sent")
        await remote.deliver("one", "sent")
        assert (await failure_of(remote.deliver("one", "lost"))).code is ErrorCode.CONFLICT
        assert await worker.look() == 1
        await worker.wait()
        await worker.close()
        assert (await remote.messages())[-1].text == "fine"
        entries = await second_store.log.read(remote.session_id)
    ends = [entry.outcome for entry in entries if isinstance(entry, ToolEnded)]
    assert ends == ["ok"]
    await store.close()
    await second_store.close()


async def test_the_next_node_that_opens_a_session_answers_what_is_due(
    postgres: PostgresServer, database: str
) -> None:
    clock = FakeClock()
    agent, store = _node(postgres, database, [ORDER], clock=clock)
    async with agent, agent.session("s") as session:
        await session.chat("go")
    clock.advance(61)
    second, second_store = _node(postgres, database, [says("fine")], clock=clock)
    async with second, second.session("s") as session:
        assert not session.unfinished.waiting
        assert (await session.resume()).text == "fine"
        assert (await failure_of(session.deliver("one", "late"))).code is ErrorCode.CONFLICT
    await store.close()
    await second_store.close()
