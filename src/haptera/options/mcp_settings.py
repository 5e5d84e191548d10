"""What an MCP server is told: by a program, as options of `McpServer`, and by the user's file.

Each field is the one declaration of an option, as in `haptera.model.settings`. Programs and
files differ in how they name a secret, so its type is a parameter.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Generic, TypeVar

import msgspec

from haptera.model.option import Option
from haptera.model.secrets import Secret
from haptera.model.tools import ApprovalMode

TextT = TypeVar("TextT")
"""A text, or one that is a secret."""
TokenT = TypeVar("TokenT")
"""Where a token comes from."""

_LONGEST = 1_000_000.0


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _is_texts(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    return all(isinstance(item, str) and "\0" not in item for item in value)


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike) or _is_text(value)


def _is_plain(value: object) -> bool:
    return isinstance(value, Secret) or (isinstance(value, str) and "\0" not in value)


def _is_variables(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_text(key) and "=" not in key and _is_plain(item) for key, item in value.items()
    )


def _is_headers(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_text(key) and _is_plain(item) and not re.search(r"[\r\n]", key + revealed(item))
        for key, item in value.items()
    )


def _is_token(value: object) -> bool:
    return isinstance(value, str | Secret) or callable(value) or hasattr(value, "token")


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST


def _is_seconds_or_any(value: object) -> bool:
    is_any = value is None or (value == 0 and not isinstance(value, bool))
    return is_any or _is_seconds(value)


def revealed(value: str | Secret) -> str:
    """Return a text that may be a secret; only for the server itself."""
    return value.reveal() if isinstance(value, Secret) else value


class McpServerSettings(
    msgspec.Struct, Generic[TextT, TokenT], frozen=True, kw_only=True, omit_defaults=True
):
    """What an MCP server is told; it has either a `command` or a `url`."""

    command: Annotated[
        str | None,
        Option(
            "The program to start; the server speaks on its standard input and output.",
            fits=_is_text,
            wanted="the name or path of a program",
        ),
    ] = None
    args: Annotated[
        tuple[str, ...],
        Option("The arguments of the program.", fits=_is_texts, wanted="a list of texts"),
    ] = ()
    env: Annotated[
        dict[str, TextT],
        Option(
            "Variables for the program, besides the few that every one gets (`PATH`, `HOME`, "
            "`LANG`, …). No other variable of the process reaches it.",
            fits=_is_variables,
            wanted="a table of texts",
        ),
    ] = {}
    cwd: Annotated[
        str | None, Option("Where the program is started.", fits=_is_path, wanted="a path")
    ] = None
    url: Annotated[
        str | None,
        Option("The URL of a server that speaks streamable HTTP.", fits=_is_text, wanted="a URL"),
    ] = None
    headers: Annotated[
        dict[str, TextT],
        Option(
            "Headers for each request to the URL.",
            fits=_is_headers,
            wanted="a table of texts without line breaks",
        ),
    ] = {}
    token: Annotated[
        TokenT | None,
        Option(
            "An OAuth or other bearer token, or a source of tokens; sent to the origin of the URL "
            "only.",
            fits=_is_token,
            wanted="a token, a Secret, a function that returns one, or a TokenSource",
        ),
    ] = None
    approval: Annotated[
        ApprovalMode,
        Option(
            "`ask`: a person is asked about each call; `never`: about none. Permission rules "
            "decide first."
        ),
    ] = "ask"
    trust_annotations: Annotated[
        bool,
        Option(
            "Whether what the server says of its tools counts: those that only read run without a "
            "question, and idempotent ones may be run again. Otherwise approvers are told, and "
            "nothing else follows.",
            fits=lambda value: isinstance(value, bool),
            wanted="True or False",
        ),
    ] = False
    timeout: Annotated[
        float | None,
        Option(
            "Seconds that a call may take; 0 or None: any.",
            least=0,
            most=_LONGEST,
            fits=_is_seconds_or_any,
            wanted="seconds, or None",
        ),
    ] = 300.0
    connect_timeout: Annotated[
        float,
        Option(
            "Seconds until the server must be ready.",
            least=0.001,
            most=_LONGEST,
            fits=_is_seconds,
            wanted="seconds",
        ),
    ] = 30.0
