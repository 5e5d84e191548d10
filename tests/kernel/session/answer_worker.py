"""Does one thing to a session, then dies by its own kill -9; started by tests.

Dying happens in the same step of the loop in which something was acknowledged, or inside the append
that a scenario names, so that nothing which should have been written earlier can be written late.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from haptera import Agent, AgentSession, ApprovalRequest, tool
from haptera.model.approvals import Decision
from haptera.model.errors import AgentError
from haptera.model.log.approvals import ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.tools import ToolStarted
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Lease, SessionLog
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.stores.store_factories import open_store

NAME = "answered"
TWO_CALLS: Step = calls(("work", {}), ("pay", {"amount": "7"}))
ONE_CALL: Step = calls(("pay", {"amount": "7"}))

Dies = Callable[[Sequence[Entry], Sequence[CommandId]], bool]


def die() -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


class MortalLog:
    """A log that kills its process right after an append that it was told of."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self.dies: Dies = lambda _entries, _consumed: False

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append, and die if this was the one."""
        await self._log.append(lease, entries, consumed=consumed)
        if self.dies(entries, consumed):
            die()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class MortalStore:
    """A store in a folder around such a log."""

    def __init__(self, kind: str, folder: Path) -> None:
        store = open_store(kind, folder)
        self.log = MortalLog(store.log)
        self.index, self.leases, self.inbox = store.index, store.leases, store.inbox
        self.blobs, self.search, self.close = store.blobs, store.search, store.close


def make_agent(folder: Path, store: MortalStore, steps: Sequence[Step], **options: Any) -> Agent:
    """Return an agent with a tool that never ends and one that must be allowed to pay."""

    @tool
    async def work() -> str:
        """Work for ever."""
        await asyncio.Event().wait()
        return "never"

    @tool(approval="ask")
    async def pay(amount: str) -> str:
        """Pay."""
        with (folder / "effects").open("a") as file:
            file.write(f"{amount}\n")
        return "paid"

    return Agent(
        "scripted/m",
        providers=[ScriptedProvider(steps)],
        tools=[work, pay],
        store=store,
        project="durable",
        **options,
    )


class Scenario:
    """A session of this process, and what is to happen in it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder = folder
        self._store = MortalStore(kind, folder)

    def agent(self, steps: Sequence[Step], **options: Any) -> Agent:
        """Return an agent on the store of this scenario."""
        return make_agent(self._folder, self._store, steps, **options)

    async def steer(self) -> None:
        """Steer an idle session."""
        async with self.agent([says("never")]) as agent, agent.session(NAME) as session:
            await session.steer("hello")
            die()

    async def send_to_resting(self) -> None:
        """Send a prompt to a session that rests, and die when its approval is settled."""
        agent = self.agent([ONE_CALL, says("never")])
        async with agent, agent.session(NAME) as session:
            await session.chat("go")
            self._store.log.dies = lambda entries, _: any(
                isinstance(entry, ApprovalSettled) for entry in entries
            )
            await (await agent.remote(NAME)).send("and this")
            await asyncio.Event().wait()

    async def approve(self) -> None:
        """Approve while another tool runs."""
        await self._while_asked(lambda session, asked: session.approve(asked))

    async def deny(self) -> None:
        """Deny, then approve, while another tool runs."""

        async def both(session: AgentSession, asked: str) -> None:
            await session.deny(asked)
            with suppress(AgentError):
                await session.approve(asked)

        await self._while_asked(both)

    async def approve_first(self) -> None:
        """Approve, then deny, while another tool runs."""

        async def both(session: AgentSession, asked: str) -> None:
            await session.approve(asked)
            with suppress(AgentError):
                await session.deny(asked)

        await self._while_asked(both)

    async def remote_approve(self) -> None:
        """Approve from outside, then deny, and die when the first command is consumed."""

        async def both(_session: AgentSession, asked: str) -> None:
            self._store.log.dies = lambda _, consumed: bool(consumed)
            async with self.agent([]) as other:
                remote = await other.remote(NAME)
                await remote.approve(asked)
                await remote.deny(asked)
                await asyncio.Event().wait()

        await self._while_asked(both)

    async def _while_asked(self, answer: Callable[[AgentSession, str], Awaitable[None]]) -> None:
        """Answer a question while its query runs, then die."""
        asked: asyncio.Queue[ApprovalRequest] = asyncio.Queue()

        async def approver(request: ApprovalRequest) -> Decision:
            asked.put_nowait(request)
            await asyncio.Event().wait()
            raise AssertionError

        started = asyncio.Event()
        agent = self.agent([TWO_CALLS], approver=approver)
        async with agent, agent.session(NAME) as session, asyncio.TaskGroup() as group:
            session.on(ToolStarted, lambda _event: started.set())
            group.create_task(session.chat("go"))
            await started.wait()
            await answer(session, (await asked.get()).id)
            die()


if __name__ == "__main__":
    asyncio.run(getattr(Scenario(sys.argv[1], Path(sys.argv[2])), sys.argv[3])())
