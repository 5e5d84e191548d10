"""The folder of a jsonl store: the names of its files, their locks, and the files of blobs.

    sessions/<id>.jsonl     the log
    leases/<id>.lock        the lock file: holder, epoch, how far the log reached, its index record
    inbox/<id>.jsonl        commands from other processes
    blobs/<id>/<sha256>     content too big for a line
    quarantine/<id>.jsonl   what was cut off a log, with the offset it had
    waiting/<id>.<ticket>   empty files, one for each caller that waits for a lease
    takeovers/<id>.*        files that are about to replace others
    index.lock              locked while a name is taken

Files are created 0600 and folders 0700. A new file is durable only once its folder is synced.
"""

import contextlib
import errno
import fcntl
import functools
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from haptera.model.errors import ConfigError, ErrorCode, StoreError
from haptera.model.ids import SessionId, parse_session_id
from haptera.stores.stored_records import FindBlob
from haptera.system.atomic_files import create_folder, replace_file
from haptera.system.private_files import open_or_create, read_or_empty
from haptera.system.processes import monotonic_seconds

LOCK_TIMEOUT_SECONDS = 30.0
_FIRST_RETRY_SECONDS = 0.001
_LONGEST_RETRY_SECONDS = 0.05
_FORMER_CACHES = ("index.json", "lookup.jsonl")
"""Files of earlier versions that say what logs say. No version needs them to find a session."""

SideFolder: TypeAlias = Literal["waiting", "takeovers"]


class SessionFolder:
    """Names the files of sessions. Only a valid session id becomes part of a file name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sessions = root / "sessions"
        self.leases = root / "leases"

    def log(self, session_id: SessionId) -> Path:
        """Return the path of a session's log."""
        return self.sessions / f"{_checked(session_id)}.jsonl"

    def lease(self, session_id: SessionId) -> Path:
        """Return the path of a session's lock file."""
        return self.leases / f"{_checked(session_id)}.lock"

    def inbox(self, session_id: SessionId) -> Path:
        """Return the path of the commands for a session."""
        return self.root / "inbox" / f"{_checked(session_id)}.jsonl"

    def blobs(self, session_id: SessionId) -> Path:
        """Return the folder of a session's blobs."""
        return self.root / "blobs" / _checked(session_id)

    def quarantine(self, session_id: SessionId) -> Path:
        """Return the path of what was cut off a session's log."""
        return self.root / "quarantine" / f"{_checked(session_id)}.jsonl"

    def side_file(self, folder: SideFolder, session_id: SessionId, ending: str) -> Path:
        """Return the path of one of any number of side files of a session."""
        return self.root / folder / f"{_checked(session_id)}.{ending}"

    def side_files(self, folder: SideFolder, session_id: SessionId) -> dict[str, Path]:
        """Return the side files that a session has, by the ending of their names."""
        start = f"{_checked(session_id)}."
        by_ending: dict[str, Path] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / folder) as files:
            for file in files:
                if file.name.startswith(start):
                    by_ending[file.name.removeprefix(start)] = Path(file.path)
        return by_ending

    @contextlib.contextmanager
    def names_locked(self) -> Iterator[None]:
        """Keep every other process from taking a name; raises UNAVAILABLE."""
        path = self.root / "index.lock"
        descriptor = open_or_create(path, os.O_RDWR)
        try:
            with descriptor_lock(descriptor, path):
                yield
        finally:
            os.close(descriptor)

    def remove_former_caches(self) -> None:
        """Remove what an earlier version wrote to find sessions by, before it becomes wrong.

        A process of that version looks at the logs themselves when these files are missing.
        """
        for name in _FORMER_CACHES:
            (self.root / name).unlink(missing_ok=True)


@functools.lru_cache(maxsize=1024)  # several files of a session are named for each append
def _checked(session_id: SessionId) -> str:
    if parse_session_id(session_id) is None:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{session_id!r} is not a session id")
    return session_id


@contextlib.contextmanager
def descriptor_lock(descriptor: int, path: Path) -> Iterator[None]:
    """Hold the lock of an open file; raises UNAVAILABLE when another process keeps it."""
    deadline = monotonic_seconds() + LOCK_TIMEOUT_SECONDS
    wait = _FIRST_RETRY_SECONDS
    while not try_lock(descriptor):
        if monotonic_seconds() >= deadline:
            raise StoreError(
                ErrorCode.UNAVAILABLE,
                f"another process keeps {path} locked for {LOCK_TIMEOUT_SECONDS:g} s",
            )
        # `flock` has no timeout. Random waits keep processes that wait for one lock from trying in
        # step.
        threading.Event().wait(wait * (1 + secrets.randbelow(1000) / 1000))
        wait = min(wait * 2, _LONGEST_RETRY_SECONDS)
    try:
        yield
    finally:
        unlock(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this descriptor alone; False when another descriptor has the lock."""
    try:
        # Not a record lock: those belong to the process, so two stores in one process would not
        # exclude each other, and closing any descriptor of the file would release it.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # NFS makes record locks of these locks, which may fail with EACCES.
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return False
        raise
    return True


def unlock(descriptor: int) -> None:
    """Release the lock of an open file, also for forks that inherited the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def save_blob(folder: Path, name: str, content: bytes) -> None:
    """Store content durably under its name; raises OSError."""
    path = folder / name
    # A damaged file of that name is replaced by the right content.
    if path.exists() and read_or_empty(path) == content:
        return
    create_folder(folder)
    replace_file(path, content)


def find_blob(folder: Path, name: str) -> bytes | None:
    """Return the content stored under a name, unchecked; None when there is none."""
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        return None


def blob_finder(folder: Path) -> FindBlob:
    """Return the function that finds the blobs in a folder."""
    return functools.partial(find_blob, folder)
