"""Delivery: how a prompt reaches a session that is busy with another."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from haptera import AgentError, AgentResult, AgentSession, ErrorCode, SessionError, tool
from haptera.model.events import Idle
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued
from haptera.model.operations.operation import CommandId
from haptera.model.settings import RuntimeSettings
from haptera.ports.session_store import Lease
from haptera.stores.memory import MemoryLog, MemoryStore
from haptera.testing import Gate, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import (
    HeldWork,
    failure_of,
    make_agent,
    outcomes_in,
    playing,
    texts_in,
)

Asking = asyncio.Future[AgentResult[Any]]


def held(text: str) -> tuple[Gate, Step]:
    """Script an answer that waits for its gate."""
    gate = Gate()
    return gate, [gate, *says(text)]


def ask(session: AgentSession, prompt: str, **options: Any) -> Asking:
    return asyncio.ensure_future(session.chat(prompt, **options))


async def until_waiting(session: AgentSession, count: int) -> None:
    """Let the others run until so many prompts wait."""
    while len(session.view().pending) < count:
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop


async def test_a_queued_prompt_waits_its_turn_and_becomes_a_query_of_its_own() -> None:
    gate, first = held("one")
    async with playing([first, says("two"), says("three")]) as (session, provider):
        asking = [ask(session, "1")]
        await gate.reached.wait()
        asking += [ask(session, "2"), ask(session, "3")]
        await until_waiting(session, 2)
        gate.open()
        assert [(await item).text for item in asking] == ["one", "two", "three"]
    assert texts_in(provider.requests[2]) == ["1", "one", "2", "two", "3"]


async def test_what_waits_can_be_seen() -> None:
    gate, first = held("one")
    async with playing([first, says("to both")]) as (session, _):
        asking = [ask(session, "1")]
        await gate.reached.wait()
        asking += [ask(session, "2"), ask(session, "3", delivery="steer")]
        await until_waiting(session, 2)
        view = session.view()
        assert [(item.text, item.delivery) for item in view.pending] == [
            ("2", "queue"),
            ("3", "steer"),
        ]
        assert (view.steer_count, view.queue_count) == (1, 1)
        gate.open()
        # What steers goes into the query that runs by then.
        assert [item.text for item in await asyncio.gather(*asking)] == [
            "one",
            "to both",
            "to both",
        ]


async def test_a_rejected_prompt_leaves_no_trace() -> None:
    gate, first = held("one")
    async with playing([first]) as (session, _):
        asking = ask(session, "1")
        await gate.reached.wait()
        error = await failure_of(session.chat("2", delivery="reject"))
        assert isinstance(error, SessionError)
        assert (error.code, session.view().pending) == (ErrorCode.BUSY, ())
        gate.open()
        await asking
        assert [message.text for message in session.messages] == ["1", "one"]


async def test_an_idle_session_takes_any_delivery() -> None:
    async with playing([says("x")] * 4) as (session, _):
        for delivery in ("queue", "steer", "reject", "interrupt"):
            assert (await session.chat("go", delivery=delivery)).text == "x"


async def test_an_interrupting_prompt_stops_the_running_query_and_goes_first() -> None:
    gate = Gate()
    steps: list[Step] = [[*says("half of one")[:3], gate], says("urgent"), says("later")]
    async with playing(steps) as (session, provider):
        first = ask(session, "1")
        await gate.reached.wait()
        later = ask(session, "2")
        await until_waiting(session, 1)
        urgent = ask(session, "now", delivery="interrupt")
        error = await failure_of(first)
        assert (error.code, (await urgent).text, (await later).text) == (
            ErrorCode.ABORTED,
            "urgent",
            "later",
        )
        assert error.result is not None
        assert error.result.text == "half of one"
    assert texts_in(provider.requests[1]) == ["1", "half of one", "now"]


async def test_a_tool_that_would_wait_for_its_own_session_is_told_so() -> None:
    held: list[AgentSession] = []

    @tool
    async def ask_again(how: str) -> str:
        """Ask the session that waits for this tool."""
        if how == "steer":
            await held[0].steer("and this")
            return "said"
        return (await held[0].chat("wait for me")).text

    asks = [calls(("ask_again", {"how": how})) for how in ("chat", "steer")]
    async with playing([*asks, says("ok")], tools=[ask_again]) as (session, provider):
        held.append(session)
        assert (await session.chat("go")).text == "ok"
    (_, outcome, text), *_ = outcomes_in(provider.requests[1])
    assert outcome == "error"
    assert "cannot wait for an answer of the session" in text
    assert "and this" in texts_in(provider.requests[2])[-1]


# Steering.


async def test_a_steering_prompt_is_heard_before_the_next_turn() -> None:
    work = HeldWork()
    async with playing([calls(("work", {})), says("short")], tools=[work.tool]) as (
        session,
        provider,
    ):
        asking = ask(session, "go")
        await work.started.wait()
        await session.steer("shorter please")
        work.release.set()
        result = await asking
        assert result.text == "short"
        assert "shorter please" in [message.text for message in result.new_messages]
    last = provider.requests[1].messages[-1]
    assert (last.text, len(last.parts)) == ("shorter please", 2)


async def test_a_steering_prompt_that_waits_gets_the_result_of_the_query_it_joined() -> None:
    work = HeldWork()
    async with playing([calls(("work", {})), says("both")], tools=[work.tool]) as (session, _):
        asking = ask(session, "go")
        await work.started.wait()
        joining = ask(session, "and this", delivery="steer")
        await until_waiting(session, 1)
        work.release.set()
        first, second = await asking, await joining
        assert first.text == second.text == "both"
        assert first.message_id == second.message_id


async def test_a_steering_prompt_that_came_too_late_becomes_a_query() -> None:
    gate, first = held("one")
    async with playing([first, says("two")]) as (session, provider):
        asking = ask(session, "1")
        await gate.reached.wait()
        late = ask(session, "2", delivery="steer")
        await until_waiting(session, 1)
        gate.open()
        assert ((await asking).text, (await late).text) == ("one", "two")
    assert texts_in(provider.requests[1]) == ["1", "one", "2"]


async def test_steering_an_idle_session_starts_a_query() -> None:
    async with playing([says("hello")]) as (session, _):
        await session.steer("hi")
        await session.wait_idle()
        assert [message.text for message in session.messages] == ["hi", "hello"]


async def test_several_lines_and_attachments_survive_the_queue() -> None:
    gate, first = held("one")
    async with playing([first, says("two")]) as (session, provider):
        asking = [ask(session, "1")]
        await gate.reached.wait()
        asking.append(ask(session, "line 1\nline 2", attachments=[b"\x89PNG\r\n\x1a\n"]))
        await until_waiting(session, 1)
        gate.open()
        await asyncio.gather(*asking)
    last = provider.requests[1].messages[-1]
    assert (last.text, len(last.parts)) == ("line 1\nline 2", 2)


# Taking prompts out again.


async def test_draining_gives_the_prompts_back_and_ends_the_calls_that_wait_for_them() -> None:
    gate, first = held("one")
    async with playing([first]) as (session, _):
        asking = ask(session, "1")
        await gate.reached.wait()
        waiting = [ask(session, "2"), ask(session, "3\nmore", delivery="steer")]
        await until_waiting(session, 2)
        drained = await session.drain_queue()
        assert [message.text for message in drained] == ["2", "3\nmore"]
        for item in waiting:
            assert (await failure_of(item)).code is ErrorCode.ABORTED
        assert session.view().pending == ()
        gate.open()
        assert (await asking).text == "one"


async def test_draining_an_empty_queue_gives_nothing() -> None:
    async with playing([]) as (session, _):
        assert await session.drain_queue() == ()


async def test_prompts_that_an_earlier_process_left_can_be_drained_or_resumed() -> None:
    store = MemoryStore()
    gate = Gate()
    agent, _ = make_agent([[gate]], store=store, runtime=RuntimeSettings(close_drain_seconds=0))
    async with agent, agent.session("kept") as session:
        asking = [ask(session, "1")]
        await gate.reached.wait()
        asking += [ask(session, "2"), ask(session, "3")]
        await until_waiting(session, 2)
        await session.close(abort=True)
        codes = [(await failure_of(item)).code for item in asking]
        assert codes == [ErrorCode.ABORTED, ErrorCode.CLOSED, ErrorCode.CLOSED]
    later, provider = make_agent([says("two")], store=store)
    async with later, later.session("kept") as session:
        assert [item.message.text for item in session.unfinished.inputs] == ["2", "3"]
        stream = session.resume()
        async with stream:
            assert [message.text for message in await session.drain_queue()] == ["3"]
            assert (await stream.result()).text == "two"
    assert texts_in(provider.requests[0])[-1].endswith("2")


async def test_prompts_that_an_earlier_process_left_follow_each_other_once_one_is_resumed() -> None:
    store, gate = MemoryStore(), Gate()
    agent, _ = make_agent([[gate]], store=store, runtime=RuntimeSettings(close_drain_seconds=0))
    async with agent, agent.session("kept") as session:
        asking = [ask(session, "1")]
        await gate.reached.wait()
        asking += [ask(session, "2"), ask(session, "3")]
        await until_waiting(session, 2)
        await session.close(abort=True)
        await asyncio.gather(*asking, return_exceptions=True)
    later, provider = make_agent([says("two"), says("three")], store=store)
    async with later, later.session("kept") as session:
        assert (await session.wait_idle(), provider.requests) == (Idle(waiting=2), [])
        assert (await session.resume()).text == "two"
        assert await session.wait_idle() == Idle()
        assert session.messages[-1].text == "three"


# A store that takes its time.


class SlowLog(MemoryLog):
    """Holds appends back while its gate is there and closed."""

    gate: Gate | None = None

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        if self.gate is not None and any(isinstance(entry, InputQueued) for entry in entries):
            await self.gate.wait()
        await super().append(lease, entries, consumed=consumed)


def slow_store() -> tuple[MemoryStore, SlowLog]:
    store = MemoryStore()
    log = SlowLog(store._sessions)
    store.log = log
    return store, log


@pytest.mark.parametrize("delivery", ["queue", "steer", "interrupt"])
async def test_a_prompt_on_its_way_to_a_slow_log_is_not_mistaken_for_one_that_joined(
    delivery: str,
) -> None:
    store, log = slow_store()
    gate, first = held("one")
    async with playing([first, says("two")], store=store) as (session, provider):
        asking = ask(session, "1")
        await gate.reached.wait()
        log.gate = Gate()
        second = ask(session, "2", delivery=delivery)
        await log.gate.reached.wait()
        gate.open()
        for _ in range(20):
            await asyncio.sleep(0)  # noqa: TID251 - lets the first query end as far as it can
        log.gate.open()
        log.gate = None
        assert (await second).text == "two"
        try:
            assert (await asking).text == "one"
        except AgentError as error:
            assert (delivery, error.code) == ("interrupt", ErrorCode.ABORTED)
    assert texts_in(provider.requests[1])[-1].endswith("2")


async def test_a_prompt_that_is_given_up_on_its_way_to_a_slow_log_is_not_sent() -> None:
    store, log = slow_store()
    gate, first = held("one")
    async with playing([first], store=store) as (session, _):
        asking = ask(session, "1")
        await gate.reached.wait()
        log.gate = Gate()
        second = ask(session, "2")
        await log.gate.reached.wait()
        second.cancel()
        log.gate.open()
        log.gate = None
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.open()
        assert (await asking).text == "one"
        await session.wait_idle()
        assert session.view().pending == ()
        assert [message.text for message in session.messages] == ["1", "one"]
