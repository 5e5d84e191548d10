"""Plays a parent with two sub-agents in a process that dies at an append; started by tests.

Its arguments are `point kind approver folder`: it is killed before the append of that number
(`b7`), after it (`a7`), or never (`-`), and prints how many appends it made.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from haptera import Agent, AgentSession, ApprovalRequest, Approve
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.model.parts import ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamPart
from haptera.ports.session_store import Lease, SessionLog, Store
from haptera.testing import ScriptedProvider, calls, says
from tests.kernel.session.three_turns import line_writer
from tests.stores.store_factories import open_store

NAME = "family"
FINAL = "Everything is written."
LINES = {"first": ("a", "b"), "second": ("c",)}
"""What each sub-agent writes, a line in each turn."""
EFFECTS = frozenset(line for lines in LINES.values() for line in lines)


class FamilyModel(ScriptedProvider):
    """Answers by its role, which is the name of the model, and by what has been done so far."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Ask for what is missing, or be content."""
        parts = [part for message in request.messages for part in message.parts]
        results = [
            part
            for part in parts
            if isinstance(part, ToolResultPart) and part.outcome != "interrupted"
        ]
        self.replace_rest([[part] for part in _answer(request.model, len(results))])
        return super().stream(request)


def _answer(role: str, results: int) -> list[StreamPart]:
    if role == "parent":
        wishes = [(name, {"prompt": "write"}) for name in LINES]
        return says(FINAL) if results else calls(*wishes, ids=[f"call_{name}" for name in LINES])
    lines = LINES[role]
    if results >= len(lines):
        return says(f"{role} is done")
    line = lines[results]
    return calls(("write_line", {"line": line}), ids=[f"call_{line}"])


async def _approve(_request: ApprovalRequest) -> Approve:
    return Approve(by="worker")


def family(folder: Path, store: Store, *, has_approver: bool) -> Agent:
    """Make the parent; the first of its sub-agents has to ask before it writes."""

    def sub_agent(role: str) -> Any:
        writer = line_writer(folder / "effects", "ask" if role == "first" else "never")
        agent = Agent(f"scripted/{role}", providers=[FamilyModel()], tools=[writer], environment={})
        return agent.as_tool(name=role, description="Writes.")

    return Agent(
        "scripted/parent",
        providers=[FamilyModel()],
        tools=[sub_agent(role) for role in LINES],
        store=store,
        project=NAME,
        environment={},
        approver=_approve if has_approver else None,
    )


async def bring_to_end(session: AgentSession) -> str:
    """Carry the query on, and approve what it rests on, until it has ended."""
    result = None
    if session.unfinished.query_id is None and not session.messages:
        result = await session.chat("go")
    while session.unfinished.query_id is not None:
        for request in session.unfinished.approvals:
            await session.approve(request.id)
        result = await session.resume()
    return result.text if result is not None else session.messages[-1].text


class MortalLog:
    """The log of a store whose process dies at an append."""

    def __init__(self, inner: SessionLog, point: str) -> None:
        self._inner = inner
        self._point = point
        self.appends = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append, unless this is the end."""
        self.appends += 1
        number = self.appends
        self._die_at(f"b{number}")
        await self._inner.append(lease, entries, consumed=consumed)
        self._die_at(f"a{number}")

    def _die_at(self, point: str) -> None:
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


async def play(point: str, kind: str, approver: str, folder: Path) -> int:
    """Run the whole query, or until death; returns how many appends it made."""
    store: Any = open_store(kind, folder)
    log = MortalLog(store.log, point)
    store.log = log
    try:
        async with (
            family(folder, store, has_approver=approver == "yes") as agent,
            agent.session(NAME) as session,
        ):
            await bring_to_end(session)
    finally:
        await store.close()
    return log.appends


if __name__ == "__main__":
    _point, _kind, _approver, _place = sys.argv[1:]
    sys.stdout.write(str(asyncio.run(play(_point, _kind, _approver, Path(_place)))))
