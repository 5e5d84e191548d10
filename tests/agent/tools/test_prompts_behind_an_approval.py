"""Prompts behind a query that rests on an approval: they wait, visibly, and are not overtaken."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from haptera import (
    AgentResult,
    AgentSession,
    ApprovalSettled,
    AssistantMessage,
    ErrorCode,
    StatusChanged,
    tool,
)
from haptera.model.events import Busy, Idle
from haptera.stores.memory import MemoryStore
from haptera.testing import FakeClock, Gate, calls, says
from haptera.testing.scripted_provider import Step
from tests.attacks.moments import until
from tests.scripted_agents import failure_of, make_agent, outcomes_in, playing, texts_in

Asking = asyncio.Task[AgentResult[Any]]


@tool(approval="ask")
async def pay() -> str:
    """Pay."""
    return "paid"


@asynccontextmanager
async def resting(
    *after: Step, queued: tuple[str, ...] = ("1", "2"), **options: Any
) -> AsyncIterator[tuple[AgentSession, Any, list[Asking]]]:
    """Let a session rest on an approval, with prompts behind it."""
    gate = Gate()
    steps: list[Step] = [[gate, *calls(("pay", {}))], *after]
    async with playing(steps, tools=[pay], **options) as (session, provider):
        asking = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        behind = [asyncio.ensure_future(session.chat(prompt)) for prompt in queued]
        await until(lambda: len(session.view().pending) == len(queued))
        gate.open()
        assert (await asking).stop_reason == "approval"
        yield session, provider, behind


async def test_a_session_says_that_prompts_wait_behind_an_approval() -> None:
    async with resting() as (session, _, behind):
        status = await session.wait_idle()
        assert status == session.status == Idle(approvals=1, waiting=2)
        left = session.unfinished
        assert (left.resting, len(left.approvals)) == (True, 1)
        assert [item.message.text for item in left.inputs] == ["1", "2"]
        await session.drain_queue()
        assert session.status == Idle(approvals=1)
        for item in behind:
            assert (await failure_of(item)).code is ErrorCode.ABORTED


async def test_a_status_tells_what_changes_while_a_session_rests() -> None:
    async with resting(says("paid"), says("one"), queued=("1",)) as (session, _, behind):
        seen: list[Any] = []
        session.on(StatusChanged, lambda event: seen.append(event.status))
        await session.approve(session.unfinished.approvals[0].id)
        assert seen == [Idle(waiting=1)]
        await session.resume()
        await asyncio.gather(*behind)
        assert (await session.wait_idle(), seen[1], seen[-1]) == (Idle(), Busy(), Idle())


async def test_a_resumed_query_goes_on_first_and_then_the_queue() -> None:
    steps = (says("paid"), says("one"), says("two"))
    async with resting(*steps) as (session, provider, behind):
        await session.approve(session.unfinished.approvals[0].id)
        assert (await session.resume()).text == "paid"
        assert [(await item).text for item in behind] == ["one", "two"]
        assert await session.wait_idle() == Idle()
    assert texts_in(provider.requests[-1])[-4:] == ["paid", "1", "one", "2"]


@pytest.mark.parametrize("how", ["chat", "steer"])
async def test_a_new_prompt_cancels_the_approval_and_gets_in_line(how: str) -> None:
    steps = (says("one"), says("two"), says("three"))
    async with resting(*steps) as (session, provider, behind):
        settled: list[str] = []
        session.on(ApprovalSettled, lambda event: settled.append(event.decision))
        await getattr(session, how)("3")
        assert [(await item).text for item in behind] == ["one", "two"]
        await session.wait_idle()
        assert session.messages[-1].text == "three"
        assert settled == ["cancelled"]
    assert outcomes_in(provider.requests[1])[0][:2] == ("pay", "denied")
    assert texts_in(provider.requests[3])[-5:] == ["1", "one", "2", "two", "3"]


async def test_a_prompt_from_another_process_gets_in_line_too() -> None:
    steps = (says("one"), says("two"), says("three"))
    store = MemoryStore()
    async with resting(*steps, store=store) as (session, provider, behind):
        other, _ = make_agent([], store=store)
        async with other:
            await (await other.remote(str(session.session_id))).send("3")
        assert [(await item).text for item in behind] == ["one", "two"]
        await until(lambda: session.messages[-1].text == "three")
        await session.wait_idle()
    assert texts_in(provider.requests[3])[-1] == "3"


async def test_an_interrupting_prompt_goes_first_and_a_rejected_one_changes_nothing() -> None:
    steps = (says("now"), says("one"), says("two"))
    async with resting(*steps) as (session, provider, behind):
        refused = await failure_of(session.chat("no", delivery="reject"))
        assert (refused.code, session.status) == (ErrorCode.BUSY, Idle(approvals=1, waiting=2))
        assert (await session.chat("3", delivery="interrupt")).text == "now"
        assert [(await item).text for item in behind] == ["one", "two"]
    assert texts_in(provider.requests[3])[-5:] == ["3", "now", "1", "one", "2"]


async def test_prompts_that_an_earlier_holder_left_behind_an_approval_are_not_overtaken() -> None:
    store = MemoryStore()
    async with resting(store=store) as (session, _, behind):
        name = str(session.session_id)
        await session.close()
        for item in behind:
            assert (await failure_of(item)).code is ErrorCode.CLOSED
    later, provider = make_agent([says("one"), says("two"), says("3")], store=store, tools=[pay])
    async with later, later.session(name) as session:
        assert session.status == Idle(approvals=1, waiting=2)
        assert (await session.chat("3")).text == "3"
    assert texts_in(provider.requests[2])[-5:] == ["1", "one", "2", "two", "3"]


async def test_a_rewind_that_takes_the_approval_back_lets_the_queue_go_on() -> None:
    async with resting(says("one"), says("two")) as (session, provider, behind):
        await session.rewind(to=session.messages[0].id)
        assert [(await item).text for item in behind] == ["one", "two"]
    assert texts_in(provider.requests[1])[-1].endswith("1")


async def test_a_rewind_that_fails_leaves_the_queue_behind_the_approval() -> None:
    async with resting() as (session, _, behind):
        assert (await failure_of(session.rewind(to="msg_x"))).code is ErrorCode.MESSAGE_NOT_FOUND
        assert await session.wait_idle() == Idle(approvals=1, waiting=2)
        await session.drain_queue()
        await asyncio.gather(*behind, return_exceptions=True)


async def test_the_total_timeout_of_a_prompt_counts_in_the_queue() -> None:
    clock, gate = FakeClock(), Gate()
    steps: list[Step] = [[gate, *calls(("pay", {}))]]
    async with playing(steps, tools=[pay], clock=clock) as (session, provider):
        asking = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        waiting = asyncio.ensure_future(session.chat("later", total_timeout=30))
        await until(lambda: session.view().pending)
        gate.open()
        await asking
        clock.advance(31)
        error = await failure_of(waiting)
        assert error.code is ErrorCode.TIMEOUT
        assert session.status == Idle(approvals=1)
        assert len(provider.requests) == 1


async def test_a_prompt_that_starts_after_a_rewind_makes_the_question_void() -> None:
    """The rewind goes to where a query runs, so that the prompt does not wait any more."""
    async with resting(says("answered"), queued=("1",)) as (session, _, behind):
        settled: list[ApprovalSettled] = []
        session.on(ApprovalSettled, settled.append)
        (asked,) = (await session.resume()).pending
        answer = next(item for item in session.messages if isinstance(item, AssistantMessage))
        await session.rewind(to=answer.id)
        assert (await behind[0]).text == "answered"
        assert [(item.approval_id, item.decision) for item in settled] == [(asked.id, "cancelled")]
