"""Parents of sessions under attack: a line that cannot be is refused, and opening always ends."""

from pathlib import Path

import pytest

from haptera import AgentError, ErrorCode
from haptera.kernel.session.log_reading import MAX_GENERATIONS
from haptera.model.ids import SessionId, new_session_id
from haptera.model.log.sessions import SessionOpened
from haptera.stores.memory import MemoryStore
from haptera.system.clock import Stamp
from haptera.testing import FakeClock, says
from tests.scripted_agents import failure_of, make_agent


async def write_opening(
    store: MemoryStore, session_id: SessionId, parent: SessionId | None, at: int | None = 1
) -> None:
    """Write a log that says which session it was forked from, and where."""
    opened = SessionOpened(
        **Stamp(FakeClock())(),
        seq=1,
        session_id=session_id,
        project="here",
        parent=parent,
        forked_at=at if parent else None,
    )
    lease = await store.leases.acquire(session_id, "gone")
    await store.log.append(lease, [opened])
    await store.leases.release(lease)


async def refusal_of(store: MemoryStore, session_id: SessionId) -> AgentError:
    agent, _ = make_agent([], store=store, project="here")
    async with agent:
        error = await failure_of(agent.session(session_id, must_exist=True).open())
        lease = await store.leases.acquire(session_id, "another")
    assert lease.holder == "another"
    return error


@pytest.mark.parametrize("length", [1, 2, 3, 7])
async def test_parents_in_a_circle_are_named(length: int) -> None:
    store = MemoryStore()
    ids = [new_session_id() for _ in range(length)]
    for place, session_id in enumerate(ids):
        await write_opening(store, session_id, ids[(place + 1) % length])
    error = await refusal_of(store, ids[0])
    assert error.code is ErrorCode.CORRUPT
    assert " -> ".join([*ids, ids[0]]) in error.message


async def test_a_circle_further_up_is_found_from_below() -> None:
    store = MemoryStore()
    child, one, other = (new_session_id() for _ in range(3))
    for session_id, parent in ((child, one), (one, other), (other, one)):
        await write_opening(store, session_id, parent)
    error = await refusal_of(store, child)
    assert error.message.endswith(f"{one} -> {other} -> {one}")


async def test_a_branch_that_was_copied_over_its_trunk_is_refused(tmp_path: Path) -> None:
    agent, _ = make_agent([says("fine")], store=f"jsonl:{tmp_path}")
    async with agent:
        trunk = agent.session()
        await trunk.chat("hi")
        branch = await trunk.fork()
        await branch.open()
        trunk_id, branch_id = trunk.session_id or "", branch.session_id or ""
        await branch.close()
        await trunk.close()
    logs = [path for path in tmp_path.rglob("*") if path.is_file() and branch_id in path.name]
    copied = 0
    for path in logs:
        target = path.with_name(path.name.replace(branch_id, trunk_id))
        if target.exists():
            target.write_bytes(path.read_bytes())
            copied += 1
    assert copied
    agent, _ = make_agent([], store=f"jsonl:{tmp_path}")
    async with agent:
        for session_id in (branch_id, trunk_id):
            error = await failure_of(agent.session(session_id).open())
            assert (error.code, trunk_id in error.message) == (ErrorCode.CORRUPT, True)


@pytest.mark.parametrize("at", [None, -1, 0, 2, 10**12])
async def test_a_fork_from_where_its_parent_never_was_is_refused(at: int | None) -> None:
    store = MemoryStore()
    parent, child = new_session_id(), new_session_id()
    await write_opening(store, parent, None)
    await write_opening(store, child, parent, at=at)
    error = await refusal_of(store, child)
    assert (error.code, parent in error.message) == (ErrorCode.CORRUPT, True)


async def test_a_parent_that_is_gone_is_named() -> None:
    store = MemoryStore()
    parent, child = new_session_id(), new_session_id()
    await write_opening(store, child, parent)
    error = await refusal_of(store, child)
    assert (error.code, parent in error.message) == (ErrorCode.CORRUPT, True)


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_the_longest_line_of_parents_opens_and_a_longer_one_is_refused() -> None:
    store = MemoryStore()
    ids = [new_session_id() for _ in range(MAX_GENERATIONS + 2)]
    for session_id, parent in zip(ids, [None, *ids], strict=False):
        await write_opening(store, session_id, parent)
    assert (await refusal_of(store, ids[-1])).code is ErrorCode.CORRUPT
    agent, _ = make_agent([], store=store, project="here")
    async with agent, agent.session(ids[-2], must_exist=True) as session:
        assert session.messages == ()
