"""A process that is killed while a tool changes files, after the snapshot before it."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from haptera import Agent, tool
from haptera.testing import ScriptedProvider, calls


async def main(project: Path) -> None:
    @tool(effect="write")
    def change() -> str:
        """Change a file and be killed."""
        (project / "story.txt").write_text("half\n")
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    agent = Agent(
        model="scripted/one",
        providers=[ScriptedProvider([calls(("change", {}))])],
        environment={"HAPTERA_HOME": str(project.parent / "home"), "PATH": os.defpath},
        workspace=project,
        store=f"sqlite:{project.parent / 'chat.db'}",
        tools=[change],
    )
    async with agent, agent.session("killed") as session:
        await session.chat("go")


asyncio.run(main(Path(sys.argv[1])))
