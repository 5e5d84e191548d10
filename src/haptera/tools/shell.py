"""The shell tool: a command in a sandbox, with a time limit, ended with its query."""

import codecs
import os
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from haptera.kernel.blocks.tool_registry.tool import AnyTool, tool
from haptera.ports.tools import ToolContext
from haptera.tools.command_runner import CommandCall, CommandRunner, Finished
from haptera.tools.output import Outputs
from haptera.tools.sandbox.home_secrets import home_folder

_BASH = "/bin/bash"
_DEFAULT_SECONDS = 120.0
_MOST_SECONDS = 3600.0
_MOST_KEPT = 8 << 20
_MOST_WRITTEN = 64 << 20
"""Bytes of output after which a command is ended."""
_MOST_STREAMED = 1 << 20
"""Bytes of output that are shown while they come; what is kept is in the result."""
_FIRST_SIGNAL = 128

_VARIABLES = frozenset({
    "COLORTERM", "COLUMNS", "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES",
    "LINES", "LOGNAME", "PATH", "SHELL", "TERM", "TZ", "USER", "VIRTUAL_ENV",
})  # fmt: skip
"""The variables that commands get; no other is handed on, whatever its name."""
_DEFAULTS = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}

Seconds = Annotated[float, Meta(gt=0, le=_MOST_SECONDS)]


def choose_variables(environment: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that commands get: those on the list, and those given one by one."""
    chosen = {name: value for name, value in environment.items() if name in _VARIABLES}
    return {**_DEFAULTS, "HOME": home_folder(), **chosen, **more}


class CommandVariables(msgspec.Struct, frozen=True):
    """Where the variables of commands come from."""

    environment: Mapping[str, str] | None = None
    """What those on the list are picked from; None: the environment of the agent that calls."""
    more: Mapping[str, str] = {}

    def of(self, context: ToolContext) -> dict[str, str]:
        """Return what the commands of a call get."""
        environment = self.environment
        if environment is None:
            environment = context.surroundings.environment
        return choose_variables({} if environment is None else environment, self.more)


def shell_tool(runner: CommandRunner, outputs: Outputs, variables: CommandVariables) -> AnyTool:
    """Make the tool."""

    @tool(approval="ask", effect="external")
    async def shell(
        context: ToolContext,
        command: str | list[str],
        *,
        folder: str = ".",
        timeout: Seconds = _DEFAULT_SECONDS,  # noqa: ASYNC109 - the model's, for the command
    ) -> str:
        """Run a command and return what it writes and its exit status. It has no standard input.

        Args:
            command: A command for the shell, or a program and its arguments, which no shell sees.
            folder: Where to run it, from the root folder.
            timeout: Seconds after which it is ended.

        """
        argv = command_words(command)
        if not argv or any("\0" in word for word in argv):
            raise ValueError("the command is empty or holds a NUL character")
        written = _Written(context)
        invocation = CommandCall(
            argv=argv,
            folder=folder,
            timeout=timeout,
            environment=variables.of(context),
            may_run_unconfined=context.surroundings.may_run_unconfined,
        )
        finished = await runner.run(invocation, written.take)
        return await outputs.shown(context, written.text() + _told(finished, written, timeout))

    return shell


def command_words(command: str | list[str]) -> tuple[str, ...]:
    """Return the program and the words that are started for a command."""
    if isinstance(command, list):
        return tuple(command)
    # Neither shell reads a file of the user's before the command.
    has_bash = os.path.exists(_BASH)
    shell = (_BASH, "--noprofile", "--norc", "-c") if has_bash else ("/bin/sh", "-c")
    return (*shell, command)


class _Written:
    """What a command has written so far: shown as it comes, kept up to a bound."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        # A piece of output may end inside a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = bytearray()
        self.size = 0

    def take(self, piece: bytes) -> bool:
        """Take a piece of output; False when there is too much."""
        if self.size < _MOST_STREAMED and (text := self._decoder.decode(piece)):
            self._context.progress({"output": text})
        self.size += len(piece)
        self._kept += piece[: _MOST_KEPT - len(self._kept)]
        return self.size <= _MOST_WRITTEN

    def text(self) -> str:
        """Return what was kept."""
        text = self._kept.decode("utf-8", "replace")
        if self.size > len(self._kept):
            text += f"\n[{self.size - len(self._kept)} more bytes were not kept]"
        return text if not text or text.endswith("\n") else f"{text}\n"


def _told(finished: Finished, written: _Written, timeout: float) -> str:
    """Say how a command ended."""
    ending = finished.ending
    if finished.timed_out:
        return f"[ended after {timeout:g} s: it took too long]"
    if written.size > _MOST_WRITTEN:
        return f"[ended: it wrote more than {_MOST_WRITTEN >> 20} MiB]"
    if ending.failure is not None:
        return f"[not started: {ending.failure}]"
    code = ending.code or 0
    if code > _FIRST_SIGNAL:
        return f"[exit status {code}: ended by signal {code - _FIRST_SIGNAL}]"
    return f"[exit status {code}]"
