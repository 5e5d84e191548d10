"""Two servers under load, one of which ends again and again: each admitted query has its end."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from haptera.system.clock import SystemClock
from tests.cli.commands import Place
from tests.cli.scripted_server import ScriptedServer, Turn, scripted_server
from tests.fixtures_report import Report
from tests.server.nodes import Follower, Node, nodes, start_node
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

SESSIONS = "/api/v1/sessions"
CLIENTS = 6
ANSWER = [f"word {number} " for number in range(40)]
CLOCK = SystemClock()


class Client:
    """Sends prompts to one session, one after the other, to whichever server answers."""

    def __init__(self, number: int, path: str, servers: list[Node]) -> None:
        self._number = number
        self._servers = servers
        self._path = path
        self.admitted: list[str] = []
        """The query of each prompt that was taken in."""
        self.follower = Follower(path, servers)

    async def work(self, stopped: asyncio.Event) -> None:
        """Send prompts until the test says stop, then wait for the last end."""
        while not stopped.is_set():
            self.admitted.append(await self._send(len(self.admitted)))
            await self.follower.until_end(ends=len(self.admitted))

    async def _send(self, number: int) -> str:
        """Send a prompt until a server says that it has it; it is taken in once."""
        body = {"content": "go", "id": f"m{self._number}-{number}"}
        for place in range(1000):
            node = self._servers[(self._number + place) % len(self._servers)]
            with contextlib.suppress(aiohttp.ClientError, AssertionError):
                return str((await node.must("POST", f"{self._path}/messages", body))["query_id"])
            await CLOCK.sleep(0.05)
        raise AssertionError("no server took the prompt")


async def _new_session(node: Node) -> str:
    return f"{SESSIONS}/{(await node.must('POST', SESSIONS, {}))['id']}"


@contextlib.asynccontextmanager
async def _loaded(servers: list[Node]) -> AsyncIterator[list[Client]]:
    """Let clients work while the block runs, and come to an end after it."""
    paths = [await _new_session(servers[0]) for _ in range(CLIENTS)]
    clients = [Client(number, path, servers) for number, path in enumerate(paths)]
    stopped = asyncio.Event()
    async with asyncio.timeout(3000), asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(client.work(stopped))
        yield clients
        stopped.set()


async def _end_in_turn(
    place: Place, store: str, servers: list[Node], *, times: int, seed: int
) -> None:
    chance = random.Random(seed)
    for number in range(times):
        await CLOCK.sleep(chance.uniform(0.1, 0.8))
        victim = number % len(servers)
        if chance.random() < 0.5:  # otherwise `end` sends SIGTERM
            await servers[victim].kill()
        await servers[victim].end()
        servers[victim] = await start_node(place, store)


async def _check(clients: list[Client], node: Node, report: Report) -> None:
    for client in clients:
        follower = client.follower
        assert follower.seqs == list(range(1, len(follower.seqs) + 1)), "each entry came once"
        assert follower.ends == ["complete"] * len(client.admitted)
        assert len(set(client.admitted)) == len(client.admitted)
        assert follower.text.endswith("".join(ANSWER[-5:]))
    listed = await node.must("GET", f"{SESSIONS}?phase=running")
    assert listed["data"] == [], "nothing is left without an end"
    report(f"servers ended under load: {sum(len(each.admitted) for each in clients)} queries")


@pytest.fixture
def provider() -> Iterator[ScriptedServer]:
    """A model that answers every prompt in the same way."""
    with scripted_server(Turn(ANSWER)) as script:
        yield script


async def _run(
    postgres: PostgresServer, database: str, place: Place, report: Report, *, times: int, seed: int
) -> None:
    store = f"{postgres.url(database, role=APP_ROLE)}&lease_seconds=3"
    async with nodes(place, store) as servers:
        async with _loaded(servers) as clients:
            await _end_in_turn(place, store, servers, times=times, seed=seed)
        await _check(clients, servers[0], report)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_admitted_query_ends_while_servers_are_stopped_and_killed(
    postgres: PostgresServer,
    database: str,
    tmp_path: Path,
    provider: ScriptedServer,
    report: Report,
) -> None:
    await _run(postgres, database, Place(tmp_path, provider), report, times=10, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_every_admitted_query_ends_while_servers_end_two_hundred_times(
    postgres: PostgresServer,
    database: str,
    tmp_path: Path,
    provider: ScriptedServer,
    report: Report,
) -> None:
    await _run(postgres, database, Place(tmp_path, provider), report, times=200, seed=2)
