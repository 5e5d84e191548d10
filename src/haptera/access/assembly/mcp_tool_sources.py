"""The MCP servers of the user's file, made into sources of tools."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from haptera.access.assembly import late
from haptera.access.assembly.configuration import Configuration
from haptera.access.config.connections import key_source
from haptera.access.config.schema import KeyReference, McpServerEntry
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.secrets import Secret
from haptera.options.declarations import declared_fields
from haptera.options.mcp_settings import McpServerSettings
from haptera.options.wording import unknown_name

if TYPE_CHECKING:
    from haptera.access.assembly.late import McpServer


def configured_servers(configuration: Configuration) -> "list[McpServer]":
    """Make the servers that an agent offers, without starting any.

    Raises:
        ConfigError: CONFIG_INVALID for a name that the file does not have, CONFIG_MISSING for a
            secret whose variable is not set.

    """
    entries, named = configuration.file.mcp_servers, configuration.resolved.agent.mcp_servers
    for name in named or ():
        if name not in entries:
            message = f"mcp_servers: {name!r} is {unknown_name(name, entries)}"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message)
    return [
        make_server(name, entry, configuration)
        for name, entry in entries.items()
        if (not entry.disabled if named is None else name in named)
    ]


def make_server(name: str, entry: McpServerEntry, configuration: Configuration) -> "McpServer":
    """Make one server of the file.

    Raises:
        ConfigError: CONFIG_INVALID naming the field that is wrong.

    """
    options: dict[str, Any] = {
        option: value
        for option, declared in declared_fields(McpServerSettings).items()
        if (value := getattr(entry, option)) != declared.default
    }
    for option in ("env", "headers"):
        if option in options:
            options[option] = _values(name, options[option], configuration)
    if entry.command is not None:
        # The variables of the agent, which may be others than those of the process.
        options["environment"] = configuration.environment.variables
    if entry.token is not None:
        options["token"] = key_source(
            entry.token, environment=configuration.environment, kind="oauth"
        )
    kind = {} if entry.type is None else {"type": entry.type}
    (server,) = late.mcp_servers({"mcpServers": {name: {**options, **kind}}})
    return server


def _values(
    server: str, given: Mapping[str, str | KeyReference], configuration: Configuration
) -> dict[str, str | Secret]:
    """Return variables or headers; those that are secrets are looked up in the environment."""
    values: dict[str, str | Secret] = {}
    for name, value in given.items():
        if isinstance(value, str):
            values[name] = value
            continue
        found = configuration.environment.get(value.env or "")
        if found is None:
            raise ConfigError(
                ErrorCode.CONFIG_MISSING,
                f"MCP server {server!r}: {name}: the variable {value.env} is not set",
            )
        values[name] = Secret(found)
    return values
