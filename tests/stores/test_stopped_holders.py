"""A process that stands still inside a write of its files keeps no session from others."""

import asyncio
import signal
from pathlib import Path

import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import SessionId, new_session_id
from haptera.stores.jsonl.store import JsonlStore
from haptera.testing.promises import within_time_limit
from haptera.testing.store_conformance.samples import note, opening, seqs_of
from tests.stores.worker_process import open_impatient
from tests.stores.workers import WorkerProcess, worker

pytestmark = pytest.mark.slow

PLACES = ["looked", "unwritten", "half-written", "written", "synced"]


@pytest.fixture
def session_id() -> SessionId:
    return new_session_id()


async def _stop_inside_an_append(holder: WorkerProcess, place: str) -> None:
    await holder.must("acquire")
    await holder.must("append", 1)
    await holder.must("append", 2)
    await holder.must("stop", place)
    holder.send("append", 3, 2000)
    await holder.stopped()


@pytest.mark.parametrize("place", PLACES)
async def test_a_holder_stopped_inside_an_append_is_taken_over_and_writes_nothing_late(
    place: str, tmp_path: Path, session_id: SessionId
) -> None:
    async with worker("jsonl", tmp_path, session_id) as holder:
        await _stop_inside_an_append(holder, place)
        store = open_impatient("jsonl", tmp_path)
        lease = await within_time_limit(
            store.leases.acquire(session_id, "heir", busy="wait"), "a takeover"
        )
        head = len(await store.log.read(session_id))
        assert head == (3 if place in {"written", "synced"} else 2)
        await store.log.append(lease, [note(head + 1), note(head + 2)])
        kept = await store.log.read(session_id)
        holder.signal(signal.SIGCONT)
        assert (await holder.reply()).startswith("FENCED")
        assert (await holder.ask("append", 4)).startswith("FENCED")
        assert await store.log.read(session_id) == kept
        await store.log.append(lease, [note(head + 3)])
        await store.close()
        store = open_impatient("jsonl", tmp_path)
        assert await seqs_of(store, session_id) == list(range(1, head + 4))
        await store.close()


async def test_a_holder_stopped_inside_an_append_is_named_to_those_who_do_not_wait(
    tmp_path: Path, session_id: SessionId
) -> None:
    async with worker("patient jsonl", tmp_path, session_id) as holder:
        await _stop_inside_an_append(holder, "half-written")
        store = JsonlStore(tmp_path / "sessions")
        # No caller waits for the lock of the log: the answer comes at once.
        async with asyncio.timeout(10):
            for _ in range(5):
                with pytest.raises(AgentError) as caught:
                    await store.leases.acquire(session_id, "other")
                assert caught.value.code is ErrorCode.BUSY
                assert str(holder.pid) in caught.value.message
        holder.signal(signal.SIGCONT)
        assert await holder.reply() == "ok 3"
        await store.close()


@pytest.mark.parametrize("place", ["looked", "unwritten", "synced"])
async def test_a_holder_stopped_inside_its_first_append_makes_no_log_of_the_next(
    place: str, tmp_path: Path, session_id: SessionId
) -> None:
    async with worker("jsonl", tmp_path, session_id) as holder:
        await holder.must("acquire")
        await holder.must("stop", place)
        holder.send("append", 1)
        await holder.stopped()
        store = open_impatient("jsonl", tmp_path)
        lease = await within_time_limit(
            store.leases.acquire(session_id, "heir", busy="wait"), "a takeover"
        )
        head = len(await store.log.read(session_id))
        assert head == (1 if place == "synced" else 0)
        await store.log.append(lease, [note(2) if head else opening(session_id)])
        holder.signal(signal.SIGCONT)
        assert (await holder.reply()).startswith("FENCED")
        assert await seqs_of(store, session_id) == [*range(1, head + 2)]
        await store.log.append(lease, [note(head + 2)])
        await store.close()


async def test_a_holder_stopped_while_it_lets_go_is_taken_over(
    tmp_path: Path, session_id: SessionId
) -> None:
    async with worker("jsonl", tmp_path, session_id) as holder:
        await holder.must("acquire")
        await holder.must("stop", "releasing")
        holder.send("release")
        await holder.stopped()
        store = open_impatient("jsonl", tmp_path)
        lease = await within_time_limit(
            store.leases.acquire(session_id, "heir", busy="wait"), "a takeover"
        )
        await store.log.append(lease, [opening(session_id)])
        holder.signal(signal.SIGCONT)
        assert await holder.reply() == "ok released"
        await store.log.append(lease, [note(2)])
        assert await seqs_of(store, session_id) == [1, 2]
        await store.close()


async def test_a_process_stopped_while_it_opens_a_session_is_taken_over(
    tmp_path: Path, session_id: SessionId
) -> None:
    async with worker("jsonl", tmp_path, session_id) as holder:
        await holder.must("acquire")
        await holder.must("append", 1)
        await holder.must("release")
        log = tmp_path / "sessions" / "sessions" / f"{session_id}.jsonl"
        # A line end that is missing is written by the next one who opens the session.
        log.write_bytes(log.read_bytes().removesuffix(b"\n"))
        await holder.must("stop", "unwritten")
        holder.send("acquire")
        await holder.stopped()
        store = open_impatient("jsonl", tmp_path)
        lease = await within_time_limit(
            store.leases.acquire(session_id, "heir", busy="wait"), "a takeover"
        )
        await store.log.append(lease, [note(2)])
        holder.signal(signal.SIGCONT)
        await holder.reply()
        assert (await holder.ask("append", 3)).startswith("FENCED")
        await store.log.append(lease, [note(3)])
        assert await seqs_of(store, session_id) == [1, 2, 3]
        assert await store.log.inspect(session_id) == ()
        await store.close()
