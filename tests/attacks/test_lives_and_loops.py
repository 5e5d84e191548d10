"""Agents that outlive event loops, sessions that are never closed, and what is left of them."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from haptera import AbortSignal, Agent, AgentError, ErrorCode, ToolContext, sync, tool
from haptera.kernel.session.live_session import LiveSession
from haptera.model.errors import StoreError
from haptera.model.events import TextDelta
from haptera.model.log.queries import QueryEnded
from haptera.model.settings import RuntimeSettings
from haptera.stores.memory import MemoryStore
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, says
from tests.attacks.moments import others_run, until
from tests.attacks.slow_store import HeldStore
from tests.scripted_agents import live_of


def _agent(provider: ScriptedProvider, **options: Any) -> Agent:
    options.setdefault("clock", FakeClock())
    return Agent("scripted/m", providers=[provider], **options)


@pytest.mark.slow
async def test_an_agent_keeps_nothing_of_a_session_that_was_closed() -> None:
    provider = ScriptedProvider([says("one"), says("two")])
    async with _agent(provider) as agent:
        session = agent.session()
        await session.chat("go")
        live: weakref.ref[LiveSession] = weakref.ref(await live_of(session))
        await session.close()
        del session
        await agent.run("another")
        gc.collect()
        assert live() is None


def test_one_agent_works_in_one_loop_after_another() -> None:
    provider = ScriptedProvider([says("one"), says("two"), says("three")])
    agent = _agent(provider)
    assert asyncio.run(agent.run("a")).text == "one"
    assert asyncio.run(agent.run("b")).text == "two"

    async def named() -> str:
        async with agent.session("s") as session:
            return (await session.chat("c")).text

    assert asyncio.run(named()) == "three"
    asyncio.run(agent.close())


def test_a_loop_that_ends_under_a_live_session_leaves_a_session_that_can_be_opened_again() -> None:
    store, provider = MemoryStore(), ScriptedProvider([[Gate()], says("later")])

    async def leave() -> None:
        agent = _agent(provider, store=store)
        session = agent.session("s")
        waiting = asyncio.ensure_future(session.chat("go"))
        await until(lambda: provider.requests)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        # Neither the session nor the agent is closed.

    asyncio.run(leave())
    assert provider.open_streams == 0


def test_a_loop_that_ends_in_the_middle_of_a_query_warns_of_nothing() -> None:
    program = """
import asyncio
from haptera import Agent
from haptera.testing import Gate, ScriptedProvider
async def main():
    gate = Gate()
    agent = Agent("scripted/m", providers=[ScriptedProvider([[gate]])])
    session = agent.session("s")
    tasks = [asyncio.ensure_future(session.chat(str(n))) for n in range(3)]
    await gate.reached.wait()
asyncio.run(main())
print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert done.stdout == "ended\n"
    assert "never awaited" not in done.stderr
    assert "destroyed but it is pending" not in done.stderr
    assert "never retrieved" not in done.stderr


async def test_an_exception_in_the_body_closes_session_and_agent() -> None:
    provider = ScriptedProvider([[*says("so far")[:-2], Gate()]])
    with pytest.raises(ZeroDivisionError):
        async with (
            _agent(provider) as agent,
            agent.session() as session,
            session.stream("go") as stream,
        ):
            async for event in stream:
                if isinstance(event, TextDelta):
                    raise ZeroDivisionError
    assert provider.open_streams == 0
    with pytest.raises(AgentError) as raised:
        await session.chat("more")
    assert raised.value.code is ErrorCode.CLOSED


async def test_two_agents_on_one_store_do_not_write_into_one_session() -> None:
    store = MemoryStore()
    one, two = ScriptedProvider([says("one")]), ScriptedProvider([says("two")])
    async with _agent(one, store=store) as first, _agent(two, store=store) as second:
        async with first.session("s") as session:
            await session.chat("a")
            with pytest.raises(AgentError) as raised:
                await second.session("s").chat("b")
            assert raised.value.code is ErrorCode.BUSY
        async with second.session("s") as session:
            await session.chat("b")
            assert [message.text for message in session.messages] == ["a", "one", "b", "two"]


async def test_sessions_of_a_closing_agent_close_side_by_side() -> None:
    provider = ScriptedProvider([[Gate()], [Gate()], [Gate()]])
    agent = _agent(provider, runtime=RuntimeSettings(close_drain_seconds=0.05))
    sessions = [agent.session() for _ in range(3)]
    waiting = [asyncio.ensure_future(session.chat("go")) for session in sessions]
    await until(lambda: len(provider.requests) == 3)
    closing = asyncio.ensure_future(agent.close())
    for _ in range(3):
        await others_run()
    for session in sessions:
        with pytest.raises(AgentError) as raised:
            await session.chat("more")
        assert raised.value.code is ErrorCode.CLOSED
    await closing
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, AgentError)


