"""The schema of the database, as numbered SQL files that are applied once each, under a lock.

The table `haptera.migration` holds the number of each that was applied. A database with a number
that this version does not know is refused and not changed. Everything is in the schema `haptera`,
so no statement needs a search path.
"""

from importlib import resources

import psycopg
from psycopg import sql

from haptera.model.errors import ErrorCode, StoreError

_LOCK = 0x686F6C64
"""The number of the advisory lock that one process at a time migrates under (`hold` in ASCII)."""

_MAKE_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS haptera;
CREATE TABLE IF NOT EXISTS haptera.migration (
  number integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT now()
);
"""


def migration_files() -> list[tuple[str, str]]:
    """Return the name and the SQL of every migration, in order."""
    folder = resources.files(__name__)
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return [(name, (folder / name).read_text(encoding="utf-8")) for name in names]


def migrate(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Apply the missing migrations; raises VERSION_UNSUPPORTED for a newer database.

    The lock ends with the transaction, so it works behind a pooler that shares connections.
    """
    files = migration_files()
    if last_migration(connection) == len(files):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(_MAKE_SCHEMA)
        # Another process may have applied them while this one waited for the lock.
        applied = last_migration(connection)
        for number, (name, text) in enumerate(files[applied:], start=applied + 1):
            connection.execute(text.encode())
            connection.execute(
                "INSERT INTO haptera.migration (number, name) VALUES (%s, %s)",
                (number, name.removesuffix(".sql")),
            )


def last_migration(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    """Return the number of the last migration of a database, 0 for a new one; changes nothing.

    Raises:
        StoreError: VERSION_UNSUPPORTED when the database is newer.

    """
    (table,) = connection.execute("SELECT to_regclass('haptera.migration')").fetchone() or (None,)
    if table is None:
        return 0
    row = connection.execute("SELECT coalesce(max(number), 0) FROM haptera.migration").fetchone()
    version, newest = int(str(row[0])) if row else 0, len(migration_files())
    if version > newest:
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"the database has schema {version}; this version supports up to {newest}",
        )
    return version


def grant_access(connection: psycopg.Connection[tuple[object, ...]], role: str) -> None:
    """Let a role use the tables; row-level security still shows it one owner at a time."""
    name = sql.Identifier(role)
    for statement in (
        "GRANT USAGE ON SCHEMA haptera TO {}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA haptera TO {}",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA haptera TO {}",
        "REVOKE INSERT, UPDATE, DELETE ON haptera.migration FROM {}",
    ):
        connection.execute(sql.SQL(statement).format(name))
