"""A wheel adds a plugin of each kind, which is used by its name."""

from pathlib import Path

import pytest

from tests.plugins.wheels import KELP, Machine

pytestmark = pytest.mark.slow

# What a program says last: whether the plugin was imported, and what it got from it.
RUN = """
import asyncio, json, sys
from haptera import Agent

async def main():
    {body}

print(json.dumps([asyncio.run(main()), "kelp" in sys.modules]))
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.install()
    return machine


def run(machine: Machine, body: str) -> object:
    """Run a function body in an event loop on the machine; returns what it returned."""
    lines = body.strip().splitlines()
    said, is_imported = machine.python(RUN.replace("{body}", "\n    ".join(lines)))
    assert is_imported
    return said


def test_the_wheel_is_short() -> None:
    assert len(KELP.read_text(encoding="utf-8").splitlines()) <= 60


def test_a_provider(machine: Machine) -> None:
    body = 'async with Agent("echo/any") as agent:\n    return (await agent.run("Hi")).text'
    assert run(machine, body) == "Salty."


def test_a_provider_that_a_session_is_told_of(machine: Machine) -> None:
    body = """
async with Agent("anthropic/claude-sonnet-5", api_key="sk-made-up") as agent:
    async with agent.session() as session:
        await session.configure(model="echo/any")
        return (await session.chat("Hi")).text
"""
    assert run(machine, body) == "Salty."


def test_an_agent_that_keeps_its_own_session(machine: Machine) -> None:
    body = """
async with Agent("diver/any") as agent, agent.session() as session:
    return [(await session.chat("Hi")).text, session.is_native]
"""
    assert run(machine, body) == ["Salty.", True]


def test_a_store_gets_its_location_and_its_owner(machine: Machine) -> None:
    body = """
async with Agent("echo/any", store="tank:water.txt", owner="ana") as agent:
    return (await agent.run("Hi")).text
"""
    assert run(machine, body) == "Salty."
    assert (machine.cwd / "water.txt").read_text(encoding="utf-8") == "ana"


def test_a_format(machine: Machine) -> None:
    body = """
async with Agent("echo/any") as agent, agent.session() as session:
    await session.chat("Hi")
    pieces = agent.sessions.export(session.session_id, to="plain")
    return b"|".join([piece async for piece in pieces]).decode()
"""
    assert run(machine, body) == "HiSalty."


def test_a_tool(machine: Machine) -> None:
    body = """
async with Agent("echo/any", tool_plugins=["depth"]) as agent:
    return [tool.description for tool in agent.tools]
"""
    assert run(machine, body) == ["Return how deep the sea is at a place."]


def test_the_users_file_names_each_of_them(machine: Machine) -> None:
    machine.configure("""
        [defaults]
        model = "echo/any"
        store = "tank:water.txt"
        tool_plugins = ["depth"]
    """)
    body = """
async with Agent() as agent:
    return [(await agent.run("Hi")).text, [tool.name for tool in agent.tools]]
"""
    assert run(machine, body) == ["Salty.", ["depth"]]


def test_the_command_line_takes_them(machine: Machine) -> None:
    store = f"sqlite:{machine.root / 'chats.db'}"
    asked = machine.haptera("-p", "Hi", "-m", "echo/any", "--store", store, "--name", "ana")
    assert (asked.returncode, asked.stdout) == (0, "Salty.\n"), asked.stderr
    written = machine.haptera("sessions", "--store", store, "export", "ana", "--format", "plain")
    assert (written.returncode, written.stdout) == (0, "HiSalty."), written.stderr
