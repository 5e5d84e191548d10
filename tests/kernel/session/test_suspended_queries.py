"""Closing suspends: a query that runs when its session is closed has no end, and is carried on."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentError, ErrorCode, Event, tool
from haptera.access.worker import SessionWorker
from haptera.model.events import QuerySuspended
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded, QueryStarted
from haptera.model.log.tools import ToolEnded
from haptera.model.settings import RuntimeSettings
from haptera.ports.session_store import Store
from haptera.sync import Agent as BlockingAgent
from haptera.testing import Gate, ScriptedProvider, calls, says
from tests.stores.store_factories import STORE_FACTORIES, open_store

AT_ONCE = RuntimeSettings(close_drain_seconds=0.01)


class Desk:
    """Agents over one store, one after the other, as processes would have them."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def agent(self, *steps: Any, **options: Any) -> tuple[Agent, ScriptedProvider]:
        """Make the next agent."""
        provider = ScriptedProvider(list(steps))
        options = {"store": self.store, "runtime": AT_ONCE, **options}
        return Agent("scripted/one", providers=[provider], **options), provider

    async def log(self) -> list[Entry]:
        """Return the log of the session."""
        async with self.agent()[0] as agent:
            remote = await agent.remote("one")
        return await self.store.log.read(remote.session_id)


@pytest.fixture(params=STORE_FACTORIES)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return Desk(open_store(request.param, tmp_path))


def held(gate: Gate) -> list[Any]:
    """Script an answer that stops after its first words."""
    first = says("Half", " an answer.")
    return [*first[:3], gate, *first[3:]]


CLOSES: dict[str, Callable[..., Any]] = {
    "close": lambda agent, session: session.close(),
    "forced close": lambda agent, session: session.close(force=True),
    "close of the agent": lambda agent, session: agent.close(),
}


@pytest.mark.parametrize("how", CLOSES)
async def test_a_query_that_is_closed_has_no_end_and_is_carried_on(how: str, desk: Desk) -> None:
    gate = Gate()
    agent, _ = desk.agent(held(gate))
    session = await agent.session("one").open()
    events: list[Event] = []
    asking = asyncio.ensure_future(_told(session, events))
    await gate.reached.wait()
    await CLOSES[how](agent, session)
    error = await asking
    assert error.code is ErrorCode.ABORTED
    assert error.result is not None
    assert (error.result.suspended, error.result.text) == (True, "Half")
    assert isinstance(events[-1], QuerySuspended)
    assert not any(isinstance(event, QueryEnded) for event in events)
    await agent.close()
    log = await desk.log()
    assert not any(isinstance(entry, QueryEnded) for entry in log)

    agent, provider = desk.agent(says(" an answer."))
    async with agent, agent.session("one") as session:
        assert session.unfinished
        assert session.unfinished.interrupted_text == "Half", "what was streamed is in the log"
        assert provider.requests == [], "opening starts nothing"
        assert (await session.resume()).text == "Half an answer."
        assert not session.unfinished
    ends = [entry for entry in await desk.log() if isinstance(entry, QueryEnded)]
    assert [entry.stop_reason for entry in ends] == ["complete"]
    await desk.store.close()


async def _told(session: Any, events: list[Event]) -> AgentError:
    with pytest.raises(AgentError) as raised:
        stream = session.stream("go")
        async for batch in stream.batches():
            events.extend(batch)
    return raised.value


@pytest.mark.parametrize("how", ["abort", "close(abort=True)"])
async def test_an_abort_ends_the_query(how: str, desk: Desk) -> None:
    gate = Gate()
    agent, _ = desk.agent(held(gate))
    session = await agent.session("one").open()
    asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
    await gate.reached.wait()
    if how == "abort":
        session.abort()
    else:
        await session.close(abort=True)
    result = await asking
    assert (result.stop_reason, result.suspended) == ("aborted", False)
    await agent.close()
    ends = [entry for entry in await desk.log() if isinstance(entry, QueryEnded)]
    assert [entry.stop_reason for entry in ends] == ["aborted"]
    await desk.store.close()


async def test_a_query_may_end_by_itself_while_its_session_is_closed(desk: Desk) -> None:
    gate = Gate()
    agent, _ = desk.agent(held(gate), runtime=RuntimeSettings(close_drain_seconds=30))
    session = await agent.session("one").open()
    asking = asyncio.ensure_future(session.chat("go"))
    await gate.reached.wait()
    closing = asyncio.ensure_future(agent.close())
    asyncio.get_running_loop().call_soon(gate.open)
    await closing
    assert (await asking).text == "Half an answer."
    assert not (await asking).suspended
    await desk.store.close()


async def test_a_session_goes_back_to_an_answer_that_was_cut_off_and_carried_on(
    desk: Desk,
) -> None:
    gate = Gate()
    asks = calls(("pay", {}), text="I pay.")
    agent, _ = desk.agent([*asks[:-1], gate, asks[-1]])
    session = await agent.session("one").open()
    asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
    await gate.reached.wait()
    await agent.close()
    assert (await asking).suspended

    agent, _ = desk.agent(says("done"))
    async with agent, agent.session("one") as session:
        await session.resume()
        (_, cut_off, _, answer) = session.messages
        assert (cut_off.text, answer.text) == ("I pay.", "done")
        async with await session.fork(after=cut_off.id) as branch:
            assert branch.messages[1] == cut_off
        await session.rewind(to=cut_off.id)
        assert session.messages[1] == cut_off
        assert answer not in session.messages
        await session.undo_rewind()
        assert session.messages[-1] == answer
    await desk.store.close()


