"""The MCP servers of the user's file: list, add, remove and try them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.assembly.configuration import Configuration, ConfigurationFolders
from haptera.access.assembly.mcp_tool_sources import make_server
from haptera.access.config.file import user_config_path
from haptera.access.config.mcp_server_edits import add_server, remove_server
from haptera.access.config.schema import McpServerEntry
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.options.wording import unknown_name

if TYPE_CHECKING:
    from haptera.access.assembly.late import McpStatus

_HERE = ConfigurationSources()


def list_mcp_servers(sources: ConfigurationSources = _HERE) -> Mapping[str, McpServerEntry]:
    """Return the servers of the user's file by name, those that are disabled included.

    `sources` says where the file is, as the options `environment`, `config_dir` and `config_path`
    of an agent do.

    Raises:
        ConfigError: CONFIG_INVALID naming what is wrong in the file.

    """
    return Configuration({}, sources).file.mcp_servers


async def check_mcp_server(name: str, sources: ConfigurationSources = _HERE) -> "McpStatus":
    """Start or reach a server of the user's file, list its tools, and end it again.

    Raises:
        ConfigError: CONFIG_MISSING when the file has no such server, CONFIG_INVALID when it is
            wrong.
        ToolError: TOOL_FAILED or TOOL_TIMEOUT with the end of the server's standard error.

    """
    configuration = Configuration({}, sources)
    servers = configuration.file.mcp_servers
    if name not in servers:
        message = f"MCP server {name!r} is {unknown_name(name, servers)}"
        raise ConfigError(ErrorCode.CONFIG_MISSING, message)
    async with make_server(name, servers[name], configuration) as server:
        return server.status


def add_mcp_server(
    name: str, table: JsonObject, sources: ConfigurationSources = _HERE
) -> McpServerEntry:
    """Write a server into the user's file: `{"command": …, "args": […]}` or `{"url": …}`.

    Raises:
        ConfigError: CONFIG_INVALID when there is one of that name, or the table is wrong.
        StoreError: UNAVAILABLE when the file cannot be written.

    """
    path, headers = _file(sources)
    return add_server(path, name, table, key_headers=headers)


def remove_mcp_server(name: str, sources: ConfigurationSources = _HERE) -> None:
    """Take a server out of the user's file.

    Raises:
        ConfigError: CONFIG_INVALID when there is none of that name, or the file has it in a form
            that only a person can change.
        StoreError: UNAVAILABLE when the file cannot be written.

    """
    path, headers = _file(sources)
    remove_server(path, name, key_headers=headers)


def _file(sources: ConfigurationSources) -> tuple[Path, frozenset[str]]:
    """Return where the user's file is, and the headers in which providers get their keys."""
    folders = ConfigurationFolders(sources)
    path, _ = user_config_path(
        folders.environment,
        cwd=folders.cwd,
        home=folders.home,
        platform=sys.platform,
        config_dir=sources.config_dir,
        config_path=sources.config_path,
    )
    return path, folders.environment.key_headers
