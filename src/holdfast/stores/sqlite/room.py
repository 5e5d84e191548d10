"""What the ports of a SQLite store share."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from holdfast.stores.notifications import ChangeNotifier, Poll
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.group_writer import GroupWriter
from holdfast.stores.sqlite.patience import Patience
from holdfast.stores.sqlite.readers import ChangeWatch, Readers, data_version, last_command
from holdfast.vocabulary.ids import SessionId


@dataclass(slots=True, frozen=True)
class SqliteRoom:
    """The file, its writer, its readers and the bells."""

    database: Database
    writer: GroupWriter
    readers: Readers
    watches: tuple[ChangeWatch, ...]
    notifier: ChangeNotifier
    """For whoever waits for entries or a lease."""
    inbox_notifier: ChangeNotifier
    """For whoever waits for commands: the many who hold a session and are not to wake in vain."""


def open_room(path: Path, *, patience: Patience, sqlite_version: str | None) -> SqliteRoom:
    """Put a room together; the file is opened when it is first used."""
    database = Database(path, patience=patience, sqlite_version=sqlite_version)
    entries, commands = ChangeWatch(database, data_version), ChangeWatch(database, last_command)
    return SqliteRoom(
        database=database,
        writer=GroupWriter(database),
        readers=Readers(database),
        watches=(entries, commands),
        notifier=ChangeNotifier(_poll_of(entries)),
        inbox_notifier=ChangeNotifier(_poll_of(commands)),
    )


def _poll_of(watch: ChangeWatch) -> Poll:
    def poll(watched: Collection[SessionId]) -> Collection[SessionId]:
        return watched if watch.has_changed() else ()

    return poll
