"""Gives the project its name, haptera, in every tracked path and every tracked text.

Run once from the root of a clean clone: `python scripts/rename_project.py`. It moves what has the
old name in its path, replaces the name in its three cases, and lets ruff sort and fold the lines
whose order or length changed. What keeps the old name is told by KEPT; everything that reads what
an older version wrote is put in by hand afterwards.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = {"holdfast": "haptera", "Holdfast": "Haptera", "HOLDFAST": "HAPTERA"}
CODE = ("src", "tests", "examples", "benchmarks", "scripts")

KEPT = {
    # This script names the old name to replace it.
    "scripts/rename_project.py",
}
"""The files that stay as they are."""

KEPT_TEXTS = {
    # Transcripts of a native agent know a prompt by an id that is made of this text.
    "src/haptera/engine/native_opening.py": ['f"holdfast:{query_id}'],
}
"""What stays in a file that is changed otherwise, by the path that the file has afterwards."""


def renamed(text: str) -> str:
    """Return the text with the name replaced in its three cases."""
    for old, new in NAMES.items():
        text = text.replace(old, new)
    return text


def run(*command: str) -> str:
    """Run a program in the clone and return what it prints."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def tracked() -> list[str]:
    """Return the paths of all tracked files."""
    return [path for path in run("git", "ls-files", "-z").split("\0") if path]


def move_files() -> None:
    """Move the files that have the name in their paths, and remove the folders they leave."""
    run("git", "mv", "src/holdfast", "src/haptera")
    for path in tracked():
        if renamed(path) != path and path not in KEPT:
            (ROOT / renamed(path)).parent.mkdir(parents=True, exist_ok=True)
            run("git", "mv", path, renamed(path))


def replace_names() -> None:
    """Replace the name in the tracked files that hold text."""
    for path in tracked():
        file = ROOT / path
        if path in KEPT or file.is_symlink():
            continue
        data = file.read_bytes()
        if b"\0" in data or b"holdfast" not in data.lower():
            continue
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            continue
        kept = KEPT_TEXTS.get(path, [])
        for number, each in enumerate(kept):
            text = text.replace(each, f"\x01{number}\x01")
        text = renamed(text)
        for number, each in enumerate(kept):
            text = text.replace(f"\x01{number}\x01", each)
        file.write_bytes(text.encode("utf-8"))


def main() -> None:
    """Move, replace and format."""
    move_files()
    replace_names()
    ruff = (sys.executable, "-m", "ruff")
    run(*ruff, "check", "--fix-only", "--quiet", "--exit-zero", *CODE)
    run(*ruff, "format", "--quiet", *CODE)


if __name__ == "__main__":
    main()