async def test_leaving_a_stream_still_aborts(desk: Desk) -> None:
    gate = Gate()
    agent, _ = desk.agent(held(gate))
    async with agent, agent.session("one") as session, session.stream("go") as stream:
        taking = asyncio.ensure_future(_taken(stream))
        await gate.reached.wait()
    await taking
    ends = [entry for entry in await desk.log() if isinstance(entry, QueryEnded)]
    assert [entry.stop_reason for entry in ends] == ["aborted"]
    await desk.store.close()


async def _taken(stream: Any) -> None:
    try:
        async for _ in stream:
            pass
    except AgentError:
        pass


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_tool_that_runs_is_left_as_a_crash_leaves_it(idempotent: bool, desk: Desk) -> None:
    runs, started = [], asyncio.Event()

    @tool(idempotent=idempotent)
    async def pay() -> str:
        """Pay."""
        runs.append("paid")
        started.set()
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "paid"

    agent, _ = desk.agent(calls(("pay", {})), tools=[pay])
    session = await agent.session("one").open()
    asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
    await started.wait()
    await agent.close()
    assert (await asking).suspended
    assert not any(isinstance(entry, ToolEnded) for entry in await desk.log())

    agent, _ = desk.agent(says("done"), tools=[pay])
    async with agent, agent.session("one") as session:
        (call,) = session.unfinished.calls
        assert call.fate == "unknown"
        await session.resume()
        stats = await agent.sessions.stats("one")
    assert len(runs) == (2 if idempotent else 1)
    assert stats.tool_calls == 1, "a call that runs again is one call"
    await desk.store.close()


async def test_a_call_that_was_aborted_while_it_ran_may_have_happened(desk: Desk) -> None:
    started = asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        started.set()
        await asyncio.Event().wait()
        return "paid"

    agent, _ = desk.agent(calls(("pay", {})), tools=[pay])
    async with agent, agent.session("one") as session:
        asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
        await started.wait()
        session.abort()
        assert (await asking).stop_reason == "aborted"
        (call,) = session.unfinished.calls
        assert call.fate == "unknown", "the model is told that it may have taken effect"
        assert "may not have taken effect" in str(session.messages[-1])
        assert not session.unfinished, "the query has ended"
    await desk.store.close()


async def test_an_approval_that_is_waited_for_can_be_given_later(desk: Desk) -> None:
    @tool(approval="ask")
    async def pay() -> str:
        """Pay."""
        return "paid"

    asked = asyncio.Event()

    async def think(_request: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    agent, _ = desk.agent(calls(("pay", {})), tools=[pay], approver=think)
    session = await agent.session("one").open()
    asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
    await asked.wait()
    await agent.close()
    assert (await asking).suspended

    agent, _ = desk.agent(says("paid it"), tools=[pay])
    async with agent, agent.session("one") as session:
        (approval,) = session.unfinished.approvals
        await session.approve(approval.id)
        assert (await session.resume()).text == "paid it"
    await desk.store.close()


async def test_a_sub_agent_is_suspended_with_its_caller(desk: Desk) -> None:
    gate = Gate()
    helper, _ = desk.agent(held(gate))
    agent, _ = desk.agent(
        calls(("ask", {"prompt": "help"})),
        tools=[helper.as_tool(name="ask", description="Ask.")],
    )
    session = await agent.session("one").open()
    asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
    await gate.reached.wait()
    await agent.close()
    assert (await asking).suspended
    await helper.close()

    helper, answering = desk.agent(says("helped"))
    agent, _ = desk.agent(says("done"), tools=[helper.as_tool(name="ask", description="Ask.")])
    async with helper, agent, agent.session("one") as session:
        assert (await session.resume()).text == "done"
        (child,) = [each for each in await agent.sessions.list(children=True) if each.spawned_by]
        log = await desk.store.log.read(child.id)
    assert len(answering.requests) == 1
    assert [entry.stop_reason for entry in log if isinstance(entry, QueryEnded)] == ["complete"]
    assert len([entry for entry in log if isinstance(entry, QueryStarted)]) == 2
    await desk.store.close()


async def test_a_worker_carries_on_what_was_suspended(desk: Desk) -> None:
    gate = Gate()
    agent, _ = desk.agent(held(gate))
    session = await agent.session("one").open()
    asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
    await gate.reached.wait()
    await agent.close()
    assert (await asking).suspended
    agent, _ = desk.agent(says("carried on"))
    async with agent:
        worker = SessionWorker(
            agent.sessions, lambda query: agent.session(query.session_id, must_exist=True)
        )
        assert await worker.look() == 1
        await worker.wait()
    ends = [entry for entry in await desk.log() if isinstance(entry, QueryEnded)]
    assert [entry.stop_reason for entry in ends] == ["complete"]
    await desk.store.close()


def test_a_blocking_agent_suspends_too(tmp_path: Path) -> None:
    gate = Gate()
    store = f"jsonl:{tmp_path}"
    with BlockingAgent(
        "scripted/one", providers=[ScriptedProvider([held(gate)])], store=store, runtime=AT_ONCE
    ) as agent:
        session = agent.session("one")
        stream = session.stream("go")
        texts = stream.text()
        assert next(texts) == "Half"
        session.close()
        with pytest.raises(AgentError) as raised:
            list(texts)
    assert raised.value.result is not None
    assert raised.value.result.suspended
    with BlockingAgent(
        "scripted/one", providers=[ScriptedProvider([says(", whole")])], store=store
    ) as agent:
        session = agent.session("one")
        session.open()
        assert session.unfinished
        assert session.resume().result().text == "Half, whole"
