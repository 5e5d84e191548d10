"""Growing JSON: reads JSON text as it comes, piece by piece, and looks at each character once."""

import re
from collections.abc import Callable

import msgspec

from haptera.model.json_types import Json

_DEPTH = 100
"""Lists and objects inside each other; what is deeper is not read."""
_NOT_BLANK = re.compile(r"\S")
_TEXT_STOP = re.compile(r'["\\]')
_SCALAR_STOP = re.compile(r"[\s,\]}]")
_ESCAPES = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_HEX_DIGITS = 4
_HIGH_SURROGATES = range(0xD800, 0xDC00)
_SURROGATES = range(0xD800, 0xE000)
_THINKING, _THOUGHT = "<think>", "</think>"


class UnfinishedText(str):
    """A text that is not complete yet."""

    __slots__ = ()


class _Open:
    """A list or an object that is not complete yet, and the name of what comes next."""

    __slots__ = ("key", "value")

    def __init__(self, value: list[Json] | dict[str, Json]) -> None:
        self.value = value
        self.key = ""


class GrowingJson:
    """One JSON value while its text comes.

    What is before it is skipped: thoughts in `<think>`, a fence, a sentence. What is after it is
    not looked at. Text that is no JSON stops the growth, and what was read stays. Numbers, `true`,
    `false` and `null` are there once they are complete; texts grow.
    """

    def __init__(self) -> None:
        self.open: list[_Open] = []
        """What is open, outermost first; each holds the next one."""
        self.root: Json = None
        """The value itself, as far as it is there; it goes on growing."""
        self.changes = 0
        """Grows with every change of the value."""
        self._step: Callable[[str, int], int] | None = self._begin
        self._pieces: list[str] = []
        """Of the text, number or word that comes."""
        self._is_key = False
        self._in_text = False
        self._has_surrogates = False
        self._digits = ""
        """Of an escape that comes."""

    def feed(self, text: str) -> None:
        """Take in more of the text."""
        position = 0
        while position < len(text) and self._step is not None:
            position = self._step(text, position)

    @property
    def text(self) -> UnfinishedText | None:
        """The text that comes, as far as it is there; None where none comes, or it is a name."""
        if not self._in_text or self._is_key:
            return None
        # Joined once: what was joined before is one piece.
        self._pieces = ["".join(self._pieces)]
        return UnfinishedText(self._whole_text())

    # Each step takes in something at a position, and returns the position behind it.

    def _begin(self, text: str, position: int) -> int:
        """Decide what the answer begins with, once that can be told."""
        head = ("".join(self._pieces) + text[position:]).lstrip()
        self._pieces = [head]
        if not head or (head != _THINKING and _THINKING.startswith(head)):
            return len(text)
        self._pieces = []
        if head.startswith(_THINKING):
            self._step = self._think
        else:
            self._step = self._value if head[0] in '{["' else self._preamble
        self.feed(head)
        return len(text)

    def _think(self, text: str, position: int) -> int:
        """Skip thoughts; their end may come in two pieces."""
        head = "".join(self._pieces) + text[position:]
        end = head.find(_THOUGHT)
        if end < 0:
            self._pieces = [head[-len(_THOUGHT) :]]
            return len(text)
        self._pieces, self._step = [], self._begin
        self.feed(head[end + len(_THOUGHT) :])
        return len(text)

    def _preamble(self, text: str, position: int) -> int:
        """Skip a fence or a sentence up to an object."""
        begin = text.find("{", position)
        if begin < 0:
            return len(text)
        self._step = self._value
        return begin

    def _value(self, text: str, position: int) -> int:
        match = _NOT_BLANK.search(text, position)
        if match is None:
            return len(text)
        character, position = match[0], match.start()
        if character in "{[":
            return self._enter({} if character == "{" else [], position)
        if character == "]":
            return self._leave(character, position)
        if character == '"':
            return self._begin_text(position, is_key=False)
        if not self.open:
            return self._stop(text)
        self._pieces, self._step = [], self._scalar
        return position

    def _enter(self, value: list[Json] | dict[str, Json], position: int) -> int:
        if len(self.open) == _DEPTH:
            self._step = None
            return position
        self._add(value)
        self.open.append(_Open(value))
        self._step = self._key if isinstance(value, dict) else self._value
        return position + 1

    def _leave(self, character: str, position: int) -> int:
        """Close the innermost list or object, if it is one that this character closes."""
        wanted: type = dict if character == "}" else list
        if not self.open or not isinstance(self.open[-1].value, wanted):
            self._step = None
            return position
        self.open.pop()
        self.changes += 1
        self._step = self._after if self.open else None
        return position + 1

    def _key(self, text: str, position: int) -> int:
        match = _NOT_BLANK.search(text, position)
        if match is None:
            return len(text)
        if match[0] == '"':
            return self._begin_text(match.start(), is_key=True)
        return self._leave(match[0], match.start()) if match[0] == "}" else self._stop(text)

    def _colon(self, text: str, position: int) -> int:
        match = _NOT_BLANK.search(text, position)
        if match is None:
            return len(text)
        if match[0] != ":":
            return self._stop(text)
        self._step = self._value
        return match.end()

    def _after(self, text: str, position: int) -> int:
        match = _NOT_BLANK.search(text, position)
        if match is None:
            return len(text)
        if match[0] == ",":
            self._step = self._key if isinstance(self.open[-1].value, dict) else self._value
            return match.end()
        return self._leave(match[0], match.start()) if match[0] in "}]" else self._stop(text)

    def _begin_text(self, position: int, *, is_key: bool) -> int:
        self._is_key, self._in_text, self._has_surrogates = is_key, True, False
        self._pieces, self._step = [], self._characters
        self.changes += not is_key
        return position + 1

    def _characters(self, text: str, position: int) -> int:
        match = _TEXT_STOP.search(text, position)
        end = len(text) if match is None else match.start()
        if end > position:
            self._pieces.append(text[position:end])
            self.changes += not self._is_key
        if match is None:
            return end
        if match[0] == "\\":
            self._step = self._escape
        else:
            self._end_text()
        return match.end()

    def _escape(self, text: str, position: int) -> int:
        character = text[position]
        if character == "u":
            self._digits, self._step = "", self._unicode
        elif (plain := _ESCAPES.get(character)) is None:
            return self._stop(text)
        else:
            self._pieces.append(plain)
            self._step = self._characters
            self.changes += 1
        return position + 1

    def _unicode(self, text: str, position: int) -> int:
        self._digits += text[position]
        if len(self._digits) == _HEX_DIGITS:
            try:
                code = int(self._digits, 16)
            except ValueError:
                return self._stop(text)
            self._has_surrogates |= code in _SURROGATES
            self._pieces.append(chr(code))
            self._step = self._characters
            self.changes += 1
        return position + 1

    def _end_text(self) -> None:
        whole, self._in_text = self._whole_text(), False
        if self._is_key:
            innermost = self.open[-1]
            # A name that comes twice would replace what was shown already.
            is_new = isinstance(innermost.value, dict) and whole not in innermost.value
            innermost.key, self._step = whole, self._colon if is_new else None
            return
        self._add(whole)
        self._step = self._after if self.open else None

    def _whole_text(self) -> str:
        whole = "".join(self._pieces)
        if not self._has_surrogates:
            return whole
        # One half of a pair may be there without the other.
        if ord(whole[-1]) in _HIGH_SURROGATES:
            whole = whole[:-1]
        return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _scalar(self, text: str, position: int) -> int:
        match = _SCALAR_STOP.search(text, position)
        end = len(text) if match is None else match.start()
        self._pieces.append(text[position:end])
        if match is None:
            return end
        whole, self._pieces = "".join(self._pieces), []
        try:
            value = msgspec.json.decode(whole)
        except msgspec.DecodeError:
            return self._stop(text)
        self._add(value)
        self._step = self._after
        return end

    def _add(self, value: Json) -> None:
        """Put a value where it belongs; one that stands alone has nothing to grow in."""
        self.changes += 1
        if not self.open:
            self.root = value
            return
        innermost = self.open[-1]
        if isinstance(innermost.value, dict):
            innermost.value[innermost.key] = value
        else:
            innermost.value.append(value)

    def _stop(self, text: str) -> int:
        """Give up: this is no JSON."""
        self._step = None
        return len(text)
