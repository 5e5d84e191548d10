"""Four owners and twenty keys share a server, while one of them sends what costs the most.

The server is a process of its own, `haptera serve` with its defaults and a tool that fetches pages.
Whether clients had to wait
is told by the counter of its event loop, in CPU time: another program on the machine changes
nothing about it. The long version compares with the same load without the inputs, in one run.
"""

import asyncio
import contextlib
import json
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import aiohttp
import pytest

from haptera.server import ApiKey, new_token
from haptera.server.key_file import add_key
from haptera.system.clock import SystemClock
from haptera.system.owned_tasks import OwnedTasks
from tests.cli.commands import Place
from tests.cli.scripted_server import Turn, scripted_server
from tests.server.hostile_inputs import EXPORTED, FETCH, INPUTS, PAGE
from tests.server.processes import ServeProcess, started
from tests.tools.test_web_fetch import Web

_ROOT = Path(__file__).parents[2]
OWNERS = ("ana", "ben", "cleo", "dan")
KEYS_PER_OWNER = 5
SENT = list(INPUTS)
CLOCK = SystemClock()


@dataclass(frozen=True)
class Shared:
    """A server with keys for its owners."""

    process: ServeProcess
    keys: tuple[str, ...]
    web: Web

    def json(self, key: str, method: str, path: str, body: Any = None) -> Any:
        """Call a route with a key."""
        return self.process.json(method, path, body, authorization=f"Bearer {key}")

    def longer(self, what: str, than: str) -> int:
        """Return how many slices or delays of the event loop were longer than milliseconds."""
        load = self.process.json("GET", "/api/v1/load")
        found: int = load[what]["over_ms"][than]
        return found


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    """Run a server for four owners, whose model never ends an answer."""
    keys: list[str] = []
    with (
        scripted_server(Turn(["hold", "on"], hold=Event())) as model,
        contextlib.closing(Web()) as web,
    ):
        web.page("/", PAGE, Content_Type="text/html")
        call = ("web_fetch", {"url": "http://pages.example/"})
        model.by_word = {"tool_result": Turn("read"), FETCH: Turn(calls=[call])}
        place = Place(tmp_path, model, variables={"PYTHONPATH": str(_ROOT)})
        program = [sys.executable, "-m", "tests.server.fetching_server", str(web.port)]
        with started(place, program=program) as process:
            for owner in OWNERS:
                for _ in range(KEYS_PER_OWNER):
                    key = new_token()
                    add_key(process.path.parent, ApiKey.of(key, owner=owner))
                    keys.append(key)
            yield Shared(process, tuple(keys), web)


async def _use(shared: Shared, key: str, taken: list[float]) -> None:
    """Use the server as a program does: make a session, read, change, list, delete; then again."""
    url = shared.process.state["url"]
    is_beside = key in shared.keys[:KEYS_PER_OWNER]
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers) as client:

        async def call(method: str, path: str, body: Any = None) -> Any:
            begun = CLOCK.now()
            async with client.request(method, url + path, json=body) as answer:
                content = await answer.read()
            taken.append(CLOCK.now() - begun)
            await CLOCK.sleep(0.15)
            # The inputs use up the quota of their own owner, and of no other.
            if is_beside and answer.status == 429:
                return await call(method, path, body)
            assert answer.status < 300, (method, path, content)
            return json.loads(content) if content else None

        while True:
            path = f"/api/v1/sessions/{(await call('POST', '/api/v1/sessions', {}))['id']}"
            for number in range(3):
                await call("PATCH", path, {"title": f"number {number}"})
                await call("GET", path)
                await call("GET", f"{path}/messages")
                await call("GET", "/api/v1/sessions?limit=5")
            await call("DELETE", path)


@contextlib.asynccontextmanager
async def _in_use(shared: Shared) -> AsyncIterator[list[float]]:
    """Let every key be used while the block runs; gives how long each request took."""
    taken: list[float] = []
    async with OwnedTasks() as tasks:
        using = [
            tasks.start(_use(shared, key, taken), name=f"use-{number}")
            for number, key in enumerate(shared.keys)
        ]
        yield taken
        for each in using:
            if each.done():
                each.result()


async def _send(
    shared: Shared, hostile: Sequence[str], names: Sequence[str], *, seconds: float
) -> list[list[Any]]:
    """Send inputs from a process of its own; returns what it tells of each."""
    url = shared.process.state["url"]
    module = ["-m", "tests.server.hostile_inputs"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *module,
        url,
        *hostile,
        str(seconds),
        *names,
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


def _prepared(shared: Shared) -> tuple[str, str, str]:
    """Make what one caller needs: its key, a session that is hard to render, and a link to it."""
    key = shared.keys[0]
    file = [{"role": "user", "content": "go"}, {"role": "assistant", "content": EXPORTED}]
    path = "/api/v1/sessions:import"
    made = shared.json(key, "POST", path, file)["session"]["id"]
    link = shared.json(key, "POST", f"/api/v1/sessions/{made}/shares", {})["path"]
    return key, made, link


async def _warmed_up(shared: Shared, hostile: Sequence[str]) -> None:
    """Let the server load what it loads when it is first used."""
    async with _in_use(shared):
        await CLOCK.sleep(1.5)
        first = ["a batch within its limit", "kinds of events", "pages that are fetched"]
        await _send(shared, hostile, first, seconds=0.3)


# In a sweep beside other tests it has seen slices of more than 50 ms: not repaired yet.
@pytest.mark.soak
async def test_one_caller_does_not_hold_up_the_event_loop(shared: Shared) -> None:
    hostile = await asyncio.to_thread(_prepared, shared)
    await _warmed_up(shared, hostile)
    before = await asyncio.to_thread(shared.longer, "slices", "50")
    async with _in_use(shared) as taken:
        sent = await _send(shared, hostile, SENT, seconds=20)
    assert [name for name, *_ in sent] == SENT
    assert all(times for _, times, _ in sent)
    assert not any(500 in answered for _, _, answered in sent), sent
    assert shared.web.requests  # pages were fetched, and not refused
    assert len(taken) > 500
    assert await asyncio.to_thread(shared.longer, "slices", "50") == before, sent
    assert await asyncio.to_thread(shared.longer, "delays", "1000") == 0, sent


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_one_caller_does_not_slow_the_others_down(shared: Shared) -> None:
    hostile = await asyncio.to_thread(_prepared, shared)
    await _warmed_up(shared, hostile)
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(5):  # in turns, so that both see the same machine
        async with _in_use(shared) as taken:
            await CLOCK.sleep(30)
        alone += taken
        async with _in_use(shared) as taken:
            await _send(shared, hostile, SENT, seconds=30)
        beside += taken
    usual, slowed = (statistics.quantiles(each, n=100)[98] for each in (alone, beside))
    assert slowed <= 3 * usual, (usual, slowed)
