"""What an MCP server may be told in Python, and what is missing."""

import inspect
import sys
from typing import Any

import pytest

from haptera import ConfigError, ErrorCode
from haptera.access.config.schema import McpServerEntry
from haptera.model.secrets import Secret
from haptera.options.declarations import declared_fields
from haptera.options.mcp_settings import McpServerSettings
from haptera.tools.mcp import McpServer, mcp_servers
from haptera.tools.mcp.server_settings import McpOptions, ResolvedServer
from tests.scripted_agents import failure_of, make_agent
from tests.tools.mcp.mcp_agents import raw_server

WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "give either command or url"),
    ({"command": "a", "url": "http://a.test"}, "give either command or url"),
    ({"comand": "a"}, "comand is unknown; did you mean 'command'?"),
    ({"command": 7}, "option 'command' must be the name or path of a program"),
    ({"command": ""}, "option 'command' must be"),
    ({"command": "a", "args": "b"}, "option 'args' must be a list of texts"),
    ({"command": "a", "args": [1]}, "option 'args' must be a list of texts"),
    ({"command": "a", "env": {"A": 1}}, "option 'env' must be a table of texts"),
    ({"command": "a", "env": {"A=B": "1"}}, "option 'env' must be a table of texts"),
    ({"command": "a", "headers": {}}, "option 'headers' is for a server with a url"),
    ({"command": "a", "token": "t"}, "option 'token' is for a server with a url"),
    ({"url": "http://a.test", "args": []}, "option 'args' is for a server with a command"),
    ({"url": "file:///a"}, "names no http or https host"),
    ({"url": "http://u:p@a.test"}, "hold no user"),
    ({"url": "http://a.test", "headers": {"a": "b\r\nc: d"}}, "option 'headers' must be"),
    ({"url": "http://a.test", "token": 7}, "option 'token' must be"),
    (
        {"command": "a", "approval": "always"},
        "option 'approval' is not valid: 'always' is not allowed; use",
    ),
    ({"command": "a", "timeout": -1}, "option 'timeout' must be seconds, or None"),
    ({"command": "a", "connect_timeout": None}, "option 'connect_timeout' must be seconds"),
    (
        {"command": "a", "trust_annotations": "yes"},
        "option 'trust_annotations' must be True or False",
    ),
]


@pytest.mark.parametrize(("options", "fault"), WRONG)
def test_a_wrong_option_is_named(options: dict[str, Any], fault: str) -> None:
    for make in (
        lambda: McpServer("x", **options),
        lambda: mcp_servers({"mcpServers": {"x": options}}),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert caught.value.code is ErrorCode.CONFIG_INVALID
        assert caught.value.message.startswith("MCP server 'x'")
        assert fault in caught.value.message


@pytest.mark.parametrize(
    ("shape", "fault"),
    [
        ({}, "mcpServers must be an object"),
        ({"mcpServers": []}, "mcpServers must be an object"),
        ({"mcpServers": {"x": "uvx"}}, "must be an object"),
        ({"mcpServers": {"x": {"type": "sse", "url": "http://a"}}}, "must be stdio or http"),
        ({"mcpServers": {"x": {"type": "http", "command": "a"}}}, "there is no url"),
        ({"mcpServers": {"a__b": {"command": "a"}}}, "the name of an MCP server must be"),
        ({"mcpServers": {"mcp": {"command": "a"}}}, "the name of an MCP server must be"),
    ],
)
def test_a_wrong_shape_is_named(shape: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        mcp_servers(shape)


def test_the_options_of_a_server_are_those_of_its_declarations() -> None:
    fields = {*declared_fields(ResolvedServer)} - {"name"}
    assert {*McpOptions.__struct_fields__} == fields
    silent = [
        name
        for kind in (ResolvedServer, McpServerEntry)
        for name, declared in declared_fields(kind).items()
        if name != "name" and not declared.option.sentence
    ]
    assert silent == []
    parameters = inspect.signature(McpServer).parameters
    assert {*parameters} == {"name", *fields}
    assert parameters["timeout"].default == McpServerSettings().timeout
    assert "Seconds until the server must be ready." in (McpServer.__doc__ or "")


def test_secrets_of_a_server_are_not_shown() -> None:
    server = McpServer("x", command="a", env={"KEY": Secret("very-secret-value")})
    assert "very-secret-value" not in repr(vars(server))


async def test_a_missing_package_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("haptera.tools.mcp.")]:
        if name.rpartition(".")[2] in {"requests", "connection"}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    agent, _ = make_agent([], tools=[raw_server()])
    async with agent:
        error = await failure_of(agent.run("go"))
    assert error.code is ErrorCode.CONFIG_MISSING
    assert "pip install 'haptera[mcp]'" in error.message
