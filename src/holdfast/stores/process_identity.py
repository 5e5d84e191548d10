"""Names this process so that others on the machine can tell whether it still lives."""

import os
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

Condition: TypeAlias = Literal["alive", "dead", "stopped", "unknown"]

_PROC = Path("/proc")


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    started: int
    """Ticks between the start of the machine and that of the process."""
    namespace: str
    """Where the number means this process; a container has its own."""
    boot: str

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}:{self.namespace}:{self.boot}"


def parse_identity(text: str) -> ProcessIdentity | None:
    """Read what `str` of an identity wrote; None when it is something else."""
    fields = text.split(":")
    try:
        pid, started, namespace, boot = fields
        return ProcessIdentity(pid=int(pid), started=int(started), namespace=namespace, boot=boot)
    except ValueError:
        return None


def this_process() -> ProcessIdentity:
    """Return the identity of the process that asks."""
    return ProcessIdentity(
        pid=os.getpid(),
        started=_start_and_condition(os.getpid())[0],
        namespace=_namespace(),
        boot=_boot(),
    )


def condition_of(identity: ProcessIdentity) -> Condition:
    """Find out how a process is doing; `unknown` when it cannot be seen from here."""
    if identity.boot != _boot():
        return "dead"
    if identity.namespace != _namespace():
        return "unknown"
    started, condition = _start_and_condition(identity.pid)
    return condition if started == identity.started else "dead"


def _start_and_condition(pid: int) -> tuple[int, Condition]:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1, "dead"
    # The name in the second field may hold spaces and brackets, so count from its end.
    fields = stat.rpartition(")")[2].split()
    letter, started = fields[0], int(fields[19])
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
