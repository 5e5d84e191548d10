"""Agents with MCP servers: the raw server, and what a model got of it."""

import sys
from pathlib import Path
from typing import Any

from haptera.model.parts import ToolResultPart
from haptera.testing import ScriptedProvider, calls, says
from haptera.tools.mcp import McpServer
from tests.scripted_agents import make_agent

RAW = Path(__file__).with_name("raw_server.py")


def raw_server(mode: str = "plain", log: Path | str = "", **options: Any) -> McpServer:
    """Return the raw server in one of its modes; it asks no person unless it is told to."""
    options = {"approval": "never", "environment": {}, **options}
    arguments = [str(RAW), mode, *([str(log)] if log else [])]
    return McpServer("raw", command=sys.executable, args=["-S", "-E", *arguments], **options)


async def results_of(
    *wishes: tuple[str, Any], server: McpServer, **options: Any
) -> tuple[list[ToolResultPart], ScriptedProvider]:
    """Let a model make calls one after the other, each in a turn, and return what it was told."""
    steps = [*(calls(wish) for wish in wishes), says("done")]
    agent, provider = make_agent(steps, tools=[server], **options)
    async with agent:
        await agent.run("go")
    provider.check()
    parts = [part for message in provider.requests[-1].messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolResultPart)], provider


def names_offered(provider: ScriptedProvider, turn: int = 0) -> list[str]:
    """Return the names of the tools that were offered in a turn."""
    return [spec.name for spec in provider.requests[turn].tools]


def notes_in(log: Path) -> list[str]:
    """Return what the raw server has noted."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def pid_in(log: Path, place: int = 0) -> int:
    """Return the process id of a start of the raw server."""
    starts = [line for line in notes_in(log) if line.startswith("started")]
    return int(starts[place].split()[1])


def state_of(server: McpServer) -> str:
    """Return the state of a server now."""
    return server.status.state
