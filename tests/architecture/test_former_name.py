"""The project's former name is where what was written under it is read or told of, and no more."""

import subprocess

import pytest

from tests.architecture.source_tree import ROOT

FORMER = b"holdfast"
READERS = {
    "src/haptera/tools/tree_walk.py",
    "src/haptera/model/own_name.py",
}
TOLD = {
    "CHANGELOG.md",
    "docs/built-in-tools.md",
    "docs/configuration.md",
    "docs/decisions/0052-what-the-name-is.md",
    "docs/export-and-import.md",
    "docs/options.md",
}
TESTS = {
    "tests/agent/files/test_file_snapshots.py",
    "tests/architecture/test_former_name.py",
    "tests/architecture/test_wire_material.py",
    "tests/cli/commands.py",
    "tests/fixtures_wire.py",
    "tests/old_logs/exported-by-0.1.archive",
    "tests/old_logs/recorded-by-0.1.jsonl",
    "tests/old_logs/test_former_name.py",
    "tests/providers/claude_agent/test_messages.py",
    "tests/providers/claude_agent/test_real_cli.py",
    "tests/tools/escapes/of_files.py",
    "tests/tools/test_finding_tools.py",
    "tests/tools/test_sandbox.py",
}


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Return the paths of the files that belong to the project."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True)
    return [path for path in done.stdout.decode().split("\0") if (ROOT / path).is_file()]


def test_no_path_has_the_former_name(tracked: list[str]) -> None:
    assert [path for path in tracked if FORMER in path.lower().encode()] == []


def test_only_these_files_have_the_former_name_in_them(tracked: list[str]) -> None:
    found = {path for path in tracked if FORMER in (ROOT / path).read_bytes().lower()}
    assert found == READERS | TOLD | TESTS
