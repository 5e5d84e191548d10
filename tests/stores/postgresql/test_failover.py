"""A replica is promoted: what was acknowledged, and which leases are still worth something."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator

import psycopg
import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.ports.session_store import Lease
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import new_session, note, notes, seqs_of
from tests.stores.postgresql.replicas import ReplicatedServer
from tests.stores.postgresql.server import PostgresServer

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def _pair(*, synchronous: bool) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Start a server and a replica of it; the replica has applied everything so far."""
    with ReplicatedServer.running(synchronous=synchronous) as pair:
        yield pair.primary, pair.replica


def _replica_has(replica: PostgresServer, lease: Lease, head: int) -> None:
    with psycopg.connect(replica.url(), autocommit=True) as connection:
        found = None
        while found != (head,):
            with contextlib.suppress(psycopg.errors.UndefinedTable):
                found = connection.execute(
                    "SELECT head FROM haptera.session WHERE id = %s", (lease.session_id,)
                ).fetchone()


async def _cancel_waits(primary: PostgresServer) -> int:
    return await asyncio.to_thread(primary.cancel_statements, "postgres", "SyncRep")


async def _is_fenced(store: PostgresStore, lease: Lease, seq: int) -> bool:
    with pytest.raises(AgentError) as caught:
        await store.log.append(lease, [note(seq)])
    return caught.value.code is ErrorCode.FENCED


async def test_with_synchronous_replication_nothing_acknowledged_is_lost_in_a_failover() -> None:
    with _pair(synchronous=True) as (primary, replica):
        store = PostgresStore(primary.url())
        lease = await new_session(store)
        for seq in range(2, 60):
            await store.log.append(lease, [note(seq)])
        # The machine is gone: nothing is written any more, and nothing is shut down.
        primary.stop(signal.SIGQUIT)
        replica.promote()
        after = PostgresStore(replica.url())
        assert await seqs_of(after, lease.session_id) == list(range(1, 60))
        assert await _is_fenced(after, lease, 60)
        taken = await after.leases.acquire(lease.session_id, lease.holder)
        assert taken.epoch > lease.epoch
        await after.log.append(taken, [note(60)])
        await after.close()
        store._connections.database.closing.set()
        await store.close()


async def test_what_was_acknowledged_after_a_cancelled_wait_survives_a_failover() -> None:
    with _pair(synchronous=True) as (primary, replica):
        store = PostgresStore(primary.url(), lease_seconds=60.0)
        leases = [await new_session(store) for _ in range(6)]
        heads = dict.fromkeys(leases, 1)

        async def append(lease: Lease) -> None:
            for seq in range(2, 20_000):
                await store.log.append(lease, [note(seq)])
                heads[lease] = seq

        appending = [asyncio.ensure_future(append(lease)) for lease in leases]
        cancelled = 0
        async with asyncio.timeout(30):
            while min(heads.values()) < 5:
                cancelled += await _cancel_waits(primary)
            # The replica is gone: appends wait for it, and the waits are cancelled.
            replica.stop(signal.SIGINT)
            while cancelled < 20:
                cancelled += await _cancel_waits(primary)
        acknowledged = dict(heads)
        primary.stop(signal.SIGQUIT)
        for each in appending:
            each.cancel()
        await asyncio.gather(*appending, return_exceptions=True)
        replica.start()
        replica.promote()
        after = PostgresStore(replica.url())
        for lease, head in acknowledged.items():
            seqs = await seqs_of(after, lease.session_id)
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) >= head, "an acknowledged entry is lost"
        await after.close()
        store._connections.database.closing.set()
        await store.close()


async def test_with_asynchronous_replication_every_lease_from_before_is_fenced() -> None:
    with _pair(synchronous=False) as (primary, replica):
        store = PostgresStore(primary.url())
        lease = await new_session(store)
        await store.log.append(lease, notes(2, 5))
        _replica_has(replica, lease, 5)
        # From here on the replica gets nothing: entries and a lease are lost with the primary.
        replica.stop(signal.SIGINT)
        await store.log.append(lease, notes(6, 8))
        await store.leases.release(lease)
        lost = await store.leases.acquire(lease.session_id, "after the release")
        await store.log.append(lost, [note(9)])
        primary.stop(signal.SIGQUIT)
        replica.start()
        replica.promote()
        after = PostgresStore(replica.url())
        # The replica knows nothing of the newest lease; the one that it knows is worth nothing.
        assert await seqs_of(after, lease.session_id) == [1, 2, 3, 4, 5]
        assert await _is_fenced(after, lease, 6)
        assert await _is_fenced(after, lost, 6)
        with pytest.raises(AgentError):
            await after.leases.renew(lease)
        taken = await after.leases.acquire(lease.session_id, "next")
        assert taken.epoch > lost.epoch > lease.epoch
        await after.log.append(taken, [note(6)])
        await after.close()
        store._connections.database.closing.set()
        await store.close()


async def test_a_node_that_is_led_to_the_promoted_server_hears_that_its_leases_are_lost() -> None:
    with _pair(synchronous=False) as (primary, replica):
        # libpq goes on to the next host of a URL when one does not answer.
        both = f"postgresql://postgres@/postgres?host={primary.folder},{replica.folder}"
        store = PostgresStore(f"{both}&target_session_attrs=read-write", lease_seconds=0.6)
        lease = await new_session(store)
        _replica_has(replica, lease, 1)
        primary.stop(signal.SIGQUIT)
        replica.promote()
        await store.leases.lost(lease)
        assert await _is_fenced(store, lease, 2)
        again = await store.leases.acquire(lease.session_id, "again")
        await store.log.append(again, [note(2)])
        assert await seqs_of(store, lease.session_id) == [1, 2]
        await store.close()
