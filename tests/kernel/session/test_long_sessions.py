"""A long session: going back reads what follows the target, and no event loop stops for it."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import pytest

from benchmarks.catalogue import exchange
from haptera import AgentSession
from haptera.kernel.session.log_reading import fold_log
from haptera.model.ids import SessionId, new_session_id
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.stores.memory import MemoryStore
from haptera.testing.store_conformance.samples import opening
from tests.fixtures_report import Report
from tests.folded_sessions import state_of
from tests.samples import sampled
from tests.scripted_agents import live_of, make_agent


async def long_log(store: MemoryStore, exchanges: int) -> SessionId:
    session_id = new_session_id()
    lease = await store.leases.acquire(session_id, "test")
    entries: list[Entry] = [opening(session_id, name="long", owner="local", project="p")]
    for number in range(exchanges):
        entries += exchange(random.Random(number), number, seq=2 + 6 * number)
    await store.log.append(lease, entries)
    await store.leases.release(lease)
    return session_id


class CountingLog:
    """Counts the entries that are read of a log."""

    def __init__(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = store.log.read

        async def counted(
            session_id: SessionId, *, after: int = 0, limit: int | None = None
        ) -> list[Entry]:
            entries = await read(session_id, after=after, limit=limit)
            self.count += len(entries)
            return entries

        monkeypatch.setattr(store.log, "read", counted)


async def same_as_log(session: AgentSession, store: MemoryStore) -> bool:
    live = await live_of(session)
    entries = await store.log.read(live.session_id)
    return live.fold.messages() == fold_entries(entries).messages()


async def same_as_whole(fork: AgentSession, store: MemoryStore) -> bool:
    """Whether a fork is what its log and that of its parent make."""
    live = await live_of(fork)
    whole = await fold_log(store.log, await store.log.read(live.session_id))
    return state_of(live.fold) == state_of(whole) and live.fold.messages() == whole.messages()


async def test_going_back_reads_only_what_follows_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    await long_log(store, 2_000)
    agent, _ = make_agent([], store=store, project="p")
    async with agent, agent.session("long") as session:
        log = CountingLog(store, monkeypatch)

        async def reads(what: Awaitable[object]) -> int:
            log.count = 0
            await what
            count = log.count
            assert await same_as_log(session, store)
            return count

        near, far = session.messages[-5].id, session.messages[-1500].id
        assert await reads(session.rewind(to=near)) < 2_500
        assert await reads(session.undo_rewind()) < 2_500
        assert await reads(session.rewind(to=far)) < 12_000
        assert await reads(session.undo_rewind()) < 12_000
        assert await reads(session.rewind(to=near, dry_run=True)) < 6_000
        for after in (None, session.messages[-5].id, session.messages[-1500].id):
            log.count = 0
            async with await session.fork(after=after) as other:
                assert log.count < (10 if after is None else 12_100)
                assert other.session_id != session.session_id
                assert await same_as_whole(other, store)
            assert await same_as_log(session, store)


async def longest_stop(work: Awaitable[object]) -> float:
    """Return for how long the event loop stood still while something was awaited, in seconds."""
    loop, stops, last = asyncio.get_running_loop(), [0.0], time.perf_counter()

    ended = False

    def tick() -> None:
        nonlocal last
        stops.append(time.perf_counter() - last)
        last = time.perf_counter()
        if not ended:
            loop.call_later(0.001, tick)

    loop.call_later(0.001, tick)
    await work
    ended = True
    return max(*stops, time.perf_counter() - last)


def computing() -> int:
    """Compute in Python for half a second."""
    ended, count = time.perf_counter() + 0.5, 0
    while time.perf_counter() < ended:
        count += sum(range(100))
    return count


@sampled(20_000, 120_000)
async def test_no_loop_stops_for_a_long_session(sample: int, report: Report) -> None:
    store = MemoryStore()
    await long_log(store, sample // 6)
    agent, _ = make_agent([], store=store, project="p")
    async with agent:
        session = agent.session("long")
        await agent.sessions.list()  # loads the code
        # What a thread that computes costs a loop on this machine, as busy as it is.
        control = await longest_stop(asyncio.to_thread(computing))
        stops = {"open": await longest_stop(session.open())}
        middle = session.messages[len(session.messages) // 2].id
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "rewind": lambda: session.rewind(to=middle),
            "undo": session.undo_rewind,
            "stats": lambda: agent.sessions.stats("long"),
            "messages": lambda: agent.sessions.messages("long", limit=50),
            "usage": lambda: agent.sessions.usage("long"),
        }
        for _ in range(2):  # a busy machine may stop any of them once
            for name, work in works.items():
                stops[name] = min(stops.get(name, 60.0), await longest_stop(work()))
        await session.close()
    told = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in stops.items())
    report(
        f"the longest stops of a loop with {sample:,} entries: {told}; "
        f"a thread alone: {control * 1e3:.0f} ms"
    )
    assert max(stops.values()) < 0.02 + 4 * control
