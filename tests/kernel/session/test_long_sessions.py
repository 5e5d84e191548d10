"""A long session: going back reads what follows the target, and no event loop stops for it."""

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from benchmarks.catalogue import exchange
from haptera import AgentSession
from haptera.kernel.session.log_reading import fold_log
from haptera.model.ids import SessionId, new_entry_id, new_session_id
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import FOLDED, SessionChanged
from haptera.model.log.stored_state import state_to_store
from haptera.stores.memory import MemoryStore
from haptera.testing import says
from haptera.testing.store_conformance.samples import opening
from tests.fixtures_report import Report
from tests.folded_sessions import state_of
from tests.samples import sampled
from tests.scripted_agents import live_of, make_agent


async def long_log(store: MemoryStore, exchanges: int) -> SessionId:
    session_id = new_session_id()
    lease = await store.leases.acquire(session_id, "test")
    entries: list[Entry] = [opening(session_id, name="long", owner="local", project="p")]
    fold = SessionFold()
    fold.apply(entries[0])
    for number in range(exchanges):
        written = exchange(random.Random(number), number, seq=fold.head + 1)
        for entry in written:
            fold.apply(entry)
        # As a session records what it is when a query has ended.
        if (state := state_to_store(fold)) is not None:
            written.append(
                SessionChanged(
                    id=new_entry_id(), time=number, seq=fold.head + 1, changes={FOLDED: state}
                )
            )
            fold.apply(written[-1])
        entries += written
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


async def test_going_back_from_where_one_went_back_to_reads_only_what_is_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    await long_log(store, 6_000)
    log = CountingLog(store, monkeypatch)

    async def reads(what: Awaitable[object]) -> int:
        log.count = 0
        await what
        return log.count

    agent, _ = make_agent([says("yes")] * 2, store=store, project="p")
    async with agent, agent.session("long") as session:
        middle = len(session.messages) // 2
        far, near = session.messages[middle].id, session.messages[middle - 20].id
        for _ in range(2):
            messages = session.messages
            works: list[Callable[[], Awaitable[object]]] = [
                lambda: session.rewind(to=far),
                lambda: session.rewind(to=near),
            ]
            for work in (*works, session.undo_rewind, session.undo_rewind):
                assert await reads(work()) < 12_000
                assert await same_as_log(session, store)
            assert session.messages == messages
            await session.chat("And now?")
    agent, _ = make_agent([], store=store, project="p")
    async with agent:
        remote = await agent.remote("long")
        works = [lambda: remote.rewind(to=far), lambda: remote.rewind(to=near)]
        for work in (*works, remote.undo_rewind, remote.undo_rewind):
            assert await reads(work()) < 36_000
        async with agent.session("long") as session:
            assert session.messages[-1].text == "yes"
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


def folding(entries: Sequence[Entry]) -> float:
    """Return the CPU time that folding some entries takes, in seconds."""
    started = time.thread_time()
    fold_entries(entries)
    return time.thread_time() - started


@pytest.fixture
def _without_collections() -> Iterator[None]:
    """Collect no garbage: a full collection goes through all that the process has, in any step."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("_without_collections")
@sampled(60_000, 300_000)
async def test_no_step_of_the_loop_computes_for_long(
    sample: int, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    entries = await store.log.read(await long_log(store, sample // 6))
    run, step = asyncio.events.Handle._run, ""
    longest: dict[str, float] = {}

    def timed(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run(handle)
        longest[step] = max(longest.get(step, 0.0), time.thread_time() - started)

    agent, _ = make_agent([says("yes")] * 4, store=store, project="p")
    async with agent:
        await agent.sessions.list()  # loads the code
        session = agent.session("long")
        async with agent.session("short") as short:
            await short.chat("Hello")
        monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
        step = "open"
        await session.open()
        messages = session.messages
        far, near = messages[len(messages) // 2].id, messages[len(messages) // 2 - 20].id
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "rewind": lambda: session.rewind(to=far),
            "rewind again": lambda: session.rewind(to=near),
            "undo": session.undo_rewind,
            "undo again": session.undo_rewind,
            "chat": lambda: session.chat("And now?"),
            "close": session.close,
        }
        for name, work in works.items():
            step = name
            await work()
        monkeypatch.undo()
    # So many entries are folded on a loop, and half as much again is collecting garbage.
    control = sorted(folding(entries[:1_000]) for _ in range(9))[4]
    told = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in longest.items())
    report(
        f"the longest steps of a loop with {sample:,} entries: {told}; "
        f"folding 1,000 entries: {control * 1e3:.1f} ms"
    )
    assert set(longest) >= {"open", *works} - {"close"}
    assert max(longest.values()) < 8 * control
