"""Callers that wait for a session get it in the order of asking; ended or stuck ones block none."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import SessionId
from haptera.model.log.notes import HookMessage
from haptera.ports.session_store import Store
from haptera.stores import lease_rules
from haptera.system.processes import ProcessIdentity, this_process
from haptera.testing.promises import within_time_limit
from haptera.testing.store_conformance.lease_checks import MOST_OVERTAKES, most_overtaken
from haptera.testing.store_conformance.samples import new_session
from tests.stores.store_factories import DURABLE, open_store
from tests.stores.workers import NEW_INTERPRETER, worker

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", DURABLE)]


def _line_of(store: Store) -> lease_rules.WaitingLine:
    name = type(store).__name__
    assert hasattr(store.leases, "join"), (
        f"{name}.leases is no WaitingLine of stores/lease_rules.py"
    )
    return cast("lease_rules.WaitingLine", store.leases)


def _ticket(number: int, identity: object) -> str:
    """Make a ticket that comes before any that is asked for now."""
    return f"{number:020d}-00000000-{identity}"


@contextlib.asynccontextmanager
async def _process() -> AsyncIterator[ProcessIdentity]:
    """Start a process that does nothing, and say who it is."""
    program = "import sys; sys.stdin.read()"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=pipe)
    stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    here = this_process()
    started = int(stat.rpartition(")")[2].split()[19])
    try:
        yield ProcessIdentity(
            pid=process.pid, started=started, namespace=here.namespace, boot=here.boot
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _is_refused(store: Store, session_id: SessionId) -> bool:
    try:
        lease = await store.leases.acquire(session_id, "impatient")
    except AgentError as error:
        assert error.code is ErrorCode.BUSY
        assert "waited" in error.message
        return True
    await store.leases.release(lease)
    return False


async def test_processes_that_pass_a_session_around_get_it_in_order(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    names = ("a", "b", "c")
    async with contextlib.AsyncExitStack() as stack:
        started = (worker(kind, tmp_path, lease.session_id, under=NEW_INTERPRETER) for _ in names)
        workers = [await stack.enter_async_context(each) for each in started]
        for name, each in zip(names, workers, strict=True):
            await each.must("head")
            each.send("take_turns", name, 8)
        await store.leases.release(lease)
        for each in workers:
            assert await each.reply() == "ok 8"
    entries = await store.log.read(lease.session_id)
    granted = [entry.text for entry in entries if isinstance(entry, HookMessage)]
    assert len(granted) == 24
    assert most_overtaken(granted) <= MOST_OVERTAKES, granted
    await store.close()


async def test_waiters_are_served_in_the_order_in_which_they_asked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [open_store(kind, tmp_path) for _ in range(2)]
    lease = await new_session(stores[0])
    joined = asyncio.Semaphore(0)
    for store in stores:
        join = _line_of(store).join

        async def join_and_tell(session_id: SessionId, ticket: str, join: object = join) -> None:
            await join(session_id, ticket)  # type: ignore[operator]
            joined.release()

        monkeypatch.setattr(store.leases, "join", join_and_tell)
    served: list[int] = []

    async def wait(number: int) -> None:
        store = stores[number % 2]
        gained = await store.leases.acquire(lease.session_id, f"w{number}", busy="wait")
        served.append(number)
        await store.leases.release(gained)

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(within_time_limit(wait(number), "a turn"))
            await within_time_limit(joined.acquire(), "standing in line")
        await stores[0].leases.release(lease)
    assert served == list(range(6))
    for store in stores:
        await store.close()


async def test_a_caller_that_does_not_wait_is_refused_while_others_wait(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    await store.leases.release(lease)
    async with _process() as running:
        await _line_of(store).join(lease.session_id, _ticket(1, running))
        assert await _is_refused(store, lease.session_id)
        os.kill(running.pid, signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, running.pid, os.WSTOPPED | os.WNOWAIT)
        assert not await _is_refused(store, lease.session_id)
        os.kill(running.pid, signal.SIGCONT)
        await asyncio.to_thread(os.waitid, os.P_PID, running.pid, os.WCONTINUED | os.WNOWAIT)
        assert await _is_refused(store, lease.session_id)
    assert not await _is_refused(store, lease.session_id)
    await store.close()


async def test_tickets_of_processes_that_are_gone_or_cannot_be_seen_do_not_count(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    await store.leases.release(lease)
    async with _process() as gone:
        pass
    here = this_process()
    elsewhere = ProcessIdentity(pid=1, started=1, namespace="1", boot=here.boot)
    for number, ticket in enumerate([gone, elsewhere, "nonsense"]):
        await _line_of(store).join(lease.session_id, _ticket(number, ticket))
    assert not await _is_refused(store, lease.session_id)
    await store.close()


async def test_a_process_that_does_not_take_a_free_session_is_passed_over(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_rules, "PASS_OVER_SECONDS", 0.0)
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    await store.leases.release(lease)
    async with _process() as stuck:
        await _line_of(store).join(lease.session_id, _ticket(1, stuck))
        gained = await within_time_limit(
            store.leases.acquire(lease.session_id, "next", busy="wait"), "a turn"
        )
        assert gained.epoch > lease.epoch
    await store.close()


async def test_a_store_that_is_closed_leaves_no_ticket_behind(kind: str, tmp_path: Path) -> None:
    store, other = open_store(kind, tmp_path), open_store(kind, tmp_path)
    lease = await new_session(other)
    waiting = asyncio.ensure_future(store.leases.acquire(lease.session_id, "waiter", busy="wait"))
    # Once it is refused by another one it has asked, and may or may not stand in line by now.
    with contextlib.suppress(AgentError):
        await store.leases.acquire(lease.session_id, "impatient")
    await store.close()
    waiting.cancel()
    await asyncio.wait([waiting])
    await other.leases.release(lease)
    assert not await _is_refused(other, lease.session_id)
    await other.close()
