"""An unused lease of a SQLite store comes back, also when its release failed."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import new_session_id
from haptera.ports.session_store import Lease
from haptera.stores.sqlite.database import LockTimeouts
from haptera.stores.sqlite.store import SqliteStore
from haptera.testing.store_conformance.samples import new_session, note, seqs_of
from tests.stores.workers import worker

HASTY = LockTimeouts(busy=0.05, total=0.2)
SOON = 10.0
"""Seconds in which a lease must be free again."""


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep the lock for writing, as a process does that is stopped in a transaction."""
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def _comes_back(store: SqliteStore, lease: Lease) -> Lease:
    async with asyncio.timeout(SOON):
        while True:
            try:
                return await store.leases.acquire(lease.session_id, "next")
            except AgentError as error:
                assert error.code is ErrorCode.BUSY


async def test_a_release_that_met_a_lock_is_done_when_the_lock_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store, other = SqliteStore(path, timeouts=HASTY), SqliteStore(path)
    kept, lease = await new_session(store), await new_session(store)
    with _locked(path):
        with pytest.raises(AgentError) as caught:
            await store.leases.release(lease)
        assert caught.value.code is ErrorCode.UNAVAILABLE
    taken = await _comes_back(other, lease)
    await other.log.append(taken, [note(2)])
    await store.log.append(kept, [note(2)])
    await store.close()
    await other.close()


async def test_the_store_itself_takes_what_it_could_not_release_at_once(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = SqliteStore(path, timeouts=HASTY)
    lease = await new_session(store)
    with _locked(path), contextlib.suppress(AgentError):
        await store.leases.release(lease)
    taken = await store.leases.acquire(lease.session_id, "next")
    await store.log.append(taken, [note(2)])
    # What is released late was another lease.
    await asyncio.sleep(0.7)  # noqa: TID251 - the release is tried again meanwhile
    await store.log.append(taken, [note(3)])
    await store.close()


async def test_a_store_that_is_closed_while_its_file_is_locked_keeps_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chat.db"
    store, other = SqliteStore(path, timeouts=HASTY), SqliteStore(path)
    lease = await new_session(store)
    with _locked(path):
        await store.close()
    await _comes_back(other, lease)
    await other.close()


async def test_a_caller_that_gave_up_while_the_file_was_locked_holds_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chat.db"
    store, other = SqliteStore(path), SqliteStore(path)
    lease = await new_session(store)
    await store.leases.release(lease)
    with _locked(path):
        acquiring = asyncio.ensure_future(store.leases.acquire(lease.session_id, "hasty"))
        await asyncio.sleep(0.1)  # noqa: TID251 - the writer waits for the lock by then
        acquiring.cancel()
        async with asyncio.timeout(SOON):
            await asyncio.wait({acquiring})
        assert acquiring.cancelled()
    await _comes_back(other, lease)
    await store.close()
    await other.close()


async def test_each_caller_waits_for_a_lock_from_when_it_asked(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = SqliteStore(path, timeouts=LockTimeouts(busy=0.1, total=1.0))
    leases = [await new_session(store) for _ in range(2)]
    loop = asyncio.get_running_loop()
    with _locked(path):
        began = loop.time()
        appends = []
        for lease in leases:
            appends.append(asyncio.ensure_future(store.log.append(lease, [note(2)])))
            await asyncio.sleep(0.2)  # noqa: TID251 - the writer waits for the lock by then
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        assert loop.time() - began < 1.8
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, AgentError)]
    assert codes == [ErrorCode.UNAVAILABLE] * 2
    for lease in leases:
        await store.log.append(lease, [note(2)])
        assert await seqs_of(store, lease.session_id) == [1, 2]
    await store.close()


async def test_one_who_asks_later_is_not_refused_with_those_before(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = SqliteStore(path, timeouts=LockTimeouts(busy=0.1, total=0.6))
    leases = [await new_session(store) for _ in range(2)]
    with _locked(path):
        first = asyncio.ensure_future(store.log.append(leases[0], [note(2)]))
        await asyncio.sleep(0.4)  # noqa: TID251 - the first has waited for most of its time
        second = asyncio.ensure_future(store.log.append(leases[1], [note(2)]))
        await asyncio.wait({first})
    await second
    assert isinstance(first.exception(), AgentError)
    await store.close()


@pytest.mark.slow
async def test_a_release_on_a_full_disk_is_done_when_there_is_space_again(tmp_path: Path) -> None:
    session_id = new_session_id()
    async with worker("sqlite", tmp_path, session_id) as running:
        await running.must("acquire")
        await running.must("append", 1)
        await running.must("limit", 0)
        assert (await running.ask("release")).startswith("FULL")
        await running.must("limit", "none")
        async with worker("sqlite", tmp_path, session_id) as other, asyncio.timeout(SOON):
            while not (await other.ask("acquire")).startswith("ok"):
                pass
            await other.must("append", 2)
