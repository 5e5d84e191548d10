"""The code of the guide to the Claude Agent and its example run, with the real Claude Code."""

import ast
import functools
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

import pytest

import haptera
from haptera import building_blocks
from tests.providers.claude_agent.loopback_server import LoopbackServer, serving
from tests.providers.claude_agent.test_real_cli import options_for

_ROOT = Path(__file__).parents[2]
_BLOCKS = re.findall(
    r"```python\n(.*?)```", (_ROOT / "docs/claude-agent.md").read_text(), re.DOTALL
)

pytestmark = pytest.mark.slow


def set_up(server: LoopbackServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents find the server of the test, and nothing of this machine."""
    options = options_for(folder, server)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(haptera, "Agent", functools.partial(haptera.Agent, **options))
    here = {name: options[name] for name in ("environment", "cwd")}
    made = functools.partial(building_blocks.make_native, **here)
    monkeypatch.setattr(building_blocks, "make_native", made)


@pytest.mark.parametrize("place", range(len(_BLOCKS)))
async def test_the_code_of_the_page_runs(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as server:
        set_up(server, tmp_path, monkeypatch)
        source = "async def _run():\n" + textwrap.indent(_BLOCKS[place], "    ")
        names: dict[str, Any] = {}
        exec(compile(ast.parse(source), "claude-agent.md", "exec"), names)  # noqa: S102 - our own page
        await names["_run"]()
    assert "Hm." in capsys.readouterr().out


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as server:
        set_up(server, tmp_path, monkeypatch)
        runpy.run_path(str(_ROOT / "examples" / "claude_agent.py"), run_name="__main__")
    assert "resumed: True, by: native" in capsys.readouterr().out
