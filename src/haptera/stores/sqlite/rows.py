"""Rows of entries, sessions, blobs, commands and quarantine: how they are written and read.

Text that holds a bad byte makes the database driver fail for the whole query. So every text is
selected as bytes (`CAST(… AS BLOB)`) and decoded here. A value that cannot be decoded is damage to
its own row only. Numbers are cast for the same reason.
"""

import functools
from collections.abc import Collection, Generator, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias
from zlib import crc32

import apsw
import msgspec

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.ports.session_store import SessionRecord
from haptera.stores.append_rules import encode_details, updated_record, with_details
from haptera.stores.stored_records import (
    FindBlob,
    StoredEntry,
    command_damage,
    from_stored_bodies,
    from_stored_body,
)

EntryRow: TypeAlias = tuple[int, bytes | None, bytes | None, int | None, bytes | None]
"""place, id, kind, crc, body."""
_SealedRow: TypeAlias = tuple[bytes | None, int | None, bytes | None]
"""What the checksum covers beside the body, crc, body."""

_SEQ_BITS = 32
_LARGEST_SEQ = (1 << _SEQ_BITS) - 1
# A place is a signed integer of 64 bits: 31 for the session, 32 for the `seq`.
LARGEST_KEY = (1 << 31) - 1
ROWS_AT_ONCE = 500
"""Fewer than the 700 new objects after which Python collects garbage: each row is one."""

_SELECT_ENTRIES = (
    "SELECT place, CAST(id AS BLOB), CAST(kind AS BLOB), CAST(crc AS INTEGER), CAST(body AS BLOB)"
    " FROM entry WHERE place BETWEEN ? AND ?"
)
# SQLite joins what the checksum covers, so that Python makes one object of it and not three.
_SELECT_SEALED = (
    "SELECT CAST(place || ' ' || id || ' ' || kind || ' ' AS BLOB), CAST(crc AS INTEGER),"
    " CAST(body AS BLOB) FROM entry WHERE place BETWEEN ? AND ?"
)
SELECT_RECORDS = (
    "SELECT key, CAST(id AS BLOB), CAST(owner AS BLOB), CAST(project AS BLOB), CAST(name AS BLOB),"
    " CAST(title AS BLOB), CAST(model AS BLOB), CAST(parent AS BLOB),"
    " CAST(native_session_id AS BLOB), CAST(created AS INTEGER), CAST(updated AS INTEGER),"
    " CAST(head AS INTEGER), CAST(details AS BLOB) FROM session"
)
"""Selects rows for `decode_record`; a WHERE clause can follow."""
_LABELLED = attrgetter("tags", "metadata", "senders")
"""The fields that labels are made of."""
_LOOKED_UP = attrgetter(
    *("name", "title", "model", "native_session_id", "archived", "deleted", "notes"),
    *("tags", "metadata", "senders"),
)
"""The fields with a column or labels of their own that an entry can change, beside those that each
query changes."""
_RECORD_TEXTS = ("id", "owner", "project", "name", "title", "model", "parent", "native_session_id")


def place_of(key: int, seq: int) -> int:
    """Return the primary key of an entry: session and `seq` in one number, in reading order."""
    return key << _SEQ_BITS | seq


def span_of(key: int) -> tuple[int, int]:
    """Return the first and the last place of a session's entries; an empty span for a bad key."""
    if not 0 < key <= LARGEST_KEY:
        return 1, 0
    return place_of(key, 1), place_of(key + 1, 0) - 1


def key_at(place: int) -> int:
    """Return the key of the session whose entry is at a place."""
    return place >> _SEQ_BITS


def seq_of(place: int) -> int:
    """Return the `seq` of the entry at a place."""
    return place & _LARGEST_SEQ


def within_seqs(number: int) -> int:
    """Return the nearest number that can be a `seq`."""
    return min(max(number, 0), _LARGEST_SEQ - 1)


def session_key(connection: apsw.Connection, session_id: SessionId) -> int | None:
    """Return the number that stands for a session in other tables."""
    key: int | None = connection.execute("SELECT key FROM session WHERE id = ?", (session_id,)).get
    if key is not None and not 0 < key <= LARGEST_KEY:
        raise StoreError(
            ErrorCode.CORRUPT,
            f"session {session_id} has the number {key}; `index.rebuild()` restores it",
        )
    return key


def session_key_or_new(connection: apsw.Connection, session_id: SessionId) -> int:
    """Return a session's key; a new session gets its row before it has entries."""
    connection.execute("INSERT OR IGNORE INTO session (id) VALUES (?)", (session_id,))
    key = session_key(connection, session_id)
    return 0 if key is None else key


