"""An agent whose tool waits for a delivery, in processes of their own; started by tests.

It does what it is told, line by line: `chat`, `deliver REF JSON`, `resume`, `die`; each answer is a
line that begins with `ok` or with the code of an error.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from haptera import Agent, tool
from haptera.model.errors import AgentError
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.stores.store_factories import store_string

NAME = "orders"
ORDER: Step = calls(("order", {"what": "tea"}), ids=["one"])


def ordering_agent(kind: str, folder: Path, steps: list[Step]) -> Agent:
    """Return an agent on a store in a folder, whose tool notes in a file that it ran."""
    effects = folder / "effects"

    @tool(deferred=True)
    def order(what: str) -> str:
        """Order something."""
        with effects.open("a") as file:
            file.write(f"{what}\n")
        return "order 1"

    return Agent(
        "scripted/m",
        providers=[ScriptedProvider(steps)],
        tools=[order],
        store=store_string(kind, folder),
        project="durable",
        environment={},
    )


async def _do(kind: str, folder: Path, word: str, rest: list[str]) -> str:
    scripts: dict[str, list[Step]] = {"chat": [ORDER], "resume": [says("fine")]}
    steps = scripts.get(word, [])
    async with ordering_agent(kind, folder, steps) as agent:
        if word == "deliver":
            remote = await agent.remote(NAME)
            await remote.deliver(rest[0], msgspec.json.decode(rest[1]))
            return "delivered"
        async with agent.session(NAME) as session:
            result = await (session.chat("go") if word == "chat" else session.resume())
            if rest:
                os.kill(os.getpid(), signal.SIGKILL)
            return f"{result.stop_reason} {result.text}"


def main(kind: str, folder: Path) -> None:
    """Do what the lines of stdin say."""
    for line in sys.stdin:
        word, *rest = line.split()
        try:
            answer = "ok " + asyncio.run(_do(kind, folder, word, rest))
        except AgentError as error:
            answer = str(error.code)
        sys.stdout.write(answer.strip() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
