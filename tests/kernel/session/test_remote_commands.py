"""A session that another process holds can be rewound, compacted, configured and forked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import AgentSession, Event, QueryEnded
from haptera.agent import verbs
from haptera.model.errors import ErrorCode
from haptera.model.ids import SessionId, query_id_for
from haptera.model.log.sessions import CommandEnded
from haptera.model.operations.operation import CommandId
from haptera.model.operations.operation import new_command_id as new_id
from haptera.model.operations.session import (
    AbortQuery,
    Command,
    CompactSession,
    ConfigureSession,
)
from haptera.stores import stored_records
from haptera.stores.memory import MemoryStore
from haptera.testing import says
from haptera.testing.clocks import SeededLoop
from tests.kernel.session.remote_scenarios import (
    LONG,
    NAME,
    SCENARIOS,
    OpenStore,
    check_a_holder_that_is_gone,
    new_agent,
)
from tests.scripted_agents import failure_of, live_of
from tests.stores.store_factories import DURABLE, STORE_FACTORIES

SLOW = {check_a_holder_that_is_gone}
"""What waits a second for a holder."""
KINDS = ["memory", *(pytest.param(kind, marks=pytest.mark.slow) for kind in DURABLE)]


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each not in SLOW])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_that_is_held_elsewhere_can_be_changed(
    kind: str, scenario: Callable[[OpenStore], Awaitable[None]], tmp_path: Path
) -> None:
    await scenario(STORE_FACTORIES[kind](tmp_path))


def in_virtual_time(scenario: Coroutine[Any, Any, None]) -> None:
    loop = SeededLoop(1)
    try:
        loop.run_until_complete(scenario)
    finally:
        loop.end()


def test_a_command_whose_holder_is_gone_is_carried_out_by_its_sender() -> None:
    store = MemoryStore()
    in_virtual_time(check_a_holder_that_is_gone(lambda: store))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DURABLE)
async def test_so_it_is_on_a_durable_store(kind: str, tmp_path: Path) -> None:
    await check_a_holder_that_is_gone(STORE_FACTORIES[kind](tmp_path))


async def test_opening_a_session_starts_no_compaction_that_was_asked_for_before() -> None:
    store = MemoryStore()
    async with new_agent(store, [says("one")]) as agent:
        async with agent.session(NAME) as session:
            await session.chat("a")
            session_id = SessionId(str(session.session_id))
        command = CompactSession(id=new_id())
        await store.inbox.put(session_id, command)
        async with agent.session(NAME) as session:
            await session.wait_idle()
        log = await store.log.read(session_id)
    (ended,) = (entry for entry in log if isinstance(entry, CommandEnded))
    assert ended.command_id == command.id
    assert ended.error is not None
    assert ended.error.code is ErrorCode.BUSY
    assert list(await store.inbox.pending(session_id)) == []


async def test_settings_that_no_version_of_the_holder_knows_are_refused() -> None:
    store = MemoryStore()
    async with new_agent(store, []) as agent, agent.session(NAME) as session:
        live = await live_of(session)
        command = ConfigureSession(id=new_id(), settings={"temperature": "hot"})
        await store.inbox.put(live.session_id, command)
        async for entry in session.events():
            if isinstance(entry, CommandEnded):
                break
        assert entry.error is not None  # type: ignore[union-attr]
        assert entry.error.code is ErrorCode.CONFIG_INVALID  # type: ignore[union-attr]
        assert session.settings.temperature is None


async def test_a_call_that_is_cancelled_leaves_its_command_to_the_holder() -> None:
    store = MemoryStore()
    async with new_agent(store, [says("one")]) as agent:
        async with agent.session(NAME) as session:
            await session.chat("a")
            session_id = SessionId(str(session.session_id))
        lease = await store.leases.acquire(session_id, "silent")
        remote = await agent.remote(NAME)
        asked = asyncio.ensure_future(remote.configure(temperature=0.75))
        await store.inbox.wait(session_id)
        asked.cancel()
        await asyncio.wait({asked})
        await store.leases.release(lease)
        async with agent.session(NAME) as session:
            assert session.settings.temperature == 0.75


def test_a_command_to_a_session_that_is_deleted_is_not_waited_for() -> None:
    in_virtual_time(_delete_while_asked())


async def _delete_while_asked() -> None:
    store = MemoryStore()
    async with new_agent(store, []) as agent:
        async with agent.session(NAME) as session:
            session_id = SessionId(str(session.session_id))
        lease = await store.leases.acquire(session_id, "silent")
        remote = await agent.remote(NAME)
        asked = asyncio.ensure_future(remote.undo_rewind())
        await store.inbox.wait(session_id)
        await store.log.delete(session_id)
        assert (await failure_of(asked)).code is ErrorCode.NOT_FOUND
        await store.leases.release(lease)
        assert (await failure_of(remote.fork())).code is ErrorCode.NOT_FOUND


class LaterCommand(AbortQuery, frozen=True, kw_only=True, tag="later.invention"):
    """A command of a version that this one does not know."""


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_command_of_an_unknown_kind_stays_for_a_holder_that_knows_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = STORE_FACTORIES[kind](tmp_path)()
    async with new_agent(store, [says("one")]) as agent:
        async with agent.session(NAME) as session:
            session_id = SessionId(str(session.session_id))
            later = LaterCommand(id=new_id())
            await store.inbox.put(session_id, later)
            await (await agent.remote(NAME)).configure(temperature=0.5)
            await session.chat("a")
            assert session.settings.temperature == 0.5
        async with agent.session(NAME) as session:
            assert len(session.messages) == 2
        assert list(await store.inbox.pending(session_id)) == []
        decoder = msgspec.json.Decoder(Command | LaterCommand)
        monkeypatch.setattr(stored_records, "_command_decoder", lambda: decoder)
        assert list(await store.inbox.pending(session_id)) == [later]
    await store.close()


async def test_what_no_process_holds_is_changed_by_the_one_order_that_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def counted() -> Any:
        made.append(new_id())
        return made[-1]

    async with new_agent(MemoryStore(), [says("one"), says("two"), says("a summary")]) as agent:
        async with agent.session(NAME) as session:
            await session.chat(LONG)
            await session.chat(LONG)
            first = session.messages[1].id
        remote = await agent.remote(NAME)
        monkeypatch.setattr(verbs, "new_command_id", counted)
        await remote.rewind(to=first)
        await remote.undo_rewind()
        await remote.configure(temperature=0.5)
        await remote.compact()
        assert len(made) == 4
        async with agent.session(NAME) as session:
            ends = [event async for event in _past_of(session) if isinstance(event, QueryEnded)]
            assert (ends[-1].query_id, session.settings.temperature) == (
                query_id_for(CommandId(made[-1])),
                0.5,
            )


async def _past_of(session: AgentSession) -> AsyncIterator[Event]:
    """Return the entries that a session has now."""
    head = session.view().head
    async for event in session.events():
        yield event
        if getattr(event, "seq", 0) >= head:
            return
