"""A connection is cut, or stands still, behind each byte of what is said to the server and back."""

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Lease
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import command, new_session, note, seqs_of
from tests.fixtures_report import Report
from tests.stores.postgresql.cutting_proxy import WAYS, CuttingProxy, Way
from tests.stores.postgresql.server import PostgresServer

IN_TIME = 20.0
"""Seconds in which an exchange is over, whatever befell its connection."""
SAMPLES = [40, pytest.param(6, marks=pytest.mark.sweep), pytest.param(1, marks=pytest.mark.soak)]
"""How far apart the bytes are behind which connections are cut."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


class Exchanges:
    """One session that is opened, written to and given back again and again."""

    def __init__(self, store: PostgresStore, lease: Lease) -> None:
        self._store = store
        self.session_id = lease.session_id
        self.head = 1

    async def once(self) -> None:
        """Acquire, take a command in, append, release; all of it is acknowledged."""
        name = f"c{self.head}"
        async with asyncio.timeout(IN_TIME):
            lease = await self._store.leases.acquire(self.session_id, f"holder {self.head}")
            await self._store.inbox.put(self.session_id, command(name))
            entry = note(self.head + 1)
            await self._store.log.append(lease, [entry], consumed=[CommandId(name)])
            self.head += 1
            await self._store.leases.release(lease)


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="haptera-proxy-") as name:
        yield Path(name)


async def _is_whole(other: PostgresStore, exchanges: Exchanges) -> None:
    session_id = exchanges.session_id
    assert await seqs_of(other, session_id) == list(range(1, exchanges.head + 1))
    assert await other.inbox.pending(session_id) == ()


@pytest.mark.parametrize("apart", SAMPLES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["cut", "still"])
async def test_nothing_is_lost_doubled_or_held_behind_any_byte(
    how: str,
    way: Way,
    apart: int,
    postgres: PostgresServer,
    database: str,
    socket_folder: Path,
    report: Report,
) -> None:
    async with CuttingProxy(postgres.folder, socket_folder) as proxy:
        store = PostgresStore(proxy.url(database), lease_seconds=60.0)
        other = PostgresStore(postgres.url(database))
        lease = await new_session(store)
        await store.leases.release(lease)
        exchanges = Exchanges(store, lease)
        await exchanges.once()
        before = proxy.carried[way]
        await exchanges.once()
        length = proxy.carried[way] - before
        proxy.resumes = how == "still"
        # Statements are prepared at the server by and by, so that an exchange becomes shorter.
        for place in itertools.count(0, apart):
            proxy.left[way] = place
            await exchanges.once()
            # At once, unless a release whose answer was lost is still on its way.
            async with asyncio.timeout(IN_TIME):
                lease = await other.leases.acquire(exchanges.session_id, "other", busy="wait")
            await other.leases.release(lease)
            is_behind_the_last = proxy.left.pop(way, None) is not None
            await _is_whole(other, exchanges)
            if is_behind_the_last:
                break
        report(f"{how} {way}: {proxy.cuts} of {place} bytes")
        assert proxy.cuts == place // apart
        assert place > length // 2
        await store.close()
        await other.close()
