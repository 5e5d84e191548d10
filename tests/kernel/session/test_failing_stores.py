"""A store that fails ends the query before the next side effect; the session goes on after it."""

import asyncio
import gc
from contextlib import aclosing
from typing import Any

import pytest

from haptera import Agent, AgentSession, tool
from haptera.model.errors import AgentError, ErrorCode, StoreError
from haptera.model.events import TextDelta
from haptera.model.log.entry import Entry
from haptera.model.log.notes import ContextNoted
from haptera.model.log.queries import InputQueued, QueryEnded, QueryStarted
from haptera.model.log.sessions import SessionChanged
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.model.log.turns import PartCheckpoint, TurnEnded, TurnStarted
from haptera.model.settings import RuntimeSettings
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, says
from haptera.testing.clocks import AutoClock, SeededLoop
from tests.fixtures_report import Report
from tests.history_grammar import violations
from tests.kernel.session.failing_store import FailingStore

_OPENING = 1
"""Appends before the query: the one that opens the session."""


class Effects:
    """Everything that a query does to the world, in the order it does it."""

    def __init__(self, store: FailingStore) -> None:
        self._store = store
        self.done: list[tuple[str, int]] = []
        """What was done, and how many appends had been tried by then."""

    def note(self, what: str) -> None:
        """Note an effect."""
        self.done.append((what, len(self._store.log.appends)))


class WatchedProvider(ScriptedProvider):
    """A scripted provider that notes every request as an effect."""

    effects: Effects

    def stream(self, request: Any) -> Any:
        """Note the request and play the next step."""
        self.effects.note("request")
        return super().stream(request)


def _three_turns() -> list[Any]:
    return [
        calls(("write", {"line": "a"}), ("write", {"line": "b"}), ids=("call_a", "call_b")),
        calls(("write", {"line": "c"}), ids=("call_c",), text="Once more."),
        says("All ", "done."),
    ]


def _agent(store: FailingStore, *, parallel: bool) -> tuple[Agent, WatchedProvider, Effects]:
    effects = Effects(store)

    @tool
    async def write(line: str) -> str:
        """Write a line."""
        effects.note(line)
        return f"{line} is written"

    provider = WatchedProvider(_three_turns())
    provider.effects = effects
    agent = Agent(
        "scripted/m",
        providers=[provider],
        tools=[write],
        store=store,
        parallel_tools=parallel,
        clock=AutoClock(),
    )
    return agent, provider, effects


async def _count_appends(*, parallel: bool) -> int:
    store = FailingStore()
    agent, _, _ = _agent(store, parallel=parallel)
    async with agent, agent.session() as session:
        await session.chat("go")
    return len(store.log.appends) - _OPENING


async def _started(store: FailingStore, session: AgentSession) -> list[str]:
    entries = await store.log.read(_id_of(session))
    return [entry.call_id for entry in entries if isinstance(entry, ToolStarted)]


async def _next_prompt_works(session: AgentSession, provider: ScriptedProvider) -> None:
    provider.replace_rest(says("fine"))
    async with asyncio.timeout(5):
        assert (await session.chat("next")).text == "fine"
    assert violations(provider.requests[-1].messages) == []


