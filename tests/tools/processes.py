"""Finds and waits for processes by a mark in their command line, for tests of what is left."""

import os
import secrets
import select
from pathlib import Path


def new_mark() -> str:
    """Return a number of seconds that no other process sleeps for."""
    return f"{600 + secrets.randbelow(300)}.{secrets.randbelow(10**9):09}"


def marked(mark: str) -> list[int]:
    """Return the processes whose command line holds a mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def wait_until_gone(pids: list[int]) -> None:
    """Return when the processes have ended."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            select.select([descriptor], [], [])
        finally:
            os.close(descriptor)


def wait_until_none(mark: str, *, but: int | None = None) -> None:
    """Return when no process with a mark is left, also of those that were started meanwhile."""
    while left := [pid for pid in marked(mark) if pid != but]:
        wait_until_gone(left)
