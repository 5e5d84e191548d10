"""What an output costs that is shown while it grows: CPU per delta, at two lengths of the answer.

Beside `stream.partial()` stand a program that takes the events and no output, and one that reads
the whole text anew for each value, as libraries do. The clock moves 50 ms with each look, so that
there is a value for each delta, which is the most there can be.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pydantic_core
from pydantic import TypeAdapter

from haptera import Agent, TextDelta
from haptera.agent.query_stream import QueryStream
from haptera.settings import RuntimeSettings
from haptera.system.clock import SystemClock
from haptera.testing import ScriptedProvider, says

LENGTHS = (500, 4_000)
_SIZE = 8
_ROUNDS = 5


@dataclass
class City:
    """What the answer lists."""

    name: str
    people: int = 0


Cities = list[City]
Way = Callable[[QueryStream[Cities]], Awaitable[object]]


class _Ticking(SystemClock):
    """A clock on which 50 ms are over whenever it is looked at."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> float:
        self._seconds += 0.05
        return self._seconds


async def _events(stream: QueryStream[Cities]) -> object:
    return [event async for event in stream]


async def _partial(stream: QueryStream[Cities]) -> object:
    return [value async for value in stream.partial()][-1]


async def _anew(stream: QueryStream[Cities]) -> object:
    adapter, text, value = TypeAdapter(Cities), "", None
    async for event in stream:
        if isinstance(event, TextDelta):
            text += event.text
            plain = pydantic_core.from_json(text, allow_partial="trailing-strings")
            try:
                value = adapter.validate_python(
                    plain.get("value", []), experimental_allow_partial="trailing-strings"
                )
            except ValueError:
                continue
    return value


WAYS: dict[str, Way] = {
    "events only": _events,
    "`stream.partial()`": _partial,
    "the text read anew for each delta": _anew,
}


async def _microseconds(way: Way, deltas: int) -> float:
    unit = '{"name":"Paris","people":2},'
    inner = (unit * (deltas * _SIZE // len(unit)))[:-1]
    text = f'{{"value":[{inner}]}}'
    pieces = [text[place : place + _SIZE] for place in range(0, len(text), _SIZE)]
    provider = ScriptedProvider([says(*pieces)])
    async with Agent(
        "scripted/one",
        providers=[provider],
        clock=_Ticking(),
        environment={},
        snapshots=False,
        # Each delta waits until the one before it was taken.
        runtime=RuntimeSettings(buffer_size=0),
    ) as agent:
        stream = agent.stream("go", output_type=Cities)
        begun = time.thread_time()
        await way(stream)
        seconds = time.thread_time() - begun
    return seconds / len(pieces) * 1e6


def partial_table() -> str:
    """Measure all ways in turn, and return the least of each as a table."""
    least: dict[tuple[str, int], float] = {}
    for _ in range(_ROUNDS):
        for name, way in WAYS.items():
            for deltas in LENGTHS:
                took = asyncio.run(_microseconds(way, deltas))
                least[name, deltas] = min(took, least.get((name, deltas), took))
    heads = [f"{deltas:,} deltas" for deltas in LENGTHS]
    rows = [f"| CPU per delta, μs | {' | '.join(heads)} | ratio |", "|---|---|---|---|"]
    for name in WAYS:
        short, long = (least[name, deltas] for deltas in LENGTHS)
        rows.append(f"| {name} | {short:.1f} | {long:.1f} | {long / short:.2f} |")
    return "\n".join(rows)
