"""What the five ports of a jsonl store share."""

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.stores.bells import Bells
from holdfast.stores.jsonl.folder import SessionFolder
from holdfast.stores.jsonl.lanes import Lanes
from holdfast.stores.jsonl.session_writer import SessionWriter
from holdfast.stores.jsonl.summaries import Summaries
from holdfast.vocabulary.ids import SessionId


@dataclass(slots=True)
class JsonlRoom:
    """The folder, the threads, the caches and the leases that this store holds."""

    folder: SessionFolder
    summaries: Summaries
    bells: Bells
    lease_seconds: float
    lanes: Lanes = field(default_factory=Lanes)
    writers: dict[SessionId, SessionWriter] = field(default_factory=dict)
    """By session; each is used by the lane of its session only."""
    deleted_epochs: dict[SessionId, int] = field(default_factory=dict)
    """The last epoch under which a deleted session was held here: it must not come again."""


def open_room(root: Path, *, lease_seconds: float) -> JsonlRoom:
    """Put a room together; nothing is read or written yet."""
    folder = SessionFolder(root)
    sizes = FileSizes(folder)
    return JsonlRoom(
        folder=folder,
        summaries=Summaries(folder),
        bells=Bells(sizes.changed),
        lease_seconds=lease_seconds,
    )


class FileSizes:
    """Notices what other processes append, by the sizes of the files."""

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder
        self._seen: dict[SessionId, tuple[int, int]] = {}

    def changed(self, watched: Collection[SessionId]) -> list[SessionId]:
        """Return the watched sessions whose log or inbox has another size than before."""
        now = {session_id: self._sizes(session_id) for session_id in watched}
        changed = [
            session_id for session_id, sizes in now.items() if self._seen.get(session_id) != sizes
        ]
        self._seen = now
        return changed

    def _sizes(self, session_id: SessionId) -> tuple[int, int]:
        return _size(self._folder.log(session_id)), _size(self._folder.inbox(session_id))


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return -1
