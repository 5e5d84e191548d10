"""Child processes: how one is started in a group of its own, read, written to, and ended.

`start_child` starts one for a thread; a `ChildProcess` belongs to an event loop. What a program of
ours does on its own side, such as ending with its parent, is in `process_tree`.
"""

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Self, TypeAlias

import msgspec

from haptera.system.owned_tasks import OwnedTasks

Stream: TypeAlias = int | IO[bytes]
"""PIPE, DEVNULL, STDOUT, a descriptor or a file."""

_PIECE = 1 << 16
_MOST_KEPT = 16_000
"""Characters of standard error."""
_TERMINATE_SECONDS = 2.0
"""How long a group that was told to end may take."""
_KILL_SECONDS = 5.0
_TAIL_SECONDS = 1.0
"""How long the rest of standard error is waited for: another process may hold it open."""


class ProcessGroups(msgspec.Struct, frozen=True, kw_only=True):
    """How an operating system keeps a child together with everything that it starts.

    A child that is started with the two options leads a group, which no key of a terminal reaches.
    `terminate` asks every process of the group of a pid to end, also one that is stopped; `kill`
    ends them. Neither waits, and neither fails for a group that is gone.
    """

    terminate: Callable[[int], None]
    kill: Callable[[int], None]
    has_session: bool = False
    creation_flags: int = 0


def _signal_group(numbers: Sequence[signal.Signals], pid: int) -> None:
    for number in numbers:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


POSIX_GROUPS = ProcessGroups(
    # A stopped process receives SIGTERM only when it continues.
    terminate=partial(_signal_group, (signal.SIGTERM, signal.SIGCONT)),
    kill=partial(_signal_group, (signal.SIGKILL,)),
    has_session=True,
)
GROUPS = POSIX_GROUPS
"""Those of this system."""


def start_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream,
    stderr: Stream,
    descriptors: tuple[int, ...] = (),
) -> "subprocess.Popen[bytes]":
    """Start a program of ours in a group of its own, in no folder of the user's.

    `environment` is all of it: nothing is inherited. Neither are descriptors, but the ones named.
    """
    return subprocess.Popen(  # noqa: S603 - the callers run programs of this package
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=descriptors,
        env=dict(environment),
        cwd="/",
        start_new_session=GROUPS.has_session,
        creationflags=GROUPS.creation_flags,
    )


class KeptTail:
    """The end of a text that comes in pieces."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, text: str) -> None:
        """Keep a text, and forget the oldest beyond the bound."""
        self._text = (self._text + text)[-_MOST_KEPT:]

    def __str__(self) -> str:
        return self._text

    def last_lines(self, count: int) -> str:
        """Return the last lines that are not empty."""
        return "\n".join([line for line in self._text.splitlines() if line.strip()][-count:])


class LineTooLongError(Exception):
    """A program wrote a line that is longer than its reader takes."""


class ChildProcess:
    """A program with pipes, in a group of its own. Made by `start`, in the loop that uses it.

    Owns the process and its pipes. What it writes to standard error is read all the time, so that a
    full pipe does not stop it. It runs until `stop` or `kill` is called.
    """

    def __init__(self, process: asyncio.subprocess.Process, tail: KeptTail) -> None:
        self._process = process
        self._tasks = OwnedTasks()
        self._writing = asyncio.Lock()
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []
        self._held = 0
        self._errors = self._tasks.start(self._keep_errors(tail), name="haptera-child-stderr")

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None,
        cwd: str | Path | None = None,
        stdin: Stream = subprocess.PIPE,
        stdout: Stream = subprocess.PIPE,
        stderr: Stream = subprocess.PIPE,
        tail: KeptTail | None = None,
    ) -> Self:
        """Start a program; `tail` keeps its standard error.

        `environment` is all that it gets; None gives it that of this process, for programs that the
        user has set up there.

        Raises:
            OSError: it cannot be started.

        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            cwd=cwd,
            start_new_session=GROUPS.has_session,
            creationflags=GROUPS.creation_flags,
        )
        return cls(process, tail or KeptTail())

    @property
    def exit_status(self) -> int | None:
        """How the program ended; None while it runs."""
        return self._process.returncode

    async def _keep_errors(self, tail: KeptTail) -> None:
        stream = self._process.stderr
        while stream is not None and (piece := await stream.read(_PIECE)):
            tail.add(piece.decode("utf-8", "replace"))

    async def read_line(self, *, longest: int) -> bytes | None:
        """Return the next line without its end; None when the program has closed its output.

        What it wrote after the last line end is none: it was cut off.

        Raises:
            LineTooLongError: when more than `longest` bytes came without a line end.

        """
        while not self._lines:
            if not (piece := await self._read()):
                return None
            *ended, rest = piece.split(b"\n")
            if ended:
                # Joined once: adding to one line would copy a long one again for each piece.
                self._lines.extend([b"".join([*self._begun, ended[0]]), *ended[1:]])
                self._begun, self._held = [], 0
            self._begun.append(rest)
            self._held += len(rest)
            if self._held > longest:
                raise LineTooLongError
        return self._lines.popleft()

    async def _read(self) -> bytes:
        stream = self._process.stdout
        return b"" if stream is None else await stream.read(_PIECE)

    async def write(self, data: bytes) -> None:
        """Hand over input, one writer after the other.

        Raises:
            ConnectionError: the program has closed its input, or `end_input` has.

        """
        async with self._writing:
            stdin = self._process.stdin
            if stdin is None or stdin.is_closing():
                raise BrokenPipeError
            stdin.write(data)
            await stdin.drain()

    def end_input(self) -> None:
        """Close the input, which asks a program that reads to end."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def wait(self) -> int:
        """Return the exit status once the program has ended, and its output was read."""
        return await self._process.wait()

    async def stop(self, *, grace: float, drains: bool = False) -> None:
        """End the program: by itself for `grace` seconds, then told to, then killed.

        With `drains`, what it still writes is read and thrown away; no one else may read then.
        """
        self.end_input()
        if drains:
            self._tasks.start(self._drain(), name="haptera-child-drain")
        try:
            if not await self._ended_within(grace):
                GROUPS.terminate(self._process.pid)
                await self._ended_within(_TERMINATE_SECONDS)
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End the program with its whole group if it still runs, and let go of its pipes."""
        try:
            if self.exit_status is None:
                GROUPS.kill(self._process.pid)
                await self._ended_within(_KILL_SECONDS)
            await asyncio.wait({self._errors}, timeout=_TAIL_SECONDS)
        finally:
            await self._tasks.cancel(within=None)
            # Closes the pipes also when a process that got away still holds their other ends.
            self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no other way

    async def _drain(self) -> None:
        while await self._read():
            pass

    async def _ended_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
                return True
        return False
