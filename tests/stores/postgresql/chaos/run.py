"""Runs chaos: several nodes over a set of sessions, and a seeded schedule of what befalls them.

Nodes are killed, stopped and cut off. Servers fail, too: they are frozen, and what goes to them is
held up or arrives late; statements are cancelled, and rows are locked by others. A primary server
is lost, and its replica promoted.
"""

import asyncio
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql

from haptera.access.worker import SessionWorker
from tests.stores.postgresql.chaos.checker import HELD, WATCHES, Verdict, check
from tests.stores.postgresql.chaos.node import LEASE_SECONDS, make_node
from tests.stores.postgresql.cutting_proxy import WAYS, CuttingProxy
from tests.stores.postgresql.replicas import ReplicatedServer
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

ROOT = Path(__file__).resolve().parents[4]
NODES = 3
OF_NODES = {"kill": 3, "stop": 3, "cut": 2}
OF_SERVERS = {"freeze": 1, "stall": 1, "late": 2, "cancel": 3, "lock": 3, "cut": 1, "kill": 1}
OF_SERVERS |= {"byte": 3}
OF_PAIRS = OF_SERVERS | {"freeze": 0, "fail over": 6, "cancel waits": 2}
"""What befalls nodes, servers, and a server with a replica, by how often it does."""
_LONGEST_MESSAGES = 3000
"""Bytes, in one of which a connection is cut."""
_QUIET_SECONDS = 20.0
"""In which nodes that do nothing any more have given back what they held."""
_QUIET_LOOKS = 3
_REST_SECONDS = 60


