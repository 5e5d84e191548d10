"""Answers of calls that wait, delivered from elsewhere: another process, a worker, HTTP."""

from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, ErrorCode, ToolEnded, sync, tool
from haptera.access.worker import SessionWorker
from haptera.model.events import Idle
from haptera.model.log.sessions import CommandEnded
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.agent.tools.deferred_orders import NAME, ordering_agent
from tests.scripted_agents import failure_of, log_of, make_agent
from tests.server.serving import serving
from tests.stores.store_factories import DURABLE, STORE_FACTORIES, open_store
from tests.stores.workers import worker

pytestmark = pytest.mark.timeout(60)
PROGRAM = "tests.agent.tools.deferred_orders"


@tool(deferred=True)
async def order(what: str) -> str:
    """Order something."""
    return f"order of {what}"


ORDER: Step = calls(("order", {"what": "tea"}), ids=["one"])


def _agent(steps: list[Step], store: Any, **options: Any) -> Agent:
    options = {"clock": FakeClock(), "environment": {}, "project": "p", **options}
    return Agent(
        "scripted/m", providers=[ScriptedProvider(steps)], store=store, tools=[order], **options
    )


# Sessions that are held elsewhere, or not at all.


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_the_holder_records_a_delivery_and_its_sender_is_told(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    agent, other = _agent([ORDER, says("fine")], store), _agent([], store)
    async with agent, other, agent.session("s") as session:
        await session.chat("go")
        remote = await other.remote("s")
        assert [item.ref for item in (await remote.unfinished()).waiting] == ["order of tea"]
        await remote.deliver("order of tea", "sent")
        await remote.deliver("one", "sent")
        assert (await failure_of(remote.deliver("one", "lost"))).code is ErrorCode.CONFLICT
        assert (await failure_of(remote.deliver("two", 1))).code is ErrorCode.NOT_FOUND
        assert (await session.resume()).text == "fine"
        entries = await log_of(session)
    assert len([entry for entry in entries if isinstance(entry, ToolEnded)]) == 1
    assert len([entry for entry in entries if isinstance(entry, CommandEnded)]) == 4
    await store.close()


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_worker_goes_on_with_a_session_without_a_holder_once_it_was_answered(
    kind: str, tmp_path: Path
) -> None:
    store, clock = open_store(kind, tmp_path), FakeClock()
    async with _agent([ORDER], store, clock=clock) as agent, agent.session("s") as session:
        assert (await session.chat("go")).stop_reason == "waiting"
    async with _agent([], store, clock=clock) as outside:
        remote = await outside.remote("s")
        await remote.deliver("one", "sent")
        assert (await failure_of(remote.deliver("one", "lost"))).code is ErrorCode.CONFLICT
    clock.advance(1)
    async with _agent([says("fine")], store, clock=clock) as agent:
        working = SessionWorker(agent.sessions, lambda query: agent.session(query.session_id))
        assert await working.look() == 1
        await working.wait()
        await working.close()
        remote = await agent.remote("s")
        assert (await remote.messages())[-1].text == "fine"
        assert not await remote.unfinished()
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", DURABLE)
async def test_three_processes_ask_answer_and_go_on_and_the_first_was_killed(
    kind: str, tmp_path: Path
) -> None:
    async with worker(kind, tmp_path, NAME, program=PROGRAM) as first:
        first.send("chat", "and", "die")
        assert await first.reply() == ""
    async with worker(kind, tmp_path, NAME, program=PROGRAM) as second:
        assert await second.ask("deliver", "order_1", '"x"') == "NOT_FOUND"
        assert await second.must("deliver", "one", '"sent"') == "delivered"
        assert await second.ask("deliver", "one", '"lost"') == "CONFLICT"
    async with worker(kind, tmp_path, NAME, program=PROGRAM) as third:
        assert await third.must("resume") == "complete fine"
        assert await third.must("deliver", "one", '"sent"') == "delivered"
    assert (tmp_path / "effects").read_text() == "tea\n"
    async with ordering_agent(kind, tmp_path, []) as agent, agent.session(NAME) as session:
        ends = [entry for entry in await log_of(session) if isinstance(entry, ToolEnded)]
    assert [entry.outcome for entry in ends] == ["ok"]


def test_a_blocking_agent_delivers_too() -> None:
    script = [ORDER, says("fine")]
    provider = ScriptedProvider(script)
    with sync.Agent("scripted/m", providers=[provider], tools=[order], environment={}) as agent:
        session = agent.session()
        assert session.chat("go").stop_reason == "waiting"
        session.deliver("one", {"sent": True})
        assert session.resume().result().text == "fine"
        session.close()


# HTTP and JSON-RPC.


async def test_a_server_goes_on_by_itself_once_the_answer_was_posted() -> None:
    agent, _ = make_agent([ORDER, says("fine")], tools=[order])
    async with serving(agent) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        status, ended = await served.call(
            "POST", f"{path}/messages", {"content": "go"}, headers={"prefer": "wait=30"}
        )
        assert (status, ended["end"]["stop_reason"]) == (200, "waiting")
        waits = [
            event.data for event in await served.log(session_id) if event.kind == "tool.waiting"
        ]
        assert [each["ref"] for each in waits] == ["order of tea"]
        status, problem = await served.call(
            "POST", f"{path}/deliveries", {"call": "x", "result": 1}
        )
        assert (status, problem["code"]) == (404, "NOT_FOUND")
        delivery = {"call": "order of tea", "result": {"sent": True}}
        for _ in range(2):
            status, _ = await served.call("POST", f"{path}/deliveries", delivery)
            assert status == 202
        status, problem = await served.call(
            "POST", f"{path}/deliveries", {"call": "one", "error": "lost"}
        )
        assert (status, problem["code"]) == (409, "CONFLICT")
        async with served.events(f"{path}/events") as events:
            async for event in events:
                if event.kind == "query.ended" and event.data["stop_reason"] == "complete":
                    break


async def test_the_status_of_a_session_says_how_many_calls_wait() -> None:
    agent, _ = make_agent([ORDER], tools=[order])
    async with agent, agent.session("s") as session:
        await session.chat("go")
        remote = await agent.remote("s")
        assert session.status == await remote.status() == Idle(calls=1)
