"""A prompt is found by its id in whatever the log has got since the last time: read once."""

from collections.abc import Sequence
from typing import Any

import pytest

from haptera.access import catalogue
from haptera.model.log.entry import Entry
from haptera.stores.memory import MemoryLog, MemoryStore
from haptera.testing import says
from tests.scripted_agents import make_agent


class Reads:
    """Counts the entries that are read from a memory store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = 0
        read = MemoryLog.read

        async def counted(log: MemoryLog, *given: Any, **named: Any) -> Sequence[Entry]:
            found = await read(log, *given, **named)
            self.entries += len(found)
            return found

        monkeypatch.setattr(MemoryLog, "read", counted)


async def test_each_entry_is_read_once_however_often_prompts_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, _ = make_agent([says("fine")] * 30)
    async with agent, agent.session("one") as session:
        for number in range(20):
            await session.send("hello", message_id=f"sent-{number}")
            await session.wait_idle()
        sessions, reads = agent.sessions, Reads(monkeypatch)
        assert await sessions.find_prompt("one", "never-sent") is None
        assert reads.entries == session.view().head
        reads.entries = 0
        assert await sessions.find_prompt("one", "never-sent") is None
        assert reads.entries == 0
        head = session.view().head
        query_id = await session.send("new", message_id="sent-now")
        await session.wait_idle()
        found = await sessions.find_prompt("one", "sent-now")
        assert found is not None
        assert (found.seq, found.query_id) == (head + 1, query_id)
        # What is new, and the entry of the prompt once more.
        assert reads.entries == session.view().head - head + 1
        first = await sessions.find_prompt("one", "sent-0")
        assert first is not None
        assert first.seq < head


async def test_a_session_that_was_made_again_has_other_prompts() -> None:
    store = MemoryStore()
    agent, _ = make_agent([says("fine")] * 5, store=store)
    async with agent:
        async with agent.session() as session:
            await session.send("hello", message_id="m")
            await session.wait_idle()
            session_id = str(session.session_id)
        assert await agent.sessions.find_prompt(session_id, "m") is not None
        await agent.sessions.delete(session_id)
        async with agent.session(session_id) as session:
            await session.open()
            assert await agent.sessions.find_prompt(session_id, "m") is None


async def test_only_the_logs_that_were_asked_for_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogue, "_MOST_LOGS", 2)
    agent, _ = make_agent([says("fine")] * 5)
    async with agent:
        for name in ("one", "two", "three"):
            async with agent.session(name) as session:
                await session.send("hello", message_id=name)
                await session.wait_idle()
        reads = Reads(monkeypatch)
        for name in ("one", "two", "three", "one"):
            reads.entries = 0
            assert await agent.sessions.find_prompt(name, name) is not None
            assert reads.entries > 2
