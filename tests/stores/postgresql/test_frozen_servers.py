"""A server that says nothing, and a row that is locked: every caller is back in its time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from haptera import Agent, AgentSession
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import SessionId
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing import Gate, ScriptedProvider, says
from haptera.testing.store_conformance.samples import OWNER, new_session, note, seqs_of
from tests.scripted_agents import MODEL
from tests.stores.postgresql.pgbouncer import PgBouncer
from tests.stores.postgresql.server import PostgresServer

MOMENT = 1.5
"""What a caller may wait beyond its own time limit, and half a second for a slow machine."""


@asynccontextmanager
async def _session(url: str, *steps: Any) -> AsyncGenerator[AgentSession, None]:
    store = PostgresStore(url, owner=OWNER)
    provider = ScriptedProvider(list(steps))
    agent = Agent(MODEL, providers=[provider], environment={}, store=store, owner=OWNER)
    async with agent, agent.session("it") as session:
        yield session
    await store.close()


async def _error_in_time(work: Awaitable[object], seconds: float) -> ErrorCode:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(AgentError) as caught:
        async with asyncio.timeout(seconds + 10):
            await work
    assert loop.time() - began <= seconds + MOMENT
    return caught.value.code


async def test_a_query_ends_in_its_time_while_the_server_is_frozen(
    postgres: PostgresServer, database: str
) -> None:
    gate = Gate()
    steps = [says("one"), [*says("tw"), gate], says("three")]
    async with _session(postgres.url(database), *steps) as session:
        await session.chat("first")
        asking = asyncio.ensure_future(session.chat("second", total_timeout=1.0))
        await gate.reached.wait()
        with postgres.frozen():
            gate.open()
            assert await _error_in_time(asking, 1.0) is ErrorCode.UNAVAILABLE
            # One that is asked for while the store is silent ends in its time, too.
            again = session.chat("third", total_timeout=0.5)
            assert await _error_in_time(again, 0.5) is ErrorCode.UNAVAILABLE
        result = await session.chat("last")
        assert result.text == "three"
        store = PostgresStore(postgres.url(database), owner=OWNER)
        seqs = await seqs_of(store, SessionId(str(session.session_id)))
        assert seqs == list(range(1, len(seqs) + 1))
        await store.close()


async def test_an_abort_ends_a_query_whose_append_the_server_does_not_answer(
    postgres: PostgresServer, database: str
) -> None:
    gate = Gate()
    async with _session(postgres.url(database), [*says("tw"), gate], says("ok")) as session:
        asking = asyncio.ensure_future(session.chat("first"))
        await gate.reached.wait()
        with postgres.frozen():
            gate.open()
            await asyncio.sleep(0.1)  # noqa: TID251 - the append is on its way by then
            session.abort()
            assert await _error_in_time(asking, 0) is ErrorCode.UNAVAILABLE
        assert (await session.chat("last")).text == "ok"


@pytest.mark.parametrize("is_pooled", [False, True], ids=["direct", "behind a pooler"])
async def test_locked_rows_stop_no_other_session(
    postgres: PostgresServer, pgbouncer: PgBouncer, database: str, *, is_pooled: bool
) -> None:
    pooled = pgbouncer.url(database, role="postgres")
    store = PostgresStore(pooled if is_pooled else postgres.url(database))
    locked = [await new_session(store) for _ in range(4)]
    free = [await new_session(store) for _ in range(4)]
    waiting_for = await new_session(store)
    await store.leases.release(waiting_for)
    ids = [lease.session_id for lease in [*locked, waiting_for]]
    with psycopg.connect(postgres.url(database)) as blocker:
        blocker.execute("SELECT 1 FROM haptera.session WHERE id = ANY (%s) FOR UPDATE", (ids,))
        stuck = [asyncio.ensure_future(store.log.append(lease, [note(2)])) for lease in locked]
        acquiring = asyncio.ensure_future(store.leases.acquire(waiting_for.session_id, "patient"))
        async with asyncio.timeout(10):
            for seq in range(2, 8):
                await asyncio.gather(*(store.log.append(lease, [note(seq)]) for lease in free))
            more = await new_session(store)
            await store.leases.release(more)
            # A session that is locked can be given up, too.
            await store.leases.release(locked.pop())
        assert not any(each.done() for each in [*stuck, acquiring])
    async with asyncio.timeout(10):
        await asyncio.gather(*stuck[:3])
        await acquiring
        await asyncio.gather(stuck[3], return_exceptions=True)
    for lease in locked:
        assert await seqs_of(store, lease.session_id) == [1, 2]
    for lease in free:
        assert await seqs_of(store, lease.session_id) == list(range(1, 8))
    await store.close()


async def test_a_server_that_is_frozen_for_long_is_unavailable_and_nothing_is_done_twice(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptera.stores.postgresql.database.TOTAL_WAIT_SECONDS", 0.5)
    store = PostgresStore(f"{postgres.url(database)}&connect_timeout=2")
    lease, entry = await new_session(store), note(2)
    with postgres.frozen():
        appending = store.log.append(lease, [entry])
        assert await _error_in_time(appending, 3.0) is ErrorCode.UNAVAILABLE
        reading = store.log.read(lease.session_id)
        assert await _error_in_time(reading, 3.0) is ErrorCode.UNAVAILABLE
    monkeypatch.undo()
    # The first append may be stored by now, later, or never: the same entry is stored once.
    await store.log.append(lease, [entry])
    assert await seqs_of(store, lease.session_id) == [1, 2]
    await store.close()


async def test_a_cancelled_append_is_done_all_the_same(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store)
    with psycopg.connect(postgres.url(database)) as blocker:
        blocker.execute("SELECT 1 FROM haptera.session FOR UPDATE")
        appending = asyncio.ensure_future(store.log.append(lease, [note(2)]))
        while not await asyncio.to_thread(postgres.cancel_statements, database, "Lock"):
            pass
    async with asyncio.timeout(10):
        await appending
    assert await seqs_of(store, lease.session_id) == [1, 2]
    await store.close()
