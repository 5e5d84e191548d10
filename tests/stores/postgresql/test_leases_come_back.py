"""An unused lease comes back, whatever happened to what was to release it."""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import SessionId
from haptera.ports.session_store import Lease
from haptera.stores.postgresql import leases as postgres_leases
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import command, new_session, note, seqs_of
from tests.stores.postgresql.cutting_proxy import CuttingProxy
from tests.stores.postgresql.server import PostgresServer

SOON = 10.0
"""Seconds in which a lease must be free again; far more than a renewal takes here."""
LEASE_SECONDS = 0.6


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="haptera-proxy-") as name:
        yield Path(name)


async def _comes_back(store: PostgresStore, session_id: SessionId) -> Lease:
    async with asyncio.timeout(SOON):
        return await store.leases.acquire(session_id, "next", busy="wait")


async def test_a_release_that_was_cancelled_is_done_all_the_same(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database), lease_seconds=LEASE_SECONDS)
    other = PostgresStore(postgres.url(database))
    kept, lease = await new_session(store), await new_session(store)
    with psycopg.connect(postgres.url(database)) as blocker:
        blocker.execute(
            "SELECT 1 FROM haptera.session WHERE id = %s FOR UPDATE", (lease.session_id,)
        )
        releasing = asyncio.ensure_future(store.leases.release(lease))
        for _ in range(20):
            await asyncio.to_thread(postgres.cancel_statements, database, "Lock")
            if releasing.done():
                break
            await asyncio.sleep(0.05)  # noqa: TID251 - asks the server until it is so
    await asyncio.gather(releasing, return_exceptions=True)
    await _comes_back(other, lease.session_id)
    # What is held stays held.
    await store.log.append(kept, [note(2)])
    await store.close()
    await other.close()


