"""Builds wheels with the standard library, installs them into folders, and runs programs on them.

A program is a new interpreter whose search path has the folder: what is installed must not be seen
by the process of the tests, whose own environment has no plugins.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import haptera

KELP = Path(__file__).with_name("kelp.py")
POINTS: Mapping[str, Mapping[str, str]] = {
    "haptera.providers": {"echo": "kelp:Echo"},
    "haptera.native_agents": {"diver": "kelp:Diver"},
    "haptera.stores": {"tank": "kelp:open_store"},
    "haptera.formats": {"plain": "kelp:plain"},
    "haptera.tools": {"depth": "kelp:depth"},
}
SOURCES = Path(haptera.__file__).parents[1]


def build(
    folder: Path,
    *,
    distribution: str = "kelp",
    points: Mapping[str, Mapping[str, str]] = POINTS,
    modules: Mapping[str, str] | None = None,
) -> Path:
    """Make a wheel of modules, by default of `kelp`; returns its path."""
    if modules is None:
        modules = {"kelp.py": KELP.read_text(encoding="utf-8")}
    about = f"{distribution}-1.0.dist-info"
    listed = "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in named.items())
        for group, named in points.items()
    )
    files = dict(modules) | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": listed,
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in files.items())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{distribution}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in (files | {f"{about}/RECORD": record}).items():
            wheel.writestr(name, text)
    return path


def _digest(text: str) -> str:
    found = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode()


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel of pure Python, as an installer does: its files are unpacked."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    return folder


class Machine:
    """A home, a working folder, and a folder that packages are installed into."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.cwd, self.site = (root / name for name in ("home", "work", "site"))
        for folder in (self.home, self.cwd, self.site):
            folder.mkdir()
        self.variables: dict[str, str] = {}
        self.path = [self.site]

    def install(self, folder: Path | None = None, **wheel: Any) -> None:
        """Build a wheel and install it, by default into the folder for packages."""
        install(build(self.root / "wheels", **wheel), folder or self.site)

    def configure(self, text: str) -> None:
        """Write the user's configuration file."""
        folder = self.home / ".config/haptera"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(textwrap.dedent(text), encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """Return the variables of a program: nothing of the machine's but the path."""
        return {
            "PATH": os.defpath,
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join(map(str, [*self.path, SOURCES])),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.variables,
        }

    def python(self, program: str, *more: str) -> Any:
        """Run a program that prints one JSON value last; returns it."""
        done = self.run("-c", textwrap.dedent(program), *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def haptera(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the command."""
        return self.run("-m", "haptera.cli", *arguments)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run Python without the working folder on its search path."""
        return subprocess.run(
            [sys.executable, "-P", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.cwd,
            env=self.environment(),
        )
