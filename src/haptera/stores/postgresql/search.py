"""The search of a PostgreSQL store: a full-text index over what users and models said.

The index is brought up to date when something is searched for, so that an append costs nothing for
it, and it can be derived again from the entries. Words are split here, as every store does it. The
database finds the texts that hold all words and ranks them; the best are scored here.
"""

from collections.abc import Sequence

from haptera.model.ids import MessageId, PartId, SessionId
from haptera.model.log.entry import Entry
from haptera.ports.session_store import SearchHit
from haptera.stores.postgresql.connections import PostgresConnections
from haptera.stores.postgresql.database import PgConnection, from_text, texts_or_none, to_text
from haptera.stores.postgresql.log import read_rows
from haptera.stores.stored_records import blob_name
from haptera.stores.text_search import SearchableText, TextCollector, TextQuery, hit_of
from haptera.stores.text_words import Phrase

_BEHIND = (
    "SELECT key, id, indexed, head FROM haptera.session WHERE indexed < head AND owner = %s"
    " AND (%s::text IS NULL OR project = %s) AND (%s::text IS NULL OR owner = %s)"
)
_INDEX = "SELECT haptera.index_texts(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
_FIND = (
    "SELECT s.id, t.seq, t.message_id, t.part_id, t.text FROM haptera.text t"
    " JOIN haptera.session s ON s.key = t.session"
    " WHERE t.words @@ %s::tsquery AND s.owner = %s AND t.owner = %s"
    " AND (%s::text IS NULL OR s.project = %s) AND (%s::text IS NULL OR s.owner = %s)"
    " AND s.details ->> 'deleted' IS NULL"
    " ORDER BY ts_rank(t.words, %s::tsquery) DESC, t.session DESC, t.seq DESC LIMIT %s"
)
_LONGEST_WORD = 200
"""Longer words are stored as their beginning and a digest; the database takes 2,046 bytes."""
_LONGEST_START = 40
_MOST_PLACES = 255
_LARGEST_VECTOR = 900_000
"""Bytes of words in one text; the database takes a megabyte."""
_MORE = "+"
"""Stands for the words that do not fit into a vector; it is no word itself."""
_MOST_LONG_TEXTS = 100
"""How many texts with such words are read for a query, the newest."""
# The database ranks by another formula than `TextQuery.score`, so more are scored than are wanted.
_CANDIDATES = 200


class PostgresSearch:
    """Finds texts through the index, after bringing it up to date for the owner's sessions."""

    def __init__(self, connections: PostgresConnections) -> None:
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
        within = (to_text(owner), None if project is None else to_text(project))

        def work(connection: PgConnection) -> list[SearchHit]:
            self._update_index(connection, within, wanted)
            return self._find(connection, within, wanted, limit=limit)

        return await self._connections.readers.run(work)

    def _update_index(
        self, connection: PgConnection, within: tuple[str, str | None], query: TextQuery
    ) -> None:
        database = self._connections.database
        owner, project = within
        bound = database.owner_text
        values = (owner, project, project, bound, bound)
        for key, session_id, indexed, head in database.query(connection, _BEHIND, *values):
            rows = read_rows(self._connections, connection, session_id, after=indexed, limit=None)
            entries = [entry for _, entry in rows if not isinstance(entry, str)]
            # Entries may have been appended since the head was read. They are in `rows` and must
            # not be indexed twice.
            reached = max(head, rows[-1][0]) if rows else head
            texts, through = _texts_of(entries, after=indexed, head=reached)
            vectors = [_vector(query.splitter.words_of(text.text)) for text in texts]
            # Another process may have done the same meanwhile: then its work stands.
            connection.execute(
                _INDEX,
                (
                    *(bound, key, indexed, through),
                    [text.seq for text in texts],
                    texts_or_none([text.message_id for text in texts]),
                    texts_or_none([text.part_id for text in texts]),
                    [to_text(text.text) for text in texts],
                    vectors,
                ),
            )

    def _find(
        self,
        connection: PgConnection,
        within: tuple[str, str | None],
        query: TextQuery,
        *,
        limit: int,
    ) -> list[SearchHit]:
        owner, project = within
        bound = self._connections.database.owner_text
        words = {word for phrase in query.phrases for word in _looked_up(phrase)}
        expression = " & ".join(sorted(words))
        wanted = [
            (expression, max(_CANDIDATES, 4 * limit)),
            (f"'{_MORE}' & !({expression})", _MOST_LONG_TEXTS),
        ]
        rows = [
            row
            for each, most in wanted
            for row in self._connections.database.query(
                connection,
                _FIND,
                *(each, owner, owner, project, project, bound, bound, each, most),
            )
        ]
        scored = []
        for session_id, seq, message_id, part_id, body in rows:
            text = SearchableText(
                seq=seq,
                text=from_text(body) or "",
                message_id=None if message_id is None else MessageId(message_id),
                part_id=None if part_id is None else PartId(part_id),
            )
            # The index finds single words. A phrase such as `don't` is checked here.
            if score := query.score(text.text):
                scored.append(((score, session_id, seq), SessionId(session_id), text))
        scored.sort(key=lambda item: item[0], reverse=True)
        return [hit_of(query, session_id, text) for _, session_id, text in scored[:limit]]


def _texts_of(
    entries: Sequence[Entry], *, after: int, head: int
) -> tuple[list[SearchableText], int]:
    """Return the texts of entries, and how far the log has been dealt with by them."""
    collector = TextCollector(after=after)
    texts = [text for entry in entries for text in collector.take(entry)]
    return texts, collector.through if collector.has_open_turn else head


def _vector(words: Sequence[str]) -> str:
    """Return the words of a text with their places, in the notation of a `tsvector`."""
    positions: dict[str, list[int]] = {}
    for position, word in enumerate(words, start=1):
        found = positions.setdefault(_lexeme(word), [])
        # A `tsvector` has at most 256 places of a word, and none above 16,383.
        if len(found) < _MOST_PLACES:
            found.append(min(position, 16_383))
    parts, size = [], 0
    for word, found in positions.items():
        size += len(word.encode()) + 2 * len(found) + 4
        if size > _LARGEST_VECTOR:
            # What is left out is found by reading the text.
            parts.append(f"'{_MORE}'")
            break
        parts.append(f"'{word}':{','.join(map(str, found))}")
    return " ".join(parts)


def _looked_up(phrase: Phrase) -> list[str]:
    """Return the words of a phrase as the database looks for them."""
    *whole, last = phrase.words
    wanted = [f"'{_lexeme(word)}'" for word in whole]
    # Long words are cut in the index, but for what they begin with.
    return [
        *wanted,
        f"'{_plain(last)[:_LONGEST_START]}':*" if phrase.is_open else f"'{_lexeme(last)}'",
    ]


def _lexeme(word: str) -> str:
    """Return a word as the index has it."""
    if len(word.encode()) <= _LONGEST_WORD:
        return _plain(word)
    return _plain(word)[:_LONGEST_START] + blob_name(word.encode())


def _plain(word: str) -> str:
    """Return a word without what a quoted lexeme cannot hold; words are letters and digits."""
    return word.replace("'", "").replace("\\", "")
