"""What the ports of a SQLite store share."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from holdfast.stores.bells import Bells
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.group_writer import GroupWriter
from holdfast.stores.sqlite.patience import Patience
from holdfast.stores.sqlite.readers import ChangeWatch, Readers
from holdfast.vocabulary.ids import SessionId


@dataclass(slots=True, frozen=True)
class SqliteRoom:
    """The file, its writer, its readers and the bells."""

    database: Database
    writer: GroupWriter
    readers: Readers
    watch: ChangeWatch
    bells: Bells


def open_room(path: Path, *, patience: Patience, sqlite_version: str | None) -> SqliteRoom:
    """Put a room together; the file is opened when it is first used."""
    database = Database(path, patience=patience, sqlite_version=sqlite_version)
    watch = ChangeWatch(database)

    def changed(watched: Collection[SessionId]) -> Collection[SessionId]:
        return watched if watch.has_changed() else ()

    return SqliteRoom(
        database=database,
        writer=GroupWriter(database),
        readers=Readers(database),
        watch=watch,
        bells=Bells(changed),
    )
