"""Generated sessions come back through `agent.sessions`: in an archive and in other formats."""

import asyncio
import io
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings

from haptera import Agent
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.log.sessions import SessionOpened
from haptera.model.messages import Message
from haptera.stores.memory import MemoryStore
from tests.formats.conversations import heard
from tests.scripted_agents import make_agent
from tests.strategies_logs import logs

FOREIGN = ("claude-code", "codex", "opencode", "pi", "openai", "anthropic")


async def stored(entries: Sequence[Entry]) -> tuple[Agent, MemoryStore, SessionId]:
    """Put a log into a store, and return the agent that its owner has."""
    opened = entries[0]
    assert isinstance(opened, SessionOpened)
    store = MemoryStore()
    lease = await store.leases.acquire(opened.session_id, "test")
    await store.log.append(lease, entries)
    await store.leases.release(lease)
    agent, _ = make_agent([], store=store, owner=opened.owner, project=opened.project or "p")
    return agent, store, opened.session_id


async def file_of(agent: Agent, session_id: SessionId, name: str) -> bytes:
    return b"".join([piece async for piece in agent.sessions.export(session_id, to=name)])


async def imported(agent: Agent, file: bytes, name: str) -> SessionId:
    return (await agent.sessions.import_from(io.BytesIO(file), of=name)).session.id


async def messages_of(store: MemoryStore, session_id: SessionId) -> Sequence[Message]:
    return fold_entries(await store.log.read(session_id)).messages()


@pytest.mark.slow
@given(logs())
@settings(max_examples=60)
def test_an_archive_brings_every_generated_session_back(entries: list[Entry]) -> None:
    async def there_and_back() -> None:
        agent, store, session_id = await stored(entries)
        copy = await imported(agent, await file_of(agent, session_id, "archive"), "archive")
        before, after = await messages_of(store, session_id), await messages_of(store, copy)
        assert heard(after) == heard(before)
        assert [len(each.parts) for each in after] == [len(each.parts) for each in before]

    asyncio.run(there_and_back())


@pytest.mark.slow
@pytest.mark.parametrize("name", FOREIGN)
@given(entries=logs())
@settings(max_examples=20)
def test_another_format_takes_every_generated_session_and_is_read_again(
    name: str, entries: list[Entry]
) -> None:
    # A file without any message is refused, and a conversation that begins with an answer gets a
    # line before it where a format wants a prompt first.
    assume([each.by for each in heard(fold_entries(entries).messages())][:1] == ["user"])

    async def there_and_back() -> None:
        agent, store, session_id = await stored(entries)
        once = await imported(agent, await file_of(agent, session_id, name), name)
        twice = await imported(agent, await file_of(agent, once, name), name)
        first, second = await messages_of(store, once), await messages_of(store, twice)
        assert heard(second, errors=False) == heard(first, errors=False)

    asyncio.run(there_and_back())
