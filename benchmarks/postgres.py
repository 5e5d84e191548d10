"""Appends per second to PostgreSQL, beside plain psycopg; and what many open sessions cost.

    python -m benchmarks.postgres appends [--seconds 5] [--url URL]
    python -m benchmarks.postgres sessions [--idle 10000] [--active 200]

Without a URL a server is started from the wheel, with `fsync` on.
"""

import argparse
import asyncio
import contextlib
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import psycopg

from benchmarks.postgres_node import OWNER
from haptera.model.entry_bytes import encode_entry
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import new_session, note
from tests.stores.postgresql.server import PostgresServer

COUNTS = (1, 16, 64)
TEXT = "x" * 200
PROCESSES = 2
ROOT = Path(__file__).resolve().parents[1]

AppendOnce = Callable[[int], Awaitable[None]]
"""Appends the entry with this `seq` to one session; returns when it is durable."""


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres", description=__doc__)
    parser.add_argument("benchmark", choices=("appends", "sessions"))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--active", type=int, default=200)
    parser.add_argument("--url")
    options = parser.parse_args()
    with _server(options.url) as url:
        if options.benchmark == "appends":
            asyncio.run(measure_appends(url, seconds=options.seconds))
        else:
            asyncio.run(measure_sessions(url, idle=options.idle, active=options.active))


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    server = PostgresServer(PostgresServer.new_folder())
    try:
        server.create()
        server.start(fsync="on")
        yield server.url()
    finally:
        server.remove()


async def measure_appends(url: str, *, seconds: float) -> None:
    """Print appends per second and the time until each is durable."""
    print("| sessions | writer | connections | appends/s | p50 ms | p99 ms | CPU us/append |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for count in COUNTS:
        for name, subject in (("haptera", _haptera), ("plain psycopg", _plain)):
            async with subject(url, count) as appends:
                await _measure(url, name, appends, seconds=seconds)


async def _measure(url: str, name: str, appends: list[AppendOnce], *, seconds: float) -> None:
    times: list[float] = []
    end = time.perf_counter() + seconds
    cpu = time.process_time()

    async def fill(append: AppendOnce) -> None:
        seq = 2
        while (started := time.perf_counter()) < end:
            await append(seq)
            times.append(time.perf_counter() - started)
            seq += 1

    await asyncio.gather(*(fill(append) for append in appends))
    cpu = time.process_time() - cpu
    used = await asyncio.to_thread(_connections, url)
    cuts = statistics.quantiles(times, n=100)
    print(
        f"| {len(appends)} | {name} | {used} | {len(times) / seconds:.0f} | {cuts[49] * 1000:.2f} "
        f"| {cuts[98] * 1000:.2f} | {cpu / len(times) * 1e6:.0f} |",
        flush=True,
    )


@contextlib.asynccontextmanager
async def _haptera(url: str, count: int) -> AsyncIterator[list[AppendOnce]]:
    store = PostgresStore(url)
    leases = [await new_session(store) for _ in range(count)]

    def appender(number: int) -> AppendOnce:
        return lambda seq: store.log.append(leases[number], [note(seq, TEXT)])

    yield [appender(number) for number in range(count)]
    await store.close()


@contextlib.asynccontextmanager
async def _plain(url: str, count: int) -> AsyncIterator[list[AppendOnce]]:
    """Insert the same rows, one statement and one transaction each, one connection a session."""
    async with contextlib.AsyncExitStack() as stack:
        appends: list[AppendOnce] = []
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS plain (LIKE haptera.entry)")
            connection.execute("CREATE UNIQUE INDEX IF NOT EXISTS p1 ON plain (session, seq)")
            connection.execute("CREATE UNIQUE INDEX IF NOT EXISTS p2 ON plain (session, id)")
            connection.execute("TRUNCATE plain")
        for number in range(count):
            own = await psycopg.AsyncConnection.connect(url, autocommit=True)
            await stack.enter_async_context(own)
            appends.append(_inserter(own, number))
        yield appends


def _inserter(
    connection: "psycopg.AsyncConnection[tuple[object, ...]]", session: int
) -> AppendOnce:
    async def insert(seq: int) -> None:
        entry = note(seq, TEXT)
        await connection.execute(
            "INSERT INTO plain (session, seq, epoch, owner, id, kind, body)"
            " VALUES (%s, %s, 1, 'ana', %s, %s, %s)",
            (session, seq, entry.id, entry.kind, encode_entry(entry)),
            binary=True,
        )

    return insert


def _connections(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            " AND pid <> pg_backend_pid()"
        ).fetchone()
        return row[0] if row else 0


async def measure_sessions(url: str, *, idle: int, active: int) -> None:
    """Print connections and memory of processes that hold idle sessions and running queries."""
    before = _connections(url)
    started = time.perf_counter()
    nodes = []
    for number in range(PROCESSES):
        node = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.postgres_node", url, str(number)),
            *(str(idle // PROCESSES), str(active // PROCESSES)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.PIPE,
        )
        nodes.append(node)
    lines = [await node.stdout.readline() for node in nodes if node.stdout is not None]
    seconds = time.perf_counter() - started
    print(f"{idle} idle and {active} running sessions over {PROCESSES} processes, owner {OWNER}:")
    for line in lines:
        print(f"- {line.decode().strip()}")
    print(f"- {_connections(url) - before} connections in all; opened in {seconds:.0f} s")
    for node in nodes:
        node.kill()
        await node.wait()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"- the largest process had {peak / 1024:.0f} MiB at its peak", flush=True)


if __name__ == "__main__":
    main()