def decode_text(value: bytes | None) -> str | None:
    """Decode a text; None when there is none or it is not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def decode_for_display(value: bytes | None) -> str | None:
    """Decode a text that is only shown; bytes that are not UTF-8 are replaced."""
    return None if value is None else value.decode(errors="replace")


def entry_row(key: int, entry: Entry, kept: StoredEntry) -> tuple[int, str, str, int, bytes]:
    """Make the row of an entry with its checksum."""
    place, body = place_of(key, entry.seq), kept.body
    checksum = _checksum(place, (entry.id.encode(), entry.kind.encode()), body)
    return place, entry.id, entry.kind, checksum, body


def decode_entry_row(row: EntryRow, find_blob: FindBlob) -> Entry | str:
    """Decode a row of an entry; a damaged one gives the reason instead."""
    _, entry_id, kind, _, body = row
    if entry_id is None or kind is None or body is None:
        return "a value is missing"
    if not _is_intact(row):
        return "the checksum does not match"
    return _decode_body(body, find_blob)


def _decode_body(body: bytes, find_blob: FindBlob) -> Entry | str:
    try:
        return from_stored_body(body, find_blob)
    except StoreError as error:
        return error.message


def entry_rows(connection: apsw.Connection, first: int, last: int) -> Iterator[EntryRow]:
    """Read the rows of entries from one place to another, in order."""
    return connection.execute(f"{_SELECT_ENTRIES} ORDER BY place", (first, last))


def readable_entries(
    connection: apsw.Connection,
    key: int,
    *,
    after: int = 0,
    kinds: Collection[str] | None = None,
    at_once: int = ROWS_AT_ONCE,
) -> Generator[Entry, None, None]:
    """Yield the entries of a session after a `seq`, all or of some kinds, without damaged rows.

    So many rows are read and decoded `at_once`.
    """
    find_blob = blob_finder(connection, key)
    first, last = span_of(key)
    query = _SELECT_SEALED
    # The first place has `seq` 1, so this is the place behind `after`.
    values: list[int | str] = [first + within_seqs(after), last]
    if kinds is not None:
        # What is not wanted is not decoded: it may have a large blob.
        query += " AND kind IN (SELECT value FROM json_each(?))"
        values.append(msgspec.json.encode(sorted(kinds)).decode())
    unread: Iterator[_SealedRow] = connection.execute(f"{query} ORDER BY place", values)
    while rows := list(islice(unread, at_once)):
        yield from _decode_rows(rows, find_blob)


def _decode_rows(rows: Sequence[_SealedRow], find_blob: FindBlob) -> list[Entry]:
    """Decode rows, without the damaged ones."""
    bodies = [
        body
        for named, crc, body in rows
        if named is not None and body is not None and crc32(body, crc32(named)) == crc
    ]
    try:
        return from_stored_bodies(bodies, find_blob)
    except StoreError:
        decoded = [_decode_body(body, find_blob) for body in bodies]
        return [entry for entry in decoded if not isinstance(entry, str)]


def head_of(connection: apsw.Connection, key: int) -> int:
    """Return the last `seq` of the entries; the head in the session's row may be damaged."""
    place: int | None = connection.execute(
        "SELECT max(place) FROM entry WHERE place BETWEEN ? AND ?", span_of(key)
    ).get
    return 0 if place is None else seq_of(place)


def blob_finder(connection: apsw.Connection, key: int | None) -> FindBlob:
    """Return the function that finds the blobs of a session."""
    return functools.partial(_blob_content, connection, key)


def save_blob(connection: apsw.Connection, key: int, *, name: str, content: bytes) -> None:
    """Store a blob under its name."""
    connection.execute(
        # A damaged one is replaced: the name is that of the right content.
        "INSERT OR REPLACE INTO blob (session, name, content) VALUES (?, ?, ?)",
        (key, name, content),
    )


def pending_command_bodies(connection: apsw.Connection, key: int | None) -> list[tuple[int, bytes]]:
    """Return the commands of a session that are not consumed, each with the number it came as."""
    rows: Iterator[tuple[int, bytes]] = connection.execute(
        "SELECT arrived, CAST(body AS BLOB) FROM command"
        " WHERE session = ? AND body IS NOT NULL ORDER BY arrived",
        (key,),
    )
    return list(rows)


def damaged_commands(connection: apsw.Connection, key: int) -> list[tuple[str, str]]:
    """Return the place and the reason of each command that no version can read."""
    found = []
    for arrived, body in pending_command_bodies(connection, key):
        if (reason := command_damage(body)) is not None:
            found.append((f"command {arrived}", reason))
    return found


def move_damaged_end_aside(connection: apsw.Connection, key: int) -> None:
    """Move damaged rows from the end of a log to `quarantine`, so that appending can go on.

    Damaged rows before a good one stay where they are: their places are taken.
    """
    while (row := _last_entry_row(connection, key)) is not None:
        reason = decode_entry_row(row, blob_finder(connection, key))
        if not isinstance(reason, str):
            return
        connection.execute(
            "INSERT INTO quarantine (session, place, reason, body) VALUES (?, ?, ?, ?)",
            (key, row[0], reason, row[4] or b""),
        )
        # Other entries get these places, and must not be found by the words of these.
        connection.execute(
            "DELETE FROM text_index WHERE rowid BETWEEN ? AND ?", (row[0], span_of(key)[1])
        )
        connection.execute("DELETE FROM entry WHERE place = ?", (row[0],))


