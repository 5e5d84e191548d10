"""Kills a writing process at every one of its writes and syncs, and checks what is left.

Needs Linux and `strace`. The worker is a program of the caller's: it writes to a store and notes in
a side file, through `note_acknowledged`, what it was told is durable. After each kill the store is
opened again: all of that must be there, nothing may be unreadable, and writing must go on.
"""

import asyncio
import itertools
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from haptera.model.ids import SessionId
from haptera.testing.promises import (
    PromiseBrokenError,
    require,
    require_same,
)
from haptera.testing.store_conformance.samples import (
    OpenStore,
    note,
    opened,
)

SYSTEM_CALLS = "write,pwrite64,fsync,fdatasync,ftruncate,rename,unlink,mkdir"
"""The calls to be killed at. Acknowledgements use another one and are never the one."""

_CALL = re.compile(r"^(\d+) +(\w+)\(", re.MULTILINE)

Worker: TypeAlias = Callable[[Path], Sequence[str]]
"""The command that writes in a folder."""


class CrashPoint(msgspec.Struct, frozen=True):
    """The n-th time that a thread makes a call."""

    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.call} number {self.number}"


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many deaths a store survived."""

    points: int
    killed: int
    """How often it was really killed: a run may make fewer calls than the one that was traced."""


def is_strace_here() -> bool:
    """Whether the tool that kills is installed."""
    return shutil.which("strace") is not None


def note_acknowledged(acks: Path, session_id: SessionId, seq: int) -> None:
    """Note that a store said an entry is durable."""
    descriptor = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # Not `os.write`, which is among the calls to be killed at.
        os.writev(descriptor, [f"{session_id} {seq}\n".encode()])
    finally:
        os.close(descriptor)


def read_acknowledged(acks: Path) -> dict[SessionId, int]:
    """Return the last `seq` that was acknowledged, by session."""
    pairs = [line.split() for line in acks.read_text().splitlines()] if acks.exists() else []
    return {SessionId(session_id): int(seq) for session_id, seq in pairs}


async def check_acknowledged_is_there(open_store: OpenStore, acks: Path) -> None:
    """Everything acknowledged is there, every log is whole, and it can be appended to."""
    for session_id, seq in read_acknowledged(acks).items():
        async with opened(open_store) as store:
            seqs = [entry.seq for entry in await store.log.read(session_id)]
            require_same(seqs, list(range(1, len(seqs) + 1)), "a log without gaps")
            require(len(seqs) >= seq, f"{seq} was acknowledged, but {len(seqs)} is the last")
            lease = await store.leases.acquire(session_id, "after the crash")
            await store.log.append(lease, [note(len(seqs) + 1)])
            again = [entry.seq for entry in await store.log.read(session_id)]
            require_same(again, [*seqs, len(seqs) + 1], "a log that goes on")


async def find_crash_points(worker: Worker, folder: Path) -> list[CrashPoint]:
    """Let the worker live once and note the calls at which it could have died."""
    trace = _fresh(folder) / "trace"
    code = await _run(["-e", f"trace={SYSTEM_CALLS}", "-o", str(trace)], worker(folder / "place"))
    require_same(code, 0, "the worker ends well when it is not killed")
    return _points_in(trace.read_text())


async def sweep_crashes(
    worker: Worker,
    check: Callable[[Path], Awaitable[None]],
    *,
    folder: Path,
    points: Sequence[CrashPoint] | None = None,
) -> SweepReport:
    """Kill the worker at each point, or at those given, and check the folder it leaves.

    Raises PromiseBrokenError naming the point.
    """
    if points is None:
        points = await find_crash_points(worker, folder / "counted")
    killed = 0
    for point in points:
        own_folder = folder / f"{point.call}-{point.number}"
        killed += await _kill_at(point, worker(own_folder))
        try:
            await check(own_folder)
        except PromiseBrokenError as error:
            raise PromiseBrokenError(f"after a crash at {point}: {error}") from error
        shutil.rmtree(own_folder, ignore_errors=True)
    return SweepReport(points=len(points), killed=killed)


def spread(points: Sequence[CrashPoint], count: int) -> list[CrashPoint]:
    """Choose some of the points, evenly."""
    return list(itertools.islice(points[:: max(1, len(points) // count)], count))


def _points_in(trace: str) -> list[CrashPoint]:
    calls = Counter(match.groups() for match in _CALL.finditer(trace))
    # By thread and call, because `strace` counts like that when it injects the signal.
    most: dict[str, int] = {}
    for (_, call), number in calls.items():
        most[call] = max(most.get(call, 0), number)
    return [
        CrashPoint(call, number) for call in sorted(most) for number in range(1, most[call] + 1)
    ]


def _fresh(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


async def _kill_at(point: CrashPoint, command: Sequence[str]) -> bool:
    rule = f"inject={point.call}:signal=SIGKILL:when={point.number}"
    code = await _run(["-e", f"trace={point.call}", "-e", rule, "-o", os.devnull], command)
    # `strace` ends as its worker did: by the signal, or with 128 and its number.
    require(code in {-signal.SIGKILL, 128 + signal.SIGKILL, 0}, f"the worker ended with {code}")
    return code != 0


async def _run(options: Sequence[str], command: Sequence[str]) -> int:
    tracer = await asyncio.create_subprocess_exec("strace", "-f", "-qq", *options, "--", *command)
    return await tracer.wait()
