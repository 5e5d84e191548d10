"""What an MCP server is told: how it is started or reached, and how its tools are treated."""

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.option import Option
from haptera.model.secrets import Secret, remember_headers
from haptera.model.tools import SERVER_NAME, ApprovalMode
from haptera.options.checks import check
from haptera.options.declarations import ELSEWHERE
from haptera.options.mcp_settings import McpServerSettings, revealed
from haptera.system.clock import Clock
from haptera.system.token_source import TokenSource
from haptera.system.token_sources import (
    BoundTokenSource,
    CallableTokenSource,
    StaticTokenSource,
    origin_of,
)
from haptera.tools.shell import choose_variables

McpToken: TypeAlias = str | Secret | TokenSource | Callable[[], str | Secret | Awaitable[Any]]
"""A bearer token, or what gives one for each request."""

RESERVED = "mcp"
"""The name in front of the tools that all servers share."""
_TRANSPORTS = {
    "stdio": "command",
    "http": "url",
    "streamable-http": "url",
    "streamable_http": "url",
    "streamableHttp": "url",
}
"""The words for `type` that other programs write, and what a server of that type has."""
_OF_COMMANDS = ("args", "env", "cwd", "environment")
_OF_URLS = ("headers", "token")


class ResolvedServer(
    McpServerSettings[str | Secret, TokenSource], frozen=True, kw_only=True, eq=False
):
    """The options of a server, checked. What only a program can say is declared here."""

    name: str
    environment: Annotated[
        Mapping[str, str] | None,
        Option(
            "Where the few variables are taken from; None: `PATH` and `HOME` of the process.",
            fits=lambda value: isinstance(value, Mapping),
            wanted="a mapping",
        ),
    ] = None
    clock: Annotated[
        Clock | None,
        Option("The time, for tests.", fits=lambda value: hasattr(value, "now"), wanted="a Clock"),
    ] = None

    def __repr__(self) -> str:
        return f"ResolvedServer({self.name!r})"

    def variables(self) -> dict[str, str]:
        """Return the environment of the program: the few variables, and those it was given."""
        own = {name: revealed(value) for name, value in self.env.items()}
        environment = self.environment
        if environment is None:
            environment = {"PATH": os.pathsep.join(os.get_exec_path())}
        return choose_variables(environment, own)

    def plain_headers(self) -> dict[str, str]:
        """Return the headers with their secrets; only for the requests themselves."""
        return {name: revealed(value) for name, value in self.headers.items()}


_FIELD = Option(of=ResolvedServer)


class McpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an MCP server may be told: the fields of `ResolvedServer`, as a program writes them."""

    command: Annotated[str, _FIELD] = ELSEWHERE
    args: Annotated[Sequence[str], _FIELD] = ELSEWHERE
    env: Annotated[Mapping[str, str | Secret], _FIELD] = ELSEWHERE
    cwd: Annotated[str | os.PathLike[str], _FIELD] = ELSEWHERE
    environment: Annotated[Mapping[str, str], _FIELD] = ELSEWHERE
    url: Annotated[str, _FIELD] = ELSEWHERE
    headers: Annotated[Mapping[str, str | Secret], _FIELD] = ELSEWHERE
    token: Annotated[McpToken, _FIELD] = ELSEWHERE
    approval: Annotated[ApprovalMode, _FIELD] = ELSEWHERE
    trust_annotations: Annotated[bool, _FIELD] = ELSEWHERE
    timeout: Annotated[float | None, _FIELD] = ELSEWHERE
    connect_timeout: Annotated[float, _FIELD] = ELSEWHERE
    clock: Annotated[Clock, _FIELD] = ELSEWHERE


def check_settings(name: str, options: Mapping[str, Any]) -> ResolvedServer:
    """Check what a server is told.

    Raises:
        ConfigError: CONFIG_INVALID naming the server and the option.

    """
    if not re.fullmatch(SERVER_NAME, str(name)):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"the name of an MCP server must be 1 to 32 letters, digits, '_' or '-', without '__', "
            f"and not {RESERVED!r}: {name!r}",
        )
    check(options, McpOptions, function=f"MCP server {name!r}")
    values: dict[str, Any] = dict(options)
    _check_transport(name, values)
    token = values.pop("token", None)
    if "cwd" in values:
        values["cwd"] = os.fspath(values["cwd"])
    for option in ("env", "headers"):
        values[option] = dict(values.get(option, {}))
    remember_headers({key: value for key, value in values["headers"].items() if type(value) is str})
    values["args"] = tuple(values.get("args", ()))
    if token is not None:
        values["token"] = BoundTokenSource(_source_of(token), origin_of(values["url"]))
    return ResolvedServer(name=name, **values)


def mcp_options_of(name: str, table: object) -> Mapping[str, Any]:
    """Read one server of the shape `{"mcpServers": {name: {…}}}` that many programs share.

    Raises:
        ConfigError: CONFIG_INVALID naming the server and the field.

    """
    if not isinstance(table, Mapping):
        raise _wrong(name, "", "must be an object")
    fields = dict(table)
    kind = fields.pop("type", fields.pop("transport", None))
    if kind is not None:
        wanted = _TRANSPORTS.get(kind) if isinstance(kind, str) else None
        if wanted is None:
            raise _wrong(name, "type", f"must be stdio or http, not {kind!r}")
        if wanted not in fields:
            raise _wrong(name, "type", f"is {kind!r}, and there is no {wanted}")
    return fields


def _check_transport(name: str, given: Mapping[str, object]) -> None:
    has_command, has_url = "command" in given, "url" in given
    if has_command == has_url:
        raise _wrong(name, "", "give either command or url")
    for option in _OF_URLS if has_command else _OF_COMMANDS:
        if option in given:
            other = "url" if has_command else "command"
            raise _wrong(name, option, f"is for a server with a {other}")
    if has_url:
        try:
            origin = origin_of(str(given["url"]))
        except ValueError as error:
            raise _wrong(name, "url", f"is not valid: {error}") from None
        if origin.scheme not in {"http", "https"} or "@" in str(given["url"]).partition("?")[0]:
            raise _wrong(name, "url", "must begin with http:// or https://, and hold no user")


def _source_of(token: McpToken) -> TokenSource:
    if isinstance(token, str | Secret):
        return StaticTokenSource(token, kind="oauth")
    if callable(token):
        return CallableTokenSource(token, kind="oauth")
    return token


def _wrong(name: str, option: str, fault: str) -> ConfigError:
    message = f"option {option!r} {fault}" if option else fault
    return ConfigError(ErrorCode.CONFIG_INVALID, f"MCP server {name!r}: {message}")
