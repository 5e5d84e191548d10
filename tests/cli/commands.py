"""Runs the real command `haptera` in a process of its own, with a home of its own."""

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from haptera.cli.main import main
from tests.cli.scripted_server import ScriptedServer
from tests.forked_processes import COMMAND, ForkedProcess


@dataclass(frozen=True)
class Place:
    """A folder with a home and a project in it, and the environment that points there."""

    root: Path
    server: ScriptedServer | None = None
    variables: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Variables of the environment besides those that every command gets."""
    is_new: bool = field(default=False, kw_only=True)
    """Whether each command is a new interpreter: as users start it, and ten times as slow."""

    @property
    def project(self) -> Path:
        """The folder in which commands run."""
        folder = self.root / "project"
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a command: nothing of the machine's but the path."""
        home = self.root / "home"
        home.mkdir(exist_ok=True)
        found = {
            "PATH": os.defpath + os.pathsep + "/usr/local/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        found |= self.variables
        if self.server is not None:
            found.setdefault("ANTHROPIC_API_KEY", "sk-made-up")
            found["ANTHROPIC_BASE_URL"] = self.server.url
        return found

    def start(self, *arguments: str, program: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start the command, or another program that is it, and return while it runs."""
        return self.popen(*arguments, stdin=subprocess.DEVNULL, program=program)

    def popen(
        self, *arguments: str, stdin: int, program: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start the command with an input of any kind."""
        options: Any = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        options |= {"cwd": self.project, "env": self.environment}
        if self.is_new or program:
            command = [*program, *arguments] if program else self._argv(arguments)
            new: subprocess.Popen[bytes] = subprocess.Popen(command, **options)
            return new
        return ForkedProcess(COMMAND, *arguments, **options)

    def shell(self, line: str) -> subprocess.CompletedProcess[bytes]:
        """Run a line of a shell in which `$haptera` is the command."""
        environment = self.environment | {"haptera": shlex.join(self._argv(()))}
        return subprocess.run(
            ["/bin/bash", "-c", line],
            capture_output=True,
            cwd=self.project,
            env=environment,
            timeout=60,
            check=False,
        )

    def _argv(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "haptera.cli", *arguments]

    def run(
        self, *arguments: str, stdin: bytes | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the command to its end."""
        source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        with self.popen(*arguments, stdin=source) as process:
            try:
                out, err = process.communicate(stdin, timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def call(place: Place, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Done:
    """Run the command in this process, which is faster; its output is captured."""
    out, err = io.StringIO(), io.StringIO()
    with monkeypatch.context() as patch:
        patch.chdir(place.project)
        for name in (
            *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "HAPTERA_HOME", "NO_COLOR"),
            *(
                "HAPTERA_REQUIRE_ALL",
                "HAPTERA_WIRE",
                "HOLDFAST_WIRE",
            ),  # what the tests themselves are told
        ):
            patch.delenv(name, raising=False)
        for name, value in place.environment.items():
            patch.setenv(name, value)
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
        code = main(list(arguments))
    return Done(code, out.getvalue(), err.getvalue())
