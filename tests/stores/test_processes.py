"""Several processes on one store: one writes a session, the others wait, read and take over."""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import SessionId, new_session_id
from haptera.testing.promises import within_time_limit
from tests.architecture.source_tree import ROOT
from tests.stores.store_factories import DURABLE, open_store
from tests.stores.worker_process import open_impatient
from tests.stores.workers import NEW_INTERPRETER, worker

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", DURABLE)]


@pytest.fixture
def session_id() -> SessionId:
    return new_session_id()


async def test_of_two_processes_on_one_session_one_writes_and_the_other_is_told_who(
    kind: str, tmp_path: Path, session_id: SessionId
) -> None:
    new = worker(kind, tmp_path, session_id, under=NEW_INTERPRETER)
    async with new as one, worker(kind, tmp_path, session_id) as two:
        await one.must("acquire")
        await one.must("append", 1)
        refused = await two.ask("acquire")
        assert refused.startswith("BUSY")
        assert str(one.pid) in refused
        assert (await two.ask("append", 2)).startswith("FENCED")
        assert await two.must("head") == "1"
        await one.must("append", 2)
        assert await two.must("head") == "2"


async def test_a_process_that_waits_gets_the_session_when_the_holder_closes(
    kind: str, tmp_path: Path, session_id: SessionId
) -> None:
    async with worker(kind, tmp_path, session_id) as one, worker(kind, tmp_path, session_id) as two:
        first = int(await one.must("acquire"))
        await one.must("append", 1)
        two.send("acquire", "wait")
        await two.until("waiting")
        await one.must("append", 2)  # the other one waits, and disturbs nothing
        await one.must("close")
        answered = await two.reply()
        assert int(answered.removeprefix("ok ")) > first
        await two.must("append", 3)


async def test_the_lease_of_a_killed_process_is_free_at_once(
    kind: str, tmp_path: Path, session_id: SessionId
) -> None:
    async with worker(kind, tmp_path, session_id) as one:
        await one.must("acquire")
        await one.must("append", 1)
        one.signal(signal.SIGKILL)
        await one.end()
    store = open_store(kind, tmp_path)
    lease = await store.leases.acquire(session_id, "heir")
    assert lease.epoch > 1
    await store.close()


async def test_a_paused_process_that_was_taken_over_is_fenced(
    kind: str, tmp_path: Path, session_id: SessionId
) -> None:
    async with worker(kind, tmp_path, session_id) as paused:
        await paused.must("acquire")
        await paused.must("append", 1)
        paused.signal(signal.SIGSTOP)
        store = open_impatient(kind, tmp_path)
        # Alive it keeps its lease whatever the time; stopped it keeps it for a moment.
        lease = await within_time_limit(
            store.leases.acquire(session_id, "heir", busy="wait"), "a takeover"
        )
        paused.signal(signal.SIGCONT)
        assert (await paused.ask("append", 2)).startswith("FENCED")
        assert await paused.must("head") == "1"
        await store.leases.release(lease)
        await store.close()


async def test_a_living_process_keeps_its_lease_however_long_it_says_nothing(
    kind: str, tmp_path: Path, session_id: SessionId
) -> None:
    async with worker(kind, tmp_path, session_id) as silent:
        await silent.must("acquire")
        store = open_impatient(kind, tmp_path)
        for _ in range(10):
            with pytest.raises(AgentError) as caught:
                await store.leases.acquire(session_id, "impatient")
            assert caught.value.code is ErrorCode.BUSY
            await asyncio.wait_for(_nothing(), timeout=None)
        await silent.must("append", 1)
        await store.close()


async def _nothing() -> None:
    """Let the loop turn once."""


async def test_entries_and_commands_of_another_process_are_seen_as_they_come(
    kind: str, tmp_path: Path, session_id: SessionId
) -> None:
    store = open_store(kind, tmp_path)
    async with worker(kind, tmp_path, session_id) as other:
        await other.must("acquire")
        seen: list[int] = []
        async with contextlib.aclosing(store.log.follow(session_id)) as pages:
            for seq in (1, 2, 3):
                await other.must("append", seq)
                page = await within_time_limit(anext(pages), "an entry of another process")
                seen += [entry.seq for entry in page]
        assert seen == [1, 2, 3]
        async with asyncio.TaskGroup() as group:
            group.create_task(within_time_limit(store.inbox.wait(session_id), "a command"))
            await other.must("put", "c1")
    (command,) = await store.inbox.pending(session_id)
    assert command.id == "c1"
    await store.close()


async def test_a_fork_cannot_use_a_store_and_keeps_no_session_from_others(
    kind: str, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.stores.forking_process"),
        *(kind, str(tmp_path)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert said == b"ok\n"
