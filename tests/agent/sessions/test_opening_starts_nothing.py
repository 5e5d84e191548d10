"""Opening a session starts nothing: what waits there runs when a query is resumed or sent."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from haptera import Agent, AgentSession, ErrorCode, QueryStarted, tool
from haptera.agent.remote import AgentRemote
from haptera.model.events import Busy, Failed, Idle
from haptera.model.log.queries import InputQueued
from haptera.model.messages import KeptOptions
from haptera.model.settings import RuntimeSettings
from haptera.stores.memory import MemoryStore
from haptera.testing import Gate, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.attacks.moments import until
from tests.scripted_agents import failure_of, make_agent, outcomes_in, texts_in


class Desk:
    """A store, the programs on it one after the other, and a tool that must be allowed."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.paid: list[int] = []
        self.pay = tool(name="pay", approval="ask")(self._pay)

    async def _pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        return f"paid {amount}"

    def agent(self, *steps: Step, **options: Any) -> tuple[Agent, ScriptedProvider]:
        """Return an agent of a program of its own."""
        return make_agent(steps, store=self.store, tools=[self.pay], **options)

    async def rest(self, *amounts: int) -> list[str]:
        """Let a session rest on approvals; return their ids."""
        agent, _ = self.agent(calls(*(("pay", {"amount": amount}) for amount in amounts)))
        async with agent, agent.session("x") as session:
            return [asked.id for asked in (await session.chat("go")).pending]

    async def remote(self) -> AgentRemote:
        """Reach the session from a program that does not hold it."""
        return await self.agent()[0].remote("x")


async def test_approve_remotely_send_remotely_reopen_resume() -> None:
    desk = Desk()
    (asked,) = await desk.rest(20)
    remote = await desk.remote()
    assert [request.id for request in await remote.pending()] == [asked]
    assert await remote.status() == Idle(approvals=1)
    await remote.approve(asked)
    await remote.send("and then?")
    assert (await remote.pending(), await remote.status()) == ((), Idle(waiting=1))
    agent, provider = desk.agent(says("It is paid."), says("Nothing."))
    async with agent, agent.session("x") as session:
        assert (await session.wait_idle(), desk.paid) == (Idle(waiting=1), [])
        assert (await session.resume()).text == "It is paid."
        assert await session.wait_idle() == Idle()
        assert [message.text for message in session.messages][-2:] == ["and then?", "Nothing."]
        assert await remote.messages() == session.messages
    assert desk.paid == [20]
    assert outcomes_in(provider.requests[0]) == [("pay", "ok", "paid 20")]
    assert texts_in(provider.requests[1])[-1] == "and then?"


@pytest.mark.parametrize("order", ["prompt first", "answer first"])
async def test_the_next_prompt_lets_what_was_approved_and_what_waits_run_first(
    order: str,
) -> None:
    desk = Desk()
    (asked,) = await desk.rest(20)
    remote = await desk.remote()
    if order == "prompt first":
        await remote.send("one")
        await remote.approve(asked)
    else:
        await remote.approve(asked)
        await remote.send("one")
    agent, provider = desk.agent(says("paid"), says("1"), says("2"))
    async with agent, agent.session("x") as session:
        assert (await session.chat("two")).text == "2"
    assert desk.paid == [20]
    assert texts_in(provider.requests[-1])[-4:] == ["paid", "one", "1", "two"]


async def test_what_was_approved_and_is_asked_anew_does_not_hold_the_next_prompt_up() -> None:
    desk = Desk()
    first, second = await desk.rest(1, 2)
    await (await desk.remote()).send("one")
    again = calls(("pay", {"amount": 3}))
    agent, provider = desk.agent(again, says("1"), says("fine"))
    async with agent, agent.session("x") as session:
        await session.approve(first)
        assert (await session.chat("stop that")).text == "fine"
        assert (await failure_of(session.approve(second))).code is ErrorCode.NOT_FOUND
        assert session.status == Idle()
    assert desk.paid == [1]
    told = [(name, outcome) for name, outcome, _ in outcomes_in(provider.requests[1])]
    assert told == [("pay", "ok"), ("pay", "denied"), ("pay", "denied")]


async def test_a_new_prompt_where_none_waits_goes_on_without_what_was_approved() -> None:
    desk = Desk()
    (asked,) = await desk.rest(20)
    agent, provider = desk.agent(says("as you like"))
    async with agent, agent.session("x") as session:
        await session.approve(asked)
        assert (await session.chat("never mind")).text == "as you like"
    assert desk.paid == []
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[0])] == ["interrupted"]


async def test_a_prompt_that_came_while_a_session_was_closed_waits_in_it() -> None:
    desk = Desk()
    agent, _ = desk.agent(says("Hello."))
    async with agent, agent.session("x") as session:
        await session.chat("Hi")
    remote = await desk.remote()
    await remote.send("one")
    await remote.send("two", delivery="reject")  # no process is busy with it, but a prompt waits
    await remote.send("three", delivery="steer")
    agent, provider = desk.agent(says("1"), says("3"))
    async with agent, agent.session("x") as session:
        waiting = [item.message.text for item in session.unfinished.inputs]
        assert (waiting, session.status) == (["one", "three"], Idle(waiting=2))
        assert provider.requests == []
        assert await desk.store.inbox.pending(remote.session_id) == ()
        assert (await session.resume()).text == "1"
        await session.wait_idle()
        assert session.messages[-1].text == "3"


