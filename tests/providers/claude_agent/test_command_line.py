"""What the CLI is started with: its settings, its environment, and what is refused before that."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, ConfigError
from haptera.model.errors import ErrorCode
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.providers.claude_agent.agent import AgentSurroundings, ClaudeAgent
from haptera.system.clock import SystemClock
from tests.providers.claude_agent.children import (
    MODEL,
    USER,
    Child,
    agent_of,
    claude_agent,
    init,
    opening,
    received,
    result,
    text,
)

pytestmark = pytest.mark.slow

ANSWER = [USER, init(), *text("Hello."), result("Hello.")]


def value_of(argv: list[str], flag: str) -> str:
    joined = [word.partition("=")[2] for word in argv if word.startswith(f"{flag}=")]
    return joined[0] if joined else argv[argv.index(flag) + 1]


async def test_a_model_is_required(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Agent("claude-agent/", environment={}, cwd=tmp_path)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    with pytest.raises(ConfigError):
        blank = opening()
        await claude_agent(Child(tmp_path, [])).open(
            type(blank)(model=" ", settings=blank.settings, owner="ana")
        )


@pytest.mark.parametrize(
    ("mode", "flag"),
    [
        ("default", "default"),
        ("accept_edits", "acceptEdits"),
        ("plan", "plan"),
        ("dont_ask", "dontAsk"),
    ],
)
async def test_a_permission_mode_is_one_of_four(tmp_path: Path, mode: str, flag: str) -> None:
    child = Child(tmp_path, ANSWER)
    async with agent_of(child, claude_agent={"permission_mode": mode}) as agent:
        await agent.run("Hi")
    assert value_of(child.argv, "--permission-mode") == flag
    assert "--dangerously-skip-permissions" not in child.argv


def test_bypassing_permissions_is_no_permission_mode(tmp_path: Path) -> None:
    for mode in ("bypass", "bypassPermissions", "acceptEdits"):
        with pytest.raises(ConfigError, match="permission_mode"):
            agent_of(Child(tmp_path / mode, []), claude_agent={"permission_mode": mode})


async def test_bypassing_permissions_has_a_name_of_its_own(tmp_path: Path) -> None:
    child = Child(tmp_path, ANSWER)
    async with agent_of(child, claude_agent={"bypass_permissions": True}) as agent:
        await agent.run("Hi")
    assert value_of(child.argv, "--permission-mode") == "bypassPermissions"


async def test_settings_reach_the_command_line(tmp_path: Path) -> None:
    child = Child(tmp_path, ANSWER)
    options: dict[str, Any] = {
        "system_prompt": "Be brief.",
        "thinking": "high",
        "allowed_tools": ["Read", "Bash"],
        "denied_tools": ["WebFetch"],
        "limits": {"turns": 7},
    }
    async with agent_of(child, claude_agent={"preapproved_tools": ["Read"]}, **options) as agent:
        await agent.run("Hi")
    argv = child.argv
    assert value_of(argv, "--model") == "claude-sonnet-4-6"
    assert value_of(argv, "--system-prompt") == "Be brief."
    assert value_of(argv, "--effort") == "high"
    assert value_of(argv, "--tools") == "Read,Bash"
    assert value_of(argv, "--allowedTools") == "Read"
    assert value_of(argv, "--disallowedTools") == "WebFetch"
    assert value_of(argv, "--max-turns") == "7"
    assert "--setting-sources=" in argv


async def test_the_environment_of_the_child_is_clean(tmp_path: Path) -> None:
    child = Child(tmp_path, ANSWER)
    environment = child.environment(
        AWS_SECRET_ACCESS_KEY="not for you", OPENAI_API_KEY="nor this", CLAUDECODE="1", LC_ALL="C"
    )
    settings = {"env": {"EXTRA": "yes"}}
    async with agent_of(child, environment=environment, claude_agent=settings) as agent:
        await agent.run("Hi")
    got = child.of("start")[0]["env"]
    assert not {"AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "CLAUDECODE"} & set(got)
    assert got["LC_ALL"] == "C"
    assert got["EXTRA"] == "yes"
    assert got["ANTHROPIC_API_KEY"] == "made-up-key"
    assert got["CLAUDE_CODE_MAX_RETRIES"] == "2"
    assert got["DISABLE_TELEMETRY"] == "1"


async def test_a_key_and_a_url_that_are_passed_win_over_the_environment(tmp_path: Path) -> None:
    child = Child(tmp_path, ANSWER)
    async with agent_of(child, api_key="another-key", base_url="http://127.0.0.1:8") as agent:
        await agent.run("Hi")
    got = child.of("start")[0]["env"]
    assert got["ANTHROPIC_API_KEY"] == "another-key"
    assert got["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8"


async def test_missing_credentials_fail_before_anything_is_started(tmp_path: Path) -> None:
    child = Child(tmp_path, ANSWER)
    environment = {"PATH": "/usr/bin", "HOME": str(tmp_path)}
    async with agent_of(child, environment=environment) as agent:
        with pytest.raises(ConfigError) as caught:
            await agent.run("Hi")
    assert caught.value.code is ErrorCode.CONFIG_MISSING
    assert received(tmp_path) == []


async def test_variables_of_the_native_agent_take_effect(tmp_path: Path) -> None:
    child = Child(tmp_path, ANSWER)
    environment = child.environment(
        HAPTERA_CLAUDE_EXECUTABLE=str(child.executable),
        HAPTERA_CLAUDE_PERMISSION_MODE="plan",
        HAPTERA_CLAUDE_PREAPPROVED_TOOLS="Read,Grep",
        HAPTERA_ALLOWED_TOOLS="Read,Grep,Bash",
        HAPTERA_TURN_SEND_TIMEOUT="7",
        HAPTERA_TURN_RESULT_TIMEOUT="8",
        HAPTERA_CLOSE_DRAIN_TIMEOUT="3",
    )
    async with Agent(MODEL, environment=environment, cwd=tmp_path) as agent:
        await agent.run("Hi")
        native = agent._composition.configuration.resolved.agent.claude_agent
        drain = agent._composition.configuration.resolved.runtime.close_drain_seconds
    assert value_of(child.argv, "--permission-mode") == "plan"
    assert value_of(child.argv, "--allowedTools") == "Read,Grep"
    assert value_of(child.argv, "--tools") == "Read,Grep,Bash"
    assert (native.turn_send_timeout, native.turn_result_timeout, drain) == (7.0, 8.0, 3.0)


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    child = Child(tmp_path, ANSWER)
    async with agent_of(child, claude_agent={"executable": "/nowhere/claude"}) as agent:
        with pytest.raises(ConfigError, match="/nowhere/claude"):
            await agent.run("Hi")


async def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptera.providers.claude_agent.sdk.find_spec", lambda _name: None)
    place = AgentSurroundings(environment={}, cwd=tmp_path, clock=SystemClock())
    with pytest.raises(ConfigError, match=r"haptera\[claude\]"):
        await ClaudeAgent(ClaudeAgentSettings(), place).open(opening())


def test_the_package_is_imported_with_the_first_session_only() -> None:
    code = (
        "import sys, haptera; "
        "haptera.Agent('claude-agent/claude-sonnet-5', environment={}, cwd='.'); "
        "sys.exit('claude_agent_sdk' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_servers_and_hooks_of_the_user_are_handed_through(tmp_path: Path) -> None:
    child = Child(tmp_path, ANSWER)
    servers = {"mine": {"type": "stdio", "command": "true", "args": []}}
    async with agent_of(child, claude_options={"mcp_servers": servers}) as agent:
        await agent.run("Hi")
    assert '"mine"' in value_of(child.argv, "--mcp-config")


def test_other_options_of_the_package_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="claude_options"):
        agent_of(Child(tmp_path, []), claude_options={"cwd": "/"})


async def test_what_a_session_says_is_no_option_of_the_program(tmp_path: Path) -> None:
    child = Child(tmp_path, ANSWER)
    prompt = "--dangerously-skip-permissions"
    async with agent_of(child, system_prompt=prompt) as agent:
        await agent.run("Hi")
    assert prompt not in child.argv
    assert f"--system-prompt={prompt}" in child.argv
