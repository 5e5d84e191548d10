"""Process identity, fork detection and the clock that all processes of a machine share.

Leases need all three: a lease names the process of its holder, other processes check whether that
process still runs, and a lease of a stopped process expires by the shared clock.
"""

import functools
import os
import time
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from holdfast.vocabulary.errors import ErrorCode, SessionError

ProcessState: TypeAlias = Literal["alive", "dead", "stopped", "unknown"]
"""`unknown` is a process that cannot be seen from here: it runs in another container."""

_PROC = Path("/proc")


def monotonic_seconds() -> float:
    """Return seconds on the machine's monotonic clock, which has one value for all processes.

    The clock stands still while the machine sleeps and ignores changes of the wall clock, so
    neither makes a lease expire.
    """
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies a process beyond its pid, which the system uses again for later processes."""

    pid: int
    started: int
    """Clock ticks between the start of the machine and the start of the process."""
    namespace: str
    """The pid namespace in which `pid` is valid; each container has its own."""
    boot: str

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}:{self.namespace}:{self.boot}"


def parse_identity(text: str) -> ProcessIdentity | None:
    """Parse the `str` of an identity; return None for any other text."""
    fields = text.split(":")
    try:
        pid, started, namespace, boot = fields
        return ProcessIdentity(pid=int(pid), started=int(started), namespace=namespace, boot=boot)
    except ValueError:
        return None


def this_process() -> ProcessIdentity:
    """Return the identity of the current process."""
    return _identity_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _identity_of(pid: int) -> ProcessIdentity:
    """Return the identity of the process that has this pid; a fork has another one."""
    return ProcessIdentity(
        pid=pid, started=_start_and_state(pid)[0], namespace=_namespace(), boot=_boot()
    )


def process_state(identity: ProcessIdentity) -> ProcessState:
    """Return whether a process runs, is stopped, has ended, or cannot be seen from here."""
    if identity.boot != _boot():
        return "dead"
    if identity.namespace != _namespace():
        return "unknown"
    # Another start time means that the number was given to a later process.
    started, state = _start_and_state(identity.pid)
    return state if started == identity.started else "dead"


class ForkGuard:
    """Remembers the process in which a store was made.

    A store works through threads, and a fork does not have the threads of its parent: an operation
    started there would never finish.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    def refuse_forks(self) -> None:
        """Raise CLOSED in a fork of the process that made the store."""
        if os.getpid() != self._pid:
            raise SessionError(
                ErrorCode.CLOSED,
                f"the store belongs to process {self._pid}, of which this one is a fork; "
                "make an agent after forking",
            )


def _start_and_state(pid: int) -> tuple[int, ProcessState]:
    try:
        # The name of a program can be any bytes.
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1, "dead"
    # The second field, the name of the program, may hold spaces and brackets: count from its end.
    fields = stat.rpartition(")")[2].split()
    # Fields 3 and 22 in the numbering of proc(5).
    letter, started = fields[0], int(fields[19])
    # A zombie has ended and is only kept until its parent asks for its exit code.
    if letter in "ZXx":
        return started, "dead"
    return started, "stopped" if letter in "Tt" else "alive"


def _namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
