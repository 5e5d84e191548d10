"""A process that holds a session and does with it what it is told, line by line; started by tests.

It reads requests such as `chat hello` from stdin and says on stdout what happens: `event KIND` for
every entry, `asked ID` for an approval, `waiting` when it has its place in the line for a
session, `result STOP_REASON TEXT` or `error CODE` at the end.
"""

import asyncio
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from haptera import Agent, AgentSession
from haptera.agent.query_stream import QueryStream
from haptera.model.errors import AgentError
from haptera.model.events import Event, TextDelta
from haptera.model.log.approvals import ApprovalRequested
from haptera.model.log.entry import Entry
from haptera.system.owned_tasks import OwnedTasks
from tests.kernel.session.echo_provider import EchoProvider
from tests.kernel.session.three_turns import durable_agent
from tests.stores.worker_process import open_impatient, tell_when_waiting


def say(*words: object) -> None:
    """Tell the test something."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def tell(event: Event) -> None:
    """Say what happened."""
    if isinstance(event, TextDelta):
        say("shown", len(event.text))
    elif isinstance(event, ApprovalRequested):
        say("asked", event.approval_id)
    elif isinstance(event, Entry):
        say("event", event.kind)


async def watch(session: AgentSession) -> None:
    """Tell everything that happens in the session."""
    async for event in session.events():
        tell(event)


async def finish(stream: QueryStream[object]) -> None:
    """Let a query run and say how it ended."""
    try:
        result = await stream.result()
        say("result", result.stop_reason, result.text)
    except AgentError as error:
        say("error", error.code)


async def requests() -> AsyncIterator[tuple[str, str]]:
    """Yield what the test asks for."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        word, _, rest = line.strip().partition(" ")
        yield word, rest


class Holder:
    """Holds one session, and what runs in it."""

    def __init__(self, agent: Agent, name: str) -> None:
        self._agent = agent
        self._name = name
        self._tasks = OwnedTasks()
        self._session = agent.session(name)

    async def open(self, busy: str) -> None:
        """Become the holder, or say why not."""
        mode: Literal["wait", "reject"] = "wait" if busy == "wait" else "reject"
        self._session = self._agent.session(self._name, busy=mode)
        try:
            await self._session.open()
        except AgentError as error:
            say("error", error.code)
            return
        self._tasks.start(watch(self._session), name="watch")
        say("open", self._session.session_id)

    async def chat(self, prompt: str) -> None:
        """Send a prompt; how it ends is said later."""
        self._tasks.start(finish(self._session.stream(prompt, on_abort="return")), name="chat")

    async def approve(self, approval_id: str) -> None:
        """Let a call run."""
        await self._session.approve(approval_id)

    async def limit(self, size: str) -> None:
        """Let no file grow beyond this size; 0 lifts the limit."""
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size) or hard, hard))

    async def resume(self, _: str) -> None:
        """Carry on what is unfinished."""
        self._tasks.start(finish(self._session.resume()), name="resume")

    async def close(self, _: str = "") -> None:
        """Give the session up."""
        await self._session.close(force=True)
        await self._tasks.cancel(within=5.0)
        say("closed")


async def hold(kind: str, folder: Path, name: str) -> None:
    """Hold the session until there are no more requests."""
    store = open_impatient(kind, folder)
    tell_when_waiting(store.leases, lambda: say("waiting"))
    async with durable_agent(kind, folder, EchoProvider(), approval="ask", store=store) as agent:
        holder = Holder(agent, name)
        async for word, rest in requests():
            await getattr(holder, word)(rest)
        await holder.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
