"""What the launcher is told and what it tells: plain values that travel as lines of JSON.

Standard library only: the launcher imports this without the rest of the package.
"""

import json
from typing import NamedTuple

LAYERS = ("namespaces", "landlock", "seccomp")
"""What can confine a command, in the order in which it is set up."""

SETUP_FAILED = 125
"""The launcher's exit status when the command was not started."""


TEMPORARY, LASTING_TEMPORARY = "/tmp", "/var/tmp"  # noqa: S108 - mounts of the command's own
"""Where a command in namespaces finds its temporary folder."""


def is_beneath(path: str, folder: str) -> bool:
    """Whether a path is that of the folder or of something in it; both are absolute."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class Plan(NamedTuple):
    """One command, and what it may see and do."""

    argv: list[str]
    environment: dict[str, str]
    root: str
    """The folder that may be written: an absolute path without symbolic links."""
    root_identity: list[int]
    """Device and inode of the root, so that another folder of that name is not taken for it."""
    folder: str
    """Where the command starts, beneath the root."""
    temporary: str
    """The other folder that may be written; it is `/tmp` where there are namespaces."""
    writable: list[str]
    protected: list[str]
    """Names in the root that are read-only."""
    hidden: list[str]
    """Absolute paths that cannot be looked into."""
    exposed: list[str]
    """Absolute paths beneath hidden ones that can be read all the same."""
    readable: list[str]
    """What may be read where only Landlock is there; everything else is closed then."""
    network: bool
    layers: list[str]
    """What confines the command; none for a command that is not confined."""
    limits: dict[str, int]
    """Names of RLIMIT_ constants and their values."""

    def to_line(self) -> bytes:
        """Write it as one line."""
        return json.dumps(self._asdict()).encode() + b"\n"


def read_plan(line: bytes) -> Plan:
    """Read what `to_line` wrote."""
    return Plan(**json.loads(line))


def to_line(message: dict[str, object]) -> bytes:
    """Write a message of the launcher as one line."""
    return json.dumps(message).encode() + b"\n"
