"""Full-text search over what was said; an index that follows the logs and can be made anew.

The index holds words, not texts, and is brought up to date when somebody searches, so that an
append costs nothing for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import apsw

from holdfast.stores.searchable_text import searchable_text_of
from holdfast.stores.sqlite.room import SqliteRoom
from holdfast.stores.sqlite.rows import entry_of, finder_of, place_of, rows_between, span_of
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
        await self._room.writer.write(_catch_up)
        rows = await self._room.readers.read(
            lambda connection: connection.execute(
                "SELECT session.id, text_index.rowid & 4294967295 FROM text_index"
                " JOIN session ON session.key = text_index.rowid >> 32"
                " WHERE text_index MATCH ? AND owner = ? AND project = ?"
                " ORDER BY rank LIMIT ?",
                (query, owner, project, limit),
            ).fetchall()
        )
        return [FoundText(SessionId(str(row[0])), int(str(row[1]))) for row in rows]


def _query_of(words: str) -> str:
    """Quote every word, so that none of them is an operator; what ends a text ends a word."""
    separated = writable(words).replace("\0", " ").split()
    return " ".join('"{}"'.format(word.replace('"', '""')) for word in separated)


def _catch_up(connection: apsw.Connection) -> None:
    behind = connection.execute("SELECT key, indexed FROM session WHERE indexed < head").fetchall()
    for key, indexed in behind:
        _index_session(connection, int(str(key)), int(str(indexed)))


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
