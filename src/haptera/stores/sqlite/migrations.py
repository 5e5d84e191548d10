"""The schema of the database, as numbered migrations that are applied once each.

`PRAGMA user_version` is the number of the last one; the table `migration` says when each was
applied. A database with a number that this version does not know is refused and not changed, and so
is a database of another application.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import apsw

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.ports.session_store import SessionRecord
from haptera.stores.append_rules import with_details
from haptera.stores.text_words import INDEX_TOKENIZER

APPLICATION_ID = 0x686F6C64
"""Marks a file as a database of Haptera (`hold` in ASCII)."""

# AUTOINCREMENT, so that no number is given twice: the key of a deleted session leads to no other
# one, and the counter of `command` grows with each new command.
_TABLES = """
CREATE TABLE session (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT,
  project TEXT,
  name TEXT,
  title TEXT,
  model TEXT NOT NULL DEFAULT '',
  parent TEXT,
  native_session_id TEXT,
  created INTEGER NOT NULL DEFAULT 0,
  updated INTEGER NOT NULL DEFAULT 0,
  head INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER NOT NULL DEFAULT 0,
  lease_holder TEXT,
  lease_process TEXT NOT NULL DEFAULT '',
  lease_until REAL NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX session_name ON session (owner, project, name) WHERE name IS NOT NULL;

CREATE TABLE entry (
  place INTEGER PRIMARY KEY,
  session INTEGER NOT NULL AS (place >> 32) VIRTUAL REFERENCES session (key) ON DELETE CASCADE,
  seq INTEGER NOT NULL AS (place & 4294967295) VIRTUAL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  crc INTEGER NOT NULL,
  body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX entry_id ON entry (session, id);

CREATE TABLE command (
  arrived INTEGER PRIMARY KEY AUTOINCREMENT,
  session INTEGER NOT NULL REFERENCES session (key) ON DELETE CASCADE,
  id TEXT NOT NULL,
  body BLOB
) STRICT;
CREATE UNIQUE INDEX command_id ON command (session, id);

CREATE TABLE blob (
  session INTEGER NOT NULL REFERENCES session (key) ON DELETE CASCADE,
  name TEXT NOT NULL,
  content BLOB NOT NULL,
  PRIMARY KEY (session, name)
) STRICT;

CREATE TABLE quarantine (
  session INTEGER NOT NULL REFERENCES session (key) ON DELETE CASCADE,
  place INTEGER NOT NULL,
  reason TEXT NOT NULL,
  body BLOB NOT NULL
) STRICT;
CREATE INDEX quarantine_session ON quarantine (session);

CREATE TABLE last_epoch (value INTEGER NOT NULL) STRICT;
INSERT INTO last_epoch VALUES (0);
"""

_IDENTITY = """
SELECT
  (SELECT application_id FROM pragma_application_id),
  (SELECT user_version FROM pragma_user_version),
  (SELECT count(*) FROM sqlite_schema),
  (SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'last_epoch')
"""
"""Selects the application id, the schema version, the number of tables, and whether the file has a
table that only databases of Haptera have."""

_TEXT_INDEX = """
ALTER TABLE session ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0;
CREATE VIRTUAL TABLE text_index USING fts5 (text, content = '', contentless_delete = 1);
"""

_WAITERS = """
CREATE TABLE waiter (
  ticket TEXT PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES session (key) ON DELETE CASCADE
) STRICT;
CREATE INDEX waiter_session ON waiter (session);
"""


def _make_tables(connection: apsw.Connection) -> None:
    connection.execute(_TABLES)


def _add_native_session_id(connection: apsw.Connection) -> None:
    """Add the column to databases that were made before the first migration had it."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(session)")}
    if "native_session_id" not in columns:
        connection.execute("ALTER TABLE session ADD COLUMN native_session_id TEXT")


def _make_text_index(connection: apsw.Connection) -> None:
    connection.execute(_TEXT_INDEX)


def _make_waiters(connection: apsw.Connection) -> None:
    connection.execute(_WAITERS)


def _add_details(connection: apsw.Connection) -> None:
    """Add the fields of a record that nothing is looked up by, as JSON; NULL means none.

    `deleted` is among them, too: the column is for the search, which selects by it.
    """
    connection.execute("ALTER TABLE session ADD COLUMN details BLOB")
    connection.execute("ALTER TABLE session ADD COLUMN deleted INTEGER")


def _add_noted(connection: apsw.Connection) -> None:
    """Let sessions with notes for their project be found without looking at the others."""
    connection.execute("ALTER TABLE session ADD COLUMN noted INTEGER")
    connection.execute(
        "CREATE INDEX session_noted ON session (owner, project) WHERE noted IS NOT NULL"
    )