async def test_a_store_that_cannot_take_the_end_still_shows_exactly_one() -> None:
    store = HeldStore()
    provider = ScriptedProvider([says("one"), says("two")])
    async with _agent(provider, store=store) as agent, agent.session() as session:
        ends: list[QueryEnded] = []
        session.on(QueryEnded, ends.append)
        store.log.judge = lambda entries: (
            OSError("disk gone") if any(isinstance(item, QueryEnded) for item in entries) else None
        )
        with pytest.raises(AgentError) as raised:
            await session.chat("go")
        assert isinstance(raised.value, StoreError)
        assert len(ends) == 1
        store.log.judge = lambda _entries: None
        assert (await session.chat("again")).text == "two"
        assert len(ends) == 2


async def test_progress_of_a_call_that_was_left_behind_is_not_shown_to_the_next_query() -> None:
    release, reported = threading.Event(), threading.Event()

    @tool
    def lingering(context: ToolContext) -> str:
        """Go on after the query has ended."""
        release.wait(10)
        context.progress("too late")
        reported.set()
        return "never used"

    provider = ScriptedProvider([calls(("lingering", {})), says("next")])
    async with _agent(provider, tools=[lingering]) as agent, agent.session() as session:
        async for event in session.stream("go", on_abort="return"):
            if event.kind == "tool.started":
                session.abort()
        release.set()
        await asyncio.to_thread(reported.wait, 10)
        kinds = [event.kind async for event in session.stream("again")]
        assert "tool.progress" not in kinds


async def test_progress_that_the_consumer_does_not_read_is_not_kept_without_end() -> None:
    done = asyncio.Event()

    @tool
    async def chatty(context: ToolContext) -> str:
        """Report a lot."""
        for step in range(20_000):
            context.progress(step)
        done.set()
        return "ok"

    provider = ScriptedProvider([calls(("chatty", {})), says("next")])
    async with (
        _agent(provider, tools=[chatty]) as agent,
        agent.session() as session,
        session.stream("go") as stream,
    ):
        await done.wait()
        kinds = [event.kind async for event in stream]
    assert kinds.count("tool.progress") < 1000
    assert kinds.count("query.ended") == 1


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Let SIGINT interrupt: a shell makes its background jobs ignore it, and tests inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_from_the_keyboard_stops_the_query_before_the_caller_goes_on() -> None:
    provider = ScriptedProvider([[*says("so far")[:-2], _interrupt_the_main_thread, Gate()]])
    with sync.Agent("scripted/m", providers=[provider]) as agent:
        with pytest.raises(KeyboardInterrupt):
            agent.run("go")
        assert provider.open_streams == 0


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_while_iterating_stops_the_query_too() -> None:
    provider = ScriptedProvider([[*says("so far")[:-2], _interrupt_the_main_thread, Gate()]])
    with sync.Agent("scripted/m", providers=[provider]) as agent:
        with pytest.raises(KeyboardInterrupt):
            for _ in agent.stream("go"):
                pass
        assert provider.open_streams == 0


async def _interrupt_the_main_thread() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


async def test_blocking_calls_inside_a_running_loop_work_and_only_block_it() -> None:
    provider = ScriptedProvider([says("fine")])
    with sync.Agent("scripted/m", providers=[provider]) as agent:
        assert agent.run("go").text == "fine"


async def test_a_signal_has_no_listeners_after_any_end() -> None:
    stop = AbortSignal()
    provider = ScriptedProvider([says("fine"), ValueError("broken"), [Gate()]])
    async with _agent(provider) as agent:
        await agent.run("go", signal=stop)
        with pytest.raises(AgentError):
            await agent.run("go", signal=stop)
        waiting = asyncio.ensure_future(agent.run("go", signal=stop))
        await until(lambda: len(provider.requests) == 3)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
    assert stop.listener_count == 0


async def test_options_that_are_changed_afterwards_change_nothing() -> None:
    headers, prompts, betas = {"x": "1"}, ["be brief"], {"a": True}
    provider = ScriptedProvider([says("fine")])
    agent = Agent(
        "scripted/m", providers=[provider], headers=headers, system_prompt=prompts, betas=betas
    )
    headers["x"], betas["a"] = "2", False
    prompts.append("be rude")
    async with agent:
        await agent.run("go")
    assert provider.requests[0].system == ("be brief",)
    assert provider.requests[0].betas == {"a": True}
