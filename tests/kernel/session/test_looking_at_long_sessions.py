"""A long session is looked at without reading all of it, whichever process holds it."""

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import Agent
from haptera.kernel.session.state_reading import read_to_look
from haptera.model.events import Idle
from haptera.model.ids import SessionId, new_entry_id, new_session_id
from haptera.model.log import stored_state
from haptera.model.log.entry import Entry
from haptera.model.log.sessions import FOLDED, SessionChanged
from haptera.ports.session_store import Store
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, says
from haptera.testing.store_conformance.samples import opening
from tests.kernel.session.test_compacted_sessions import CountingStore
from tests.stores.store_factories import STORE_FACTORIES, open_store

EVERY = 60


@pytest.fixture(autouse=True)
def _stored_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_state, "STORED_EVERY", EVERY)


def agent_on(store: Any, answers: int = 0) -> Agent:
    steps = [says("yes")] * answers
    options: dict[str, Any] = {"store": store, "project": "p", "environment": {}}
    return Agent("scripted/one", providers=[ScriptedProvider(steps)], **options)


async def talk(store: Store, prompts: int) -> SessionId:
    async with agent_on(store, prompts) as agent, agent.session("long") as session:
        for number in range(prompts):
            await session.chat(f"prompt {number}")
        return SessionId(str(session.session_id))


async def count_read(store: Store) -> int:
    """Look at the session in every way, and return how many entries were read at most."""
    most, counting = 0, CountingStore(store)
    async with agent_on(counting) as agent:
        remote = await agent.remote("long")
        for look in (remote.status, remote.pending, remote.unfinished, remote.is_native):
            counting.log.entries_read = 0
            await look()
            most = max(most, counting.log.entries_read)
    return most


async def states_in(store: Store, session_id: SessionId) -> list[SessionChanged]:
    entries = await store.log.read(session_id)
    changed = [each for each in entries if isinstance(each, SessionChanged)]
    return [each for each in changed if FOLDED in each.changes]


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_only_what_follows_the_last_stored_state_is_read(kind: str, tmp_path: Path) -> None:
    store = open_store(kind, tmp_path)
    session_id = await talk(store, 60)
    head = len(await store.log.read(session_id))
    assert head > 6 * EVERY
    assert len(await states_in(store, session_id)) >= head // EVERY - 3
    assert await count_read(store) < 2 * EVERY
    async with agent_on(store) as agent:
        remote = await agent.remote("long")
        assert isinstance(await remote.status(), Idle)
        assert not await remote.unfinished()
    async with agent_on(store, 1) as agent, agent.session("long") as session:
        first = session.messages[2].id
        await session.rewind(to=first)
        assert len(session.messages) == 3
    assert await count_read(store) > head, "the state is of a conversation that was left"
    await talk(store, 1)
    assert await count_read(store) < 2 * EVERY, "it is made anew"
    await store.close()


async def test_a_fork_begins_where_the_session_ends() -> None:
    store = MemoryStore()
    await talk(store, 60)
    async with agent_on(store, 1) as agent:
        async with await agent.sessions.fork("long") as fork:
            assert len(fork.messages) == 120
            assert fork.messages[-2].text == "prompt 59"
            await fork.chat("more")
        found = await agent.sessions.list()
        assert len(found) == 2


async def test_a_damaged_state_is_passed_over_and_made_anew() -> None:
    store = MemoryStore()
    session_id = await talk(store, 30)
    damaged: list[Entry] = [
        msgspec.structs.replace(entry, changes={FOLDED: {"at": entry.seq - 1}})
        if isinstance(entry, SessionChanged) and FOLDED in entry.changes
        else entry
        for entry in await store.log.read(session_id)
    ]
    other, again = MemoryStore(), new_session_id()
    lease = await other.leases.acquire(again, "test")
    damaged[0] = opening(again, name="long", owner="local", project="p")
    await other.log.append(
        lease, [msgspec.structs.replace(entry, id=new_entry_id(), raw=None) for entry in damaged]
    )
    await other.leases.release(lease)
    assert await count_read(other) > len(damaged)
    await talk(other, 30)
    assert await count_read(other) < 2 * EVERY


async def test_a_state_at_another_place_than_the_index_says_is_not_used() -> None:
    store = MemoryStore()
    session_id = await talk(store, 30)
    record = await store.index.find("local", "p", session_id=session_id)
    assert record is not None
    assert record.folded is not None
    seq, at = record.folded
    assert await read_to_look(store.log, session_id, (seq, at)) is not None
    assert await read_to_look(store.log, session_id, (seq, at - 1)) is None


async def test_an_import_brings_no_state() -> None:
    store = MemoryStore()
    session_id = await talk(store, 30)
    async with agent_on(store) as agent:
        archive = b"".join([piece async for piece in agent.sessions.export(session_id)])
        assert FOLDED.encode() in archive
        imported = await agent.sessions.import_from(io.BytesIO(archive))
        assert await states_in(store, SessionId(imported.session.id)) == []
