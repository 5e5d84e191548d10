"""Runs mypy (strict) and pyright over sources, and returns what they say by line."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_NOTE = re.compile(r"^(.+?):(\d+): (error|note): (.*)$", re.MULTILINE)
_REVEALED = re.compile(r'^(?:Revealed type is|Type of ".*" is) "(.*)"$', re.DOTALL)
_PREFIX = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")


class Said(NamedTuple):
    """One remark of a checker."""

    file: str
    line: int
    is_error: bool
    text: str

    @property
    def revealed(self) -> str | None:
        """The type of a `reveal_type`, without the modules of its names."""
        found = _REVEALED.match(self.text)
        return None if found is None else _PREFIX.sub("", found[1])


def run_mypy(folder: Path, files: Mapping[str, str]) -> list[Said]:
    """Check files with mypy, strictly."""
    _write(folder, files)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11"]
    options = ["--config-file", "", "--cache-dir", str(ROOT / ".mypy_cache"), "--no-error-summary"]
    done = subprocess.run(
        [*command, *options, *sorted(files)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    return [
        Said(file, int(line), kind == "error", text)
        for file, line, kind, text in _NOTE.findall(done.stdout)
    ]


def run_pyright(folder: Path, files: Mapping[str, str]) -> list[Said]:
    """Check files with basedpyright, strictly but for unused names and open matches."""
    _write(folder, files)
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "include": ["."],
        "reportMatchNotExhaustive": False,
        "reportUnusedFunction": False,
        "reportUnusedVariable": False,
        "reportUnusedExpression": False,
        "reportUnusedClass": False,
        "reportUnusedImport": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [str(Path(sys.executable).with_name("basedpyright")), "--outputjson"]
    done = subprocess.run(
        [*command, "--pythonpath", sys.executable, "--project", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [
        Said(
            Path(item["file"]).name,
            item["range"]["start"]["line"] + 1,
            item["severity"] == "error",
            item["message"],
        )
        for item in found
    ]


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


CHECKERS = {"mypy": run_mypy, "pyright": run_pyright}
