"""A prompt that comes after a query was cut off, instead of a resume: both queries have an end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from haptera import AgentSession, Approve, QueryEnded, tool
from haptera.model.errors import ErrorCode
from haptera.model.log.entry import Entry
from haptera.model.log.history import Rewound
from haptera.model.log.queries import QueryStarted
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.tools import ToolStarted
from haptera.ports.session_store import Store
from haptera.stores.memory import MemoryStore
from haptera.testing import Gate, calls, says
from haptera.testing.clocks import run_seeded
from tests.history_grammar import violations
from tests.kernel.session import race_scenario
from tests.kernel.session.ends_of_queries import queries_without_end
from tests.kernel.session.failing_store import FailingStore
from tests.scripted_agents import live_of, make_agent
from tests.stores.store_factories import STORE_FACTORIES, open_store


@tool
def work(step: int) -> str:
    """Work."""
    return f"did {step}"


@tool(approval="ask")
def risky(step: int) -> str:
    """Do something that is asked about."""
    return f"risked {step}"


async def _whole_log() -> list[Entry]:
    """Return the log of two queries; the second one calls tools and waits for an answer."""
    store = MemoryStore()
    agent, _ = make_agent(
        [
            says("hello"),
            calls(("work", {"step": 1}), text="I work. "),
            calls(("work", {"step": 2}), ("risky", {"step": 3})),
            says("all", " done"),
        ],
        store=store,
        tools=[work, risky],
        approver=lambda _request: Approve(),
        project="p",
    )
    async with agent, agent.session("x") as session:
        await session.chat("hi")
        await session.chat("work")
        return list(await store.log.read((await live_of(session)).session_id))


async def _store_with(log: Sequence[Entry], store: Store) -> None:
    """Write entries into a store, as a process that is gone has left them."""
    opened = log[0]
    assert isinstance(opened, SessionOpened)
    lease = await store.leases.acquire(opened.session_id, "gone")
    await store.log.append(lease, log)
    await store.leases.release(lease)


@asynccontextmanager
async def _reopened(log: Sequence[Entry], store: Store, *steps: Any) -> AsyncIterator[AgentSession]:
    """Open a session whose log ends somewhere."""
    await _store_with(log, store)
    opened = log[0]
    assert isinstance(opened, SessionOpened)
    agent, provider = make_agent(
        steps, store=store, tools=[work, risky], project=opened.project, owner=opened.owner
    )
    async with agent, agent.session(opened.name or opened.session_id, must_exist=True) as session:
        yield session
    for request in provider.requests:
        assert violations(request.messages) == []


async def _log_of(session: AgentSession) -> list[Entry]:
    live = await live_of(session)
    return list(await live.store.log.read(live.session_id))


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_after_any_cut_a_new_prompt_ends_the_query_before_its_own_begins(
    kind: str, tmp_path: Path
) -> None:
    whole = await _whole_log()
    cut_off = 0
    for length in range(1, len(whole) + 1):
        store = open_store(kind, tmp_path / str(length))
        async with _reopened(whole[:length], store, says("next")) as session:
            unfinished = session.unfinished
            assert (await session.chat("go on")).text == "next"
            log = await _log_of(session)
            assert queries_without_end(log, is_resumed_enough=False) == []
            ends = {entry.query_id: entry for entry in log if isinstance(entry, QueryEnded)}
            if unfinished.query_id is not None and not unfinished.resting:
                cut_off += 1
                end = ends[unfinished.query_id]
                assert end.stop_reason == "aborted"
                assert end.error is not None
                assert end.error.code is ErrorCode.ABORTED
                started = [entry for entry in log if isinstance(entry, QueryStarted)]
                assert end.seq == started[-1].seq - 1
        await store.close()
    assert cut_off > 10


async def test_the_stream_of_the_next_prompt_has_one_terminal_event_its_own() -> None:
    whole = await _whole_log()
    for length in range(1, len(whole) + 1):
        async with _reopened(whole[:length], MemoryStore(), says("next")) as session:
            events = [event async for event in session.stream("go on")]
            (end,) = [event for event in events if isinstance(event, QueryEnded)]
            (start,) = [event for event in events if isinstance(event, QueryStarted)]
            assert (end.query_id, end.stop_reason) == (start.query_id, "complete")
            assert events.index(end) > events.index(start)


async def test_an_observer_sees_the_end_of_the_query_that_was_cut_off() -> None:
    whole = await _whole_log()
    cut = next(entry.seq for entry in whole if isinstance(entry, ToolStarted))
    async with _reopened(whole[:cut], MemoryStore(), says("next")) as session:
        seen: list[QueryEnded] = []
        session.on(QueryEnded, seen.append)
        left = session.unfinished.query_id
        await session.chat("go on")
    assert [(end.query_id == left, end.stop_reason) for end in seen] == [
        (True, "aborted"), (False, "complete"),
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["send", "steer"])
async def test_a_prompt_whose_answer_nothing_waits_for_ends_it_too(way: str) -> None:
    whole = await _whole_log()
    cut = next(entry.seq for entry in whole if isinstance(entry, ToolStarted))
    async with _reopened(whole[:cut], MemoryStore(), says("next")) as session:
        await getattr(session, way)("go on")
        await session.wait_idle()
        assert queries_without_end(await _log_of(session), is_resumed_enough=False) == []


async def test_a_query_that_is_resumed_gets_no_end_of_its_own() -> None:
    whole = await _whole_log()
    cut = next(entry.seq for entry in whole if isinstance(entry, ToolStarted))
    async with _reopened(whole[:cut], MemoryStore(), says("resumed"), says("next")) as session:
        left = session.unfinished.query_id
        await session.resume()
        await session.chat("go on")
        log = await _log_of(session)
    assert queries_without_end(log) == []
    assert left not in {entry.query_id for entry in log if isinstance(entry, QueryEnded)}


async def test_a_query_that_was_cut_off_and_rewound_is_ended_by_the_next_prompt() -> None:
    whole = await _whole_log()
    cut = next(entry.seq for entry in whole if isinstance(entry, ToolStarted))
    async with _reopened(whole[:cut], MemoryStore(), says("next"), says("last")) as session:
        hello = session.messages[1].id
        await session.rewind(to=hello)
        await session.chat("go on")
        log = await _log_of(session)
        assert queries_without_end(log, is_resumed_enough=False) == []
        assert [message.text for message in session.messages] == ["hi", "hello", "go on", "next"]
        await session.chat("and on")
        assert queries_without_end(await _log_of(session), is_resumed_enough=False) == []


async def test_a_query_that_ended_and_was_rewound_into_is_not_ended_again() -> None:
    whole = await _whole_log()
    async with _reopened(whole, MemoryStore(), says("next")) as session:
        working = next(message for message in session.messages if message.text == "I work. ")
        await session.rewind(to=working.id)
        await session.chat("go on")
        log = await _log_of(session)
    assert queries_without_end(log, is_resumed_enough=False) == []
    assert any(isinstance(entry, Rewound) for entry in log)


async def test_a_query_whose_end_the_store_did_not_take_is_ended_by_the_next_prompt() -> None:
    store = FailingStore()
    gate = Gate()
    agent, _ = make_agent([[gate], says("next")], store=store)
    async with agent, agent.session("x") as session:
        asking = asyncio.ensure_future(session.chat("hi"))
        await gate.reached.wait()
        store.log.is_broken = True
        session.abort()
        await asyncio.wait({asking})
        assert asking.exception() is not None
        store.log.is_broken = False
        shown: list[QueryEnded] = []
        session.on(QueryEnded, shown.append)
        assert (await session.chat("go on")).text == "next"
        log = await _log_of(session)
        assert queries_without_end(log, is_resumed_enough=False) == []
        # It is stored as it was shown when it happened, and not shown again.
        first, _ = [entry for entry in log if isinstance(entry, QueryEnded)]
        assert first.error is not None
        assert first.error.code is ErrorCode.UNAVAILABLE
        assert [end.stop_reason for end in shown] == ["complete"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_after_any_cut_of_any_race_a_new_prompt_leaves_no_query_without_end(seed: int) -> None:
    log = run_seeded(lambda: race_scenario.play_log(seed), seed)

    async def cut_everywhere() -> None:
        for length in range(1, len(log) + 1, 2):
            async with _reopened(log[:length], MemoryStore(), *[says("next")] * 40) as session:
                await session.chat("go on", on_abort="return")
                await session.wait_idle()
                assert queries_without_end(await _log_of(session)) == [], f"cut after {length}"

    asyncio.run(cut_everywhere())