def _add_spawned_by(connection: apsw.Connection) -> None:
    """Let what a session started be found without looking at the others.

    `spawned_by` is among the details, too; the column is only looked up by.
    """
    connection.execute("ALTER TABLE session ADD COLUMN spawned_by TEXT")
    # Damaged details have no such value: the session is derived again when it is read.
    connection.execute(
        "UPDATE session SET spawned_by = json_extract(CAST(details AS TEXT), '$.spawned_by')"
        " WHERE json_valid(CAST(details AS TEXT))"
    )
    connection.execute(
        "CREATE INDEX session_spawned_by ON session (spawned_by) WHERE spawned_by IS NOT NULL"
    )


_LABELS = """
ALTER TABLE session ADD COLUMN phase TEXT NOT NULL DEFAULT 'idle';
ALTER TABLE session ADD COLUMN status TEXT NOT NULL DEFAULT 'idle';
ALTER TABLE session ADD COLUMN archived INTEGER;
CREATE TABLE label (
  text TEXT NOT NULL,
  session INTEGER NOT NULL REFERENCES session (key) ON DELETE CASCADE,
  PRIMARY KEY (text, session)
) STRICT;
CREATE INDEX label_session ON label (session);
"""


def _add_labels(connection: apsw.Connection) -> None:
    """Let sessions be found by tag, metadata, sender and status without decoding the others.

    All of it is in the details, too, which are damaged where they are no JSON: such a session is
    found again once its record is derived anew.
    """
    connection.execute(_LABELS)
    rows: Iterable[tuple[int, bytes]] = connection.execute(
        "SELECT key, CAST(details AS BLOB) FROM session WHERE json_valid(CAST(details AS TEXT))"
    )
    for key, details in list(rows):
        record = with_details(SessionRecord(id=SessionId(""), owner="", project=""), details)
        if record is None:
            continue
        connection.execute(
            "UPDATE session SET phase = ?, status = ?, archived = ? WHERE key = ?",
            (record.status, record.shown_status, record.archived, key),
        )
        connection.executemany(
            "INSERT INTO label (text, session) VALUES (?, ?)",
            [(label, key) for label in record.labels],
        )


def _make_word_index(connection: apsw.Connection) -> None:
    """Replace the index by one of the words that every store splits; searches fill it again."""
    connection.execute("DROP TABLE text_index")
    tokenizer = INDEX_TOKENIZER.replace("'", "''")
    connection.execute(
        "CREATE VIRTUAL TABLE text_index USING fts5 ("
        f"text, content = '', contentless_delete = 1, tokenize = '{tokenizer}')"
    )
    connection.execute("UPDATE session SET indexed = 0")


MIGRATIONS: tuple[Callable[[apsw.Connection], None], ...] = (
    _make_tables,
    _add_native_session_id,
    _make_text_index,
    _make_waiters,
    _add_details,
    _add_noted,
    _add_spawned_by,
    _add_labels,
    _make_word_index,
)


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Apply the missing migrations; raises VERSION_UNSUPPORTED as `last_migration` does."""
    # Without a transaction first: nearly always nothing is missing, and no lock is needed.
    if last_migration(connection, path) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have applied them while this one waited for the lock.
        for number in range(last_migration(connection, path) + 1, len(MIGRATIONS) + 1):
            _apply(connection, number)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _apply(connection: apsw.Connection, number: int) -> None:
    step = MIGRATIONS[number - 1]
    step(connection)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migration ("
        "number INTEGER PRIMARY KEY, name TEXT NOT NULL,"
        " taken TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) STRICT"
    )
    connection.execute(
        "INSERT OR IGNORE INTO migration (number, name) VALUES (?, ?)",
        (number, step.__name__.strip("_")),
    )
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", number)


def last_migration(connection: apsw.Connection, path: Path) -> int:
    """Return the number of the last migration of a database, 0 for a new one; changes nothing.

    Raises:
        StoreError: VERSION_UNSUPPORTED when the database is newer or of another application.

    """
    # One statement reads one snapshot, so a migration by another process cannot come in between.
    identity: tuple[int, int, int, int] = connection.execute(_IDENTITY).get
    application, version, tables, ours = identity
    if application not in {0, APPLICATION_ID} or (application == 0 and tables and not ours):
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED, f"{path} is a database of another application"
        )
    if not 0 <= version <= len(MIGRATIONS):
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"{path} has schema {version}; this version supports up to {len(MIGRATIONS)}",
        )
    return version
