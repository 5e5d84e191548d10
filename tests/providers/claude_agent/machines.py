"""Machines with a HOME each and one store, on which a native agent runs in processes of its own."""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from haptera import Agent, tool
from haptera.model.errors import ErrorCode, SessionError

PROGRAM = Path(__file__).with_name("keeping_child.py")
MODEL = "claude-agent/claude-sonnet-4-6"
STEPS = (
    *("got", "kept", "began", "mirrored", "asked", "ran", "told"),
    *("said", "wrote", "stored", "ended"),
)
_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload([__name__, "claude_agent_sdk", "haptera.stores.jsonl.store"])


class Machine:
    """One machine: a HOME, a working folder and a program; the store is shared."""

    def __init__(self, folder: Path, store: Path, *, url: str = "") -> None:
        self.folder = folder
        self.store = store
        self.url = url
        """Where the models are of the CLI that comes with claude-agent-sdk; it runs then."""
        for each in ("home", "work"):
            (folder / each).mkdir(parents=True)
        executable = folder / "claude"
        executable.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -I -S "{PROGRAM}" "{folder}" "$@"\n'
        )
        executable.chmod(0o755)

    @classmethod
    def there(cls, folder: Path, store: Path | None = None, url: str = "") -> "Machine":
        """Return a machine that is there already, for another process."""
        machine = cls.__new__(cls)
        machine.folder, machine.store, machine.url = folder, store or folder / "store", url
        return machine

    def agent(self, **options: Any) -> Agent:
        """An agent that runs here."""
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "CLAUDE_CONFIG_DIR": str(self.folder / "home" / ".claude"),
            "ANTHROPIC_API_KEY": "made-up-key",
            "ANTHROPIC_BASE_URL": self.url or "http://127.0.0.1:9",
        }
        paid = self.store.with_name("paid")

        @tool
        def pay(mark: str) -> str:
            """Pay once."""
            with paid.open("a") as file:
                file.write(mark + "\n")
            if mark == "#dies":
                os.kill(os.getpid(), signal.SIGKILL)
            return f"paid {mark}"

        named = {} if self.url else {"executable": str(self.folder / "claude")}
        own: dict[str, Any] = {"environment": environment, "claude_agent": named, "project": "p"}
        own |= {"cwd": self.folder / "work", "store": f"jsonl:{self.store}", "tools": [pay]}
        return Agent(MODEL, **{**own, **options})

    async def say(self, *prompts: str) -> list[Any]:
        """Say something in a process that ends well."""
        async with self.agent() as agent, agent.session("ana") as session:
            return [await session.chat(prompt) for prompt in prompts]

    async def carry_on(self) -> Any:
        """Carry on what was cut off; None when everything has ended."""
        async with self.agent() as agent, agent.session("ana") as session:
            try:
                return await session.resume()
            except SessionError as error:
                assert error.code is ErrorCode.NOTHING_TO_SEND
                return None

    def die_at(self, step: str, prompts: Sequence[str]) -> None:
        """Say something, or carry on without a prompt, in a process that is killed at a step."""
        (self.folder / "die").write_text(step)
        process = self.started(*prompts)
        process.join(30)
        assert process.exitcode == -9, (step, process.exitcode)

    def started(self, *prompts: str) -> Any:
        """Start a process that says something, or carries on without a prompt."""
        arguments = (str(self.folder), str(self.store), self.url, prompts)
        process = _FORK.Process(target=_run, args=arguments)
        process.start()
        return process

    @property
    def transcripts(self) -> list[Path]:
        """The files of the CLI."""
        return sorted((self.folder / "home").rglob("*.jsonl"))


def _run(folder: str, store: str, url: str, prompts: Sequence[str]) -> None:
    machine = Machine.there(Path(folder), Path(store), url)
    (machine.folder / "machine").write_text(str(os.getpid()))
    asyncio.run(_speak(machine, prompts))


async def _speak(machine: Machine, prompts: Sequence[str]) -> None:
    if prompts:
        await machine.say(*prompts)
    else:
        await machine.carry_on()
