"""Prompts, aborts and closings that arrive at the worst moment."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentSession, ErrorCode, ToolContext, tool
from haptera.model.events import TextDelta
from haptera.model.log.queries import QueryEnded
from haptera.model.log.tools import ToolStarted
from haptera.model.settings import RuntimeSettings
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, says
from tests.attacks.moments import others_run, until
from tests.attacks.slow_store import HeldStore


@asynccontextmanager
async def _session(
    steps: list[Any], **options: Any
) -> AsyncIterator[tuple[AgentSession, ScriptedProvider]]:
    provider = ScriptedProvider(steps)
    options.setdefault("clock", FakeClock())
    agent = Agent("scripted/m", providers=[provider], **options)
    async with agent, agent.session() as session:
        yield session, provider


async def _failure(work: Any) -> AgentError:
    with pytest.raises(AgentError) as raised:
        await work
    return raised.value


async def test_a_steering_prompt_that_joined_is_answered_though_the_queue_is_drained() -> None:
    gate, second = Gate(), Gate()

    @tool
    async def hold() -> str:
        """Wait for the test."""
        await gate.wait()
        return "held"

    async with _session([calls(("hold", {})), [second, *says("answer")]], tools=[hold]) as (
        session,
        _,
    ):
        first = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        joined = asyncio.ensure_future(session.chat("shorter", delivery="steer"))
        await until(lambda: session.view().pending)
        gate.open()
        await second.reached.wait()
        assert await session.drain_queue() == ()
        second.open()
        assert (await first).text == "answer"
        assert (await joined).text == "answer"


async def test_a_prompt_that_comes_while_the_last_query_ends_is_answered_itself() -> None:
    store = HeldStore()
    async with _session([says("one"), says("two")], store=store) as (session, provider):
        store.log.hold = lambda entries: any(isinstance(item, QueryEnded) for item in entries)
        first = asyncio.ensure_future(session.chat("first"))
        await store.log.held.wait()
        store.log.hold = lambda _entries: False
        late = asyncio.ensure_future(session.chat("second"))
        await others_run()  # the prompt waits for the log
        store.log.go_on.set()
        assert [(await first).text, (await late).text] == ["one", "two"]
        assert len(provider.requests) == 2
        assert session.view().pending == ()


async def test_a_caller_that_is_cancelled_while_its_prompt_is_recorded_leaves_nothing() -> None:
    """A query without a consumer would wait for one for ever."""
    store, gate = HeldStore(), Gate()
    many = says(*["x"] * 1000)
    async with _session([[gate, *says("one")], many], store=store) as (session, _):
        first = asyncio.ensure_future(session.chat("first"))
        await gate.reached.wait()
        store.log.hold = lambda _entries: True
        waiting = asyncio.ensure_future(session.chat("second"))
        await store.log.held.wait()
        waiting.cancel()
        store.log.hold = lambda _entries: False
        store.log.go_on.set()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        gate.open()
        assert (await first).text == "one"
        await session.wait_idle()
        assert session.view().pending == ()


async def test_a_session_used_by_two_tasks_at_once_is_opened_once() -> None:
    store = HeldStore()
    provider = ScriptedProvider([says("one"), says("two")])
    agent = Agent("scripted/m", providers=[provider], store=store, clock=FakeClock())
    async with agent:
        session = agent.session("shared")
        results = await asyncio.gather(session.chat("a"), session.chat("b"))
        assert sorted(result.text for result in results) == ["one", "two"]
        assert len({result.session_id for result in results}) == 1
        await session.close()


async def test_a_result_that_two_tasks_wait_for_is_asked_for_once() -> None:
    async with _session([says(*["word "] * 300)], store=HeldStore()) as (session, provider):
        stream = session.stream("go")
        first, second = await asyncio.gather(stream.result(), stream.result())
        assert first is second
        assert len(provider.requests) == 1


async def test_closing_wins_over_a_prompt_that_is_about_to_start() -> None:
    store = HeldStore()

    @tool(approval="ask")
    async def risky() -> str:
        """Ask first."""
        return "done"

    async with _session([calls(("risky", {}))], store=store, tools=[risky]) as (session, provider):
        await session.chat("go")
        store.log.hold = lambda _entries: True
        late = asyncio.ensure_future(session.chat("too late"))
        await store.log.held.wait()
        closing = asyncio.ensure_future(session.close())
        await others_run()  # the session is closed from here on
        store.log.hold = lambda _entries: False
        store.log.go_on.set()
        await closing
        assert (await _failure(late)).code is ErrorCode.CLOSED
        assert len(provider.requests) == 1


async def test_a_consumer_that_stops_reading_holds_up_neither_abort_nor_close() -> None:
    never = Gate()
    steps = [[*says(*["x"] * 500)[:-2], never]]
    async with (
        _session(steps, runtime=RuntimeSettings(close_drain_seconds=0)) as (session, _),
        session.stream("go") as stream,
    ):
        events = aiter(stream)
        await anext(events)
        session.abort()
        error = await _failure(stream.result())
        assert error.code is ErrorCode.ABORTED
        await events.aclose()


async def test_a_consumer_that_stops_reading_bounds_what_is_read_from_the_provider() -> None:
    sent = 0

    async def count() -> None:
        nonlocal sent
        sent += 1

    head, *deltas = says(*["x"] * 10_000)[1:-2]
    step = [head, *[beat for delta in deltas for beat in (count, delta)], *says("")[-2:]]
    async with _session([step]) as (session, _), session.stream("go") as stream:
        events = aiter(stream)
        await anext(events)
        for _ in range(2000):
            await others_run()  # let the provider go as far as it may
        assert sent < 300
        await events.aclose()


@pytest.mark.slow
async def test_a_tool_that_ignores_cancellation_holds_up_neither_abort_nor_close() -> None:
    enough = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Never give up."""
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    runtime = RuntimeSettings(close_drain_seconds=0.01)
    async with _session([calls(("stubborn", {}))], tools=[stubborn], runtime=runtime) as (
        session,
        _,
    ):
        stream = session.stream("go", on_abort="return")
        async for event in stream:
            if isinstance(event, ToolStarted):
                session.abort()
        assert (await stream.result()).stop_reason == "aborted"
        await session.close()
        assert session.closed
        assert not enough.is_set()
    enough.set()
    await others_run()  # the tool ends after its session
    await others_run()  # and its task with it


