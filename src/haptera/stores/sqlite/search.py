"""The search of a SQLite store: a full-text index over what users and models said.

The index (FTS5) holds words, not texts. It is brought up to date when something is searched for, so
that an append costs nothing for it, and it can be derived again from the entries. What a hit shows
is read from the log.
"""

from collections.abc import Sequence
from contextlib import closing

import apsw

from haptera.ports.session_store import SearchHit
from haptera.stores.sqlite.connections import SqliteConnections
from haptera.stores.sqlite.rows import (
    LARGEST_KEY,
    SELECT_RECORDS,
    decode_record,
    head_of,
    key_at,
    place_of,
    readable_entries,
    seq_of,
    span_of,
    within_seqs,
)
from haptera.stores.text_search import (
    SEARCHABLE_KINDS,
    SearchableText,
    TextCollector,
    TextQuery,
    hit_of,
)
from haptera.stores.text_words import WordSplitter


class SqliteSearch:
    """Finds texts through the index, after bringing it up to date for the owner's sessions."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections

    async def find(
        self,
        query: str,
        *,
        owner: str,
        project: str | None = None,
        limit: int = 50,
        prefix: bool = False,
    ) -> Sequence[SearchHit]:
        """Find texts that hold every word of the query, the best first."""
        wanted = TextQuery(query, prefix=prefix)
        if not wanted.phrases or limit <= 0:
            return []
        # Only the sessions that are searched: damage to other owners' sessions has no effect.
        await self._connections.writer.write(
            lambda connection: _update_index(connection, (owner, project), wanted.splitter)
        )
        return await self._connections.readers.read(
            lambda connection: _find(connection, wanted, (owner, project), limit=limit)
        )


def _find(
    connection: apsw.Connection,
    query: TextQuery,
    owned: tuple[str, str | None],
    *,
    limit: int,
) -> list[SearchHit]:
    places = connection.execute(
        "SELECT text_index.rowid FROM text_index"
        " JOIN session ON session.key = text_index.rowid >> 32"
        " WHERE text_index MATCH ?3 AND owner = ?1 AND (?2 IS NULL OR project = ?2)"
        " AND deleted IS NULL"
        " ORDER BY rank LIMIT ?4",
        (*owned, query.match_expression, limit),
    ).fetchall()
    hits = (_hit_at(connection, query, int(str(place))) for (place,) in places)
    return [hit for hit in hits if hit is not None]


def _hit_at(connection: apsw.Connection, query: TextQuery, place: int) -> SearchHit | None:
    """Read the text at a place; None when it, or the row of its session, is damaged."""
    key, seq = key_at(place), seq_of(place)
    row = connection.execute(f"{SELECT_RECORDS} WHERE key = ?", (key,)).fetchone()
    record = None if row is None else decode_record(connection, row)
    text = None if record is None else _text_at(connection, key, seq)
    return None if record is None or text is None else hit_of(query, record.id, text)


def _text_at(connection: apsw.Connection, key: int, seq: int) -> SearchableText | None:
    collector = TextCollector()
    rows = readable_entries(connection, key, after=seq - 1, kinds=SEARCHABLE_KINDS)
    with closing(rows) as entries:
        for entry in entries:
            for text in collector.take(entry):
                if text.seq == seq:
                    return text
            # A text of an answer is complete when its turn ends. The next turn has begun, so it
            # never was.
            if entry.kind == "turn.started" and entry.seq > seq:
                return None
    return None


def _update_index(
    connection: apsw.Connection, owned: tuple[str, str | None], splitter: WordSplitter
) -> None:
    behind = connection.execute(
        "SELECT key, CAST(indexed AS INTEGER) FROM session"
        " WHERE indexed < head AND owner = ?1 AND (?2 IS NULL OR project = ?2)"
        " AND key BETWEEN 1 AND ?3",
        (*owned, LARGEST_KEY),
    ).fetchall()
    for key, indexed in behind:
        # A damaged number must not lead to the places of another session.
        after = within_seqs(int(str(indexed)))
        _index_session(connection, splitter, key=int(str(key)), indexed=after)


def _index_session(
    connection: apsw.Connection, splitter: WordSplitter, *, key: int, indexed: int
) -> None:
    # Prompts that were queued during a turn that was open last time are in the index already.
    connection.execute(
        "DELETE FROM text_index WHERE rowid BETWEEN ? AND ?",
        (place_of(key, indexed + 1), span_of(key)[1]),
    )
    collector = TextCollector(after=indexed)
    for entry in readable_entries(connection, key, after=indexed, kinds=SEARCHABLE_KINDS):
        for text in collector.take(entry):
            connection.execute(
                "INSERT INTO text_index (rowid, text) VALUES (?, ?)",
                (place_of(key, text.seq), splitter.indexed(text.text)),
            )
    through = collector.through if collector.has_open_turn else head_of(connection, key)
    connection.execute("UPDATE session SET indexed = ? WHERE key = ?", (through, key))