def read_quarantine(connection: apsw.Connection, key: int) -> list[tuple[str, str]]:
    """Return the place and the reason of each row that was moved aside."""
    rows = connection.execute(
        "SELECT CAST(place AS INTEGER), CAST(reason AS BLOB) FROM quarantine"
        " WHERE session = ? ORDER BY rowid",
        (key,),
    )
    return [(f"row {place}", str(decode_for_display(reason))) for place, reason in rows]


def decode_record(connection: apsw.Connection, row: tuple[Any, ...]) -> SessionRecord | None:
    """Decode a row of `SELECT_RECORDS`; a damaged one is derived from the log."""
    key, *values = row
    texts = [decode_text(value) for value in values[: len(_RECORD_TEXTS)]]
    named = dict(zip(_RECORD_TEXTS, texts, strict=True))
    created, updated, head, details = values[len(_RECORD_TEXTS) :]
    record = None
    is_whole = not any(named[name] is None for name in ("id", "owner", "project"))
    if is_whole and None not in {created, updated, head}:
        named["model"] = named["model"] or ""
        known: dict[str, Any] = {**named, "created": created, "updated": updated, "head": head}
        record = SessionRecord(**known)
        if (detailed := with_details(record, details)) is None:
            return derive_record(connection, key, record)
        record = detailed
    # A text that is there and cannot be decoded is damaged, which a missing one is not.
    if any(value is not None and text is None for value, text in zip(values, texts, strict=False)):
        return derive_record(connection, key, record)
    return record


def derive_record(
    connection: apsw.Connection, key: int, known: SessionRecord | None
) -> SessionRecord | None:
    """Derive a record from the entries; None when there are none.

    `known` is the record to start from when the entry that opened the session is damaged.
    """
    record: SessionRecord | None = None
    for entry in readable_entries(connection, key):
        record = updated_record(record or known, [entry])
    return record


def save_record(
    connection: apsw.Connection, key: int, record: SessionRecord, *, known: SessionRecord | None
) -> None:
    """Write a record; an apsw.ConstraintError means that the name is taken.

    `known` is the stored one, if that is known: mostly only the state of a query has changed.
    """
    state = (record.status, record.shown_status)
    now = (record.updated, record.head, encode_details(record), *state, key)
    if known is not None and _LOOKED_UP(record) == _LOOKED_UP(known):
        connection.execute(
            "UPDATE session SET updated = ?, head = ?, details = ?, phase = ?, status = ?"
            " WHERE key = ?",
            now,
        )
        return
    connection.execute(
        "UPDATE session SET id = ?, owner = ?, project = ?, name = ?, title = ?, model = ?,"
        " parent = ?, spawned_by = ?, native_session_id = ?, created = ?, archived = ?,"
        " deleted = ?, noted = ?, updated = ?, head = ?, details = ?, phase = ?, status = ?"
        " WHERE key = ?",
        (
            record.id,
            record.owner,
            record.project,
            record.name,
            record.title,
            record.model,
            record.parent,
            record.spawned_by,
            record.native_session_id,
            record.created,
            record.archived,
            record.deleted,
            1 if record.notes else None,
            *now,
        ),
    )
    if known is None or _LABELLED(record) != _LABELLED(known):
        connection.execute("DELETE FROM label WHERE session = ?", (key,))
        connection.executemany(
            "INSERT INTO label (text, session) VALUES (?, ?)",
            [(label, key) for label in record.labels],
        )


def _last_entry_row(connection: apsw.Connection, key: int) -> EntryRow | None:
    row: EntryRow | None = connection.execute(
        f"{_SELECT_ENTRIES} ORDER BY place DESC LIMIT 1", span_of(key)
    ).fetchone()
    return row


def _blob_content(connection: apsw.Connection, key: int | None, name: str) -> bytes | None:
    content: bytes | None = connection.execute(
        "SELECT CAST(content AS BLOB) FROM blob WHERE session = ? AND name = ?", (key, name)
    ).get
    return content


def _is_intact(row: EntryRow) -> bool:
    """Return whether a row has all values and the checksum that belongs to them."""
    place, entry_id, kind, crc, body = row
    if entry_id is None or kind is None or body is None:
        return False
    return _checksum(place, (entry_id, kind), body) == crc


def _checksum(place: int, named: tuple[bytes, bytes], body: bytes) -> int:
    # The place is part of it: a good row in the place of another one counts as damaged.
    return crc32(body, crc32(b"%d %s %s " % (place, *named)))
