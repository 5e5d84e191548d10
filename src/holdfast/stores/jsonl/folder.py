"""The folder of a jsonl store: where each file is, and how files come to be.

    sessions/<id>.jsonl     the log
    leases/<id>.lock        who may append, since when (epoch), how far the log once reached
    inbox/<id>.jsonl        commands from other processes
    blobs/<id>/<sha256>     big payloads
    quarantine/<id>.jsonl   what was cut off a log, with the offset it had
    waiting/<id>.<ticket>   empty; who waits for a lease, in the order in which they asked
    takeovers/<id>.*        files on their way into the place of others
    index.json              a cache of what the logs say; deleting it loses nothing

Files are made 0600 and folders 0700. A new file is durable only once its folder is synced.
"""

import contextlib
import os
from pathlib import Path
from typing import Literal, TypeAlias

from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.ids import SessionId, parse_session_id

SideFolder: TypeAlias = Literal["waiting", "takeovers"]


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

    def named(self, folder: SideFolder, session_id: SessionId, ending: str) -> Path:
        """Name one of any number of files of a session: a ticket, or what is to replace a file."""
        return self.root / folder / f"{_checked(session_id)}.{ending}"

    def all_in(self, folder: SideFolder, session_id: SessionId) -> dict[str, Path]:
        """Return all such files of a session, by the end of their names."""
        start = f"{_checked(session_id)}."
        found: dict[str, Path] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / folder) as files:
            for file in files:
                if file.name.startswith(start):
                    found[file.name.removeprefix(start)] = Path(file.path)
        return found

    @property
    def index(self) -> Path:
        """The cache of session records."""
        return self.root / "index.json"

    @property
    def index_lock(self) -> Path:
        """The file whose lock guards names."""
        return self.root / "index.lock"

    def logs(self) -> dict[SessionId, os.stat_result]:
        """Return all sessions that have a log, each with what its file looks like."""
        found: dict[SessionId, os.stat_result] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / "sessions") as files:
            for file in files:
                with contextlib.suppress(FileNotFoundError):
                    found[SessionId(file.name.removesuffix(".jsonl"))] = file.stat(
                        follow_symlinks=False
                    )
        return found


def _checked(session_id: SessionId) -> str:
    if parse_session_id(session_id) is None:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{session_id!r} is not a session id")
    return session_id
