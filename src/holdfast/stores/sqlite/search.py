"""Full-text search over what was said; an index that follows the logs and can be made anew.

The index holds words, not texts, and is brought up to date when somebody searches, so that an
append costs nothing for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import apsw

from holdfast.stores.searchable_text import searchable_text_of
from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import (
    LARGEST_KEY,
    RECORD_COLUMNS,
    as_numbers,
    entry_of,
    finder_of,
    place_of,
    record_of,
    rows_between,
    span_of,
    within_seqs,
)
from holdfast.vocabulary.ids import SessionId
from holdfast.vocabulary.text import writable


class FoundText(NamedTuple):
    """Where words were found."""

    session_id: SessionId
    seq: int


class SqliteSearch:
    """Finds sessions by their words, for one owner and project."""

    def __init__(self, room: SqliteRoom) -> None:
        self._room = room

    async def find(
        self, owner: str, project: str, words: str, *, limit: int = 50
    ) -> Sequence[FoundText]:
        """Find places that hold all the words, the best first."""
        query = _query_of(words)
        if not query:
            return ()
        # Only what is looked through: another owner's damage is no reason to fail here.
        await self._room.writer.write(lambda connection: _catch_up(connection, (owner, project)))
        asked = (query, owner, project, limit)
        return await self._room.readers.read(lambda connection: _find(connection, asked))


def _query_of(words: str) -> str:
    """Quote every word, so that none of them is an operator; what ends a text ends a word."""
    separated = writable(words).replace("\0", " ").split()
    return " ".join('"{}"'.format(word.replace('"', '""')) for word in separated)


def _find(connection: apsw.Connection, asked: tuple[str, str, str, int]) -> list[FoundText]:
    rows = connection.execute(
        f"SELECT text_index.rowid & 4294967295, {RECORD_COLUMNS} FROM text_index"  # noqa: S608
        " JOIN session ON session.key = text_index.rowid >> 32"
        " WHERE text_index MATCH ? AND owner = ? AND project = ?"
        " ORDER BY rank LIMIT ?",
        asked,
    ).fetchall()
    found = [(record_of(connection, row[1:]), int(str(row[0]))) for row in rows]
    return [FoundText(record.id, seq) for record, seq in found if record is not None]


def _catch_up(connection: apsw.Connection, owned: tuple[str, str]) -> None:
    behind = connection.execute(
        f"SELECT key, {as_numbers('indexed')} FROM session"  # noqa: S608
        " WHERE indexed < head AND owner = ? AND project = ? AND key BETWEEN 1 AND ?",
        (*owned, LARGEST_KEY),
    ).fetchall()
    for key, indexed in behind:
        _index_session(connection, int(str(key)), within_seqs(int(str(indexed))))


def _index_session(connection: apsw.Connection, key: int, indexed: int) -> None:
    first, last = place_of(key, indexed + 1), span_of(key)[1]
    find = finder_of(connection, key)
    decoded = (entry_of(row, find) for row in rows_between(connection, first, last))
    entries = (entry for entry in decoded if not isinstance(entry, str))
    found = searchable_text_of(entries, after=indexed)
    # Text beside a turn that was still open last time has been found before.
    connection.execute("DELETE FROM text_index WHERE rowid BETWEEN ? AND ?", (first, last))
    connection.executemany(
        "INSERT INTO text_index (rowid, text) VALUES (?, ?)",
        [(place_of(key, seq), text) for seq, text in found.texts],
    )
    connection.execute("UPDATE session SET indexed = ? WHERE key = ?", (found.through, key))
