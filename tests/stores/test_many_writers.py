"""Many writers on one store: no user gets an error of a lock, on any loop or thread."""

import asyncio
import subprocess
import threading
from pathlib import Path

import apsw
import pytest

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.stores.sqlite.database import LockTimeouts
from haptera.stores.sqlite.store import SqliteStore
from haptera.testing.store_conformance.samples import new_session, note, seqs_of
from tests.architecture.source_tree import ROOT
from tests.fixtures_report import Report
from tests.forked_processes import ForkedProcess
from tests.stores.store_factories import DURABLE, open_store
from tests.stores.workers import worker_environment

pytestmark = pytest.mark.slow

PROCESSES = 8


async def hammered(kind: str, folder: Path, seconds: float) -> list[tuple[str, int, int]]:
    """Let several processes write at once; return each one's session, entries, longest wait."""
    command = ("tests.stores.hammer", kind, str(folder), str(seconds))
    running = [
        ForkedProcess(*command, cwd=ROOT, env=worker_environment(), stdout=subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    lines = [(await asyncio.to_thread(each.communicate))[0].decode().split() for each in running]
    assert all(line and line[0] != "failed" for line in lines), lines
    return [(line[0], int(line[1]), int(line[2])) for line in lines]


async def check_hammered(kind: str, folder: Path, seconds: float) -> str:
    written = await hammered(kind, folder, seconds)
    store = open_store(kind, folder)
    for session_id, count, _ in written:
        found = await seqs_of(store, SessionId(session_id))
        assert found == list(range(1, count + 1))
    await store.close()
    total = sum(count for _, count, _ in written)
    longest = max(wait for *_, wait in written)
    return f"{kind}: {PROCESSES} processes, {seconds:g} s: {total} appends, longest {longest} ms"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", DURABLE)
async def test_eight_processes_write_at_once_and_none_is_told_of_a_lock(
    kind: str, tmp_path: Path, report: Report
) -> None:
    report(await check_hammered(kind, tmp_path, 1))


@pytest.mark.soak
@pytest.mark.parametrize("kind", DURABLE)
async def test_eight_processes_write_for_long_and_none_is_told_of_a_lock(
    kind: str, tmp_path: Path, report: Report
) -> None:
    report(await check_hammered(kind, tmp_path, 20))


async def test_a_database_that_stays_locked_is_unavailable_after_the_timeout(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path, timeouts=LockTimeouts(busy=0.01, total=0.1))
    lease = await new_session(store)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as caught:
        await store.log.append(lease, [note(2)])
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.retryable
    assert "locked for 0.1 s" in caught.value.message
    assert await seqs_of(store, lease.session_id) == [1]
    other.execute("ROLLBACK")
    other.close()
    await store.log.append(lease, [note(2)])
    await store.close()


@pytest.mark.parametrize("kind", DURABLE)
def test_a_store_is_used_from_several_threads_with_their_own_loops(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    sessions: list[SessionId] = []

    async def fill() -> None:
        lease = await new_session(store)
        for seq in range(2, 22):
            await store.log.append(lease, [note(seq)])
        sessions.append(lease.session_id)

    threads = [threading.Thread(target=lambda: asyncio.run(fill())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def check() -> None:
        for session_id in sessions:
            assert await seqs_of(store, session_id) == list(range(1, 22))
        await store.close()

    asyncio.run(check())
    assert len(sessions) == 4


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_refused_append_does_not_take_its_neighbours_along(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    leases = [await new_session(store) for _ in range(10)]
    outcomes = await asyncio.gather(
        *(
            store.log.append(lease, [note(2 if number % 2 else 7)])
            for number, lease in enumerate(leases)
        ),
        return_exceptions=True,
    )
    codes = [getattr(outcome, "code", "ok") for outcome in outcomes]
    assert codes == [ErrorCode.CONFLICT, "ok"] * 5
    await store.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_an_entry_that_cannot_be_written_does_not_take_its_neighbours_along(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    leases = [await new_session(store) for _ in range(10)]
    outcomes = await asyncio.gather(
        *(
            store.log.append(lease, [note(2, "fine" if number % 2 else "half of \ud800")])
            for number, lease in enumerate(leases)
        ),
        return_exceptions=True,
    )
    assert [outcome is None for outcome in outcomes] == [False, True] * 5
    assert [await seqs_of(store, lease.session_id) for lease in leases] == [[1], [1, 2]] * 5
    await store.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_an_append_whose_caller_gave_up_can_be_repeated(kind: str, tmp_path: Path) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    entry = note(2)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.log.append(lease, [entry]))
        await asyncio.wait({task}, timeout=0)
        task.cancel()
    await store.log.append(lease, [entry])
    assert await seqs_of(store, lease.session_id) == [1, 2]
    await store.close()
