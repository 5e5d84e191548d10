"""The folder of a jsonl store: where each file is, and how files come to be.

    sessions/<id>.jsonl     the log
    leases/<id>.lock        who may append, since when (epoch), how far the log once reached
    inbox/<id>.jsonl        commands from other processes
    blobs/<id>/<sha256>     big payloads
    quarantine/<id>.jsonl   what was cut off a log, with the offset it had
    index.json              a cache of what the logs say; deleting it loses nothing

Files are made 0600 and folders 0700. A new file is durable only once its folder is synced.
"""

import os
from pathlib import Path

from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.ids import SessionId, parse_session_id

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class SessionFolder:
    """Names the files of sessions and opens them. A file name is made of a checked id only."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def log(self, session_id: SessionId) -> Path:
        """Name the log of a session."""
        return self.root / "sessions" / f"{_checked(session_id)}.jsonl"

    def lease(self, session_id: SessionId) -> Path:
        """Name the lock file of a session."""
        return self.root / "leases" / f"{_checked(session_id)}.lock"

    def inbox(self, session_id: SessionId) -> Path:
        """Name the file of commands for a session."""
        return self.root / "inbox" / f"{_checked(session_id)}.jsonl"

    def blobs(self, session_id: SessionId) -> Path:
        """Name the folder of a session's big payloads."""
        return self.root / "blobs" / _checked(session_id)

    def quarantine(self, session_id: SessionId) -> Path:
        """Name the file of what was cut off a log."""
        return self.root / "quarantine" / f"{_checked(session_id)}.jsonl"

    @property
    def index(self) -> Path:
        """The cache of session records."""
        return self.root / "index.json"

    @property
    def index_lock(self) -> Path:
        """The file whose lock guards names."""
        return self.root / "index.lock"

    def session_ids(self) -> list[SessionId]:
        """Return the ids of all sessions that have a log."""
        try:
            with os.scandir(self.root / "sessions") as files:
                found = [parse_session_id(file.name.removesuffix(".jsonl")) for file in files]
        except FileNotFoundError:
            return []
        return [session_id for session_id in found if session_id is not None]


def open_or_create(path: Path, flags: int) -> int:
    """Open a file, made durably if it is new."""
    try:
        return os.open(path, flags | _FLAGS)
    except FileNotFoundError:
        make_folder(path.parent)
    descriptor = os.open(path, flags | _FLAGS | os.O_CREAT, FILE_MODE)
    sync_folder(path.parent)
    return descriptor


def make_folder(path: Path) -> None:
    """Make a folder and those above it, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make durable which files a folder holds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_whole(path: Path) -> bytes:
    """Return the content of a file; a missing one is empty."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def remove_durably(path: Path) -> None:
    """Remove a file that may be missing, and make that durable."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_folder(path.parent)


def _checked(session_id: SessionId) -> str:
    if parse_session_id(session_id) is None:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{session_id!r} is not a session id")
    return session_id
