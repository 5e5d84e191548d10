"""The README's code runs as it stands, against a scripted model."""

import ast
import functools
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import ScriptedProvider, calls, says

_ROOT = Path(__file__).parents[2]
_BLOCKS = re.findall(r"```python\n(.*?)```", (_ROOT / "README.md").read_text(), re.DOTALL)

_SCRIPTS: list[list[Any]] = [
    [says("Paris.")],
    [says("Consistency, ", "availability"), says("Partitions")],
    [calls(("temperature", {"city": "Lisbon"})), says("It is 21.5 degrees.")],
    [says("Hello Ana."), says("Ana."), says("You are Ana.")],
    [calls(("delete_file", {"path": "notes.txt"})), says("It is deleted.")],
    [says("Roses are red")],
]


def test_every_block_of_code_has_a_script() -> None:
    assert len(_BLOCKS) == len(_SCRIPTS)


@pytest.mark.parametrize("place", range(len(_BLOCKS)))
async def test_the_readme_runs(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ScriptedProvider(_SCRIPTS[place], provider="anthropic")
    scripted = functools.partial(holdfast.Agent, providers=[provider])
    monkeypatch.setattr(holdfast, "Agent", scripted)
    source = "async def _run():\n" + textwrap.indent(_BLOCKS[place], "    ")
    names: dict[str, Any] = {}
    exec(compile(ast.parse(source), "README.md", "exec"), names)  # noqa: S102 - our own README
    await names["_run"]()
    provider.check()


def test_the_readme_names_only_files_that_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (_ROOT / "README.md").read_text())
    assert [link for link in links if not (_ROOT / link).exists()] == []
