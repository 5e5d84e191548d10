"""Starts processes that use a store, and talks to them."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tests.architecture.source_tree import ROOT

PATIENCE_SECONDS = 20.0


class WorkerProcess:
    """A running worker."""

    def __init__(self, process: asyncio.subprocess.Process, *, is_traced: bool) -> None:
        self._process = process
        self._is_traced = is_traced
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
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            return (await self._process.stdout.readline()).decode().strip()

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
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.to_thread(os.waitid, os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    async def end(self) -> None:
        """Let the process end, by force if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # A worker that reads the end of its requests ends by itself, and a tracer with it.
        self._process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS if self._is_traced else 0):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.stdout.read()
        await self._process.wait()


def worker_environment() -> dict[str, str]:
    """Return the environment of a process that imports the source and the tests of this tree."""
    ours = os.environ  # noqa: TID251 - handed on to a child process, not read
    return {**ours, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}


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
    process = await asyncio.create_subprocess_exec(
        *under,
        sys.executable,
        "-m",
        program,
        kind,
        str(folder),
        session_id,
        cwd=ROOT,
        env=worker_environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    running = WorkerProcess(process, is_traced=bool(under))
    try:
        yield running
    finally:
        await running.end()
