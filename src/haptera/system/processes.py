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

from haptera.model.errors import ConfigError, ErrorCode, SessionError

ProcessState: TypeAlias = Literal["alive", "dead", "stopped", "unknown"]
"""`unknown` is a process that cannot be seen from here: it runs in another container, or `/proc`
does not show it."""

_PROC = Path("/proc")
_UNKNOWN_BOOT = "unknown"


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
    """Which start of which machine; `unknown` where the system does not show it."""

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
    """Return the identity of the current process.

    Raises:
        ConfigError: CONFIG_INVALID when the system does not show it. Without it no other process
            could tell whether this one still runs.

    """
    return _identity_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _identity_of(pid: int) -> ProcessIdentity:
    """Return the identity of the process that has this pid; a fork has another one."""
    try:
        started = _parse_stat((_PROC / "self" / "stat").read_bytes())[0]
        namespace = str((_PROC / "self/ns/pid").stat().st_ino)
    except (OSError, ValueError, IndexError) as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            "sessions cannot be kept in a store here: the identity of this process cannot be read "
            f"({error}); mount /proc",
        ) from error
    return ProcessIdentity(pid=pid, started=started, namespace=namespace, boot=_boot())


def is_of_this_machine(identity: ProcessIdentity) -> bool:
    """Return whether a process is known to run, or to have run, on this machine since it started.

    Namespaces do not tell: the first one of every machine has the same number.
    """
    here = this_process()
    is_comparable = _UNKNOWN_BOOT not in {identity.boot, here.boot}
    return is_comparable and (identity.boot, identity.namespace) == (here.boot, here.namespace)


def process_state(identity: ProcessIdentity) -> ProcessState:
    """Return whether a process runs, is stopped, has ended, or cannot be seen from here.

    Nothing that cannot be read counts as an end: only a boot or a start that is known to be another
    one does, or the word of the system that there is no process of this number.
    """
    here = this_process()
    if identity.boot != here.boot and _UNKNOWN_BOOT not in {identity.boot, here.boot}:
        return "dead"
    if identity.namespace != here.namespace or identity.started < 0:
        return "unknown"
    try:
        os.kill(identity.pid, 0)
    except ProcessLookupError:
        return "dead"
    except OSError:
        pass  # it runs, as another user
    try:
        # A `/proc` of another namespace shows other processes under these numbers.
        if (_PROC / "self").readlink().name != str(here.pid):
            return "unknown"
        started, state = _parse_stat((_PROC / str(identity.pid) / "stat").read_bytes())
    except (OSError, ValueError, IndexError):
        return "unknown"
    # Another start time means that the number was given to a later process.
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


def _parse_stat(stat: bytes) -> tuple[int, ProcessState]:
    """Return when a process was started, and its state; raises ValueError or IndexError."""
    # The second field, the name of the program, may hold spaces, brackets and any bytes: count from
    # its end.
    fields = stat.rpartition(b")")[2].split()
    # Fields 3 and 22 in the numbering of proc(5).
    letter, started = fields[0], int(fields[19])
    # A zombie has ended and is only kept until its parent asks for its exit code.
    if letter in b"ZXx":
        return started, "dead"
    return started, "stopped" if letter in b"Tt" else "alive"


def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return _UNKNOWN_BOOT
