"""Runs the real command `holdfast` in a process of its own, with a home of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cli.scripted_server import ScriptedServer


@dataclass(frozen=True)
class Place:
    """A folder with a home and a project in it, and the environment that points there."""

    root: Path
    server: ScriptedServer | None = None

    @property
    def project(self) -> Path:
        """The folder in which commands run."""
        return self.root / "project"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a command: nothing of the machine's but the path."""
        home = self.root / "home"
        home.mkdir(exist_ok=True)
        self.project.mkdir(exist_ok=True)
        found = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        if self.server is not None:
            found |= {"ANTHROPIC_API_KEY": "sk-made-up", "ANTHROPIC_BASE_URL": self.server.url}
        return found

    def run(
        self, *arguments: str, stdin: bytes | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            cwd=self.project if self.project.exists() else self.root,
            env=self.environment,
            timeout=timeout,
            check=False,
        )