async def test_a_handler_may_close_the_session_it_listens_to() -> None:
    closed = asyncio.Event()
    async with _session([says("bye")]) as (session, _):

        async def close(_event: QueryEnded) -> None:
            await session.close()
            closed.set()

        session.on(QueryEnded, close)
        assert (await session.chat("go")).text == "bye"
        await closed.wait()
        assert session.closed


async def test_an_abort_from_many_threads_ends_the_query_once() -> None:
    gate = Gate()
    ends: list[QueryEnded] = []
    async with _session([[*says("so far")[:-2], gate]]) as (session, _):
        session.on(QueryEnded, ends.append)
        threads = [threading.Thread(target=session.abort) for _ in range(20)]
        with pytest.raises(AgentError) as raised:
            async for event in session.stream("go"):
                if isinstance(event, TextDelta):
                    for thread in threads:
                        thread.start()
        for thread in threads:
            thread.join()
        assert raised.value.result is not None
        assert raised.value.result.text == "so far"
        assert [end.stop_reason for end in ends] == ["aborted"]


async def test_a_prompt_that_waits_is_not_started_in_a_loop_that_is_shutting_down() -> None:
    gate = Gate()
    async with _session([[gate]]) as (session, provider):
        first = asyncio.ensure_future(session.chat("first"))
        await gate.reached.wait()
        second = asyncio.ensure_future(session.chat("second"))
        await until(lambda: session.view().pending)
        driver = next(task for task in asyncio.all_tasks() if task.get_name() == "haptera-driver")
        driver.cancel()
        assert (await _failure(first)).code is ErrorCode.ABORTED
        assert (await _failure(second)).code is ErrorCode.ABORTED
        assert len(provider.requests) == 1


async def test_rewinding_while_a_prompt_arrives_loses_neither() -> None:
    store = HeldStore()
    async with _session([says("one"), says("two"), says("three")], store=store) as (session, p):
        first = await session.chat("1")
        await session.chat("2")
        assert first.message_id is not None
        store.log.hold = lambda _entries: True
        going_back = asyncio.ensure_future(session.rewind(to=first.message_id))
        await store.log.held.wait()
        late = asyncio.ensure_future(session.chat("3"))
        await others_run()  # the prompt is on its way
        store.log.hold = lambda _entries: False
        store.log.go_on.set()
        await going_back
        assert (await late).text == "three"
        assert [message.text for message in session.messages] == ["1", "one", "3", "three"]
        assert [message.text for message in p.requests[-1].messages] == ["1", "one", "3"]


async def test_a_listener_that_raises_does_not_keep_a_query_from_being_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    async def listening(context: ToolContext) -> str:
        """Wait, and fail when told to stop."""
        context.signal.add_listener(_fail)
        await asyncio.Event().wait()
        return "never"

    async with _session([calls(("listening", {}))], tools=[listening]) as (session, _):
        async for event in session.stream("go", on_abort="return"):
            if isinstance(event, ToolStarted):
                await others_run()
                session.abort()
    assert "a listener to an abort failed" in caplog.text


def _fail() -> None:
    raise ZeroDivisionError
