"""Many queries through one agent leave no tasks, listeners, descriptors or memory behind."""

import asyncio
import gc
import statistics
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from haptera import AbortController, Agent, AgentError, ErrorCode, ProviderError, tool
from haptera.kernel.session.live_session import LiveSession
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, calls, says
from tests.samples import sampled

pytestmark = pytest.mark.slow

# What every query keeps grows in every round. A cache of the interpreter that happens to grow while
# a test runs, which costs some ten kilobytes at once, is in one of them only: the largest is left
# out. Random characters for ids are drawn ahead, 4 KiB at once, so no round says much by itself.
_ROUNDS = 5


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _ask_many(agent: Agent, provider: ScriptedProvider, count: int) -> None:
    controller = AbortController()
    for number in range(count):
        provider.replace_rest(calls(("echo", {"text": str(number)})), says("done"))
        result = await agent.run("go", signal=controller.signal)
        assert result.text == "done"
        provider.requests.clear()
    assert controller.signal.listener_count == 0


async def _forget_all(store: MemoryStore) -> None:
    for record in await store.index.browse("local", None):
        await store.log.delete(record.id)


async def _kept(agent: Agent, provider: ScriptedProvider, store: MemoryStore, count: int) -> int:
    """Bytes that are allocated after so many queries, and were not before them."""
    before, _ = tracemalloc.get_traced_memory()
    await _ask_many(agent, provider, count)
    await _forget_all(store)
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


async def _check(count: int, report: Callable[[str], None]) -> None:
    store = MemoryStore()
    provider = ScriptedProvider()
    each = count // _ROUNDS
    async with Agent("scripted/m", providers=[provider], tools=[echo], store=store) as agent:
        await _ask_many(agent, provider, 50)
        await _forget_all(store)
        gc.collect()
        tasks, descriptors = len(asyncio.all_tasks()), _descriptors()
        tracemalloc.start()
        try:
            await _kept(agent, provider, store, each)
            kept = [await _kept(agent, provider, store, each) for _ in range(_ROUNDS)]
        finally:
            tracemalloc.stop()
        assert len(asyncio.all_tasks()) == tasks
        assert _descriptors() == descriptors
    per_query = statistics.mean(sorted(kept)[:-1]) / each
    report(f"queries: {count} through one agent, {per_query:.1f} bytes kept for each")
    assert per_query < 64, kept


@pytest.mark.timeout(120)
@sampled(300, 1_000)
async def test_many_queries_leave_nothing_behind(
    sample: int, report: Callable[[str], None]
) -> None:
    await _check(sample, report)


def _live_sessions() -> int:
    gc.collect()
    return sum(isinstance(item, LiveSession) for item in gc.get_objects())


async def test_queries_that_fail_or_are_aborted_leave_nothing_behind() -> None:
    """Their errors hold what raised them, and what raised them knows the error."""
    provider, before = ScriptedProvider(), _live_sessions()
    async with Agent("scripted/m", providers=[provider]) as agent:
        for number in range(20):
            stop = AbortController()

            async def abort(stop: AbortController = stop) -> None:
                stop.abort("enough")

            refused = ProviderError(ErrorCode.BAD_REQUEST, "no", basis="status")
            provider.replace_rest(refused if number % 2 else [abort, *says("late")])
            with pytest.raises(AgentError):
                await agent.run("go", signal=stop.signal)
        assert _live_sessions() == before


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_ten_thousand_queries_leave_nothing_behind(report: Callable[[str], None]) -> None:
    await _check(10_000, report)
