"""Leases across machines: the database's clock decides, and an old holder is told."""

import asyncio
import os
import signal
import sys

import psycopg
import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.ports.session_store import Lease
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import new_session, note, seqs_of
from tests.stores.postgresql.server import PostgresServer


async def _expire(postgres: PostgresServer, database: str) -> None:
    """Let every node be late with its renewal, by the clock of the database."""
    await asyncio.to_thread(
        postgres.execute,
        "UPDATE haptera.node SET until = clock_timestamp() - interval '1 second'",
        database=database,
    )


async def _code_of(attempt: object) -> ErrorCode:
    with pytest.raises(AgentError) as caught:
        await attempt  # type: ignore[misc]
    return caught.value.code


async def test_a_lease_is_taken_over_once_it_has_expired_and_the_late_write_is_fenced(
    postgres: PostgresServer, database: str
) -> None:
    url = postgres.url(database)
    old, new = PostgresStore(url), PostgresStore(url)
    lease = await new_session(old)
    assert await _code_of(new.leases.acquire(lease.session_id, "new")) is ErrorCode.BUSY
    await _expire(postgres, database)
    taken = await new.leases.acquire(lease.session_id, "new")
    assert taken.epoch > lease.epoch
    assert await _code_of(old.log.append(lease, [note(2, "late")])) is ErrorCode.FENCED
    assert await _code_of(old.leases.renew(lease)) is ErrorCode.FENCED
    await new.log.append(taken, [note(2)])
    assert await seqs_of(new, lease.session_id) == [1, 2]
    await old.close()
    await new.close()


async def test_a_holder_that_renews_late_keeps_what_was_not_taken(
    postgres: PostgresServer, database: str
) -> None:
    url = postgres.url(database)
    store, other = PostgresStore(url, lease_seconds=0.3), PostgresStore(url)
    kept, lost = await new_session(store), await new_session(store)
    telling = asyncio.ensure_future(store.leases.lost(lost))
    keeping = asyncio.ensure_future(store.leases.lost(kept))
    await _expire(postgres, database)
    while True:
        try:
            await other.leases.acquire(lost.session_id, "other")
        except AgentError:
            await _expire(postgres, database)
        else:
            break
    # The renewals find out by themselves, without any append.
    await asyncio.wait_for(telling, 20)
    assert not keeping.done()
    await store.log.append(kept, [note(2)])
    keeping.cancel()
    await store.close()
    await other.close()


async def test_a_process_that_has_ended_on_this_machine_loses_its_leases_at_once(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store)
    # A number that no process has.
    postgres.execute(
        "UPDATE haptera.node SET process = regexp_replace(process, '^[0-9]+', '4194305')",
        database=database,
    )
    other = PostgresStore(postgres.url(database))
    taken = await other.leases.acquire(lease.session_id, "next")
    assert taken.epoch > lease.epoch
    await other.close()
    await store.close()


async def test_a_process_of_another_machine_is_never_judged_by_its_number(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store)
    postgres.execute(
        "UPDATE haptera.node SET process = '1:1:4026531836:another-machine'", database=database
    )
    other = PostgresStore(postgres.url(database))
    assert await _code_of(other.leases.acquire(lease.session_id, "next")) is ErrorCode.BUSY
    await other.close()
    await store.close()


async def test_one_row_is_renewed_however_many_leases_are_held(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database), lease_seconds=0.1)
    leases: list[Lease] = [await new_session(store) for _ in range(20)]
    with psycopg.connect(postgres.url(database), autocommit=True) as connection:
        rows = connection.execute("SELECT xmin::text FROM haptera.session").fetchall()
        until = "SELECT until FROM haptera.node"
        before = now = connection.execute(until).fetchall()
        while now == before:
            now = connection.execute(until).fetchall()
        assert len(now) == 1
        assert rows == connection.execute("SELECT xmin::text FROM haptera.session").fetchall()
    await store.log.append(leases[0], [note(2)])
    await store.close()


async def test_a_store_that_was_closed_leaves_no_node_and_no_lease(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    await new_session(store)
    await store.close()
    with psycopg.connect(postgres.url(database)) as connection:
        assert connection.execute("SELECT * FROM haptera.node").fetchall() == []
        held = "SELECT count(*) FROM haptera.session WHERE lease_holder IS NOT NULL"
        assert connection.execute(held).fetchone() == (0,)


async def test_a_caller_that_waits_gets_the_session_of_a_stopped_process(
    postgres: PostgresServer, database: str
) -> None:
    script = (
        "import asyncio, sys\n"
        "from haptera.stores.postgresql.store import PostgresStore\n"
        "from haptera.testing.store_conformance.samples import new_session\n"
        "async def main():\n"
        "    store = PostgresStore(sys.argv[1], lease_seconds=0.5)\n"
        "    print((await new_session(store)).session_id, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    url = postgres.url(database)
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, url, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    session_id = (await holder.stdout.readline()).decode().strip()
    os.kill(holder.pid, signal.SIGSTOP)
    store = PostgresStore(url)
    lease = await store.leases.acquire(session_id, "patient", busy="wait")  # type: ignore[arg-type]
    await store.log.append(lease, [note(2)])
    holder.kill()
    await holder.wait()
    await store.close()


async def test_how_long_a_lease_is_kept_can_be_said_in_the_url(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(f"{postgres.url(database)}&lease_seconds=60&connect_timeout=5")
    await new_session(store)
    with psycopg.connect(postgres.url(database)) as connection:
        row = connection.execute(
            "SELECT extract(epoch FROM until - clock_timestamp()) FROM haptera.node"
        ).fetchone()
    assert row is not None
    assert 50 < float(row[0]) <= 60
    await store.close()


@pytest.mark.parametrize("seconds", ["", "0", "0.1", "4000", "nan", "soon"])
def test_a_lease_that_cannot_be_is_refused(seconds: str) -> None:
    with pytest.raises(AgentError) as caught:
        PostgresStore(f"postgresql://ana@host/db?lease_seconds={seconds}")
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert "0.3" in caught.value.message