class ChaosRun:
    """Nodes over one database, and what happens to them."""

    def __init__(
        self,
        postgres: PostgresServer,
        database: str,
        *,
        folder: Path,
        seed: int,
        troubles: Mapping[str, int] = OF_NODES,
        fence: Literal["fenced", "keeping"] = "fenced",
        pair: ReplicatedServer | None = None,
    ) -> None:
        self._troubles = troubles
        self._fence: str = fence
        self._pair = pair
        self._stuck: list[str] = []
        self._postgres = postgres
        self._database = database
        self._folder = folder
        self._chance = random.Random(seed)
        self._proxy: CuttingProxy | None = None
        self._nodes: list[asyncio.subprocess.Process] = []
        self.happened = Counter(dict.fromkeys(troubles, 0))

    def switch_fence_off(self) -> None:
        """Let every lease count as the newest in appends, and no node hear that it lost one."""
        self._fence = "unfenced"
        with psycopg.connect(self._postgres.url(self._database), autocommit=True) as connection:
            row = connection.execute(
                "SELECT pg_get_functiondef('haptera.append'::regproc)"
            ).fetchone()
            assert row is not None
            fence = "s.epoch = a.epoch AND s.lease_holder = a.holder AND a.epoch >> 40"
            text = row[0].replace(fence, "a.epoch >> 40")
            assert text != row[0]
            connection.execute(text.encode())

    async def run(self, seconds: float, *, until_stale: bool = False) -> Verdict:
        """Let it happen for so long, let everything come to rest, and check the history.

        With `until_stale` it ends with the first write under a lease that is not the newest.
        """
        self._postgres.execute(WATCHES, database=self._database)
        with tempfile.TemporaryDirectory(prefix="haptera-proxy-") as sockets:
            async with CuttingProxy(self._postgres.folder, Path(sockets)) as self._proxy:
                await self._befall(seconds, until_stale=until_stale)
        await self._come_to_rest()
        return await check(self._postgres.url(self._database), self._folder, stuck=self._stuck)

    async def _befall(self, seconds: float, *, until_stale: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._nodes = [await self._start() for _ in range(NODES)]
            end = loop.time() + seconds
            while loop.time() < end:
                await asyncio.sleep(self._chance.uniform(0.1, 0.5))  # noqa: TID251 - the schedule
                await self._do_something()
                if until_stale and self._count_stale():
                    break
            if not until_stale:
                await self._let_nodes_rest()
        finally:
            for node in self._nodes:
                await self._end(node)

    async def _let_nodes_rest(self) -> None:
        """Have the nodes do nothing any more, and note what they hold all the same."""
        for node in self._nodes:
            if node.returncode is None:
                node.send_signal(signal.SIGUSR1)
                assert node.stdout is not None
                async with asyncio.timeout(_REST_SECONDS):
                    await node.stdout.readline()
        loop = asyncio.get_running_loop()
        end = loop.time() + _QUIET_SECONDS
        while (stuck := await asyncio.to_thread(self._held)) and loop.time() < end:
            await asyncio.sleep(LEASE_SECONDS / 3)  # noqa: TID251 - renewals come by real time
        self._stuck = stuck

    def _held(self) -> list[str]:
        with psycopg.connect(self._postgres.url(self._database)) as connection:
            return [row[0] for row in connection.execute(HELD).fetchall()]

    async def _start(self) -> asyncio.subprocess.Process:
        assert self._proxy is not None
        seed = str(self._chance.getrandbits(32))
        node = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "faulthandler", "-m", "tests.stores.postgresql.chaos.node"),
            *(self._proxy.url(self._database, role=APP_ROLE), str(self._folder), seed, self._fence),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert node.stdout is not None
        await node.stdout.readline()
        return node

    async def _end(self, node: asyncio.subprocess.Process) -> None:
        """Kill a node; one that crashed by itself is counted, and must not have ended otherwise."""
        if node.returncode is None:
            node.kill()
        else:
            assert node.returncode < 0, f"a node ended by itself with {node.returncode}"
            # A crash in a library is one more failure that nothing may be lost by.
            self.happened[f"crashed with signal {-node.returncode}"] += 1
        await node.wait()

    async def _do_something(self) -> None:
        names, weights = list(self._troubles), list(self._troubles.values())
        what = self._chance.choices(names, weights=weights)[0]
        self.happened[what] += 1
        place = self._chance.randrange(NODES)
        node = self._nodes[place]
        match what:
            case "kill":
                await self._end(node)
                self._nodes[place] = await self._start()
            case "stop" if node.returncode is None:
                os.kill(node.pid, signal.SIGSTOP)
                # Others go on meanwhile, and find that its lease has expired.
                pause = LEASE_SECONDS * self._chance.uniform(0.8, 2.0)
                await asyncio.sleep(pause)  # noqa: TID251 - the schedule
                os.kill(node.pid, signal.SIGCONT)
            case "freeze" | "stall" | "late":
                await self._hold_up(what)
            case "cancel":
                await asyncio.to_thread(self._strike, "pg_cancel_backend")
            case "lock":
                await asyncio.to_thread(self._lock_rows)
            case "byte":
                assert self._proxy is not None
                self._proxy.resumes = self._chance.random() < 0.3
                way = self._chance.choice(WAYS)
                self._proxy.left[way] = self._chance.randrange(_LONGEST_MESSAGES)
            case "cancel waits":
                await asyncio.to_thread(self._cancel_waits, 3)
            case "fail over":
                await self._fail_over()
            case _:
                await asyncio.to_thread(self._strike, "pg_terminate_backend")

    def _cancel_waits(self, times: int) -> None:
        for _ in range(times):
            self._postgres.cancel_statements(self._database, "SyncRep")

    async def _fail_over(self) -> None:
        """Lose the server, sometimes after waits for its replica were cancelled."""
        pair = self._pair
        assert pair is not None
        if self._chance.random() < 0.5:
            pair.replica.stop(signal.SIGINT)
            await asyncio.to_thread(self._cancel_waits, 20)
            self._postgres.stop(signal.SIGQUIT)
            await asyncio.to_thread(pair.replica.start)
        else:
            self._postgres.stop(signal.SIGQUIT)
        await asyncio.to_thread(pair.fail_over)
        self._postgres = pair.primary
        assert self._proxy is not None
        self._proxy.server = pair.primary.folder
        self._proxy.cut_all()
        await asyncio.to_thread(pair.replicate)

    async def _hold_up(self, what: str) -> None:
        """Let the server, or what is on its way to it, stand still for a moment."""
        proxy, pause = self._proxy, LEASE_SECONDS * self._chance.uniform(0.3, 2.0)
        assert proxy is not None
        if what == "freeze":
            with self._postgres.frozen():
                await asyncio.sleep(pause)  # noqa: TID251 - the schedule
            return
        if what == "stall":
            proxy.flowing.clear()
        else:
            proxy.late.clear()
            proxy.deliver_late = self._chance.choice((b"haptera.append", b"haptera.acquire"))
        await asyncio.sleep(pause)  # noqa: TID251 - the schedule
        proxy.flowing.set()
        proxy.late.set()

    def _lock_rows(self) -> None:
        """Keep the rows of some sessions locked for a while, as an operator's transaction does."""
        with psycopg.connect(self._postgres.url(self._database)) as connection:
            connection.execute("SET lock_timeout = '2s'")
            with suppress(psycopg.errors.LockNotAvailable):
                connection.execute(
                    "SELECT 1 FROM haptera.session WHERE hashtext(id || %s) %% 3 = 0 FOR UPDATE",
                    (str(self._chance.random()),),
                )
                pause = LEASE_SECONDS * self._chance.uniform(0.2, 2.0)
                connection.execute("SELECT pg_sleep(%s)", (pause,))

    def _strike(self, function: Literal["pg_terminate_backend", "pg_cancel_backend"]) -> None:
        """Cut some connections, or cancel what they are about."""
        with psycopg.connect(self._postgres.url(), autocommit=True) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity"
                " WHERE datname = %s AND pid <> pg_backend_pid() ORDER BY pid",
                (self._database,),
            ).fetchall()
            chosen = [row[0] for row in rows if self._chance.random() < 0.5]
            statement = sql.SQL("SELECT {}(pid) FROM unnest(%s) AS pid")
            connection.execute(statement.format(sql.Identifier(function)), (chosen,))

    def _count_stale(self) -> int:
        with psycopg.connect(self._postgres.url(self._database)) as connection:
            row = connection.execute("SELECT count(*) FROM public.stale").fetchone()
            return row[0] if row else 0

    async def _come_to_rest(self) -> None:
        """Carry on what the killed nodes left, as a node does that comes later."""
        url = self._postgres.url(self._database, role=APP_ROLE)
        store, agent, worker = make_node(url, self._folder)
        try:
            async with asyncio.timeout(_REST_SECONDS):
                await self._carry_on(worker)
        finally:
            await worker.close()
            await agent.close()
            await store.close()

    async def _carry_on(self, worker: SessionWorker) -> None:
        quiet = 0
        while quiet < _QUIET_LOOKS:
            found = await worker.look()
            await worker.wait()
            quiet = 0 if found else quiet + 1
            await asyncio.sleep(LEASE_SECONDS / 2)  # noqa: TID251 - leases expire by real time
