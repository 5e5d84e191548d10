"""The counter of the event loop: it sees work, also that of other threads, and nothing else."""

import asyncio
import time
from threading import Event

import pytest

from haptera.server.loop_slices import LoopSlices
from haptera.system.clock import SystemClock
from haptera.testing import says
from tests.scripted_agents import make_agent
from tests.server.serving import serving

pytestmark = pytest.mark.slow


def _work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _hold_the_lock(seconds: float) -> None:
    """Compute for about so long in one call, during which no other thread runs."""
    count = 10**6
    begun = time.thread_time()
    sum(range(count))
    sum(range(int(count * seconds / (time.thread_time() - begun))))


async def test_work_is_seen_as_long_as_it_was() -> None:
    slices = LoopSlices()
    for _ in range(3):
        with slices.watched():
            _work(0.06)
        await SystemClock().sleep(0.03)  # it looks once more after the last request
    assert slices.slices.longer == {25: 3, 50: 3, 100: 0, 250: 0, 1000: 0}
    assert 59 < slices.slices.longest < 80
    assert slices.delays.longest > 59


async def test_time_in_which_the_process_does_not_run_is_none_of_it() -> None:
    slices = LoopSlices()
    with slices.watched():
        Event().wait(0.2)  # as the loop of a process that the machine does not let run
        await SystemClock().sleep(0.03)
    assert slices.slices.longest < 50
    assert slices.delays.longest < 50


async def test_a_thread_that_keeps_the_lock_delays_the_loop() -> None:
    slices = LoopSlices()
    with slices.watched():
        await SystemClock().sleep(0.02)
        await asyncio.to_thread(_hold_the_lock, 0.3)
        await SystemClock().sleep(0.03)
    assert slices.delays.longer[100] == 1
    assert slices.slices.longest < 100


async def test_nothing_is_looked_at_while_there_are_no_requests() -> None:
    slices = LoopSlices()
    with slices.watched():
        await SystemClock().sleep(0.02)
    await SystemClock().sleep(0.03)
    assert vars(slices)["_timer"] is None
    _work(0.06)
    await SystemClock().sleep(0.03)
    assert slices.slices.longest < 50


async def test_a_server_tells_what_it_does() -> None:
    agent, _ = make_agent([says("hi")])
    async with serving(agent) as served:
        path = f"/api/v1/sessions/{await served.new_session()}/events"
        async with served.events(path):
            status, told = await served.call("GET", "/api/v1/load")
            assert (status, told["streams"], told["requests"]) == (200, 1, 1)
            _work(0.3)
            _, told = await served.call("GET", "/api/v1/load")
            await SystemClock().sleep(0.03)
            _, told = await served.call("GET", "/api/v1/load")
        assert told["slices"]["over_ms"]["250"] == 1
        assert told["slices"]["longest_ms"] >= 300
