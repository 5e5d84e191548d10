"""Sessions that go back by what is stored of them: in every store, and with what comes after."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentSession
from haptera.model.errors import ErrorCode
from haptera.model.ids import MessageId, SessionId
from haptera.model.log import stored_state
from haptera.model.log.fold import fold_entries
from haptera.ports.session_store import Store
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, says
from tests.kernel.session.test_compacted_sessions import CountingStore
from tests.scripted_agents import live_of
from tests.stores.store_factories import STORE_FACTORIES, open_store

EVERY = 60
PROMPTS = 60


@pytest.fixture(autouse=True)
def _stored_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_state, "STORED_EVERY", EVERY)


def agent_on(store: Any, provider: ScriptedProvider | None = None) -> Agent:
    options: dict[str, Any] = {"store": store, "project": "p", "environment": {}}
    return Agent("scripted/one", providers=[provider or ScriptedProvider([])], **options)


async def talk(store: Store) -> tuple[SessionId, list[MessageId]]:
    """Have a long conversation; returns the ids of its messages."""
    provider = ScriptedProvider([says(f"answer {number}") for number in range(PROMPTS)])
    async with agent_on(store, provider) as agent, agent.session("long") as session:
        for number in range(PROMPTS):
            await session.chat(f"prompt {number}")
        ids = [message.id for message in session.messages]
        return SessionId(str(session.session_id)), ids


async def messages_in(store: Store, session_id: SessionId) -> list[MessageId]:
    """Return the messages that the whole log makes."""
    return [each.id for each in fold_entries(await store.log.read(session_id)).messages()]


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_every_store_goes_back_and_forward_by_states(kind: str, tmp_path: Path) -> None:
    store = open_store(kind, tmp_path)
    session_id, ids = await talk(store)
    counting = CountingStore(store)
    async with agent_on(counting) as agent:
        remote = await agent.remote("long")
        places = [61, 49, 41]
        for place in places:
            counting.log.entries_read = 0
            await remote.rewind(to=ids[place])
            assert counting.log.entries_read < 12 * EVERY
            assert await messages_in(store, session_id) == ids[: place + 1]
        for place in (49, 61, len(ids) - 1):
            counting.log.entries_read = 0
            await remote.undo_rewind()
            assert counting.log.entries_read < 12 * EVERY
            assert await messages_in(store, session_id) == ids[: place + 1]
    await store.close()


class HeldLog:
    """A log whose reads wait, once `hold` is set, until they may go on."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.hold = False
        self.held, self.go_on = asyncio.Event(), asyncio.Event()

    async def read(self, *arguments: Any, **options: Any) -> Any:
        if self.hold:
            self.held.set()
            await self.go_on.wait()
        return await self._log.read(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class HeldStore:
    """A store with such a log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.log = HeldLog(store.log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def opened_without_messages(agent: Agent) -> AgentSession:
    """Open the session as a command from elsewhere does."""
    session = await (await agent.remote("long"))._open_if_free()
    assert session is not None
    assert (await live_of(session)).fold.lacks_texts
    return session


async def test_a_session_that_was_opened_without_its_messages_reads_them_for_a_prompt() -> None:
    store = MemoryStore()
    session_id, ids = await talk(store)
    provider = ScriptedProvider([says("more")])
    async with agent_on(store, provider) as agent:
        session = await opened_without_messages(agent)
        await session.rewind(to=ids[41])
        assert (await live_of(session)).fold.lacks_texts
        assert (await session.chat("and now?")).text == "more"
        assert not (await live_of(session)).fold.lacks_texts
        messages = [each.id for each in session.messages]
        await session.close()
    assert [each.text for each in provider.requests[-1].messages[-2:]] == ["answer 20", "and now?"]
    assert len(provider.requests[-1].messages) == 43
    assert messages == await messages_in(store, session_id)
    assert messages[:42] == ids[:42]


async def test_a_query_is_aborted_while_the_messages_before_it_are_read() -> None:
    inner = MemoryStore()
    session_id, ids = await talk(inner)
    store = HeldStore(inner)
    async with agent_on(store, ScriptedProvider([says("more")])) as agent:
        session = await opened_without_messages(agent)
        store.log.hold = True
        asked = asyncio.ensure_future(session.chat("and now?"))
        await store.log.held.wait()
        session.abort()
        with pytest.raises(AgentError) as aborted:
            await asked
        assert aborted.value.code is ErrorCode.UNAVAILABLE
        store.log.hold = False
        store.log.go_on.set()
        assert (await session.chat("again?")).text == "more"
        assert [each.id for each in session.messages[: len(ids)]] == ids
        assert [each.id for each in session.messages] == await messages_in(inner, session_id)
        await session.close()
