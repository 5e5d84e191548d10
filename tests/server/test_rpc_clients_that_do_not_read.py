"""Clients of JSON-RPC that do not read, or go away: what is kept for them is bounded."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from haptera import Agent, AgentSession
from haptera.server import Access, ServerSettings
from haptera.server.access import Principal
from haptera.server.app import OPERATIONS
from haptera.server.operations import Server
from haptera.server.rpc_connection import RpcConnection
from haptera.server.rpc_messages import RpcMessage, RpcRequest
from haptera.server.rpc_methods import RpcMethods
from haptera.server.sessions import Hub
from haptera.testing import says
from tests.scripted_agents import make_agent, tasks_left


class SlowReader:
    """A client that takes messages only while it is let."""

    def __init__(self, agent: Agent, **settings: Any) -> None:
        self.hub = Hub(
            {agent.owner: agent}.get, ServerSettings(**settings), owners=lambda: (agent.owner,)
        )
        server = Server(self.hub, Access(None, owner=agent.owner), OPERATIONS)
        principal = Principal(owner=agent.owner)
        self.connection = RpcConnection(
            RpcMethods(server), caller=lambda: principal, send=self._send
        )
        self.is_reading = asyncio.Event()
        self.is_reading.set()
        self.has_gone = False
        self.got: list[Any] = []
        self.changed = asyncio.Event()

    async def _send(self, messages: Sequence[bytes]) -> None:
        await self.is_reading.wait()
        if self.has_gone:
            raise ConnectionResetError
        self.got += map(json.loads, messages)
        self.changed.set()

    async def ask(self, method: str, number: int = 1, **params: Any) -> None:
        """Send a call."""
        await self.connection.take(
            RpcMessage((RpcRequest(method=method, params=params, id=number),))
        )

    async def until(self, is_there: Any) -> Any:
        """Wait for a message."""
        while True:
            for message in self.got:
                if is_there(message):
                    return message
            self.changed.clear()
            await self.changed.wait()

    async def close(self) -> None:
        await self.hub.close()
        await self.connection.close()


async def test_a_subscription_that_is_not_read_is_closed_with_a_cursor_to_go_on_from() -> None:
    pieces = [f"{number} " for number in range(3000)]
    agent, _ = make_agent([says("hi"), says(*pieces), says("bye")])
    async with agent:
        reader = SlowReader(agent)
        async with agent.session() as session:
            await session.chat("one")
            session_id = str(session.session_id)
        await reader.ask("session/events", session_id=session_id)
        await reader.until(lambda told: told.get("params", {}).get("kind") == "log.synced")
        reader.is_reading.clear()
        async with reader.hub.owner("local").handle(session_id) as held:
            assert isinstance(held, AgentSession)
            await held.chat("two")
            await held.chat("three")
        reader.is_reading.set()
        closed = await reader.until(lambda told: told.get("method") == "events/closed")
        assert closed["params"]["reason"] == "lagged"
        first = [told["params"] for told in reader.got if told.get("method") == "event"]
        assert len(first) < 2000
        seen = [told["seq"] for told in first if told["seq"]]
        assert closed["params"]["seq"] == seen[-1]
        reader.got.clear()
        after = closed["params"]["seq"]
        await reader.ask("session/events", session_id=session_id, after=after, follow=False)
        await reader.until(lambda told: told.get("method") == "events/closed")
        rest = [told["params"]["seq"] for told in reader.got if told.get("method") == "event"]
        head = (await agent.sessions.get(session_id)).head
        assert [*seen, *filter(None, rest)] == list(range(1, head + 1))
        assert reader.hub.streams.open == 0
        await reader.close()
    assert tasks_left() == []


async def test_a_subscription_to_all_sessions_that_is_not_read_is_told_that_it_lagged() -> None:
    agent, _ = make_agent([])
    async with agent:
        reader = SlowReader(agent)
        await reader.ask("events/all")
        await reader.until(lambda told: "result" in told)
        reader.is_reading.clear()
        made: list[str] = []
        for _ in range(600):
            async with await agent.sessions.create() as session:
                made.append(str(session.session_id))
        reader.is_reading.set()
        closed = await reader.until(lambda told: told.get("method") == "events/closed")
        assert closed["params"]["reason"] == "lagged"
        events = [told["params"] for told in reader.got if told.get("method") == "event"]
        assert (events[-1]["kind"], events[-1]["event"]) == ("observer.lagged", {})
        created = [each["event"]["session_id"] for each in events[:-1]]
        assert created == made[: len(created)], "there is no gap before it is told"
        assert reader.hub.streams.open == 0
        await reader.close()
    assert tasks_left() == []


async def test_answers_that_are_not_read_keep_their_calls_in_flight_and_the_reader_waits() -> None:
    agent, _ = make_agent([])
    async with agent:
        reader = SlowReader(agent, calls_per_connection=2)
        reader.is_reading.clear()
        await reader.ask("server/info", 1)
        await reader.ask("server/info", 2)
        waiting = asyncio.ensure_future(reader.ask("server/info", 3))  # the refusal is not read
        await asyncio.wait({waiting}, timeout=0)
        assert not waiting.done()
        reader.is_reading.set()
        await waiting
        await reader.connection.drain()
        codes = {told["id"]: told.get("error", {}).get("code") for told in reader.got}
        assert codes == {1: None, 2: None, 3: -32001}
        await reader.close()
    assert tasks_left() == []


async def test_a_client_that_goes_away_leaves_no_stream_and_no_task() -> None:
    agent, _ = make_agent([])
    async with agent:
        reader = SlowReader(agent)
        async with agent.session() as session:
            session_id = str(session.session_id)
        await reader.ask("session/events", session_id=session_id)
        await reader.until(lambda told: "result" in told)
        await reader.connection.close()  # the task of the subscription has not had its first step
        assert reader.hub.streams.open == 0
        reader.has_gone = True
        for number in range(50):
            await reader.ask("session/events", number, session_id=session_id)
        await reader.connection.drain()
        await reader.connection.close()
        assert reader.hub.streams.open == 0
        await reader.close()
    assert tasks_left() == []
