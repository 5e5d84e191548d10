"""A commit whose wait for the replicas was cancelled is not acknowledged."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from haptera.access import doctor
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.assembly.configuration import Configuration
from haptera.model.errors import AgentError, ErrorCode
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import command, new_session, note, seqs_of
from tests.stores.postgresql.server import PostgresServer


@pytest.fixture
async def without_replicas(postgres: PostgresServer, database: str) -> AsyncGenerator[None, None]:
    """Let a test make the server wait for replicas, which are not there."""
    del database  # it cannot be dropped before this ends
    yield
    _wait_for_replicas(postgres, "")


def _wait_for_replicas(postgres: PostgresServer, names: str) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        # This connection itself waits for none.
        connection.execute("SET synchronous_commit = local")
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW synchronous_standby_names").fetchone() != (names,):
            pass
        while names and not _a_commit_waits(postgres, connection):
            pass


def _a_commit_waits(postgres: PostgresServer, watching: psycopg.Connection[Any]) -> bool:
    """Try a commit: its server waits only once a process of its own has read the setting, too."""
    with psycopg.connect(postgres.url(), autocommit=True) as trying, ThreadPoolExecutor(1) as pool:
        made = pool.submit(trying.execute, "SELECT pg_logical_emit_message(true, 'try', '')")
        while not made.done():
            waits = watching.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                " WHERE pid = %s AND wait_event = 'SyncRep'",
                (trying.info.backend_pid,),
            )
            if waits.fetchone():
                made.result()
                return True
    return False


async def _cancel(postgres: PostgresServer, database: str, *, times: int) -> None:
    cancelled = 0
    async with asyncio.timeout(15):
        while cancelled < times:
            cancelled += await asyncio.to_thread(postgres.cancel_statements, database, "SyncRep")


@pytest.mark.usefixtures("without_replicas")
async def test_an_append_is_acknowledged_once_the_replicas_have_it(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store)
    _wait_for_replicas(postgres, "*")
    working = [
        asyncio.ensure_future(store.log.append(lease, [note(2)])),
        asyncio.ensure_future(store.inbox.put(lease.session_id, command("c1"))),
    ]
    await _cancel(postgres, database, times=5)
    await asyncio.sleep(0.2)  # noqa: TID251 - what is acknowledged wrongly is by then
    assert not any(each.done() for each in working)
    _wait_for_replicas(postgres, "")
    async with asyncio.timeout(15):
        await asyncio.gather(*working)
    assert await seqs_of(store, lease.session_id) == [1, 2]
    await store.close()


@pytest.mark.usefixtures("without_replicas")
async def test_an_append_that_is_never_replicated_is_unavailable(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store)
    monkeypatch.setattr("haptera.stores.postgresql.database.TOTAL_WAIT_SECONDS", 1.0)
    _wait_for_replicas(postgres, "*")
    appending = asyncio.ensure_future(store.log.append(lease, [note(2)]))
    await _cancel(postgres, database, times=1)
    with pytest.raises(AgentError) as caught:
        async with asyncio.timeout(15):
            await appending
    assert caught.value.code is ErrorCode.UNAVAILABLE
    _wait_for_replicas(postgres, "")
    await store.close()


@pytest.mark.parametrize(
    ("commit", "standbys", "told"),
    [
        ("on", "", None),
        ("off", "", "synchronous_commit is off"),
        ("local", "", None),
        ("local", "*", "synchronous_commit is local"),
    ],
)
@pytest.mark.usefixtures("without_replicas")
async def test_how_commits_are_acknowledged_is_told_when_the_store_is_opened(
    postgres: PostgresServer,
    database: str,
    *,
    commit: str,
    standbys: str,
    told: str | None,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    _wait_for_replicas(postgres, standbys)
    url = f"{postgres.url(database)}&options=-csynchronous_commit%3D{commit}"
    store = PostgresStore(url)
    with caplog.at_level(logging.WARNING):
        await store.index.browse("ana", "p")
    said = [text for text in caplog.messages if "synchronous_commit" in text]
    assert bool(said) == (told is not None)
    assert store.warning == told or (told is not None and told in str(store.warning))
    await store.close()
    environment = {"HAPTERA_STORE": url, "HOME": str(tmp_path)}
    sources = ConfigurationSources(environment=environment, config_dir=tmp_path, cwd=tmp_path)
    finding = await doctor._store(Configuration({}, sources), sources)
    assert finding.verdict == ("ok" if told is None else "note")
    assert told is None or told in finding.found
