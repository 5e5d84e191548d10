"""MCP servers of the user's file: offered by agents, and listed, added, removed and tried."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from haptera import ConfigError, ErrorCode, ToolError
from haptera.access.administration import project_file, trust_project
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.mcp_servers import (
    add_mcp_server,
    check_mcp_server,
    list_mcp_servers,
    remove_mcp_server,
)
from haptera.testing import calls, says
from tests.scripted_agents import make_agent, outcomes_in, tasks_left
from tests.tools.mcp.mcp_agents import RAW, names_offered, notes_in


def sources(home: Path, **variables: str) -> ConfigurationSources:
    return ConfigurationSources(environment={"HAPTERA_HOME": str(home), **variables}, cwd=home)


def raw_table(mode: str = "plain", log: Path | None = None, **more: Any) -> dict[str, Any]:
    arguments = ["-S", "-E", str(RAW), mode, *([str(log)] if log else [])]
    return {"command": sys.executable, "args": arguments, "approval": "never", **more}


async def test_a_server_is_added_listed_tried_and_removed(tmp_path: Path) -> None:
    here = sources(tmp_path)
    assert dict(list_mcp_servers(here)) == {}
    add_mcp_server("raw", raw_table(), here)
    assert list(list_mcp_servers(here)) == ["raw"]
    status = await check_mcp_server("raw", here)
    assert (status.state, status.server) == ("running", "raw 1")
    assert "raw__echo" in status.tools
    assert tasks_left() == []
    remove_mcp_server("raw", here)
    assert dict(list_mcp_servers(here)) == {}
    with pytest.raises(ConfigError) as missing:
        await check_mcp_server("raw", here)
    assert missing.value.code is ErrorCode.CONFIG_MISSING


async def test_a_server_that_cannot_be_started_is_tried_with_what_it_wrote(tmp_path: Path) -> None:
    add_mcp_server("raw", raw_table("dies"), sources(tmp_path))
    with pytest.raises(ToolError, match="no licence"):
        await check_mcp_server("raw", sources(tmp_path))


async def test_an_agent_offers_the_servers_of_the_user_s_file(tmp_path: Path) -> None:
    add_mcp_server("raw", raw_table(), sources(tmp_path))
    add_mcp_server("off", raw_table(disabled=True), sources(tmp_path))
    environment = {"HAPTERA_HOME": str(tmp_path), "CANARY": "canary-of-the-agent"}
    steps = [calls(("raw__environment", {})), says("done")]
    agent, provider = make_agent(steps, environment=environment)
    async with agent:
        await agent.run("go")
    assert tasks_left() == []
    assert "raw__echo" in names_offered(provider)
    assert not any(name.startswith("off__") for name in names_offered(provider))
    ((_, outcome, seen),) = outcomes_in(provider.requests[-1])
    assert (outcome, "canary" in seen) == ("ok", False)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('command = "a"\ntimeout = -1', "line 3: mcpServers.x.timeout: must be 0 to 1e+06, not -1"),
        ('command = "a"\nconnect_timeout = 0', "line 3: mcpServers.x.connect_timeout: must be"),
        ('command = "a"\napproval = "nevr"', "approval: 'nevr' is not allowed (did you mean 'neve"),
        ('command = "a"\nheaders = { a = "b" }', "option 'headers' is for a server with a url"),
        ('url = "http://a.test"\nargs = ["a"]', "option 'args' is for a server with a command"),
        ('url = "http://a.test"\nenv = { A = "b" }', "option 'env' is for a server with a command"),
        ('url = "http://a.test"\ntype = "sse"', "option 'type' must be stdio or http, not 'sse'"),
        (
            'url = "http://a.test"\ntype = "stdio"',
            "option 'type' is 'stdio', and there is no command",
        ),
    ],
)
def test_what_would_have_no_effect_in_the_file_is_refused(
    text: str, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text(f"[mcpServers.x]\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        make_agent([], environment={"HAPTERA_HOME": str(tmp_path)})
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert fault in caught.value.message


async def test_an_agent_is_told_which_servers_of_the_file_it_offers(tmp_path: Path) -> None:
    add_mcp_server("raw", raw_table(log=tmp_path / "log"), sources(tmp_path))
    environment = {"HAPTERA_HOME": str(tmp_path)}
    agent, provider = make_agent([says("a")], environment=environment, mcp_servers=[])
    async with agent:
        await agent.run("go")
    assert (names_offered(provider), notes_in(tmp_path / "log")) == ([], [])
    with pytest.raises(ConfigError, match=r"mcp_servers: 'row' is unknown; did you mean 'raw'\?"):
        make_agent([], environment=environment, mcp_servers=["row"])


async def test_a_secret_of_a_server_is_named_by_the_variable_that_holds_it(tmp_path: Path) -> None:
    table = raw_table(env={"API_TOKEN": {"env": "MY_TOKEN"}})
    add_mcp_server("raw", table, sources(tmp_path))
    with pytest.raises(ConfigError) as missing:
        make_agent([], environment={"HAPTERA_HOME": str(tmp_path)})
    assert missing.value.code is ErrorCode.CONFIG_MISSING
    assert "API_TOKEN: the variable MY_TOKEN is not set" in missing.value.message
    environment = {"HAPTERA_HOME": str(tmp_path), "MY_TOKEN": "value-of-the-token"}
    agent, provider = make_agent(
        [calls(("raw__environment", {})), says("done")], environment=environment
    )
    async with agent:
        await agent.run("go")
    ((_, _, seen),) = outcomes_in(provider.requests[-1])
    assert json.loads(seen)["API_TOKEN"] == "value-of-the-token"
    assert "MY_TOKEN" not in json.loads(seen)


async def test_nothing_is_ever_started_from_the_files_of_a_workspace(tmp_path: Path) -> None:
    home, project, log = tmp_path / "home", tmp_path / "project", tmp_path / "log"
    (project / ".haptera").mkdir(parents=True)
    table = json.dumps(raw_table(log=log))
    arguments = json.dumps(raw_table(log=log)["args"])
    text = f'[mcpServers.raw]\ncommand = "{sys.executable}"\nargs = {arguments}\n'
    (project / ".haptera" / "config.toml").write_text(text)
    for name in (".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(f'{{"mcpServers": {{"raw": {table}}}}}')
    environment = {"HAPTERA_HOME": str(home)}
    agent, provider = make_agent([says("a")], environment=environment, cwd=project)
    async with agent:
        await agent.run("go")
    assert (names_offered(provider), log.exists()) == ([], False)

    here = ConfigurationSources(environment=environment, cwd=project)
    found = project_file(here)
    assert found is not None
    with pytest.raises(ConfigError, match="mcpServers: cannot be set by the file of a project"):
        trust_project(found.digest, here)
    assert not log.exists()
