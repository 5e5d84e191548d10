"""The words of texts as every store finds them, and the words that a query looks for.

SQLite's tokenizer `unicode61` splits what has spaces or punctuation between its words, without
regard to case and accents; ß is ss. Scripts without spaces are split into pairs of neighbours,
which are ours: `我喜欢` is `我喜`, `喜欢` and `欢`. So a run of characters is found wherever its
pairs follow each other, and the last one alone makes single characters findable.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from haptera.model.json_types import writable
from haptera.model.late_names import late_module

UNSPACED = (
    "\u0e01-\u0e3e\u0e40-\u0e4e\u0e81-\u0ede"  # Thai, Lao
    "\u1000-\u1049\u1050-\u109d\u1780-\u17d3\u17d7\u17dc\u17dd"  # Burmese, Khmer
    "\u0f40-\u0f84\u0f86-\u0fbc"  # Tibetan
    "\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Kana
    "\u3005-\u3007\u3105-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0002fa1f"
)
"""The letters of scripts that are written without spaces, as a class of a pattern."""
INDEX_TOKENIZER = "unicode61 remove_diacritics 0 categories 'L* M* N* Co'"
"""Leaves words of `WordSplitter` as they are, when spaces are between them."""
_RUN = re.compile(f"[{UNSPACED}]+")


class Word(msgspec.Struct, frozen=True, gc=False):
    """A word with its first byte in a text, and the byte behind it."""

    start: int
    stop: int
    text: str


class Phrase(msgspec.Struct, frozen=True, gc=False):
    """Words that must follow each other."""

    words: tuple[str, ...]
    is_open: bool = False
    """Whether words that begin like the last one match it, too."""

    def places(self, words: Sequence[str]) -> list[int]:
        """Return where it begins in a list of words."""
        *whole, last = self.words
        length = len(whole)
        first = whole[0] if whole else None
        return [
            place - length
            for place, word in enumerate(words)
            if (word.startswith(last) if self.is_open else word == last)
            and place >= length
            and (first is None or words[place - length] == first)
            and list(words[place - length : place]) == whole
        ]


class WordSplitter:
    """Splits texts and queries. Two threads must not use an instance at the same time."""

    def __init__(self) -> None:
        apsw = late_module("apsw")  # memory and jsonl stores load it only when they are searched
        self._connection = apsw.Connection(":memory:")
        # What a tokenizer returns depends on its options, in a way that types cannot tell.
        self._tokenizer: Any = self._connection.fts5_tokenizer("unicode61", [])
        self._reason = apsw.FTS5_TOKENIZE_DOCUMENT

    def words_of(self, text: str) -> Sequence[str]:
        """Return the words of a text in order."""
        if text.isascii() or not _RUN.search(text):
            return self._spaced(_plain(text))
        return [word.text for word in self.placed_words(bytes_of_words(text))]

    def placed_words(self, content: bytes) -> list[Word]:
        """Return the words of what `bytes_of_words` made of a text, with their places."""
        pairs, rest = list[Word](), content
        if not content.isascii():
            text = content.decode()
            pairs = list(_pairs(text))
            # As many bytes, so that all other words have their places.
            rest = _plain(_RUN.sub(lambda run: " " * len(run[0].encode()), text)).encode()
        spaced = self._tokenizer(rest, self._reason, None, include_colocated=False)
        words = [Word(*each) for each in spaced]
        return sorted(words + pairs, key=lambda word: word.start) if pairs else words

    def phrases_of(self, query: str, *, prefix: bool) -> tuple[Phrase, ...]:
        """Return what a query looks for; most phrases have one word, `don't` has two."""
        pieces = writable(query).replace("\0", " ").split()
        phrases = (self._phrase(each, is_open=prefix or each.endswith("*")) for each in pieces)
        return tuple(phrase for phrase in phrases if phrase is not None)

    def indexed(self, text: str) -> str:
        """Return what an index with `INDEX_TOKENIZER` is given for a text: its words."""
        return text if text.isascii() else " ".join(self.words_of(text))

    def _phrase(self, piece: str, *, is_open: bool) -> Phrase | None:
        words = tuple(self.words_of(piece))
        if not words:
            return None
        if not _RUN.fullmatch(words[-1]) or len(words[-1]) > 1:
            return Phrase(words, is_open)
        # The last character of a run. In a text it may be followed by others.
        if len(words) > 1 and _RUN.fullmatch(words[-2]) and words[-2].endswith(words[-1]):
            return Phrase(words[:-1])
        return Phrase(words, is_open=True)

    def _spaced(self, text: str) -> Sequence[str]:
        words: Sequence[str] = self._tokenizer(
            # A lone surrogate cannot be encoded, and is part of no word.
            text.encode(errors="replace"),
            self._reason,
            None,
            include_offsets=False,
            include_colocated=False,
        )
        return words


def bytes_of_words(text: str) -> bytes:
    """Return the bytes of a text in which words have places.

    Lone surrogates are replaced. So is the capital ß, which has a byte more than SS.
    """
    return text.replace("ẞ", "SS").encode(errors="replace")


def _plain(text: str) -> str:
    """Return a text without ß; of what `bytes_of_words` made, with as many bytes as before."""
    return text.replace("ß", "ss").replace("ẞ", "SS")


def _pairs(text: str) -> Iterator[Word]:
    """Yield each two neighbours of the runs of a text, and the last character of each run."""
    at = reached = 0
    for run in _RUN.finditer(text):
        at += len(text[reached : run.start()].encode())
        reached = run.end()
        characters = run[0]
        sizes = [len(each.encode()) for each in characters]
        for number, size in enumerate(sizes):
            pair = characters[number : number + 2]
            yield Word(at, at + sum(sizes[number : number + 2]), pair)
            at += size
