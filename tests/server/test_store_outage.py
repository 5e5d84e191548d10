"""The database stops and comes back: the server says so, and streams and queries survive."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import psycopg
import pytest
from msgspec.structs import replace

from haptera import Agent
from haptera.server import ServerSettings
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing import Gate, ScriptedProvider, says
from tests.scripted_agents import MODEL
from tests.server.serving import Sent, Served, serving
from tests.stores.postgresql.server import PostgresServer

SETTINGS = ServerSettings(resume_seconds=0.1, ping_seconds=0.1, requests_per_second=1e6)
DATABASE = "haptera.stores.postgresql.database"


def _agent(store: PostgresStore, *steps: object) -> Agent:
    provider = ScriptedProvider(steps)  # type: ignore[arg-type]
    return Agent(MODEL, providers=[provider], environment={}, store=store, project="p")


@contextlib.asynccontextmanager
async def _store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, owner="local", lease_seconds=3)
    try:
        yield store
    finally:
        await store.close()


def _expire(url: str, node: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE haptera.node SET until = '-infinity' WHERE id = %s", (node,))


async def _until(served: Served, status: int) -> None:
    while (await served.call("GET", "/readyz"))[0] != status:
        pass


async def test_a_server_refuses_requests_while_its_database_is_down_and_recovers(
    postgres: PostgresServer, database: str
) -> None:
    gate = Gate()
    script = [*says("Hel", "lo")[:3], gate, *says("Hel", "lo")[3:]], says("again")
    # Its queries wait for the database longer than its requests do.
    settings = replace(SETTINGS, store_seconds=2.0)
    async with (
        _store(postgres.url(database)) as store,
        serving(_agent(store, *script), settings=settings) as served,
    ):
        path = f"/api/v1/sessions/{await served.new_session()}"
        idle = f"/api/v1/sessions/{await served.new_session()}"
        link = (await served.call("POST", f"{path}/shares", {}))[1]["path"]
        async with served.events(f"{path}/events") as live, served.events(f"{idle}/events") as log:
            await served.call("POST", f"{path}/messages", {"content": "go"})
            await gate.reached.wait()
            await _until(served, 200)
            await asyncio.to_thread(postgres.stop, signal.SIGINT)
            try:
                await _until(served, 503)
                for method, route, body in (
                    ("GET", path, None),
                    ("GET", "/api/v1/sessions", None),
                    ("POST", f"{path}/messages", {"content": "more"}),
                    ("GET", link, None),
                    ("GET", f"{link}.json", None),
                ):
                    status, problem = await served.call(method, route, body)
                    assert (status, problem["code"]) == (503, "UNAVAILABLE")
                    assert problem["retryable"]
                    assert problem["retry_after"] > 0
                assert (await served.call("GET", "/healthz"))[0] == 200
                gate.open()
            finally:
                await asyncio.to_thread(postgres.start)
            await _until(served, 200)
            seqs = [event.seq async for event in _to_end(live) if event.seq is not None]
            assert seqs == list(range(1, len(seqs) + 1))
            await served.call("POST", f"{idle}/messages", {"content": "go"})
            seqs = [event.seq async for event in _to_end(log) if event.seq is not None]
            assert seqs == list(range(1, len(seqs) + 1))


async def _to_end(events: AsyncIterator[Sent]) -> AsyncIterator[Sent]:
    async for event in events:
        yield event
        if event.kind == "query.ended":
            assert event.data["stop_reason"] == "complete", event
            return


async def test_a_query_that_the_outage_cut_off_is_carried_on_afterwards(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{DATABASE}.TOTAL_WAIT_SECONDS", 0.1)
    gate = Gate()
    async with (
        _store(postgres.url(database)) as store,
        serving(_agent(store, [gate, *says("lost")], says("whole")), settings=SETTINGS) as served,
    ):
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        async with served.events(f"{path}/events") as events:
            await served.call("POST", f"{path}/messages", {"content": "go"})
            await gate.reached.wait()
            await asyncio.to_thread(postgres.stop, signal.SIGINT)
            try:
                await _until(served, 503)
                session = served.app.hub.open_here("local", session_id)
                assert session is not None
                gate.open()
                await session.wait_idle()
            finally:
                await asyncio.to_thread(postgres.start)
            seqs = [event.seq async for event in _to_end(events) if event.seq is not None]
            assert seqs == list(range(1, len(seqs) + 1))


async def test_a_server_whose_session_was_taken_over_follows_it_in_the_log(
    postgres: PostgresServer, database: str
) -> None:
    gate = Gate()
    url = postgres.url(database)
    async with (
        _store(url) as late,
        _store(url) as other,
        serving(
            _agent(late, [gate, *says("never")]), settings=replace(SETTINGS, resume=False)
        ) as first,
        serving(_agent(other, says("whole"), says("more")), settings=SETTINGS) as second,
    ):
        session_id = await first.new_session()
        path = f"/api/v1/sessions/{session_id}"
        async with first.events(f"{path}/events") as events:
            await first.call("POST", f"{path}/messages", {"content": "go", "id": "m1"})
            await gate.reached.wait()
            # The first server does not renew its leases any more, as one that was stopped.
            late.leases._renewals.stop()
            while second.app.hub.open_here("local", session_id) is None:
                await asyncio.to_thread(_expire, url, late.leases._node)
            late.leases._renewals.start()
            seqs = [event.seq async for event in _to_end(events) if event.seq is not None]
            assert seqs == list(range(1, len(seqs) + 1))
        # What it had of the session is gone: requests go through the other server.
        status, _ = await first.call("POST", f"{path}/messages", {"content": "more"})
        assert status == 202
        async with second.events(f"{path}/events?after={seqs[-1]}") as events:
            assert [event async for event in _to_end(events)]
