"""On which line each key of a TOML text stands, so that an error can point to it.

The standard library's parser checks the text and gives the values; this reads a text that is
already known to be valid, and only for its lines.
"""

from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
"""From the root to a value: names of tables and keys, and places in arrays."""

_BARE_ENDS = frozenset(",]}#\r\n") | {""}
_KEY_ENDS = frozenset("=]. \t") | {""}
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "b": "\b", "f": "\f", "r": "\r"}


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, on which each table and key first stands."""
    scanner = _Scanner(text)
    scanner.read_document()
    return scanner.lines


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int | None:
    """Return the line of a key, or of the nearest table around it that has one."""
    for length in range(len(path), 0, -1):
        if (line := lines.get(path[:length])) is not None:
            return line
    return None


class _Scanner:
    """Walks a valid text once."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._counts: dict[KeyPath, int] = {}
        self._line, self._counted = 1, 0

    def read_document(self) -> None:
        table: KeyPath = ()
        while self._skip_blank():
            if self._peek() == "[":
                table = self._read_header()
            else:
                self._read_pair(table)

    def _read_header(self) -> KeyPath:
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        start = self._at
        path = self._in_arrays(self._read_key())
        for length in range(1, len(path)):
            self._note(path[:length], start)
        if is_array:
            index = self._counts.get(path, 0)
            self._counts[path] = index + 1
            self._note(path, start)
            path = (*path, index)
        self._note(path, start)
        self._at = self._text.index("]", self._at) + (2 if is_array else 1)
        return path

    def _in_arrays(self, keys: KeyPath) -> KeyPath:
        """Put the place in front of each table that is the newest one of an array."""
        path: KeyPath = ()
        for position, key in enumerate(keys):
            path = (*path, key)
            if path in self._counts and position < len(keys) - 1:
                path = (*path, self._counts[path] - 1)
        return path

    def _read_pair(self, table: KeyPath) -> None:
        start = self._at
        keys = self._read_key()
        for length in range(1, len(keys) + 1):
            self._note((*table, *keys[:length]), start)
        self._at = self._text.index("=", self._at) + 1
        self._read_value((*table, *keys))

    def _read_key(self) -> KeyPath:
        keys: list[str] = []
        while True:
            self._skip_spaces()
            quote = self._peek()
            if quote in {'"', "'"}:
                keys.append(self._read_string())
            else:
                start = self._at
                while self._peek() not in _KEY_ENDS:
                    self._at += 1
                keys.append(self._text[start : self._at])
            self._skip_spaces()
            if self._peek() != ".":
                return tuple(keys)
            self._at += 1

    def _read_value(self, path: KeyPath) -> None:
        self._skip_blank()
        match self._peek():
            case '"' | "'":
                self._read_string()
            case "[":
                self._read_list(path, end="]")
            case "{":
                self._read_list(path, end="}")
            case _:
                while self._peek() not in _BARE_ENDS:
                    self._at += 1

    def _read_list(self, path: KeyPath, *, end: str) -> None:
        self._at += 1
        index = 0
        while self._skip_blank() and self._peek() != end:
            if self._peek() == ",":
                self._at += 1
            elif end == "}":
                self._read_pair(path)
            else:
                self._note((*path, index), self._at)
                self._read_value((*path, index))
                index += 1
        self._at += 1

    def _read_string(self) -> str:
        quote = self._peek()
        mark = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        self._at += len(mark)
        letters: list[str] = []
        while not self._text.startswith(mark, self._at):
            letter = self._peek()
            if letter == "\\" and quote == '"':
                self._at += 1
                # An escaped code point is not worked out: a key with one is found under no name,
                # and an error names the line of its table.
                letter = _ESCAPES.get(self._peek(), "?")
            letters.append(letter)
            self._at += 1
        # A multi-line string may end in one or two quotes of its own.
        while len(mark) > 1 and self._text.startswith(mark, self._at + 1):
            self._at += 1
        self._at += len(mark)
        return "".join(letters)

    def _skip_spaces(self) -> None:
        while self._peek() in {" ", "\t"}:
            self._at += 1

    def _skip_blank(self) -> bool:
        """Go to the next thing that means something; say whether there is one."""
        while self._at < len(self._text):
            if self._peek() == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif self._peek() in " \t\r\n\ufeff":
                self._at += 1
            else:
                return True
        return False

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _note(self, path: KeyPath, position: int) -> None:
        # Places are noted in their order, so no line is counted twice.
        self._line += self._text.count("\n", self._counted, position)
        self._counted = position
        self.lines.setdefault(path, self._line)
