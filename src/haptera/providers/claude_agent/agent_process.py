"""AgentProcess: one process of the agent, its pipes and its end; not what goes through them."""

import os
from collections.abc import Mapping, Sequence

from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    ProviderError,
    SessionError,
)
from haptera.model.vendors import CLAUDE_AGENT
from haptera.system.child_processes import ChildProcess, KeptTail, LineTooLongError
from haptera.system.isolated_python import isolated_python

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of one message; a longer one is PROTOCOL."""
_SUPERVISOR = "haptera.system.process_tree"
_STDERR_LINES = 20
_CONFIGURATION_FAULTS = (
    *("error: unknown option", "error: option '", "error: invalid", "invalid mcp configuration"),
    *("settings file not found", "invalid settings", "error processing settings"),
)
"""What the CLI says of a command line or of settings that it cannot use."""
_UNKNOWN_SESSION = "no conversation found"
"""What the CLI says of a session that it does not have."""


class AgentProcess:
    """Starts the agent under a supervisor, which ends all that it started, and reads its lines."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], cwd: str) -> None:
        self._command = command
        self._environment = environment
        self._cwd = cwd
        self._process: ChildProcess | None = None
        self._tail = KeptTail()

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.exit_status is None

    @property
    def said(self) -> str:
        """The last lines that the process printed for people."""
        return self._tail.last_lines(_STDERR_LINES)

    async def start(self) -> None:
        """Start the process.

        Raises:
            ConfigError: CONFIG_INVALID when the program or the working folder is not there.

        """
        if not os.access(self._cwd, os.X_OK):
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"there is no folder {self._cwd}")
        # The supervisor starts in any case, and its end would look like a failure of the agent.
        program = self._command[0]
        if not os.access(program, os.X_OK):
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"{program} is not an executable program; set claude_agent.executable "
                "or HAPTERA_CLAUDE_EXECUTABLE",
                provider=CLAUDE_AGENT,
            )
        self._process = await ChildProcess.start(
            isolated_python(_SUPERVISOR, str(os.getpid()), *self._command),
            environment=self._environment,
            cwd=self._cwd,
            tail=self._tail,
        )

    async def read_line(self) -> bytes | None:
        """Return the next line without its end; None when the process has closed its output.

        Raises:
            ProviderError: PROTOCOL when a line is too long.

        """
        try:
            return await self._started().read_line(longest=LONGEST_LINE)
        except LineTooLongError as error:
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the agent printed a line of more than {LONGEST_LINE} bytes",
                provider=CLAUDE_AGENT,
            ) from error

    async def write(self, data: bytes) -> None:
        """Hand over input, one writer after the other.

        Raises:
            ProviderError: SERVER_ERROR when the process has ended.

        """
        try:
            await self._started().write(data)
        except ConnectionError as error:
            raise self.ended_error() from error

    def end_input(self) -> None:
        """Close the input; the agent finishes what it is at, and ends."""
        if self._process is not None:
            self._process.end_input()

    async def wait(self) -> int:
        """Return the exit status when the process has ended."""
        return await self._started().wait()

    async def stop(self, *, grace: float) -> None:
        """End the process: by itself for `grace` seconds, then told to, then killed."""
        if self._process is not None:
            await self._process.stop(grace=grace)

    def ended_error(self) -> AgentError:
        """Make the error of a process that is gone."""
        code = None if self._process is None else self._process.exit_status
        last = self._tail.last_lines(1)
        line = f": {last}" if last else ""
        printed = self.said.lower()
        is_unknown = _UNKNOWN_SESSION in printed
        if not is_unknown and any(words in printed for words in _CONFIGURATION_FAULTS):
            return ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the agent refused its settings: {self.said}",
                provider=CLAUDE_AGENT,
            )
        return ProviderError(
            # BAD_REQUEST makes `ClaudeAgent.open` restore the transcript from the store.
            ErrorCode.BAD_REQUEST if is_unknown else ErrorCode.SERVER_ERROR,
            f"the agent's process has ended{'' if code is None else f' with status {code}'}{line}",
            provider=CLAUDE_AGENT,
        )

    def _started(self) -> ChildProcess:
        if self._process is None:
            raise SessionError(ErrorCode.CLOSED, "the agent's process was not started")
        return self._process
