"""A long queue: a query that ends looks at what waits behind it once, however much that is."""

import asyncio
import sys
from collections import Counter
from types import FrameType
from typing import Any

from haptera import AgentSession
from haptera.system.owned_tasks import OwnedTasks
from haptera.testing import Gate, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import live_of, playing


class Calls:
    """Counts the functions of the room `session` that are called."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and "/haptera/kernel/session/" in frame.f_code.co_filename:
            self.counts[frame.f_code.co_qualname] += 1


async def _queue_up(session: AgentSession, first: Gate, prompts: int) -> "asyncio.Task[Any]":
    """Let prompts wait behind a query that is held."""
    running = OwnedTasks().start(session.chat("first"), name="test-first")
    await first.reached.wait()
    for number in range(prompts):
        await session.send(f"prompt {number}")
    return running


async def _calls_of_a_query_with(prompts: int) -> Counter[str]:
    """Return what the end of one query and the whole next one call, with prompts behind them."""
    first, second, calls = Gate(), Gate(), Calls()
    script: list[Step] = [[first, *says("one")], [second, *says("two")]]
    script += [says("more")] * (prompts - 1)
    async with playing(script) as (session, _):
        running = await _queue_up(session, first, prompts)
        sys.setprofile(calls)
        try:
            first.open()
            await second.reached.wait()
        finally:
            sys.setprofile(None)
        second.open()
        await running
        await session.wait_idle()
    return calls.counts


async def test_the_end_of_a_query_costs_no_more_calls_with_more_prompts_behind_it() -> None:
    few, many = await _calls_of_a_query_with(3), await _calls_of_a_query_with(60)
    assert many - few == Counter()


async def test_a_drained_queue_is_looked_at_a_few_times_and_not_once_for_each_prompt() -> None:
    counted: list[int] = []
    for prompts in (3, 60):
        first, calls = Gate(), Calls()
        async with playing([[first, *says("one")]]) as (session, _):
            running = await _queue_up(session, first, prompts)
            sys.setprofile(calls)
            try:
                drained = await session.drain_queue()
            finally:
                sys.setprofile(None)
            assert len(drained) == prompts
            assert not (await live_of(session)).fold.inputs
            counted.append(calls.counts["SessionRecorder.waiting"])
            first.open()
            await running
    assert counted[0] == counted[1]
