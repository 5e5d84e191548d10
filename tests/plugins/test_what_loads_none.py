"""What may not load a plugin, and what is said instead."""

import sys
from pathlib import Path
from typing import Any

import pytest

from haptera.access.plugins import BUILT_IN_TOOLS
from haptera.tools import CodingToolkit, web_fetch_tool
from tests.plugins.wheels import POINTS, Machine

pytestmark = pytest.mark.slow

# Says the message of the error that a program fails with, or what it returned; then whether the
# plugin was imported, and whether the metadata of packages was looked at.
PROGRAM = """
import asyncio, json, sys
from haptera import Agent, AgentError
from haptera.administration import trust_project, project_file

async def main():
    {body}

try:
    said = asyncio.run(main())
except AgentError as error:
    said = f"{error.code}: {error.message}"
print(json.dumps([said, "kelp" in sys.modules, "importlib.metadata" in sys.modules]))
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.install()
    return machine


def outcome(machine: Machine, body: str) -> tuple[Any, bool, bool]:
    """Run a function body in an event loop: what came of it, and what was imported."""
    lines = body.strip().splitlines()
    said, kelp, metadata = machine.python(PROGRAM.replace("{body}", "\n    ".join(lines)))
    return said, kelp, metadata


def refused(machine: Machine, body: str) -> str:
    """Run a function body that fails without importing the plugin; returns what it says."""
    said, is_imported, _ = outcome(machine, body)
    assert isinstance(said, str)
    assert said.startswith("CONFIG_INVALID: ")
    assert not is_imported
    return said


ASK = 'async with Agent({options}) as agent:\n    return (await agent.run("Hi")).text'


@pytest.mark.parametrize(
    "line",
    [
        'model = "echo/any"',
        'model = "diver/any"',
        'compaction = {model = "echo/any"}',
    ],
)
def test_the_trusted_file_of_a_project_names_no_provider(machine: Machine, line: str) -> None:
    project(machine, line)
    told = refused(machine, f"trust_project(project_file().digest)\n{ASK.format(options='')}")
    assert ".haptera/config.toml, line 2: defaults." in told
    assert "not by a project's file" in told


@pytest.mark.parametrize(
    ("line", "name"), [('store = "tank:x"', "store"), ('tool_plugins = ["depth"]', "tool_plugins")]
)
def test_the_trusted_file_of_a_project_names_no_store_or_tool(
    machine: Machine, line: str, name: str
) -> None:
    project(machine, line)
    told = refused(machine, f"trust_project(project_file().digest)\n{ASK.format(options='')}")
    assert f"line 2: defaults.{name}: cannot be set by the file of a project" in told


def project(machine: Machine, line: str) -> None:
    folder = machine.cwd / ".haptera"
    folder.mkdir()
    (folder / "config.toml").write_text(f"[defaults]\n{line}\n", encoding="utf-8")


def test_what_the_user_named_the_file_of_a_project_may_choose(machine: Machine) -> None:
    machine.configure("[providers.echo]\n")
    project(machine, 'model = "echo/any"')
    body = f"trust_project(project_file().digest)\n{ASK.format(options='')}"
    assert outcome(machine, body)[:2] == ("Salty.", True)


def test_a_log_loads_no_plugin(machine: Machine) -> None:
    chats = f"store='sqlite:{machine.root / 'chats.db'}'"
    named = f"""
async with Agent("echo/any", {chats}) as agent, agent.session("ana") as session:
    return (await session.chat("Hi")).text
"""
    assert outcome(machine, named)[0] == "Salty."
    unnamed = f"""
async with Agent({chats}) as agent, agent.session("ana") as session:
    return (await session.chat("Hi")).text
"""
    assert "a stored session" in refused(machine, unnamed)


def test_off_means_that_nothing_is_found(machine: Machine) -> None:
    machine.variables["HAPTERA_PLUGINS"] = "off"
    for options in ('"echo/any"', '"echo/any", plugins=True'):
        assert "there is no provider 'echo'" in refused(machine, ASK.format(options=options))
    assert "'tank' is not a store" in refused(machine, "Agent('echo/any', store='tank:x')")
    tools = "async with Agent('local/x', tool_plugins=['depth']) as agent:\n    return agent.tools"
    assert outcome(machine, tools) == ([], False, False)


def test_a_program_can_turn_them_off(machine: Machine) -> None:
    told = refused(machine, ASK.format(options="'echo/any', plugins=False"))
    assert "there is no provider 'echo'" in told


def test_metadata_is_read_only_for_a_name_that_is_unknown(machine: Machine) -> None:
    body = "async with Agent('anthropic/claude-sonnet-5', api_key='sk-x') as agent:\n    return 1"
    assert outcome(machine, body) == (1, False, False)


@pytest.mark.parametrize("group", [group for group in POINTS if group != "haptera.tools"])
def test_none_takes_the_place_of_what_is_built_in(machine: Machine, group: str) -> None:
    taken = {
        "haptera.providers": "anthropic",
        "haptera.native_agents": "claude-agent",
        "haptera.stores": "sqlite",
        "haptera.formats": "markdown",
    }
    (target,) = POINTS[group].values()
    machine.install(distribution="imitation", points={group: {taken[group]: target}})
    body = """
