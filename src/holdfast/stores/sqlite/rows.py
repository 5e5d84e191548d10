"""How entries and sessions look as rows."""

import functools
import zlib
from collections.abc import Iterator
from typing import TypeAlias

import apsw

from holdfast.ports.session_store import SessionRecord
from holdfast.stores.big_entries import FindContent, StoredEntry, restored
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.errors import StoreError
from holdfast.vocabulary.ids import SessionId

EntryRow: TypeAlias = tuple[int, str, str, int, bytes]

_SEQ_BITS = 32

RECORD_COLUMNS = (
    "id, owner, project, name, title, model, parent, native_session_id, created, updated, head"
)


def place_of(key: int, seq: int) -> int:
    """Return where an entry is: one number per session and `seq`, in the order of reading."""
    return key << _SEQ_BITS | seq


def span_of(key: int) -> tuple[int, int]:
    """Return the first and the last place that a session's entries can have."""
    return place_of(key, 1), place_of(key + 1, 0) - 1


def seq_of(place: int) -> int:
    """Return the `seq` of the entry at a place."""
    return place & (1 << _SEQ_BITS) - 1


def row_of(key: int, entry: Entry, kept: StoredEntry) -> EntryRow:
    """Make the row of an entry, sealed with a checksum."""
    body = kept.body
    place = place_of(key, entry.seq)
    return place, entry.id, entry.kind, _seal(place, f"{entry.id} {entry.kind}", body), body


def entry_of(row: EntryRow, find: FindContent) -> Entry | str:
    """Read a row; a damaged one gives the reason instead."""
    place, entry_id, kind, crc, body = row
    if _seal(place, f"{entry_id} {kind}", body) != crc:
        return "the checksum does not match"
    try:
        return restored(body, find)
    except StoreError as error:
        return error.message


def finder_of(connection: apsw.Connection, key: int | None) -> FindContent:
    """Return the function that finds the big payloads of a session."""
    return functools.partial(_content, connection, key)


def keep_content(connection: apsw.Connection, key: int, *, name: str, content: bytes) -> None:
    """Store a big payload under its name."""
    connection.execute(
        "INSERT OR REPLACE INTO blob (session, name, content) VALUES (?, ?, ?)",
        (key, name, content),
    )


def rows_between(
    connection: apsw.Connection, first: int, last: int, *, limit: int | None = None
) -> Iterator[EntryRow]:
    """Read the rows of entries from one place to another."""
    return connection.execute(
        "SELECT place, id, kind, crc, body FROM entry"
        " WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?",
        (first, last, -1 if limit is None else limit),
    )


def last_row(connection: apsw.Connection, key: int) -> EntryRow | None:
    """Read the row of a session's last entry."""
    row: EntryRow | None = connection.execute(
        "SELECT place, id, kind, crc, body FROM entry"
        " WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        span_of(key),
    ).fetchone()
    return row


def key_of(connection: apsw.Connection, session_id: SessionId) -> int | None:
    """Return the number that stands for a session in other tables."""
    key: int | None = connection.execute("SELECT key FROM session WHERE id = ?", (session_id,)).get
    return key


def key_made_for(connection: apsw.Connection, session_id: SessionId) -> int:
    """Return a session's number; a new session gets one before it has entries."""
    connection.execute("INSERT OR IGNORE INTO session (id) VALUES (?)", (session_id,))
    key = key_of(connection, session_id)
    return 0 if key is None else key


def record_of(row: tuple[object, ...]) -> SessionRecord:
    """Read a row of `RECORD_COLUMNS`."""
    return SessionRecord(**dict(zip(SessionRecord.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]


def save_record(connection: apsw.Connection, key: int, record: SessionRecord) -> None:
    """Write what the index knows; an apsw.ConstraintError says that the name is taken."""
    connection.execute(
        "UPDATE session SET id = ?, owner = ?, project = ?, name = ?, title = ?, model = ?,"
        " parent = ?, native_session_id = ?, created = ?, updated = ?, head = ? WHERE key = ?",
        (
            record.id,
            record.owner,
            record.project,
            record.name,
            record.title,
            record.model,
            record.parent,
            record.native_session_id,
            record.created,
            record.updated,
            record.head,
            key,
        ),
    )


def _content(connection: apsw.Connection, key: int | None, name: str) -> bytes | None:
    content: bytes | None = connection.execute(
        "SELECT content FROM blob WHERE session = ? AND name = ?", (key, name)
    ).get
    return content


def _seal(place: int, named: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(f"{place} {named} ".encode()))
