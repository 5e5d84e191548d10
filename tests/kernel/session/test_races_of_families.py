"""Aborts, closings and answers at any moment while sub-agents work, over seeded schedules."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentSession, ApprovalRequest, Approve, tool
from haptera.access.descriptions import SessionTree
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.queries import QueryEnded, QueryStarted
from haptera.model.log.tools import ToolStarted
from haptera.model.settings import RuntimeSettings
from haptera.ports.session_store import Store
from haptera.stores.memory import MemoryStore
from haptera.testing import LoopClock, ScriptedProvider, calls, run_seeded, says
from haptera.testing.clocks import one_turn

_SEEDS = 60
_SOAK_SEEDS = 3000
_MOMENTS = 120
"""How many turns of the loop a family has before something happens to it."""


class World:
    """A parent with two sub-agents, of which one asks before it writes; and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = MemoryStore()
        self.effects: list[str] = []
        self.has_approver = self.chance.random() < 0.5

    def agent(self) -> Agent:
        """Make the parent."""

        @tool(approval="ask")
        async def write(text: str) -> str:
            """Write a text down."""
            self.effects.append(text)
            await one_turn()
            return "written"

        first = self._child([calls(("write", {"text": "a"})), says("one ", "two")], write)
        second = self._child([says("three ", "four")])
        tools = [
            first.as_tool(name="first", description="."),
            second.as_tool(name="second", description="."),
        ]
        both = calls(("first", {"prompt": "go"}), ("second", {"prompt": "go"}))
        return self._make([both, says("end")], tools, self.store)

    def _child(self, steps: list[Any], *tools: Any) -> Agent:
        return self._make(steps, list(tools), "memory")

    def _make(self, steps: list[Any], tools: list[Any], store: Store | str) -> Agent:
        spread = [
            step if isinstance(step, Exception) else [[part] for part in step] for step in steps
        ]
        return Agent(
            "scripted/a",
            providers=[ScriptedProvider(spread)],
            environment={},
            clock=LoopClock(),
            tools=tools,
            store=store,
            approver=self._approve if self.has_approver and store is self.store else None,
            runtime=RuntimeSettings(close_drain_seconds=0),
        )

    async def _approve(self, _request: ApprovalRequest) -> Approve:
        for _ in range(self.chance.randrange(20)):
            await one_turn()
        return Approve()

    async def play(self) -> None:
        """Let the family work; abort or close it at some moment, or let it be; then check."""
        agent = self.agent()
        async with agent:
            session = await agent.session("main").open()
            chatting = asyncio.ensure_future(self._chat(session))
            for _ in range(self.chance.randrange(_MOMENTS)):
                await one_turn()
            happens = self.chance.choice(
                ["abort", "close", "suspend", "cancel", "delete", "nothing"]
            )
            await self._let(happens, agent, session, chatting)
            await asyncio.wait({chatting})
            await session.close()
            if happens != "delete":
                tree = await agent.sessions.tree("main")
                await self._check(tree, is_suspended=happens == "suspend")

    async def _let(
        self, happens: str, agent: Agent, session: AgentSession, chatting: "asyncio.Task[None]"
    ) -> None:
        if happens == "abort":
            session.abort()
        elif happens == "close":
            await session.close(abort=True)
        elif happens == "suspend":
            await session.close(force=True)
        elif happens == "cancel":
            chatting.cancel()
        elif happens == "delete":
            await agent.sessions.delete("main")
            assert await agent.sessions.list(children=True) == ()

    async def _chat(self, session: AgentSession) -> None:
        with contextlib.suppress(AgentError):
            result = await session.chat("go")
            while result.pending:
                for request in result.pending:
                    await session.approve(request.id)
                result = await session.resume()

    async def _check(self, tree: SessionTree, *, is_suspended: bool) -> None:
        """Every query ended once, nothing waits, and nothing was done twice.

        Of a family that was suspended, the last query of each may have no end.
        """
        for node in (tree, *tree.children):
            entries = await self.store.log.read(node.session.id)
            started = [item.query_id for item in entries if isinstance(item, QueryStarted)]
            ended = [item.query_id for item in entries if isinstance(item, QueryEnded)]
            assert ended in ((started, started[:-1]) if is_suspended else (started,))
            runs = [item.call_id for item in entries if isinstance(item, ToolStarted)]
            if node is not tree:
                assert len(runs) == len(set(runs))
            asked = {item.approval_id for item in entries if isinstance(item, ApprovalRequested)}
            settled = [item.approval_id for item in entries if isinstance(item, ApprovalSettled)]
            assert len(settled) == len(set(settled))
            rests = isinstance(entries[-1], QueryEnded) and entries[-1].stop_reason == "approval"
            assert rests or asked == set(settled)
        assert len(tree.children) <= 2
        assert len(self.effects) <= 1


def _play(seed: int) -> None:
    try:
        run_seeded(World(seed).play, seed)
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


@pytest.mark.slow
def test_whatever_happens_to_a_family_every_query_of_it_ends_once() -> None:
    for seed in range(_SEEDS):
        _play(seed)


@pytest.mark.soak
def test_whatever_happens_to_a_family_in_thousands_of_schedules() -> None:
    for seed in range(_SOAK_SEEDS):
        _play(seed)
