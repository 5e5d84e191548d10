"""Trials of the floor and of Haptera: many streams, a long conversation, idle sessions, aborts.

A trial measures itself, because what counts is not CPU time alone: seconds until everything has
arrived, how late a delta is, memory, and what the server sees. Memory is resident memory.
"""

import asyncio
import gc
import os
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import aiohttp
import msgspec

from benchmarks.floor import AiohttpClient, Floor
from benchmarks.floor_wire import Message, wire_for
from benchmarks.mock_server import STATS_PATH
from benchmarks.subjects import PROMPT, NotAvailable, Setup, Trial
from benchmarks.subjects_haptera import available, open_agent

_SAID = "Long ago there was a sea. " * 20
_PAGE = os.sysconf("SC_PAGE_SIZE")

Stream = Callable[[Callable[[], None]], Awaitable[None]]
"""Streams one answer and calls back at each delta."""
AddTurn = Callable[[], Awaitable[None]]


# Many streams at once: seconds until all have ended.


async def streams_floor(setup: Setup, size: int) -> Trial:
    """Stream many answers side by side through one aiohttp session."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        floor = _floor_on(setup, session)

        async def stream(on_delta: Callable[[], None]) -> None:
            await floor.query(PROMPT, lambda _: on_delta())

        return await _all_streams(setup, size, stream)


async def streams_haptera(setup: Setup, size: int) -> Trial:
    """Stream many answers side by side, each in a session of its own."""
    with available() as haptera:
        text_delta = haptera.TextDelta
        async with open_agent(haptera, setup) as agent:

            async def stream(on_delta: Callable[[], None]) -> None:
                async with agent.stream(PROMPT) as events:
                    async for event in events:
                        if isinstance(event, text_delta):
                            on_delta()

            return await _all_streams(setup, size, stream)


async def _all_streams(setup: Setup, size: int, stream: Stream) -> Trial:
    await stream(lambda: None)  # whatever is loaded late is loaded now
    lags: list[float] = []
    delay = setup.script.delay / 1e6

    async def timed() -> None:
        due = time.monotonic()

        def on_delta() -> None:
            nonlocal due
            lags.append(time.monotonic() - due)
            due += delay

        await stream(on_delta)

    start, cpu = time.monotonic(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(size):
            tasks.create_task(timed())
    seconds, used = time.monotonic() - start, time.process_time() - cpu
    if len(lags) != size * setup.script.deltas:
        raise NotAvailable(f"{len(lags)} deltas arrived")
    lags.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    late = lags[int(len(lags) * 0.99)]
    return Trial(seconds, {"CPU s": used, "p99 lag s": late, "peak MB": peak})


# A long conversation: CPU seconds to get there, memory above what one turn needs.


async def conversation_floor(setup: Setup, size: int) -> Trial:
    """Keep messages in a list and send them all each time."""
    async with aiohttp.ClientSession() as session:
        floor = _floor_on(setup, session)
        messages: list[Message] = []

        async def add_turn() -> None:
            messages.append({"role": "user", "content": f"{len(messages)} {_SAID}"})
            answer = await floor.ask(messages, lambda _: None)
            messages.append(floor.said("".join(answer.texts)))

        return await _conversation(size, add_turn)


async def conversation_haptera(setup: Setup, size: int) -> Trial:
    """Chat in one session in memory."""
    with available() as haptera:
        async with open_agent(haptera, setup) as agent, agent.session() as session:
            turn = 0

            async def add_turn() -> None:
                nonlocal turn
                turn += 2
                await session.chat(f"{turn} {_SAID}")

            return await _conversation(size, add_turn)


async def _conversation(messages: int, add_turn: AddTurn) -> Trial:
    await add_turn()
    before = _resident()
    start = time.process_time()
    for _ in range(messages // 2 - 1):
        await add_turn()
    seconds = time.process_time() - start
    return Trial(seconds, {"MB": (_resident() - before) / 1e6})


# Idle sessions: kB of memory for each that is open.


async def idle_floor(setup: Setup, size: int) -> Trial:
    """Keep the two messages of many conversations."""
    async with aiohttp.ClientSession() as session:
        floor = _floor_on(setup, session)
        kept: list[list[Message]] = []

        async def open_one() -> None:
            messages: list[Message] = [{"role": "user", "content": PROMPT}]
            answer = await floor.ask(messages, lambda _: None)
            kept.append([*messages, floor.said("".join(answer.texts))])

        return await _idle(size, open_one)


async def idle_haptera(setup: Setup, size: int) -> Trial:
    """Open many sessions in memory and leave each open after one turn."""
    with available() as haptera:
        async with open_agent(haptera, setup) as agent, AsyncExitStack() as stack:

            async def open_one() -> None:
                session = await stack.enter_async_context(agent.session())
                await session.chat(PROMPT)

            return await _idle(size, open_one)


async def _idle(size: int, open_one: AddTurn) -> Trial:
    for _ in range(20):
        await open_one()
    before = _resident()
    for _ in range(size):
        await open_one()
    return Trial((_resident() - before) / size / 1e3)


# Abort: milliseconds until the server sees the connection closed.


async def abort_floor(setup: Setup, size: int) -> Trial:
    """Cancel the task that reads the answer."""
    async with aiohttp.ClientSession() as session:
        floor = _floor_on(setup, session)

        async def abort_one() -> float:
            begun = asyncio.Event()
            task = asyncio.ensure_future(floor.query(PROMPT, lambda _: begun.set()))
            await begun.wait()
            asked = time.monotonic()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return asked

        return await _aborts(setup, size, abort_one)


async def abort_haptera(setup: Setup, size: int) -> Trial:
    """Call `session.abort()` after the first delta."""
    with available() as haptera:
        async with open_agent(haptera, setup) as agent:

            async def abort_one() -> float:
                asked = 0.0
                async with agent.session() as session:
                    async for event in session.stream(PROMPT, on_abort="return"):
                        if not asked and isinstance(event, haptera.TextDelta):
                            asked = time.monotonic()
                            session.abort()
                return asked

            return await _aborts(setup, size, abort_one)


async def _aborts(setup: Setup, size: int, abort_one: Callable[[], Awaitable[float]]) -> Trial:
    asked = [await abort_one() for _ in range(size + 1)][1:]
    async with (
        aiohttp.ClientSession() as session,
        session.get(setup.base_url + STATS_PATH) as response,
    ):
        stats = msgspec.json.decode(await response.read())
    closed = [each["at"] for each in stats["disconnects"] if each["mid_reply"]]
    waits = [(min(at for at in closed if at >= moment) - moment) * 1e3 for moment in asked]
    return Trial(statistics.median(waits), {"slowest ms": max(waits)})


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _floor_on(setup: Setup, session: aiohttp.ClientSession) -> Floor:
    return Floor(wire_for(setup.api), AiohttpClient(session, setup.base_url), setup.script)
