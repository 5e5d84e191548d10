"""How entries and sessions look as rows, and how text in them is read.

A bad byte makes text unreadable to the database driver, for the whole query. So every text is
selected as bytes (`as_bytes`) and decoded here; a value that cannot be is damage to its own row.
"""

import functools
import zlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import apsw

from holdfast.ports.session_store import SessionRecord
from holdfast.stores.append_rules import updated_record
from holdfast.stores.stored_records import FindBlob, StoredEntry, from_stored_body
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.errors import ErrorCode, StoreError
from holdfast.vocabulary.ids import SessionId

EntryRow: TypeAlias = tuple[int, bytes | None, bytes | None, int | None, bytes | None]

_SEQ_BITS = 32
_LARGEST_SEQ = (1 << _SEQ_BITS) - 1
LARGEST_KEY = (1 << 31) - 1


def as_bytes(*columns: str) -> str:
    """Name columns so that they come as bytes, whatever damage made of them."""
    return ", ".join(f"CAST({column} AS BLOB)" for column in columns)


def as_numbers(*columns: str) -> str:
    """Name columns so that they come as whole numbers, whatever damage made of them."""
    return ", ".join(f"CAST({column} AS INTEGER)" for column in columns)


_TEXTS = ("id", "owner", "project", "name", "title", "model", "parent", "native_session_id")
_ENTRY_COLUMNS = f"place, {as_bytes('id', 'kind')}, {as_numbers('crc')}, {as_bytes('body')}"
RECORD_COLUMNS = f"key, {as_bytes(*_TEXTS)}, {as_numbers('created', 'updated', 'head')}"


def place_of(key: int, seq: int) -> int:
    """Return where an entry is: one number per session and `seq`, in the order of reading."""
    return key << _SEQ_BITS | seq


def span_of(key: int) -> tuple[int, int]:
    """Return the first and the last place that a session's entries can have.

    Between those of a key that damage made up there are no places.
    """
    if not 0 < key <= LARGEST_KEY:
        return 1, 0
    return place_of(key, 1), place_of(key + 1, 0) - 1


def seq_of(place: int) -> int:
    """Return the `seq` of the entry at a place."""
    return place & _LARGEST_SEQ


def within_seqs(number: int) -> int:
    """Return the nearest number that can be a `seq`."""
    return min(max(number, 0), _LARGEST_SEQ - 1)


def row_of(key: int, entry: Entry, kept: StoredEntry) -> tuple[int, str, str, int, bytes]:
    """Make the row of an entry, sealed with a checksum."""
    place, body = place_of(key, entry.seq), kept.body
    seal = _seal(place, (entry.id.encode(), entry.kind.encode()), body)
    return place, entry.id, entry.kind, seal, body


def entry_of(row: EntryRow, find: FindBlob) -> Entry | str:
    """Read a row; a damaged one gives the reason instead."""
    place, entry_id, kind, crc, body = row
    if entry_id is None or kind is None or body is None:
        return "a value is missing"
    if _seal(place, (entry_id, kind), body) != crc:
        return "the checksum does not match"
    try:
        return from_stored_body(body, find)
    except StoreError as error:
        return error.message


def finder_of(connection: apsw.Connection, key: int | None) -> FindBlob:
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
        f"SELECT {_ENTRY_COLUMNS} FROM entry"  # noqa: S608
        " WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?",
        (first, last, -1 if limit is None else limit),
    )


def last_row(connection: apsw.Connection, key: int) -> EntryRow | None:
    """Read the row of a session's last entry."""
    row: EntryRow | None = connection.execute(
        f"SELECT {_ENTRY_COLUMNS} FROM entry"  # noqa: S608
        " WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        span_of(key),
    ).fetchone()
    return row


def key_of(connection: apsw.Connection, session_id: SessionId) -> int | None:
    """Return the number that stands for a session in other tables."""
    key: int | None = connection.execute("SELECT key FROM session WHERE id = ?", (session_id,)).get
    if key is not None and not 0 < key <= LARGEST_KEY:
        raise StoreError(
            ErrorCode.CORRUPT,
            f"session {session_id} has the number {key}; `index.rebuild()` makes it anew",
        )
    return key


def key_made_for(connection: apsw.Connection, session_id: SessionId) -> int:
    """Return a session's number; a new session gets one before it has entries."""
    connection.execute("INSERT OR IGNORE INTO session (id) VALUES (?)", (session_id,))
    key = key_of(connection, session_id)
    return 0 if key is None else key


def text_of(value: bytes | None) -> str | None:
    """Decode a text; None when there is none, or bytes that are no text."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def shown(value: bytes | None) -> str | None:
    """Decode a text that is only shown; bytes that are no text are shown as such."""
    return None if value is None else value.decode(errors="replace")


def record_of(connection: apsw.Connection, row: tuple[Any, ...]) -> SessionRecord | None:
    """Read a row of `RECORD_COLUMNS`; where it is damaged, the log says what it said."""
    key, *values = row
    texts = [text_of(value) for value in values[: len(_TEXTS)]]
    named = dict(zip(_TEXTS, texts, strict=True))
    created, updated, head = values[len(_TEXTS) :]
    record = None
    if not any(named[name] is None for name in ("id", "owner", "project")):
        named["model"] = named["model"] or ""
        known: dict[str, Any] = {**named, "created": created, "updated": updated, "head": head}
        record = SessionRecord(**known)
    if any(value is not None and text is None for value, text in zip(values, texts, strict=False)):
        return folded_record(connection, key, record)
    return record


def folded_record(
    connection: apsw.Connection, key: int, known: SessionRecord | None
) -> SessionRecord | None:
    """Derive a record; one that was `known` counts where the entry that opens it is damaged."""
    record: SessionRecord | None = None
    find = finder_of(connection, key)
    for row in rows_between(connection, *span_of(key)):
        entry = entry_of(row, find)
        if not isinstance(entry, str):
            record = updated_record(record or known, [entry])
    return record


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
        f"SELECT {as_bytes('content')} FROM blob WHERE session = ? AND name = ?",  # noqa: S608
        (key, name),
    ).get
    return content


def _seal(place: int, named: tuple[bytes, bytes], body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d %s %s " % (place, *named)))
