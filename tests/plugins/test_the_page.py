"""The page about plugins: its example works, and its table has every group."""

import re
import tomllib
from pathlib import Path

import pytest

from haptera.access.plugins import PLUGIN_KINDS, group_of
from tests.plugins.wheels import POINTS, Machine

PAGE = (Path(__file__).parents[2] / "docs/plugins.md").read_text(encoding="utf-8")


def test_the_table_has_every_group() -> None:
    groups = re.findall(r"^\| `(haptera\.\w+)` \|", PAGE, re.MULTILINE)
    assert groups == [group_of(kind) for kind in PLUGIN_KINDS] == list(POINTS)


@pytest.mark.slow
def test_the_example_works(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (module, program) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (project, configuration) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    project = tomllib.loads(project)["project"]
    machine.install(
        distribution=project["name"].replace("-", "_"),
        modules={"tide_tables.py": module},
        points=project["entry-points"],
    )
    machine.install()  # for its model
    machine.configure(configuration.replace("[defaults]", '[defaults]\nmodel = "echo/any"'))
    body = program.replace('"anthropic/claude-sonnet-5"', '"echo/any"')
    said = machine.run(
        "-c", f"import asyncio\nasync def main():\n{_indented(body)}\nasyncio.run(main())"
    )
    assert (said.returncode, said.stdout) == (0, "Salty.\n"), said.stderr
    named = """
import json
from haptera import sync
with sync.Agent() as agent:
    print(json.dumps([tool.description for tool in agent.tools]))
"""
    assert machine.python(named) == ["Return the time of the next high water in a harbour."]


def _indented(body: str) -> str:
    return "".join(f"    {line}\n" for line in body.splitlines())
