"""Locks on open files, waited for with an end."""

import contextlib
import errno
import fcntl
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

from holdfast.stores.processes import monotonic_seconds
from holdfast.vocabulary.errors import ErrorCode, StoreError

PATIENCE_SECONDS = 30.0
OPENING_PATIENCE_SECONDS = 2.0
_FIRST_WAIT = 0.001
_LONGEST_WAIT = 0.05


class StillLockedError(StoreError):
    """Another process kept a file locked for longer than it was waited for."""


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this descriptor alone; False when another one has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return False
        raise
    return True


def unlock(descriptor: int) -> None:
    """Give up the lock of an open file, whoever else has inherited it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(descriptor: int, path: Path, *, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold the lock of an open file; raises StillLockedError at the end of patience."""
    deadline = monotonic_seconds() + patience
    wait = _FIRST_WAIT
    while not try_lock(descriptor):
        if monotonic_seconds() >= deadline:
            raise StillLockedError(
                ErrorCode.UNAVAILABLE, f"another process keeps {path} locked for {patience:g} s"
            )
        threading.Event().wait(wait * (1 + secrets.randbelow(1000) / 1000))
        wait = min(wait * 2, _LONGEST_WAIT)
    try:
        yield
    finally:
        unlock(descriptor)