async with Agent(store="sqlite:chats.db") as agent:
    for model in ("anthropic/claude-sonnet-5", "claude-agent/sonnet"):
        await agent.session(model=model).open()
    session = await agent.sessions.create(name="ana")
    return len([piece async for piece in agent.sessions.export("ana", to="markdown")])
"""
    assert outcome(machine, body)[:2] == (1, False)
    found = machine.haptera("doctor")
    assert f"{taken[group]} ({group}), of imitation 1.0: never used" in found.stdout


def test_no_tool_of_a_plugin_has_the_name_of_a_built_in_one(machine: Machine) -> None:
    source = "def shell(command: str) -> str:\n    return 'x'\n"
    points = {"haptera.tools": {"shell": "wrack:shell", "runner": "wrack:shell"}}
    machine.install(distribution="wrack", points=points, modules={"wrack.py": source})
    assert "'shell' is a built-in tool" in refused(
        machine, "Agent('local/x', tool_plugins=['shell'])"
    )
    told = refused(machine, "Agent('local/x', tool_plugins=['runner'])")
    assert "wrack 1.0 has a tool 'shell', which is built in" in told


@pytest.mark.parametrize("group", ["haptera.providers", "haptera.native_agents"])
def test_two_of_one_name_are_refused(machine: Machine, group: str) -> None:
    (target,) = POINTS[group].values()
    machine.install(distribution="wrack", points={group: {"echo": target}})
    told = refused(machine, ASK.format(options="'echo/any'"))
    assert "it is offered by kelp 1.0 (haptera.providers) and wrack 1.0" in told
    assert "echo (haptera.providers), of kelp 1.0: refused" in machine.haptera("doctor").stdout


def test_one_distribution_that_is_found_twice_is_one(machine: Machine) -> None:
    second = machine.root / "second"
    machine.install(second)
    machine.path.append(second)
    assert outcome(machine, ASK.format(options="'echo/any'"))[0] == "Salty."


@pytest.mark.parametrize("where", [".", "vendored/deep"])
def test_what_is_in_the_working_folder_is_no_plugin(tmp_path: Path, where: str) -> None:
    machine = Machine(tmp_path)
    machine.install(machine.cwd / where)
    machine.path = [machine.cwd / where]
    assert "there is no provider 'echo'" in refused(machine, ASK.format(options="'echo/any'"))
    assert "echo" not in machine.haptera("doctor").stdout


def test_what_is_in_the_workspace_is_no_plugin(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.install()
    options = f"'echo/any', workspace={str(machine.site)!r}, store='memory'"
    assert "there is no provider 'echo'" in refused(machine, ASK.format(options=options))


def test_the_environment_of_the_interpreter_may_be_in_the_working_folder(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    base = machine.cwd / ".environment"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = base / "lib" / version / "site-packages"
    machine.install(packages)
    machine.variables["PYTHONUSERBASE"] = str(base)
    machine.path = [packages]
    assert outcome(machine, ASK.format(options="'echo/any'"))[0] == "Salty."


def test_code_in_the_working_folder_is_not_loaded_for_what_is_installed(machine: Machine) -> None:
    (machine.cwd / "kelp.py").write_text("raise SystemExit('hostile')\n", encoding="utf-8")
    machine.path = [machine.cwd, machine.site]
    told = refused(machine, ASK.format(options="'echo/any'"))
    assert "the code of kelp 1.0 is in" in told


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('sk-secret')", "raised RuntimeError"),
        ("x = 1", "raised AttributeError"),
        ("def Echo(): raise RuntimeError('sk-secret')", "raised RuntimeError"),
        ("class Echo: pass", "has no provider, stream, count_tokens, close"),
        (
            "class Echo:\n    provider = 'anthropic'\n    stream = count_tokens = close = print",
            "calls itself 'anthropic'",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named(tmp_path: Path, source: str, reason: str) -> None:
    machine = Machine(tmp_path)
    machine.install(modules={"kelp.py": source})
    said, _, _ = outcome(machine, ASK.format(options="'echo/any'"))
    assert said.startswith("CONFIG_INVALID: the provider 'echo' cannot be used: ")
    assert reason in said
    assert "sk-secret" not in said


def test_doctor_lists_what_is_installed_and_imports_none_of_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.install(modules={"kelp.py": "raise SystemExit('imported')\n"})
    found = machine.haptera("doctor")
    for group, points in POINTS.items():
        for name in points:
            assert f"ok       plugin: {name} ({group}), of kelp 1.0\n" in found.stdout
    machine.variables["HAPTERA_PLUGINS"] = "off"
    assert "note     plugins: turned off\n" in machine.haptera("doctor").stdout


def test_the_names_of_built_in_tools_are_those_that_tools_have(tmp_path: Path) -> None:
    offered = [*CodingToolkit(tmp_path).tools, web_fetch_tool()]
    assert {each.name for each in offered} <= BUILT_IN_TOOLS


def test_damaged_metadata_hides_nothing_else(machine: Machine) -> None:
    about = machine.site / "wreck-1.0.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_bytes(b"[haptera.providers\n\xff\xfe = = [\n")
    assert outcome(machine, ASK.format(options="'echo/any'"))[0] == "Salty."