@pytest.mark.slow
@pytest.mark.parametrize("reached_the_log", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
async def test_any_failing_append_ends_the_query_before_the_next_side_effect(
    parallel: bool,
    reached_the_log: bool,
    report: Report,
    caplog: pytest.LogCaptureFixture,
) -> None:
    appends = await _count_appends(parallel=parallel)
    for n in range(1, appends + 1):
        store = FailingStore()
        agent, provider, effects = _agent(store, parallel=parallel)
        async with agent, agent.session() as session:
            store.log.fail_at = _OPENING + n
            store.log.stores_before_failing = reached_the_log
            with pytest.raises(AgentError) as raised:
                async with asyncio.timeout(5):
                    await session.chat("go")
            assert raised.value.code is ErrorCode.UNAVAILABLE
            assert isinstance(raised.value, StoreError)
            late = [what for what, after in effects.done if after >= _OPENING + n]
            # Of calls that run side by side, one may have been let go already.
            assert len(late) <= parallel, f"append {n} failed, and then came {late}"
            assert set(late) <= {call[-1] for call in await _started(store, session)}
            await _next_prompt_works(session, provider)
    # The store has failed, and no model: none is asked again, and none is blamed.
    assert not [item for item in caplog.records if item.name.endswith("provider_attempts")]
    report(f"failing appends: {appends} of a three-turn query, no effect after any of them")


async def test_what_happened_is_in_the_log_before_what_follows_from_it() -> None:
    store = FailingStore()
    agent, _, effects = _agent(store, parallel=False)
    async with agent, agent.session() as session:
        await session.chat("go")
        entries = await store.log.read(_id_of(session))
    kinds_before = [
        {kind for batch in store.log.appends[:after] for kind in batch} for _, after in effects.done
    ]
    assert [what for what, _ in effects.done] == ["request", "a", "b", "request", "c", "request"]
    assert {"query.started", "turn.started"} <= kinds_before[0]
    assert {"turn.ended", "tool.started"} <= kinds_before[1]
    _assert_order(entries)


def _id_of(session: AgentSession) -> Any:
    return session.session_id


def _assert_order(entries: list[Entry]) -> None:
    """Every tool starts after the answer that asks for it, and ends before the next turn."""
    open_tools = 0
    turn_is_open = False
    for entry in entries:
        match entry:
            case TurnStarted():
                assert open_tools == 0
                turn_is_open = True
            case TurnEnded():
                turn_is_open = False
            case ToolStarted():
                assert not turn_is_open
                open_tools += 1
            case ToolEnded():
                open_tools -= 1
    assert isinstance(entries[1], QueryStarted)
    assert isinstance(entries[-1], QueryEnded)


async def test_the_terminal_entry_is_in_the_log_before_the_caller_hears_of_the_end() -> None:
    store = FailingStore()
    agent, _, _ = _agent(store, parallel=False)
    async with agent, agent.session() as session:
        await session.chat("go")
        assert store.log.appends[-1][-1] == "query.ended"


async def test_a_store_that_stays_broken_fails_every_prompt_and_no_tool_runs() -> None:
    store = FailingStore()
    agent, provider, effects = _agent(store, parallel=False)
    async with agent, agent.session() as session:
        store.log.is_broken = True
        for _ in range(3):
            with pytest.raises(StoreError):
                await session.chat("go")
        assert effects.done == []
        store.log.is_broken = False
        await _next_prompt_works(session, provider)


async def test_settings_can_be_changed_after_a_store_has_recovered() -> None:
    store = FailingStore()
    agent, _, _ = _agent(store, parallel=False)
    async with agent, agent.session() as session:
        store.log.is_broken = True
        with pytest.raises(StoreError):
            await session.chat("go")
        store.log.is_broken = False
        await session.configure(max_tokens=7)
        assert session.settings.max_tokens == 7


async def _recover_at_once(seed: int) -> None:
    """Let several callers go on at the same time after a failed append."""
    store = FailingStore()
    provider = ScriptedProvider([says("fine")] * 2)
    agent = Agent("scripted/m", providers=[provider], store=store, clock=AutoClock())
    async with agent, agent.session() as session:
        store.log.is_broken = True
        with pytest.raises(StoreError):
            await session.chat("go")
        store.log.is_broken = False
        done = await asyncio.gather(
            session.configure(max_tokens=7),
            session.configure(temperature=0.5),
            session.note("remember"),
            session.chat("first"),
            session.send("second"),
            return_exceptions=True,
        )
        await session.wait_idle()
        entries = await store.log.read(_id_of(session))
    changed = [entry.changes for entry in entries if isinstance(entry, SessionChanged)]
    settings = {name for changes in changed for name in changes["settings"]}
    prompts = [item for item in entries if isinstance(item, QueryStarted | InputQueued)]
    asked = {item.message.text for item in prompts if item.message is not None}
    noted = [entry for entry in entries if isinstance(entry, ContextNoted)]
    in_the_log = [
        "max_tokens" in settings,
        "temperature" in settings,
        len(noted) == 1,
        "first" in asked,
        "second" in asked,
    ]
    # One that comes while another caller goes on may be refused with the failure.
    assert in_the_log == [not isinstance(item, StoreError) for item in done], (seed, done)


def test_what_several_callers_do_after_a_failed_append_is_in_the_log() -> None:
    for seed in range(40):
        loop = SeededLoop(seed)
        try:
            loop.run_until_complete(_recover_at_once(seed))
        finally:
            loop.end()


async def test_commands_are_heard_after_a_store_has_recovered() -> None:
    store = FailingStore()
    agent, provider, _ = _agent(store, parallel=False)
    provider.replace_rest(says("from afar"))
    async with agent, agent.session("here") as session:
        remote = await agent.remote("here")
        store.log.is_broken = True
        await remote.send("hello")
        async with asyncio.timeout(5):
            await store.log.has_failed.wait()
            store.log.is_broken = False
            async for event in session.events():
                if isinstance(event, QueryEnded):
                    break
        assert [message.text for message in session.messages] == ["hello", "from afar"]
        assert await store.inbox.pending(_id_of(session)) == ()


async def test_a_prompt_is_given_up_while_the_store_fails_and_nothing_is_left_unsaid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, gate = FailingStore(), Gate()
    provider = ScriptedProvider([[gate, *says("a")]])
    agent = Agent("scripted/m", providers=[provider], store=store, clock=FakeClock())
    async with agent, agent.session() as session:
        running = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        waiting = asyncio.ensure_future(session.chat("later"))
        async with aclosing(session.events()) as events:
            await anext(event async for event in events if isinstance(event, InputQueued))
        store.log.is_broken = True
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await store.log.has_failed.wait()
        store.log.is_broken = False
        gate.open()
        with pytest.raises(StoreError):
            await running
        gc.collect()  # asyncio logs an exception that nothing retrieved when its task is freed
    assert [item.getMessage() for item in caplog.records if item.name == "asyncio"] == []


@pytest.mark.parametrize(("letter", "size"), [("a", 1), ("é", 2), ("語", 3), ("🐚", 4)])
async def test_text_is_saved_once_four_kibibytes_of_it_were_shown(letter: str, size: int) -> None:
    store, gate = FailingStore(), Gate()
    steps: list[Any] = [[*[[part] for part in says(*[letter * 50] * 200)[:-2]], gate]]
    provider = ScriptedProvider(steps)
    agent = Agent("scripted/m", providers=[provider], store=store, clock=FakeClock())
    async with agent, agent.session() as session:
        shown = 0
        with pytest.raises(AgentError):
            async for event in session.stream("go"):
                if isinstance(event, TextDelta):
                    shown += len(event.text)
                    saved = await _saved_characters(store, session)
                    assert (shown - saved) * size <= 4096 + 50 * size
                if shown == 200 * 50:
                    session.abort()


async def _saved_characters(store: FailingStore, session: AgentSession) -> int:
    entries = await store.log.read(_id_of(session))
    return sum(len(entry.text) for entry in entries if isinstance(entry, PartCheckpoint))


async def test_text_is_saved_after_a_second_of_silence() -> None:
    store, gate, clock = FailingStore(), Gate(), FakeClock()
    provider = ScriptedProvider([[*[[part] for part in says("so far")[:-2]], gate]])
    agent = Agent(
        "scripted/m", providers=[provider], store=store, clock=clock, runtime=RuntimeSettings()
    )
    async with agent, agent.session() as session:
        task = asyncio.ensure_future(session.chat("go", on_abort="return"))
        await gate.reached.wait()
        await clock.until_sleeping(1)
        clock.advance(1.0)
        await clock.until_sleeping(1)
        assert await _saved_characters(store, session) == len("so far")
        session.abort()
        await task


async def test_a_store_that_fails_while_the_provider_is_silent_ends_the_query() -> None:
    store, gate, clock = FailingStore(), Gate(), FakeClock()
    provider = ScriptedProvider([[*[[part] for part in says("so far")[:-2]], gate]])
    agent = Agent("scripted/m", providers=[provider], store=store, clock=clock)
    async with agent, agent.session() as session:
        task = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        await clock.until_sleeping(1)
        store.log.is_broken = True
        clock.advance(1.0)
        async with asyncio.timeout(5):
            with pytest.raises(StoreError):
                await task
        store.log.is_broken = False
        await _next_prompt_works(session, provider)
