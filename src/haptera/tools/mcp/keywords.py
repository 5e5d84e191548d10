"""Keywords of functions with options, by `scripts/write_keywords.py`: not by hand.

A module of its own because it is data that a script writes.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TypedDict

from haptera.model.secrets import Secret
from haptera.model.tools import ApprovalMode
from haptera.system.clock import Clock
from haptera.tools.mcp.server_settings import McpToken


class McpKeywords(TypedDict, total=False):
    """What an MCP server may be told: the fields of `ResolvedServer`, as a program writes them."""

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
    """Where the few variables are taken from; None: `PATH` and `HOME` of the process."""
    url: str
    """The URL of a server that speaks streamable HTTP."""
    headers: Mapping[str, str | Secret]
    """Headers for each request to the URL."""
    token: McpToken
    """An OAuth or other bearer token, or a source of tokens; sent to the origin of the URL only."""
    approval: ApprovalMode
    """`ask`: a person is asked about each call; `never`: about none. Permission rules decide
    first."""
    trust_annotations: bool
    """Whether what the server says of its tools counts: those that only read run without a
    question, and idempotent ones may be run again. Otherwise approvers are told, and nothing else
    follows."""
    timeout: float | None
    """Seconds that a call may take; 0 or None: any."""
    connect_timeout: float
    """Seconds until the server must be ready."""
    clock: Clock
    """The time, for tests."""
