"""Search over what users and models said: which texts a log holds, and which of them match a query.

Every store uses the same texts (`TextCollector`), the same words and the same snippets
(`TextQuery`). A store without an index finds the best texts by reading its logs (`TextScan`).
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from haptera.model.ids import MessageId, PartId, SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued, QueryStarted
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.turns import (
    PartCheckpoint,
    PartEnded,
    PartStarted,
    PartTexts,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
)
from haptera.model.parts import TextPart
from haptera.ports.session_store import SearchHit
from haptera.stores.text_words import WordSplitter, bytes_of_words

SEARCHABLE_KINDS = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (
        InputQueued,
        PartCheckpoint,
        PartEnded,
        PartStarted,
        QueryStarted,
        SessionOpened,
        TurnDiscarded,
        TurnEnded,
        TurnStarted,
    )
)
"""The kinds of entries that a `TextCollector` needs; it ignores all others."""

_WORDS_BEFORE, _WORDS_IN_SNIPPET = 5, 20
_LONGEST_LEAD, _LONGEST_SNIPPET = 80, 240

# The weights of BM25, with a fixed length instead of the average, which a scan does not know.
_SATURATION, _LENGTH_WEIGHT, _TYPICAL_WORDS = 1.2, 0.75, 100


class SearchableText(msgspec.Struct, frozen=True, kw_only=True):
    """A text of a log that can be found, and the entry that it begins with."""

    seq: int
    text: str
    message_id: MessageId | None = None
    part_id: PartId | None = None


class TextCollector:
    """Collects the searchable texts of a log, entry by entry.

    These are prompts, restored histories, and the text parts of answers. An answer is in pieces;
    its words are whole only once its turn has ended, so its texts come with the end of the turn.
    """

    def __init__(self, *, after: int = 0) -> None:
        self.through = after
        """How far the log has been dealt with. While a turn is open, the `seq` before it."""
        self._turn: _OpenAnswer | None = None

    @property
    def has_open_turn(self) -> bool:
        """Whether texts of a turn are still to come."""
        return self._turn is not None and self._turn.is_started

    def take(self, entry: Entry) -> list[SearchableText]:
        """Return the texts that are complete with this entry."""
        found = self._take(entry)
        if not self.has_open_turn:
            self.through = entry.seq
        return found

    def _take(self, entry: Entry) -> list[SearchableText]:
        match entry:
            case TurnStarted():
                self._turn = _OpenAnswer(is_started=True)
            case TurnDiscarded():
                self._turn = None
            case PartStarted() | PartCheckpoint() | PartEnded():
                self._turn = self._turn or _OpenAnswer()
                self._turn.take(entry)
            case TurnEnded():
                turn, self._turn = self._turn, None
                return turn.texts(entry.message_id) if turn is not None else []
            case QueryStarted(message=message) | InputQueued(message=message) if message:
                text = SearchableText(seq=entry.seq, text=message.text, message_id=message.id)
                return [text] if text.text else []
            case SessionOpened(history=history) if history:
                whole = "\n".join(message.text for message in history)
                return [SearchableText(seq=entry.seq, text=whole)] if whole else []
        return []


@dataclass(slots=True)
class _OpenAnswer:
    """The text parts of a turn that has not ended."""

    is_started: bool = False
    """False when the collector began inside the turn, to read one of its parts."""
    _seqs: dict[PartId, int] = field(default_factory=dict)
    _growing: PartTexts = field(default_factory=PartTexts)
    _whole: dict[PartId, str] = field(default_factory=dict)

    def take(self, entry: PartStarted | PartCheckpoint | PartEnded) -> None:
        """Add what an entry holds of a part."""
        if isinstance(entry, PartStarted):
            if entry.part_kind == "text":
                self._seqs[entry.part_id] = entry.seq
        elif entry.part_id not in self._seqs:
            return
        elif isinstance(entry, PartCheckpoint):
            self._growing.add(entry)
        else:
            part = self._growing.compose(entry).part
            self._whole[entry.part_id] = part.text if isinstance(part, TextPart) else ""
            self._growing.drop(entry.part_id)

    def texts(self, message_id: MessageId) -> list[SearchableText]:
        """Return the texts; a part that has not ended has the text so far."""
        found = []
        for part_id, seq in self._seqs.items():
            text = self._whole.get(part_id) or self._growing.text_of(part_id)
            if text:
                found.append(
                    SearchableText(seq=seq, text=text, message_id=message_id, part_id=part_id)
                )
        return found


class TextQuery:
    """The phrases that a text must hold, all of them, and how well it fits.

    Two threads must not use an instance at the same time.
    """

    def __init__(self, query: str, *, prefix: bool = False) -> None:
        self.splitter = WordSplitter()
        self.phrases = self.splitter.phrases_of(query, prefix=prefix)

    @property
    def match_expression(self) -> str:
        """The query in the language of FTS5; words have no characters that need quoting."""
        return " ".join(
            '"{}"{}'.format(" ".join(each.words), " *" if each.is_open else "")
            for each in self.phrases
        )

    def score(self, text: str) -> float:
        """Return how well a text fits: 0 unless it holds every phrase."""
        # Of ASCII the tokenizer changes only the case, so a word that is not in the text is none of
        # its words.
        if text.isascii() and not self._may_hold(text.lower()):
            return 0.0  # most texts: they need not be split into words
        words = self.splitter.words_of(text)
        length = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * len(words) / _TYPICAL_WORDS
        counts = [len(phrase.places(words)) for phrase in self.phrases]
        if not counts or not all(counts):
            return 0.0
        return sum(count * (_SATURATION + 1) / (count + _SATURATION * length) for count in counts)

    def _may_hold(self, lowered: str) -> bool:
        """Whether a text of ASCII holds every word somewhere, perhaps inside another word."""
        return all(word in lowered for phrase in self.phrases for word in phrase.words)

    def snippet(self, text: str) -> str:
        """Return the piece of a text around the first phrase that it holds, on one line."""
        content = bytes_of_words(text)
        words = self.splitter.placed_words(content)
        plain = [word.text for word in words]
        places = [place for phrase in self.phrases for place in phrase.places(plain)[:1]]
        if not places:
            return ""
        position = min(places)
        first = position
        while (
            first > max(0, position - _WORDS_BEFORE)
            and words[position].start - words[first - 1].start <= _LONGEST_LEAD
        ):
            first -= 1
        last = min(first + _WORDS_IN_SNIPPET, len(words)) - 1
        # The characters before the first word and behind the last are shown, too.
        start = words[first].start if first else 0
        stop = words[last].stop if last + 1 < len(words) else len(content)
        piece = " ".join(content[start:stop].decode(errors="replace").split())
        is_cut = stop < len(content) or len(piece) > _LONGEST_SNIPPET
        return ("…" if start else "") + piece[:_LONGEST_SNIPPET] + ("…" if is_cut else "")


def hit_of(query: TextQuery, session_id: SessionId, text: SearchableText) -> SearchHit:
    """Make the hit of a text that a query found."""
    return SearchHit(
        session_id=session_id,
        seq=text.seq,
        message_id=text.message_id,
        part_id=text.part_id,
        snippet=query.snippet(text.text),
    )


class TextScan:
    """Finds the best texts of many logs. Keeps at most `limit` hits and the texts of one turn."""

    def __init__(self, query: str, *, limit: int, prefix: bool = False) -> None:
        self._query = TextQuery(query, prefix=prefix)
        self._limit = limit if self._query.phrases else 0
        self._best: list[tuple[float, SessionId, int, SearchHit]] = []
        """A heap, the worst hit first. Among equals the later session and entry is better."""

    @property
    def is_pointless(self) -> bool:
        """Whether nothing can be found: the query has no word, or no hit is wanted."""
        return self._limit <= 0

    def scan(self, session_id: SessionId, entries: Iterable[Entry]) -> None:
        """Look through the log of one session."""
        collector = TextCollector()
        for entry in entries:
            for text in collector.take(entry):
                self._offer(session_id, text)

    def scan_all(self, logs: Iterable[tuple[SessionId, Iterable[Entry]]]) -> list[SearchHit]:
        """Look through the logs of several sessions, and return the hits."""
        if not self.is_pointless:
            for session_id, entries in logs:
                self.scan(session_id, entries)
        return self.hits()

    def hits(self) -> list[SearchHit]:
        """Return the hits, the best first."""
        return [hit for *_, hit in sorted(self._best, key=lambda item: item[:3], reverse=True)]

    def _offer(self, session_id: SessionId, text: SearchableText) -> None:
        score = self._query.score(text.text)
        # Session and `seq` make each rank unique, so that the heap never compares two hits.
        rank = (score, session_id, text.seq)
        is_full = len(self._best) >= self._limit
        if score and (not is_full or rank > self._best[0][:3]):
            item = (*rank, hit_of(self._query, session_id, text))
            (heapq.heapreplace if is_full else heapq.heappush)(self._best, item)