async def test_a_prompt_that_comes_once_a_session_is_open_starts_what_waits() -> None:
    desk = Desk()
    agent, _ = desk.agent(says("Hello."))
    async with agent, agent.session("x") as session:
        await session.chat("Hi")
    remote = await desk.remote()
    await remote.send("one")
    agent, _ = desk.agent(says("1"), says("2"))
    async with agent, agent.session("x") as session:
        await remote.send("two")
        await until(lambda: session.messages[-1].text == "2")
        assert [message.text for message in session.messages[-4:]] == ["one", "1", "two", "2"]


async def test_a_rewind_in_a_session_that_was_opened_starts_nothing() -> None:
    desk = Desk()
    agent, _ = desk.agent(says("Hello."))
    async with agent, agent.session("x") as session:
        await session.chat("Hi")
    await (await desk.remote()).send("one")
    agent, provider = desk.agent()
    async with agent, agent.session("x") as session:
        await session.rewind(to=session.messages[0].id)
        assert await session.wait_idle() == Idle(waiting=1)
    assert provider.requests == []


async def test_a_remote_reads_what_a_session_does() -> None:
    desk, gate = Desk(), Gate()
    agent, _ = desk.agent([gate, *says("done")])
    async with agent, agent.session("x") as session:
        asking = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        remote = await desk.remote()
        assert await remote.status() == Busy()
        assert [message.text for message in await remote.messages()] == ["go"]
        gate.open()
        await asking
        assert await remote.status() == Idle()
        failed = await failure_of(session.chat("once more"))
        status = await remote.status()
        assert isinstance(status, Failed)
        assert status.error.code == failed.code


# What a prompt that waits keeps of its options.


async def left_waiting(desk: Desk, **options: Any) -> list[InputQueued]:
    """Close a session while a prompt with options waits in it."""
    gate = Gate()
    runtime = RuntimeSettings(close_drain_seconds=0)
    agent, _ = desk.agent([gate], runtime=runtime)
    async with agent, agent.session("x") as session:
        asking = [asyncio.ensure_future(session.chat("first"))]
        await gate.reached.wait()
        asking.append(asyncio.ensure_future(session.chat("second", **options)))
        await until(lambda: session.view().pending)
        await session.close(abort=True)
        await asyncio.gather(*asking, return_exceptions=True)
        found: list[InputQueued] = []
        if session.session_id is not None:
            log = await desk.store.log.read(session.session_id)
            found = [entry for entry in log if isinstance(entry, InputQueued)]
        return found


async def test_a_prompt_that_waits_keeps_its_options_over_a_restart() -> None:
    desk = Desk()
    (queued,) = await left_waiting(
        desk,
        model="scripted/two",
        temperature=0.2,
        reminders=["Mind the gap."],
        require_tool="pay",
        timeout=7,
    )
    assert queued.options.settings == {"model": "scripted/two", "temperature": 0.2}
    agent, provider = desk.agent(calls(("pay", {"amount": 1})), says("done"), says("later"))
    async with agent, agent.session("x") as session:
        started: list[QueryStarted] = []
        session.on(QueryStarted, started.append)
        (asked,) = (await session.resume()).pending
        await session.approve(asked.id)
        await session.resume()  # the rest of the query is still on its own model
        await session.chat("and now?")
    first, second, third = provider.requests
    assert (first.model, first.temperature, first.require_tool) == ("two", 0.2, "pay")
    assert "Mind the gap." in str(first.messages[-1])
    assert (second.model, second.require_tool) == ("two", None)
    assert "Mind the gap." not in str(second.messages)
    assert (third.model, third.temperature) == ("one", None)
    assert [entry.options.timeout for entry in started] == [7, 7, None]
    assert started[0].options.reminders == ()


async def test_settings_that_cannot_be_read_do_not_keep_a_prompt_from_being_answered() -> None:
    desk = Desk()
    (queued,) = await left_waiting(desk, seed=3)
    session_id = (await desk.remote()).session_id
    log = await desk.store.log.read(session_id)
    options = KeptOptions(settings={"seed": "later"}, require_tool="pay")
    log[queued.seq - 1] = replace(queued, options=options)
    other = Desk()
    lease = await other.store.leases.acquire(session_id, "me")
    await other.store.log.append(lease, log)
    await other.store.leases.release(lease)
    agent, provider = other.agent(says("done"))
    async with agent, agent.session("x") as session:
        assert (await session.resume()).text == "done"
    assert (provider.requests[0].seed, provider.requests[0].require_tool) == (None, "pay")


async def test_options_of_resuming_win_over_what_was_kept() -> None:
    desk = Desk()
    await left_waiting(desk, model="scripted/two", seed=3)
    agent, provider = desk.agent(says("done"))
    async with agent, agent.session("x") as session:
        await session.resume(model="scripted/three", tools=[])
    (request,) = provider.requests
    assert (request.model, request.seed, request.tools) == ("three", 3, ())


async def test_a_query_that_was_cut_off_is_resumed_with_its_own_settings() -> None:
    desk, gate = Desk(), Gate()
    agent, _ = desk.agent([gate])
    async with agent:
        session: AgentSession = agent.session("x")
        asking = asyncio.ensure_future(session.chat("go", thinking="high", require_tool="pay"))
        await gate.reached.wait()
        log = await desk.store.log.read(session.session_id or (await desk.remote()).session_id)
        lost = Desk()  # a store with what was written so far, as after a crash
        lease = await lost.store.leases.acquire(log[0].session_id, "me")  # type: ignore[attr-defined]
        await lost.store.log.append(lease, log)
        await lost.store.leases.release(lease)
        asking.cancel()
        await asyncio.wait({asking})
    later, provider = lost.agent(says("done"))
    async with later, later.session("x") as session:
        await session.resume()
    request = provider.requests[0]
    assert (request.thinking, request.require_tool) == ("high", "pay")
