"""A query of three turns whose tool leaves a mark in the world, for processes that may die."""

import os
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from haptera import Agent, tool
from haptera.kernel.blocks.tool_registry.tool import AnyTool
from haptera.model.parts import ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamPart
from haptera.model.tools import ApprovalMode
from haptera.ports.session_store import Store
from haptera.testing import ScriptedProvider, calls, says
from tests.stores.store_factories import store_string

LINES = ("first", "second")
FINAL = "Both lines are written."


class ThreeTurns(ScriptedProvider):
    """Asks for a line, then for another, then for none, in any process and after any crash."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Answer by what has been done so far."""
        said = request.messages[-1].text
        if said.endswith("next"):
            self.replace_rest([[part] for part in says("fine")])
        else:
            self.replace_rest([[part] for part in _answer(_results_in(request))])
        return super().stream(request)


def _results_in(request: ModelRequest) -> int:
    parts = [part for message in request.messages for part in message.parts]
    return sum(isinstance(part, ToolResultPart) for part in parts)


def _answer(results: int) -> list[StreamPart]:
    if results >= len(LINES):
        return says(FINAL[:4], FINAL[4:])
    line = LINES[results]
    return calls(("write_line", {"line": line}), ids=(f"call_{line}",), text="I write. ")


LINGERING = threading.Event()
"""Set when a tool of this process has written `linger`, and will not return."""


def line_writer(
    effects: Path,
    approval: ApprovalMode = "never",
    *,
    name: str = "write_line",
    lingers: bool = True,
) -> AnyTool:
    """Return a tool that appends a line to a file, durably; after `linger` it may never return."""

    @tool(name=name, approval=approval)
    def write_line(line: str) -> str:
        """Write a line."""
        descriptor = os.open(effects, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if line == "linger" and lingers:
            LINGERING.set()
            threading.Event().wait()
        return f"{line} is written"

    return write_line


def durable_agent(
    kind: str,
    folder: Path,
    provider: ScriptedProvider,
    *,
    approval: ApprovalMode = "never",
    store: Store | None = None,
) -> Agent:
    """Return an agent on a store in a folder, with the tool that writes lines."""
    return Agent(
        "scripted/m",
        providers=[provider],
        tools=[line_writer(folder / "effects", approval)],
        store=store or store_string(kind, folder),
        project="durable",
    )
