"""What an MCP server is told: how it is started or reached, and how its tools are treated."""

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

import msgspec

from holdfast.auth.token_sources import (
    BoundTokenSource,
    CallableTokenSource,
    StaticTokenSource,
    origin_of,
)
from holdfast.ports.clock import Clock
from holdfast.ports.token_source import TokenSource
from holdfast.tools.shell import choose_variables
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.option_declarations import unknown_name
from holdfast.vocabulary.secrets import Secret, remember_headers
from holdfast.vocabulary.tools import SERVER_NAME, ApprovalMode

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
_LONGEST = 1_000_000.0
_OF_COMMANDS = ("args", "env", "cwd", "environment")
_OF_URLS = ("headers", "token")


class McpOptions(TypedDict, total=False):
    """What an MCP server may be told; it has either a `command` or a `url`."""

    command: str
    """The program to start; the server speaks on its standard input and output."""
    args: Sequence[str]
    """The arguments of the program."""
    env: Mapping[str, str | Secret]
    """Variables for the program, besides the few that every one gets (`PATH`, `HOME`, `LANG`, …).
    No other variable of the process reaches it."""
    cwd: str | os.PathLike[str]
    """Where the program is started."""
    environment: Mapping[str, str]
    """Where the few variables are taken from; without it, `PATH` and `HOME` of the process."""
    url: str
    """The URL of a server that speaks streamable HTTP."""
    headers: Mapping[str, str | Secret]
    """Headers for each request to the URL."""
    token: McpToken
    """An OAuth or other bearer token, or a source of tokens; sent to the origin of the URL only."""
    approval: ApprovalMode
    """`ask` (the default): a person is asked about each call; `never`: about none. Permission rules
    decide first."""
    trust_annotations: bool
    """Whether what the server says of its tools counts: those that only read run without a
    question, and idempotent ones may be run again. Without it (the default) approvers are told,
    and nothing else follows."""
    timeout: float | None
    """Seconds that a call may take; None or 0: any. 300 by default."""
    connect_timeout: float
    """Seconds until the server must be ready. 30 by default."""
    clock: Clock
    """The time, for tests."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The options of a server, checked."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str | Secret] = {}
    cwd: str | None = None
    environment: Mapping[str, str] | None = None
    url: str | None = None
    headers: dict[str, str | Secret] = {}
    token: TokenSource | None = None
    approval: ApprovalMode = "ask"
    trust_annotations: bool = False
    timeout: float | None = 300.0
    connect_timeout: float = 30.0
    clock: Clock | None = None

    def __repr__(self) -> str:
        return f"ServerSettings({self.name!r})"

    def variables(self) -> dict[str, str]:
        """Return the environment of the program: the few variables, and those it was given."""
        own = {name: _reveal(value) for name, value in self.env.items()}
        found = self.environment
        if found is None:
            found = {"PATH": os.pathsep.join(os.get_exec_path())}
        return choose_variables(found, own)

    def plain_headers(self) -> dict[str, str]:
        """Return the headers with their secrets; only for the requests themselves."""
        return {name: _reveal(value) for name, value in self.headers.items()}


def check_settings(name: str, options: McpOptions) -> ServerSettings:
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
    given: dict[str, Any] = dict(options)
    known = McpOptions.__annotations__
    for option in given:
        if option not in known:
            raise _wrong(name, option, unknown_name(option, known))
    for option, fits, wanted in _CHECKS:
        if option in given and not fits(given[option]):
            raise _wrong(name, option, f"must be {wanted}")
    _check_transport(name, given)
    token = given.pop("token", None)
    if "cwd" in given:
        given["cwd"] = os.fspath(given["cwd"])
    for option in ("env", "headers"):
        given[option] = dict(given.get(option, {}))
    remember_headers({key: value for key, value in given["headers"].items() if type(value) is str})
    given["args"] = tuple(given.get("args", ()))
    if token is not None:
        given["token"] = BoundTokenSource(_source_of(token), origin_of(given["url"]))
    return ServerSettings(name=name, **given)


def options_of(name: str, table: object) -> McpOptions:
    """Read one server of the shape `{"mcpServers": {name: {…}}}` that many programs share.

    Raises:
        ConfigError: CONFIG_INVALID naming the server and the field.

    """
    if not isinstance(table, Mapping):
        raise _wrong(name, "", "must be an object")
    given = dict(table)
    kind = given.pop("type", given.pop("transport", None))
    if kind is not None:
        wanted = _TRANSPORTS.get(kind) if isinstance(kind, str) else None
        if wanted is None:
            raise _wrong(name, "type", f"must be stdio or http, not {kind!r}")
        if wanted not in given:
            raise _wrong(name, "type", f"is {kind!r}, and there is no {wanted}")
    options: McpOptions = given  # type: ignore[assignment]  # checked by `check_settings`
    return options


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
            raise _wrong(name, "url", str(error)) from None
        if origin.scheme not in {"http", "https"} or "@" in str(given["url"]).partition("?")[0]:
            raise _wrong(name, "url", "must begin with http:// or https://, and hold no user")


def _source_of(token: McpToken) -> TokenSource:
    if isinstance(token, str | Secret):
        return StaticTokenSource(token, kind="oauth")
    if callable(token):
        return CallableTokenSource(token, kind="oauth")
    return token


def _reveal(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _wrong(name: str, option: str, fault: str) -> ConfigError:
    place = f": {option}" if option else ""
    return ConfigError(ErrorCode.CONFIG_INVALID, f"MCP server {name!r}{place}: {fault}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _is_texts(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    return all(isinstance(item, str) and "\0" not in item for item in value)


def _is_plain(value: object) -> bool:
    return isinstance(value, Secret) or (isinstance(value, str) and "\0" not in value)


def _is_variables(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_text(key) and "=" not in key and _is_plain(item) for key, item in value.items()
    )


def _is_headers(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_text(key) and _is_plain(item) and not re.search(r"[\r\n]", key + _reveal(item))
        for key, item in value.items()
    )


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST


def _is_token(value: object) -> bool:
    return isinstance(value, str | Secret) or callable(value) or hasattr(value, "token")


_CHECKS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("command", _is_text, "the name or path of a program"),
    ("args", _is_texts, "a list of texts"),
    ("env", _is_variables, "a table of texts"),
    ("cwd", lambda value: isinstance(value, os.PathLike) or _is_text(value), "a path"),
    ("environment", lambda value: isinstance(value, Mapping), "a mapping"),
    ("url", _is_text, "a URL"),
    ("headers", _is_headers, "a table of texts without line breaks"),
    ("token", _is_token, "a token, a Secret, a function that returns one, or a TokenSource"),
    ("approval", lambda value: value in {"ask", "never"}, "'ask' or 'never'"),
    ("trust_annotations", lambda value: isinstance(value, bool), "True or False"),
    ("timeout", lambda value: value in {None, 0} or _is_seconds(value), "seconds, or None"),
    ("connect_timeout", _is_seconds, "seconds"),
    ("clock", lambda value: hasattr(value, "now"), "a Clock"),
)
"""What each option must be, in the words of an error."""
