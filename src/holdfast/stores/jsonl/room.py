"""What the five ports of a jsonl store share."""

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.stores.jsonl.folder import SessionFolder
from holdfast.stores.jsonl.lanes import Lanes
from holdfast.stores.jsonl.session_writer import SessionWriter
from holdfast.stores.jsonl.summaries import Summaries
from holdfast.stores.notifications import ChangeNotifier
from holdfast.vocabulary.ids import SessionId


@dataclass(slots=True)
class JsonlRoom:
    """The folder, the threads, the caches and the leases that this store holds."""

    folder: SessionFolder
    summaries: Summaries
    notifier: ChangeNotifier
    """For whoever waits for entries or a lease."""
    inbox_notifier: ChangeNotifier
    """For whoever waits for commands: the many who hold a session and are not to wake in vain."""
    lease_seconds: float
    lanes: Lanes = field(default_factory=Lanes)
    writers: dict[SessionId, SessionWriter] = field(default_factory=dict)
    """By session; each is used by the lane of its session only."""
    deleted_epochs: dict[SessionId, int] = field(default_factory=dict)
    """The last epoch under which a deleted session was held here: it must not come again."""
    tickets: set[Path] = field(default_factory=set)
    """Of those who wait here."""

    def forget_ticket(self, path: Path) -> None:
        """Take one who waited here out of the line; a ticket that cannot be removed is no error."""
        self.tickets.discard(path)
        with contextlib.suppress(OSError):
            path.unlink()


def open_room(root: Path, *, lease_seconds: float) -> JsonlRoom:
    """Put a room together; nothing is read or written yet."""
    folder = SessionFolder(root)
    return JsonlRoom(
        folder=folder,
        summaries=Summaries(folder),
        notifier=ChangeNotifier(FileSizes(folder.log).changed),
        inbox_notifier=ChangeNotifier(FileSizes(folder.inbox).changed),
        lease_seconds=lease_seconds,
    )


class FileSizes:
    """Notices what other processes append, by the sizes of the files."""

    def __init__(self, path_of: Callable[[SessionId], Path]) -> None:
        self._path_of = path_of
        self._seen: dict[SessionId, int] = {}

    def changed(self, watched: Collection[SessionId]) -> list[SessionId]:
        """Return the watched sessions whose file has another size than before."""
        now = {session_id: _size(self._path_of(session_id)) for session_id in watched}
        changed = [
            session_id for session_id, size in now.items() if self._seen.get(session_id) != size
        ]
        self._seen = now
        return changed


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return -1