async def test_a_release_while_the_database_is_away_is_done_when_it_is_back(
    postgres: PostgresServer, database: str, socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptera.stores.postgresql.database.TOTAL_WAIT_SECONDS", 0.2)
    async with CuttingProxy(postgres.folder, socket_folder) as proxy:
        # So long that the node itself does not expire meanwhile.
        store = PostgresStore(f"{proxy.url(database)}&connect_timeout=2", lease_seconds=3.0)
        other = PostgresStore(postgres.url(database))
        lease = await new_session(store)
        proxy.flowing.clear()
        proxy.cut_all()
        async with asyncio.timeout(SOON):
            # It may be told that this failed, or not; it does not wait for the database.
            with contextlib.suppress(AgentError):
                await store.leases.release(lease)
        proxy.flowing.set()
        # Beyond its own lease, the node is alive again by then.
        while not await _is_renewed(postgres, database):
            pass
        await _comes_back(other, lease.session_id)
        await store.close()
        await other.close()


async def _is_renewed(postgres: PostgresServer, database: str) -> bool:
    async with await psycopg.AsyncConnection.connect(postgres.url(database)) as connection:
        row = await (
            await connection.execute(
                "SELECT count(*) FROM haptera.node WHERE until > clock_timestamp() + '2.5 s'"
            )
        ).fetchone()
        return row is not None and row[0] > 0


async def test_an_acquisition_that_arrives_late_does_not_fence_its_own_holder(
    postgres: PostgresServer, database: str, socket_folder: Path
) -> None:
    async with CuttingProxy(postgres.folder, socket_folder) as proxy:
        store = PostgresStore(proxy.url(database))
        proxy.deliver_late = b"haptera.acquire"
        lease = await new_session(store)
        assert proxy.cuts == 1
        proxy.late.set()
        await proxy.delivered.wait()
        await store.log.append(lease, [note(2)])
        await store.close()


async def test_an_acquisition_that_arrives_behind_its_release_is_not_held(
    postgres: PostgresServer, database: str, socket_folder: Path
) -> None:
    async with CuttingProxy(postgres.folder, socket_folder) as proxy:
        store = PostgresStore(proxy.url(database), lease_seconds=LEASE_SECONDS)
        other = PostgresStore(postgres.url(database))
        kept = await new_session(store)
        proxy.deliver_late = b"haptera.acquire"
        lease = await new_session(store)
        await store.leases.release(lease)
        proxy.late.set()
        await proxy.delivered.wait()
        await _comes_back(other, lease.session_id)
        await store.log.append(kept, [note(2)])
        await store.close()
        await other.close()


async def test_the_store_itself_takes_what_it_does_not_use_at_once(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store)
    store.leases._forget(lease)  # as after a release that did not arrive
    taken = await store.leases.acquire(lease.session_id, "next")
    assert taken.epoch > lease.epoch
    await store.close()


async def test_a_lease_that_was_granted_meanwhile_is_not_taken_for_the_lost_one(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, heir = PostgresStore(postgres.url(database)), PostgresStore(postgres.url(database))
    late = PostgresStore(postgres.url(database))
    lease = await new_session(gone)
    taken: list[Lease] = []

    def has_ended(process: str | None) -> bool:
        """Find the first holder gone; before that is acted on, another one takes its session."""
        del process
        if not taken:
            postgres.execute(
                "UPDATE haptera.session SET lease_holder = NULL, lease_node = NULL",
                database=database,
            )
            taken.append(grant())
        return True

    def grant() -> Lease:
        loop_of_heir = asyncio.run_coroutine_threadsafe(
            heir.leases.acquire(lease.session_id, "heir"), loop
        )
        return loop_of_heir.result(SOON)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(postgres_leases, "_has_ended", has_ended)
    with pytest.raises(AgentError) as caught:
        await late.leases.acquire(lease.session_id, "late")
    assert caught.value.code is ErrorCode.BUSY
    assert "heir" in caught.value.message
    await heir.log.append(taken[0], [note(2)])
    assert await seqs_of(heir, lease.session_id) == [1, 2]
    for store in (gone, heir, late):
        await store.close()


async def test_what_a_node_holds_is_compared_by_what_it_is_not_by_its_number(
    postgres: PostgresServer, database: str
) -> None:
    """One lease is lost and another one held without use: there are as many as there should be."""
    store = PostgresStore(postgres.url(database), lease_seconds=LEASE_SECONDS)
    other = PostgresStore(postgres.url(database))
    lost, unused = await new_session(store), await new_session(store)
    losing = asyncio.ensure_future(store.leases.lost(lost))
    await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
    store.leases._forget(unused)
    with psycopg.connect(postgres.url(database)) as connection:
        connection.execute(
            "UPDATE haptera.session SET lease_holder = NULL, lease_node = NULL WHERE id = %s",
            (lost.session_id,),
        )
    await asyncio.wait_for(losing, SOON)
    await _comes_back(other, unused.session_id)
    await store.close()
    await other.close()


async def test_aborts_of_an_idle_session_do_not_count_as_failures(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store)
    session_id = lease.session_id
    await store.leases.release(lease)
    limits = {"limit": 5, "most_attempts": 5, "first_pause": 0.0, "longest_pause": 0.0}
    for number in range(8):
        sent = command(f"c{number}")
        await store.inbox.put(session_id, sent)
        claimed = await store.unowned.claim(**limits)  # type: ignore[arg-type]
        assert [query.session_id for query in claimed] == [session_id], number
        lease = await store.leases.acquire(session_id, "worker")
        # Carried out: an abort of a session that does nothing has no effect beside that.
        await store.log.append(lease, [note(2 + number)], consumed=[sent.id])
        await store.leases.release(lease)
    # What does fail is left to people in the end.
    await store.inbox.put(session_id, command("fails"))
    claims = [await store.unowned.claim(**limits) for _ in range(7)]  # type: ignore[arg-type]
    assert [len(claimed) for claimed in claims] == [1, 1, 1, 1, 1, 0, 0]
    await store.close()


async def test_a_session_that_was_given_up_is_answered_again_when_something_new_comes(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store)
    await store.leases.release(lease)
    postgres.execute("UPDATE haptera.session SET attempts = 5", database=database)
    await store.inbox.put(lease.session_id, command("new"))
    claimed = await store.unowned.claim(
        limit=5, most_attempts=5, first_pause=0.0, longest_pause=0.0
    )
    assert [query.session_id for query in claimed] == [lease.session_id]
    await store.close()
