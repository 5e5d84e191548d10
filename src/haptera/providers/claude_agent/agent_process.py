"""AgentProcess: one process of the agent, its pipes and its end; not what goes through them."""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    ProviderError,
    SessionError,
)
from haptera.model.vendors import CLAUDE_AGENT
from haptera.providers.claude_agent import supervisor
from haptera.system.owned_tasks import OwnedTasks

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of one message; a longer one is PROTOCOL."""
_TERMINATE_SECONDS = 2.0
"""How long a process that was told to end may take."""
_KILL_SECONDS = 5.0
_STDERR_LINES = 20
_CONFIGURATION_FAULTS = (
    *("error: unknown option", "error: option '", "error: invalid", "invalid mcp configuration"),
    *("settings file not found", "invalid settings", "error processing settings"),
)
"""What the CLI says of a command line or of settings that it cannot use."""
_UNKNOWN_SESSION = "no conversation found"
"""What the CLI says of a session that it does not have."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How a process of the agent is started."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    """All of it: nothing is inherited."""
    cwd: str

    def __repr__(self) -> str:
        return f"Launch({self.command[0]!r})"  # the rest may hold a key


class AgentProcess:
    """Starts the agent under a supervisor, reads its lines and ends it within a bound."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._process: asyncio.subprocess.Process | None = None
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._tasks = OwnedTasks()
        self._write_lock = asyncio.Lock()

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def said(self) -> str:
        """The last lines that the process printed for people."""
        return "\n".join(self._stderr)

    async def start(self) -> None:
        """Start the process.

        Raises:
            ConfigError: CONFIG_INVALID when the program or the working folder is not there.

        """
        launch = self._launch
        if not os.access(launch.cwd, os.X_OK):
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"there is no folder {launch.cwd}")
        # The supervisor starts in any case, and its end would look like a failure of the agent.
        if not os.access(launch.command[0], os.X_OK):
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"{launch.command[0]} is not an executable program; set claude_agent.executable "
                "or HAPTERA_CLAUDE_EXECUTABLE",
                provider=CLAUDE_AGENT,
            )
        # Isolated and without site packages: it starts fast, and imports nothing that the
        # environment or the working folder offers.
        supervised = [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid())]
        starting = asyncio.create_subprocess_exec(
            *supervised,
            *launch.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(launch.environment),
            cwd=launch.cwd,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
        self._process = process = await starting
        self._tasks.start(self._read_stderr(process.stderr), name="haptera-agent-stderr")

    async def _read_stderr(self, stream: asyncio.StreamReader | None) -> None:
        # Read all the time: a full pipe would block the process.
        while stream is not None and (piece := await stream.read(4096)):
            self._stderr.extend(piece.decode("utf-8", "replace").splitlines())

    async def read_line(self) -> bytes:
        """Return the next line without its end; nothing when the process has closed its output.

        Raises:
            ProviderError: PROTOCOL when a line is too long.

        """
        stream = self._pipes().stdout
        if stream is None:
            return b""
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as cut:
            return cut.partial
        except asyncio.LimitOverrunError as error:
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the agent printed a line of more than {LONGEST_LINE} bytes",
                provider=CLAUDE_AGENT,
            ) from error
        return line

    async def write(self, data: bytes) -> None:
        """Hand over input, one writer after the other.

        Raises:
            ProviderError: SERVER_ERROR when the process has ended.

        """
        async with self._write_lock:
            stdin = self._pipes().stdin
            if stdin is None or stdin.is_closing():
                raise self.ended_error()
            try:
                stdin.write(data)
                await stdin.drain()
            except (BrokenPipeError, ConnectionResetError) as error:
                raise self.ended_error() from error

    def end_input(self) -> None:
        """Close the input; the agent finishes what it is at, and ends."""
        stdin = None if self._process is None else self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.close()

    async def wait(self) -> int:
        """Return the exit status when the process has ended."""
        return await self._pipes().wait()

    async def stop(self, *, grace: float) -> None:
        """End the process: by itself for `grace` seconds, then told to, then killed."""
        process = self._process
        if process is None:
            return
        self.end_input()
        try:
            if not await self._ended_within(grace):
                with suppress(ProcessLookupError):
                    process.terminate()  # the supervisor kills everything below it
                if not await self._ended_within(_TERMINATE_SECONDS):
                    self._kill_group(process.pid)
                    await self._ended_within(_KILL_SECONDS)
        except asyncio.CancelledError:
            self._kill_group(process.pid)
            raise
        finally:
            await self._close_pipes(process)

    async def _ended_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._pipes().wait()
        except TimeoutError:
            return False
        return True

    def _kill_group(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    async def _close_pipes(self, process: asyncio.subprocess.Process) -> None:
        await self._tasks.cancel(within=None)
        # Closes the pipes also when a process that got away still holds their other ends.
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no other way

    def ended_error(self) -> AgentError:
        """Make the error of a process that is gone."""
        code = None if self._process is None else self._process.returncode
        told = f": {self._stderr[-1]}" if self._stderr else ""
        said = self.said.lower()
        is_unknown = _UNKNOWN_SESSION in said
        if not is_unknown and any(words in said for words in _CONFIGURATION_FAULTS):
            return ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the agent refused its settings: {self.said}",
                provider=CLAUDE_AGENT,
            )
        return ProviderError(
            # BAD_REQUEST makes `ClaudeAgent.open` restore the transcript from the store.
            ErrorCode.BAD_REQUEST if is_unknown else ErrorCode.SERVER_ERROR,
            f"the agent's process has ended{'' if code is None else f' with status {code}'}{told}",
            provider=CLAUDE_AGENT,
        )

    def _pipes(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise SessionError(ErrorCode.CLOSED, "the agent's process was not started")
        return self._process
