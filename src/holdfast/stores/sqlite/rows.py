"""How entries and sessions look as rows."""

import zlib
from collections.abc import Iterator
from typing import TypeAlias

import apsw

from holdfast.ports.session_store import SessionRecord
from holdfast.serialization.entries import decode_entry, encode_entry
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


def row_of(key: int, entry: Entry) -> EntryRow:
    """Make the row of an entry, sealed with a checksum."""
    body = encode_entry(entry)
    place = place_of(key, entry.seq)
    return place, entry.id, entry.kind, _seal(place, f"{entry.id} {entry.kind}", body), body


def entry_of(row: EntryRow) -> Entry | str:
    """Read a row; a damaged one gives the reason instead."""
    place, entry_id, kind, crc, body = row
    if _seal(place, f"{entry_id} {kind}", body) != crc:
        return "the checksum does not match"
    try:
        return decode_entry(body)
    except StoreError as error:
        return error.message


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


def _seal(place: int, named: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(f"{place} {named} ".encode()))
