"""Each migration is applied once, by the first store that opens; a newer database is left alone."""

import asyncio

import psycopg
import pytest

from haptera import Agent, AgentError, ErrorCode, administration
from haptera.access.administration import prepare_postgresql
from haptera.access.assembly import late
from haptera.stores.postgresql.migrations import migration_files
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import new_session, note, seqs_of
from tests.scripted_agents import failure_of
from tests.stores.postgresql.server import PostgresServer


def _applied(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT number FROM haptera.migration ORDER BY number")
        return [row[0] for row in rows]


async def test_stores_that_open_at_the_same_time_apply_each_migration_once(
    postgres: PostgresServer,
) -> None:
    with postgres.new_database() as name:
        url = postgres.url(name)
        stores = [PostgresStore(url) for _ in range(8)]
        leases = await asyncio.gather(*(new_session(store) for store in stores))
        assert len(leases) == 8
        assert _applied(url) == list(range(1, len(migration_files()) + 1))
        for store in stores:
            await store.close()


async def test_a_database_with_a_newer_schema_is_refused_and_not_changed(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute("INSERT INTO haptera.migration VALUES (99, 'later')", database=database)
    store = PostgresStore(postgres.url(database))
    error = await failure_of(new_session(store))
    assert error.code is ErrorCode.VERSION_UNSUPPORTED
    assert "99" in error.message
    await store.close()


async def test_the_owner_of_the_tables_prepares_them_for_a_role_that_may_not(
    postgres: PostgresServer,
) -> None:
    postgres.execute("CREATE ROLE plain_role LOGIN")
    with postgres.new_database() as name:
        url = postgres.url(name, role="plain_role")
        early = PostgresStore(url, owner="ana")
        error = await failure_of(new_session(early))
        assert error.code is ErrorCode.UNAVAILABLE
        await early.close()
        await prepare_postgresql(postgres.url(name), grant_to=["plain_role"])
        await prepare_postgresql(postgres.url(name), grant_to=["plain_role"])
        store = administration.open_postgresql(url, owner="ana", lease_seconds=5)
        lease = await new_session(store)
        await store.log.append(lease, [note(2)])
        assert await seqs_of(store, lease.session_id) == [1, 2]
        await store.close()
    postgres.execute("DROP ROLE plain_role")


async def test_an_agent_reaches_the_sessions_of_its_owner_by_url(
    postgres: PostgresServer, database: str
) -> None:
    url = postgres.url(database)
    for owner in ("ana", "ben"):
        async with (
            Agent("scripted/m", environment={}, store=url, owner=owner, project="p") as agent,
            agent.session("same name") as session,
        ):
            await session.configure(temperature=0.5)
    async with Agent("scripted/m", environment={}, store=url, owner="carl", project="p") as agent:
        error = await failure_of(agent.remote("same name"))
        assert error.code is ErrorCode.NOT_FOUND


async def test_without_the_driver_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("No module named 'psycopg'")

    monkeypatch.setattr(late, "PostgresStore", missing, raising=False)
    agent = Agent("scripted/m", environment={}, store="postgresql://localhost/db")
    with pytest.raises(AgentError) as caught:
        await agent.session("x").open()
    assert caught.value.code is ErrorCode.CONFIG_MISSING
    assert "haptera[postgres]" in caught.value.message
