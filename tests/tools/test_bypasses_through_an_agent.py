"""Known bypasses through an agent: a program that the rules deny is never run by the shell tool."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haptera import Approve
from haptera.access.administration import check_sandbox
from haptera.testing import calls, says
from haptera.tools import coding_tools
from tests.agent.tools.test_project_trust import options_in, settings_in
from tests.fixtures_report import Report
from tests.kernel.blocks.permissions.bypasses import BYPASSES
from tests.kernel.blocks.permissions.traced_shell import World
from tests.scripted_agents import outcomes_in, run_script

pytestmark = pytest.mark.slow

_EVIL = '#!/bin/sh\nexec mktemp -p "{folder}" ran-XXXXXXXX\n'
"""Says that it ran, under whatever name."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world")
    (made.folder / "bin/evil").write_text(_EVIL.format(folder=made.folder))
    return made


async def outcomes_of(
    world: World, commands: Sequence[str | list[str]], **options: Any
) -> list[str]:
    """Let an agent run commands; returns what became of each."""
    path = f"{world.folder}/bin:/usr/local/bin:/usr/bin:/bin"
    tools = coding_tools(world.folder, variables={"PATH": path})
    asked = calls(*(("shell", {"command": command, "timeout": 10}) for command in commands))
    _, provider = await run_script([asked, says("done")], tools=tools, **options)
    return [outcome for _, outcome, _ in outcomes_in(provider.requests[1])]


def times_run(world: World) -> int:
    return len(list(world.folder.rglob("ran-*")))


RULES = {"allow": ["shell"], "deny": ["shell(evil *)"]}


async def test_known_bypasses_run_nothing_through_an_agent(world: World, report: Report) -> None:
    found = await outcomes_of(world, BYPASSES, permissions=RULES, permission_mode="dont_ask")
    report(f"bypasses through an agent: {len(found)} tried, {times_run(world)} ran")
    assert (len(found), set(found)) == (len(BYPASSES), {"denied"})
    assert times_run(world) == 0


@pytest.mark.namespaces
async def test_without_the_rule_the_same_program_does_run(world: World) -> None:
    commands: list[str | list[str]] = ["evil", ["evil", "x"], "timeout 5 evil", "sh -c 'evil x'"]
    found = await outcomes_of(world, commands, approver=lambda _: Approve())
    assert (found, times_run(world)) == (["ok"] * 4, 4)


async def test_words_that_no_shell_sees_are_judged_as_well(world: World) -> None:
    commands: list[str | list[str]] = [["evil"], ["env", "evil"], ["sh", "-c", "evil"]]
    options: dict[str, Any] = {"permissions": RULES, "permission_mode": "dont_ask"}
    assert await outcomes_of(world, commands, **options) == ["denied"] * 3
    assert times_run(world) == 0


@pytest.mark.namespaces
async def test_a_command_that_makes_configuration_changes_no_later_agent(world: World) -> None:
    text = '[defaults]\\npermission_mode = "accept_edits"\\ntemperature = 0.5'
    commands = [
        f"mkdir -p .haptera && printf '{text}' > .haptera/config.toml",
        "mkdir -p .git/hooks && printf 'touch ran-hook' > .git/hooks/post-checkout",
        "git config --file .git/config core.fsmonitor 'touch ran-monitor'",
        "printf 'HAPTERA_PERMISSION_MODE=accept_edits' > .env",
    ]
    options = options_in(world.folder)
    await outcomes_of(world, commands, approver=lambda _: Approve(), **options)
    assert not (world.folder / ".haptera").exists()
    assert not (world.folder / ".git").exists()
    assert (world.folder / ".env").exists()
    assert settings_in(world.folder) == (None, "default")
    assert times_run(world) == 0


@pytest.mark.namespaces
async def test_the_sandbox_can_be_checked_from_a_surface(tmp_path: Path, report: Report) -> None:
    found = await check_sandbox(Path(__file__).parent)
    report(f"sandbox: {found.report.backend}, {len(found.probes)} probes")
    assert found.holds, found
    assert len(found.probes) == 12
    assert list(tmp_path.iterdir()) == []
