"""The hot path, counted and not timed: what a delta costs does not grow, and nothing is copied."""

import asyncio
import gc
import re
import tracemalloc
from types import FrameType
from typing import Any

import pytest

from benchmarks.call_trace import CallTrace
from haptera import Agent, AgentSession
from haptera.testing import FakeClock, calls, says
from haptera.testing.scripted_provider import Step
from tests.architecture.source_tree import PACKAGE
from tests.providers.faulty_server import Connection, faulty_server
from tests.providers.test_delta_cost import anthropic
from tests.scripted_agents import playing

pytestmark = pytest.mark.slow

FEW, MANY = 200, 400
WORD = "word "


def streamed(count: int) -> Step:
    """Script an answer of so many deltas, each in a read of its own."""
    return [[part] for part in says(*[WORD] * count)]


async def consume(session: AgentSession) -> int:
    """Consume one query and return how many events there were."""
    count = 0
    async for _ in session.stream("go"):
        count += 1
    return count


class Calls(CallTrace):
    """Counts the Python functions that are called, and what is encoded."""

    def __init__(self) -> None:
        super().__init__(PACKAGE)
        self.encodings = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        super().__call__(frame, event, argument)
        if event == "c_call" and getattr(argument, "__name__", "") in ("encode", "encode_into"):
            owner = type(getattr(argument, "__self__", None)).__module__
            self.encodings += owner.startswith("msgspec")

    async def of(self, deltas: int, turns_before: int = 0) -> "Calls":
        """Count what one answer of so many deltas calls, in a session with a past."""
        script = [*[says("earlier")] * turns_before, streamed(deltas)]
        async with playing(script) as (session, _):
            for _ in range(turns_before):
                await session.chat("before")
            gc.collect()
            with self.running():
                await consume(session)
        return self


async def test_a_delta_costs_the_same_few_calls_however_many_there_are() -> None:
    few, many = await Calls().of(FEW), await Calls().of(MANY)
    growth = many.counts - few.counts
    per_delta = sum(growth.values()) / (MANY - FEW)
    assert per_delta < 9, growth.most_common(12)
    # What is called once per query or turn does not grow with the deltas at all.
    for name in ("build_request", "sent_view", "wire_view", "messages", "result_of", "_unsettled"):
        grown = {key: n for key, n in growth.items() if re.search(rf"[:.]{name}$", key)}
        assert grown == {}, name


class Served:
    """A server that sends an answer of so many deltas: in one burst, or one by one."""

    def __init__(self, deltas: int, *, is_burst: bool) -> None:
        frames = anthropic(deltas)
        opening, closing = b"".join(frames[:2]), b"".join(frames[-2:])
        pieces = [opening, *frames[2:-2], closing]
        self._pieces = [b"".join(pieces)] if is_burst else pieces
        self.seen = asyncio.Event()

    async def answer(self, connection: Connection) -> None:
        """Send each piece when the consumer has seen an event of the one before."""
        await connection.head()
        *before, last = self._pieces
        for piece in before:
            self.seen.clear()
            await connection.piece(piece)
            await self.seen.wait()
        await connection.piece(last)
        await connection.end()

    async def calls(self) -> Calls:
        """Count what one answer calls between the socket and the consumer."""
        counted = Calls()
        options: dict[str, Any] = {"api_key": "k", "environment": {}, "clock": FakeClock()}
        async with faulty_server(self.answer) as server:
            made = Agent("anthropic/claude-sonnet-5", base_url=server.url, **options)
            async with made as agent, agent.session() as session:
                with counted.running():
                    async for _ in session.stream("go"):
                        self.seen.set()
        return counted


async def test_a_delta_that_is_alone_in_its_read_costs_20_calls_from_the_socket_on() -> None:
    """A function that is resumed counts once more; those of the HTTP client are not ours."""
    few, many = [await Served(count, is_burst=False).calls() for count in (FEW, MANY)]
    growth = many.counts - few.counts
    # Whole calls: random characters for the next 64 ids may be drawn meanwhile.
    assert sum(growth.values()) // (MANY - FEW) <= 20, growth.most_common(20)


async def test_a_delta_of_a_burst_costs_one_call_from_the_socket_on() -> None:
    """That call is the consumer's own step; all else is done once for each read."""
    few, many = [await Served(count, is_burst=True).calls() for count in (FEW, 20 * FEW)]
    growth = many.counts - few.counts
    assert sum(growth.values()) / (19 * FEW) < 1.5, growth.most_common(12)


async def test_no_delta_is_encoded() -> None:
    few, many = await Calls().of(FEW), await Calls().of(MANY)
    assert many.encodings == few.encodings


async def test_a_delta_of_a_long_session_costs_what_one_of_a_short_one_costs() -> None:
    short, long = await Calls().of(MANY), await Calls().of(MANY, turns_before=40)
    assert sum(long.counts.values()) <= sum(short.counts.values()) * 1.02


async def test_the_conversation_is_not_copied_while_an_answer_streams() -> None:
    """What is allocated and kept per delta is the event and its text, not the session."""
    kept: dict[int, int] = {}
    for past in (0, 60):
        script = [*[says("x" * 2_000)] * past, streamed(MANY)]
        async with playing(script) as (session, _):
            for _ in range(past):
                await session.chat("before")
            gc.collect()
            tracemalloc.start()
            try:
                peaks: list[int] = []
                seen = base = 0
                async for _ in session.stream("go"):
                    seen += 1
                    if seen == MANY // 2:
                        tracemalloc.reset_peak()
                        base = tracemalloc.get_traced_memory()[0]
                    elif seen == MANY // 2 + 50:
                        peaks.append(tracemalloc.get_traced_memory()[1] - base)
            finally:
                tracemalloc.stop()
        kept[past] = peaks[0]
    assert kept[60] <= kept[0] + 4_000, kept


@pytest.mark.parametrize("count", [FEW, MANY])
async def test_every_delta_is_one_event(count: int) -> None:
    async with playing([streamed(count)]) as (session, _):
        deltas = [event.kind async for event in session.stream("go")].count("text.delta")
    assert deltas == count


def look() -> str:
    """Look."""
    return "seen"


def listen() -> str:
    """Listen."""
    return "heard"


@pytest.mark.parametrize(
    ("options", "offered"),
    [({}, 2), ({"allowed_tools": ["look"]}, 1), ({"denied_tools": ["listen"]}, 1)],
)
async def test_the_tokens_of_tools_are_estimated_once_in_a_session(
    options: dict[str, Any], offered: int
) -> None:
    counted = Calls()
    script = [calls(("look", {})), calls(("look", {})), says("one"), says("two")]
    options = {**options, "tools": [look, listen], "compaction": {"context_window": 100_000}}
    async with playing(script, **options) as (session, provider):
        with counted.running():
            await consume(session)
            await consume(session)
    assert [len(request.tools) for request in provider.requests] == [offered] * 4
    assert counted.counts["kernel/session/session.py:TokenMeter.fixed"] >= 4
    assert counted.counts["kernel/blocks/token_estimate.py:_estimate_tool"] == offered


async def test_whether_a_model_is_native_is_asked_once_in_a_query() -> None:
    counted = Calls()
    async with playing([says("hello")] * 2) as (session, _):
        await session.chat("hi")
        with counted.running():
            await session.chat("hi")
    assert counted.counts["access/assembly/model_clients.py:ModelClients.is_native"] == 1
