"""Keywords of functions with options, by `scripts/write_keywords.py`: not by hand.

A module of its own because it is data that a script writes.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from haptera.ports.permissions import PathGuard
from haptera.ports.session_store import Blobs
from haptera.tools.sandbox.policy import Sandbox


class CodingKeywords(TypedDict, total=False):
    """What `coding_tools` may be told."""

    environment: Mapping[str, str] | None
    """Where the variables on the allow-list are taken from; None: the environment of the agent."""
    variables: Mapping[str, str]
    """More variables for commands, with their values."""
    sandbox: Sandbox | None
    """How commands are confined; None: not at all."""
    protected: Sequence[str]
    """Names that no tool can write, only read."""
    guard: PathGuard | None
    """A function that is called with `read` or `write` and the real path of every file that is
    accessed; it returns why that is refused, or None. The agent's rules that deny files are checked
    in any case."""
    blobs: Blobs | None
    """Where long output is kept; None: in the store of the agent."""
