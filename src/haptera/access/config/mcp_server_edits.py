"""Adds MCP servers to the user's configuration file and removes them; the rest stays as it is.

The text is changed, not written anew, so comments and order stay. What comes out is read back
before it replaces the file: it must say exactly what was meant.
"""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec

from haptera.access.config.file import load_config, parse_config
from haptera.access.config.schema import McpServerEntry
from haptera.model.errors import ConfigError, ErrorCode, StoreError
from haptera.model.json_types import Json, JsonObject, writable
from haptera.options.checks import dotted
from haptera.system.atomic_files import file_lock, replace_file

SECTION = "mcpServers"
# It also finds lines of arrays and of texts of several lines that look like headers. `_replace`
# refuses what comes out when that goes wrong.
_HEADER = re.compile(r"^[ \t]*\[\[?[^\n]*?\]\]?[ \t]*(?:#[^\n]*)?$", re.MULTILINE)


def add_server(
    path: Path, name: str, table: JsonObject, *, key_headers: frozenset[str] = frozenset()
) -> McpServerEntry:
    """Write a server into a file, which is made if it is missing.

    `key_headers` are the headers in which providers get their keys, as for `load_config`.

    Raises:
        ConfigError: CONFIG_INVALID when there is one of that name, or the table is wrong.
        StoreError: UNAVAILABLE when the file cannot be written.

    """

    def change(text: str) -> str:
        if name in parse_config(text, path=path, key_headers=key_headers).mcp_servers:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, f"{path} has an MCP server {name!r} already"
            )
        lines = [f"[{dotted((SECTION, name))}]"]
        lines += [f"{dotted((key,))} = {_written(value)}" for key, value in table.items()]
        return "\n".join([text.rstrip(), "", *lines, ""] if text.strip() else [*lines, ""])

    meant = {name: table}
    _replace(path, change, lambda servers: servers | meant, key_headers=key_headers)
    return load_config(path, key_headers=key_headers).mcp_servers[name]


def remove_server(path: Path, name: str, *, key_headers: frozenset[str] = frozenset()) -> None:
    """Take a server out of a file.

    Raises:
        ConfigError: CONFIG_INVALID when there is none of that name, or it stands there in a form
            that only a person can change.
        StoreError: UNAVAILABLE when the file cannot be written.

    """

    def change(text: str) -> str:
        if name not in parse_config(text, path=path, key_headers=key_headers).mcp_servers:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{path} has no MCP server {name!r}")
        headers = [*_HEADER.finditer(text)]
        ends = [*(header.start() for header in headers), len(text)][1:]
        head = text[: headers[0].start()] if headers else text
        for header, end in zip(headers, ends, strict=True):
            if not _is_of(header.group(), name):
                head += text[header.start() : end]
        return head.rstrip() + "\n" if head.strip() else ""

    def without(servers: JsonObject) -> JsonObject:
        return {key: table for key, table in servers.items() if key != name}

    _replace(path, change, without, key_headers=key_headers)


def _replace(
    path: Path,
    change: Callable[[str], str],
    meant: Callable[[JsonObject], JsonObject],
    *,
    key_headers: frozenset[str],
) -> None:
    """Change a file and check that the new one says what was meant, and all else as before."""
    real = Path(path).resolve()  # a file of a folder of settings that is linked to stays there
    try:
        with file_lock(real):
            # A file that others can write is refused, and one that is no text.
            load_config(real, key_headers=key_headers)
            content = real.read_bytes() if real.exists() else b""
            text = content.decode("utf-8-sig").replace("\r\n", "\n")
            after = change(text)
            before = tomllib.loads(text)
            wanted = before | {SECTION: meant(before.get(SECTION, {}))}
            if not _says(after, wanted):
                message = f"{path} cannot be changed by a program; edit [{SECTION}] in it"
                raise ConfigError(ErrorCode.CONFIG_INVALID, message)
            parse_config(after, path=path, key_headers=key_headers)
            # A file in which only some lines end with CR LF gets LF throughout.
            has_returns = 0 < content.count(b"\n") == content.count(b"\r\n")
            replace_file(real, (after.replace("\n", "\r\n") if has_returns else after).encode())
    except OSError as error:
        message = f"{path} could not be changed: {error.strerror}"
        raise StoreError(ErrorCode.UNAVAILABLE, message) from error


def _says(text: str, wanted: JsonObject) -> bool:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    wanted = {key: value for key, value in wanted.items() if key != SECTION or value}
    return bool(table == wanted)


def _is_of(header: str, name: str) -> bool:
    """Whether a table is the server's own, or one inside it."""
    try:
        tables = tomllib.loads(header.strip().replace("[[", "[").replace("]]", "]"))
    except tomllib.TOMLDecodeError:
        return False  # a line of an array or of a text
    return name in tables.get(SECTION, {})


def _written(value: Json) -> str:
    """Write a value as TOML."""
    if isinstance(value, str) and writable(value) != value:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"{value!r} is not valid text and cannot be written into the file",
        )
    if isinstance(value, str):
        # Strings of JSON are strings of TOML, but for one character that TOML wants escaped.
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        inside = [f"{dotted((str(key),))} = {_written(each)}" for key, each in value.items()]
        return f"{{ {', '.join(inside)} }}" if inside else "{}"
    raise ConfigError(
        ErrorCode.CONFIG_INVALID, f"{type(value).__name__} cannot be written into the file"
    )
