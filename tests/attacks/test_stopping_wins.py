"""Stopping and closing win over hooks, providers, handlers and stores that do not end.

The tests run on a loop with virtual time: bounds are checked in its seconds, and nothing waits.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentSession, ErrorCode, tool
from haptera.hooks import BeforeTool, Hooks, Proceed
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded, QueryStarted
from haptera.model.log.tools import ToolStarted
from haptera.model.log.turns import PartEnded, TurnStarted
from haptera.model.requests import ModelRequest
from haptera.model.settings import RuntimeSettings
from haptera.model.stream_parts import StreamPart
from haptera.stores.memory import MemoryStore
from haptera.testing import LoopClock, ScriptedProvider, calls, run_seeded, says
from tests.attacks.moments import until
from tests.attacks.slow_store import HeldLog


class Stubborn:
    """A wait that does not let itself be cancelled until the test says so."""

    def __init__(self) -> None:
        self.reached, self.enough, self.ended = (asyncio.Event() for _ in range(3))

    async def wait(self) -> None:
        """Wait, whatever happens."""
        self.reached.set()
        while not self.enough.is_set():
            try:
                await self.enough.wait()
            except asyncio.CancelledError:
                continue
        self.ended.set()


class StubbornProvider(ScriptedProvider):
    """Says something, then ignores its cancellation, and goes on where the script does."""

    def __init__(self, stubborn: Stubborn) -> None:
        super().__init__([says("later")])
        self._stubborn = stubborn
        self._first = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        if not self._first:
            async for batch in super().stream(request):
                yield batch
            return
        self._first = False
        *head, tail = says("so far", "x" * 5000)[:-2], says("")[-2:]
        yield head[0][:3]
        await self._stubborn.wait()
        yield head[0][3:]
        yield tail


def _agent(provider: ScriptedProvider, **options: Any) -> Agent:
    options = {"clock": LoopClock(), "environment": {}, **options}
    return Agent("scripted/m", providers=[provider], **options)


def _played(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await work()

    for seed in range(5):
        run_seeded(run, seed)


async def _log_of(store: MemoryStore, session: AgentSession) -> list[Entry]:
    assert session.session_id is not None
    return await store.log.read(session.session_id)


def _now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("how", ["abort", "timeout"])
def test_a_hook_that_ignores_cancellation_holds_up_no_abort_and_starts_nothing_later(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    async def play() -> None:
        stubborn, store = Stubborn(), MemoryStore()

        async def before_tool(given: BeforeTool) -> Proceed:
            await stubborn.wait()
            given.say("said too late")
            return Proceed()

        provider = ScriptedProvider([calls(("pay", {})), says("next")])
        agent = _agent(provider, store=store, tools=[pay], hooks=Hooks(before_tool=before_tool))
        async with agent, agent.session() as session:
            limit = 3.0 if how == "timeout" else None
            asking = asyncio.ensure_future(session.chat("go", total_timeout=limit))
            await stubborn.reached.wait()
            asked_at = _now()
            if how == "abort":
                session.abort("enough")
            with pytest.raises(AgentError) as raised:
                await asking
            wanted = ErrorCode.ABORTED if how == "abort" else ErrorCode.TIMEOUT
            assert raised.value.code is wanted
            assert _now() - asked_at <= (limit or 0) + 1
            settled = await _log_of(store, session)
            assert isinstance(settled[-1], QueryEnded)
            stubborn.enough.set()
            await stubborn.ended.wait()
            assert (await session.chat("next")).text == "next"
            after = (await _log_of(store, session))[len(settled) :]
            assert {entry.query_id for entry in after} == {after[-1].query_id}
            assert not any(isinstance(entry, ToolStarted) for entry in after)
        assert ran == []

    caplog.set_level(logging.WARNING)
    _played(play)
    assert "left behind" in caplog.text


def test_a_hook_that_swallows_its_cancellation_does_not_let_the_tool_run() -> None:
    ran: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    async def play() -> None:
        reached = asyncio.Event()

        async def before_tool(given: BeforeTool) -> Proceed:
            reached.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return Proceed()
            return Proceed()

        provider = ScriptedProvider([calls(("pay", {}))])
        agent = _agent(provider, tools=[pay], hooks=Hooks(before_tool=before_tool))
        async with agent, agent.session() as session:
            asking = asyncio.ensure_future(session.chat("go"))
            await reached.wait()
            session.abort()
            with pytest.raises(AgentError) as raised:
                await asking
            assert raised.value.code is ErrorCode.ABORTED
        assert ran == []

    _played(play)


def test_a_provider_that_ignores_cancellation_is_left_behind_and_adds_nothing() -> None:
    async def play() -> None:
        stubborn, store = Stubborn(), MemoryStore()
        agent = _agent(StubbornProvider(stubborn), store=store)
        async with agent, agent.session() as session:
            asking = asyncio.ensure_future(session.chat("go"))
            await stubborn.reached.wait()
            stopped_at = _now()
            session.abort()
            with pytest.raises(AgentError) as raised:
                await asking
            assert _now() - stopped_at <= 1
            assert raised.value.result is not None
            assert raised.value.result.text == "so far"
            settled = await _log_of(store, session)
            stubborn.enough.set()
            await stubborn.ended.wait()
            assert (await session.chat("next")).text == "later"
            after = (await _log_of(store, session))[len(settled) :]
            assert sum(isinstance(entry, TurnStarted) for entry in after) == 1
            assert sum(isinstance(entry, PartEnded) for entry in after) == 1
            assert [item.text for item in session.messages] == ["go", "so far", "next", "later"]

    _played(play)


def _hanging_hook(stubborn: Stubborn) -> dict[str, Any]:
    async def before_tool(given: BeforeTool) -> Proceed:
        await stubborn.wait()
        return Proceed()

    @tool
    async def nothing() -> str:
        """Do nothing."""
        return ""

    return {"hooks": Hooks(before_tool=before_tool), "tools": [nothing]}


@pytest.mark.parametrize("what", ["hook", "provider", "tool"])
@pytest.mark.parametrize("late", [True, False], ids=["while it closes", "at once"])
def test_a_forced_close_returns_within_two_seconds_and_warns(
    what: str, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        stubborn, store = Stubborn(), MemoryStore()

        @tool
        async def hold() -> str:
            """Hold."""
            await stubborn.wait()
            return ""

        provider: ScriptedProvider = StubbornProvider(stubborn)
        options: dict[str, Any] = {}
        if what == "hook":
            provider = ScriptedProvider([calls(("nothing", {}))])
            options = _hanging_hook(stubborn)
        elif what == "tool":
            provider, options = ScriptedProvider([calls(("hold", {}))]), {"tools": [hold]}
        agent = _agent(provider, store=store, **options)
        session = agent.session("one")
        asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
        await stubborn.reached.wait()
        if late:
            closing = asyncio.ensure_future(session.close())
            await asyncio.wait({closing}, timeout=3)
            assert not closing.done()
        closed_at = _now()
        await session.close(force=True)
        assert _now() - closed_at <= 2
        assert (await asking).stop_reason == "aborted"
        async with _agent(ScriptedProvider(), store=store) as other:
            await other.session("one").open()
        stubborn.enough.set()
        await stubborn.ended.wait()
        await agent.close()

    caplog.set_level(logging.WARNING)
    _played(play)
    assert "does not let itself be cancelled" in caplog.text


@pytest.mark.parametrize("late", [True, False], ids=["while it closes", "at once"])
def test_a_forced_close_does_not_wait_for_a_handler_that_hangs(
    late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        stubborn = Stubborn()

        async def hang(_event: QueryEnded) -> None:
            await stubborn.wait()

        agent = _agent(ScriptedProvider([says("one")]))
        session = agent.session()
        await session.open()
        session.on(QueryEnded, hang)
        await session.chat("go")
        await stubborn.reached.wait()
        if late:
            closing = asyncio.ensure_future(session.close())
            await asyncio.wait({closing}, timeout=3)
            assert not closing.done()
        closed_at = _now()
        await session.close(force=True)
        assert _now() - closed_at <= 2
        stubborn.enough.set()
        await stubborn.ended.wait()
        await agent.close()

    caplog.set_level(logging.WARNING)
    _played(play)
    assert "a handler does not let itself be cancelled" in caplog.text


def test_a_query_that_waits_for_a_handler_before_it_begins_can_be_stopped() -> None:
    async def play() -> None:
        stubborn = Stubborn()

        async def hang(_event: QueryStarted) -> None:
            await stubborn.wait()

        provider = ScriptedProvider([says("one"), says("two")])
        agent = _agent(provider, runtime=RuntimeSettings(buffer_size=1))
        session = agent.session()
        await session.open()
        session.on(QueryStarted, hang)
        await session.chat("one")
        await session.chat("two")
        asking = asyncio.ensure_future(session.chat("the handler has no space for this"))
        await asyncio.wait({asking}, timeout=5)
        assert not asking.done()
        stopped_at = _now()
        session.abort()
        with pytest.raises(AgentError) as raised:
            await asking
        assert raised.value.code is ErrorCode.ABORTED
        assert _now() - stopped_at <= 1
        assert len(provider.requests) == 2
        await session.close(force=True)
        assert _now() - stopped_at <= 3
        stubborn.enough.set()
        await stubborn.ended.wait()
        await agent.close()

    _played(play)


async def test_a_forced_close_does_not_wait_for_a_store_that_hangs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptera.kernel.session.live_session._FORCED_CLOSE_SECONDS", 0.0)
    store = MemoryStore()
    store.log = log = HeldLog(store._sessions)
    agent = _agent(ScriptedProvider([says("one")]), store=store)
    session = agent.session("one")
    await session.open()
    log.hold = lambda entries: any(isinstance(item, QueryEnded) for item in entries)
    asking = asyncio.ensure_future(session.chat("go"))
    await log.held.wait()
    await session.close(force=True)
    assert "its store hangs" in caplog.text
    log.go_on.set()
    assert (await asking).text == "one"
    await agent.close()
    await until(asking.done)
