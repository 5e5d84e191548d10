"""`haptera mcp`: servers are added to the user's file, listed, tested and removed."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.cli.commands import Done, Place, call
from tests.tools.mcp.mcp_agents import RAW

Run: TypeAlias = Callable[..., Done]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def run(place: Place, monkeypatch: pytest.MonkeyPatch) -> Run:
    return lambda *arguments: call(place, monkeypatch, *arguments)


def test_a_server_is_added_listed_tested_and_removed(run: Run) -> None:
    added = run("mcp", "add", "raw", "--", sys.executable, "-S", "-E", str(RAW))
    assert (added.code, added.err) == (0, "")
    assert "haptera mcp test raw" in added.out
    listed = run("mcp").out.splitlines()
    assert listed[1].split() == ["raw", "enabled", sys.executable, "-S", "-E", str(RAW)]
    tested = run("mcp", "test", "raw")
    assert tested.code == 0
    first, *tools = tested.out.splitlines()
    assert first.endswith(f": {len(tools)} tools")
    assert tools
    status = json.loads(run("mcp", "test", "raw", "--format", "json").out)
    assert [f"  {name}" for name in status["tools"]] == tools
    assert run("mcp", "remove", "raw").code == 2
    assert run("mcp", "remove", "raw", "--yes").out == "removed\n"
    assert "haptera mcp add" in run("mcp", "list").err


def test_urls_variables_and_tokens_are_written_without_their_secrets(run: Run) -> None:
    run("mcp", "add", "docs", "https://docs.example/mcp", "--token-from", "DOCS_TOKEN")
    run("mcp", "add", "fs", "--env", "A=b=c", "--env-from", "KEY", "--env-from", "X=Y", "server")
    found = json.loads(run("mcp", "list", "--format", "json").out)
    assert found["docs"] == {"url": "https://docs.example/mcp", "token": {"env": "DOCS_TOKEN"}}
    assert found["fs"] == {
        "command": "server",
        "env": {"A": "b=c", "KEY": {"env": "KEY"}, "X": {"env": "Y"}},
    }


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("add", "x", "https://a.example", "more"), 2, "a URL takes no arguments"),
        (("add", "x", "server", "--env", "A"), 2, "NAME=VALUE"),
        (("add", "x"), 2, "COMMAND"),
        (("remove", "x", "--yes"), 2, "no MCP server 'x'"),
        (("test", "x"), 2, "'x'"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Run, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = run("mcp", *arguments)
    assert done.code == code
    assert said in done.err


def test_a_server_that_does_not_start_fails_the_test_with_its_words(run: Run) -> None:
    run("mcp", "add", "bad", "--", sys.executable, "-c", "import sys; sys.exit('no licence')")
    done = run("mcp", "test", "bad")
    assert done.code == 1
    assert "no licence" in done.err
