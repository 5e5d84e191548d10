"""Starts processes that use a store, and talks to them."""

import asyncio
import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.architecture.source_tree import ROOT
from tests.forked_processes import ForkedProcess
from tests.stores.durable_kinds import durable_kind

TIME_LIMIT_SECONDS = 20.0


NEW_INTERPRETER = ("env",)
"""Starts a worker as a new interpreter: the program under which it runs does nothing else."""


class WorkerProcess:
    """A running worker."""

    def __init__(
        self, process: subprocess.Popen[bytes], replies: asyncio.StreamReader, *, is_forked: bool
    ) -> None:
        self._process = process
        self._replies = replies
        self._is_forked = is_forked
        self.pid = process.pid

    async def ask(self, *words: object) -> str:
        """Ask for something and return the answer."""
        self.send(*words)
        return await self.reply()

    async def must(self, *words: object) -> str:
        """Ask for something that has to work."""
        answered = await self.ask(*words)
        assert answered.startswith("ok "), f"{words}: {answered}"
        return answered.removeprefix("ok ")

    def send(self, *words: object) -> None:
        """Ask without waiting for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")

    async def reply(self) -> str:
        """Return the next answer."""
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            return (await self._replies.readline()).decode().strip()

    async def until(self, beginning: str) -> str:
        """Return the rest of the first line that begins so; others are passed over."""
        while True:
            line = await self.reply()
            assert line, f"the worker ended before it said {beginning!r}"
            if line.startswith(beginning):
                return line.removeprefix(beginning).strip()

    def signal(self, number: int) -> None:
        """Send a signal to the worker itself."""
        os.kill(self.pid, number)

    async def stopped(self) -> None:
        """Return once the whole process stands still."""
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            await asyncio.to_thread(os.waitid, os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    async def end(self) -> None:
        """Let the process end, by force if it does not."""
        assert self._process.stdin is not None
        # A worker that reads the end of its requests ends by itself, and a tracer with it.
        self._process.stdin.close()
        if self._is_forked:
            self._process.kill()
        try:
            await asyncio.to_thread(self._process.wait, TIME_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        await self._replies.read()


def worker_environment() -> dict[str, str]:
    """Return the environment of a process that imports the source and the tests of this tree."""
    ours = os.environ  # noqa: TID251 - handed on to a child process, not read
    return {**ours, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


@functools.cache
def command_without_other_writes(module: str) -> tuple[str, ...]:
    """Return the command that runs a module whose writes are counted or looked at.

    It writes no bytecode itself. A process before it does, so that it need not compile either.
    """
    imports = [sys.executable, "-c", f"import {module}"]
    subprocess.run(imports, cwd=ROOT, env=worker_environment(), check=True)
    without = ("env", "-C", str(ROOT), "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
    return (*without, sys.executable, "-m", module)


def _start(command: Sequence[str], under: Sequence[str]) -> subprocess.Popen[bytes]:
    options: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    options |= {"cwd": ROOT, "env": worker_environment()}
    if not under:
        return ForkedProcess(*command, **options)
    new: subprocess.Popen[bytes] = subprocess.Popen(
        [*under, sys.executable, "-m", *command], **options
    )
    return new


@contextlib.asynccontextmanager
async def worker(
    kind: str,
    folder: Path,
    session_id: str,
    *,
    under: Sequence[str] = (),
    program: str = "tests.stores.worker_process",
) -> AsyncIterator[WorkerProcess]:
    """Start a worker on one session of a store, perhaps under another program."""
    # An unknown kind is refused here; of a worker that refuses it, only its end would be seen.
    durable_kind(kind.rpartition(" ")[2])
    process = _start((program, kind, str(folder), session_id), under)
    replies = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(replies)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, process.stdout)
    running = WorkerProcess(process, replies, is_forked=not under)
    try:
        yield running
    finally:
        await running.end()
