"""Full-text search over what was said; an index that follows the logs and can be made anew.

The index holds words, not texts, and is brought up to date when somebody searches, so that an
append costs nothing for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import apsw

from holdfast.stores.searchable_text import searchable_text_of
from holdfast.stores.sqlite.connections import SqliteConnections
from holdfast.stores.sqlite.rows import (
    LARGEST_KEY,
    SELECT_RECORDS,
    decode_record,
    key_at,
    place_of,
    readable_entries,
    seq_of,
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

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections

    async def find(
        self, owner: str, project: str, words: str, *, limit: int = 50
    ) -> Sequence[FoundText]:
        """Find places that hold all the words, the best first."""
        query = _query_of(words)
        if not query:
            return ()
        # Only what is looked through: another owner's damage is no reason to fail here.
        await self._connections.writer.write(
            lambda connection: _catch_up(connection, (owner, project))
        )
        asked = (query, owner, project, limit)
        return await self._connections.readers.read(lambda connection: _find(connection, asked))


def _query_of(words: str) -> str:
    """Quote every word, so that none of them is an operator; what ends a text ends a word."""
    separated = writable(words).replace("\0", " ").split()
    return " ".join('"{}"'.format(word.replace('"', '""')) for word in separated)


def _find(connection: apsw.Connection, asked: tuple[str, str, str, int]) -> list[FoundText]:
    places = connection.execute(
        "SELECT text_index.rowid FROM text_index"
        " JOIN session ON session.key = text_index.rowid >> 32"
        " WHERE text_index MATCH ? AND owner = ? AND project = ?"
        " ORDER BY rank LIMIT ?",
        asked,
    ).fetchall()
    found = []
    for place in [int(str(row[0])) for row in places]:
        row = connection.execute(f"{SELECT_RECORDS} WHERE key = ?", (key_at(place),)).fetchone()
        record = None if row is None else decode_record(connection, row)
        if record is not None:
            found.append(FoundText(record.id, seq_of(place)))
    return found


def _catch_up(connection: apsw.Connection, owned: tuple[str, str]) -> None:
    behind = connection.execute(
        "SELECT key, CAST(indexed AS INTEGER) FROM session"
        " WHERE indexed < head AND owner = ? AND project = ? AND key BETWEEN 1 AND ?",
        (*owned, LARGEST_KEY),
    ).fetchall()
    for key, indexed in behind:
        _index_session(connection, int(str(key)), within_seqs(int(str(indexed))))


def _index_session(connection: apsw.Connection, key: int, indexed: int) -> None:
    found = searchable_text_of(readable_entries(connection, key, after=indexed), after=indexed)
    # Text beside a turn that was still open last time has been found before.
    connection.execute(
        "DELETE FROM text_index WHERE rowid BETWEEN ? AND ?",
        (place_of(key, indexed + 1), span_of(key)[1]),
    )
    connection.executemany(
        "INSERT INTO text_index (rowid, text) VALUES (?, ?)",
        [(place_of(key, seq), text) for seq, text in found.texts],
    )
    connection.execute("UPDATE session SET indexed = ? WHERE key = ?", (found.through, key))
