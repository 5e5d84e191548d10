"""On which line each key of a TOML text stands, so that an error can point to it.

The standard library's parser checks the text and gives the values; this reads a text that is
already known to be valid, token by token, and only for its lines.
"""

import re
from collections.abc import Iterator

from haptera.model.late_names import late_module
from haptera.options.checks import KeyPath

# A multi-line string may end in one or two quotes of its own. Every string matches, also one
# without an end, so that no text is read twice.
_TOKEN = (
    r'"""(?:[^\\]|\\(?:.|\Z))*?(?:"{3,5}|\Z)|' + r"'''.*?(?:'{3,5}|\Z)|"
    r'"(?:[^"\\]|\\.)*+"?|' + r"'[^']*+'?|"
    r"""[^\s\[\]{}=,.\#"']+|[\[\]{}=,.]|\#[^\n]*"""
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, on which each table and key first stands."""
    reader = _Reader(text)
    table: KeyPath = ()
    while reader.word:
        table = reader.read_header() if reader.word == "[" else reader.read_pair(table)
    return reader.lines


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int | None:
    """Return the line of a key, or of the nearest table around it that has one."""
    return next((lines[part] for n in range(len(path), 0, -1) if (part := path[:n]) in lines), None)


class _Reader:
    """Walks the tokens of a valid text once."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._counts: dict[KeyPath, int] = {}
        self._tokens = _tokens(text)
        self.word, self._line = next(self._tokens)

    def _take(self) -> str:
        taken = self.word
        self.word, self._line = next(self._tokens, ("", 0))
        return taken

    def _read_key(self, end: str) -> Iterator[str]:
        while (word := self._take()) not in {end, ""}:
            if word[0] in "\"'":
                yield late_module("tomllib").loads(f"key = {word}")["key"]
            elif word != ".":
                yield word

    def read_header(self) -> KeyPath:
        line, _ = self._line, self._take()
        is_array = self.word == "[" and bool(self._take())
        path: KeyPath = ()
        for key in self._read_key("]"):
            if path in self._counts:
                path = (*path, self._counts[path] - 1)  # the newest table of an array
            path = (*path, key)
            self.lines.setdefault(path, line)
        if is_array:
            self._take()
            self._counts[path] = self._counts.get(path, 0) + 1
            path = (*path, self._counts[path] - 1)
            self.lines.setdefault(path, line)
        return path

    def read_pair(self, table: KeyPath) -> KeyPath:
        line, path = self._line, table
        for key in self._read_key("="):
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._read_value(path)
        return table

    def _read_value(self, path: KeyPath) -> None:
        line, end, index = self._line, {"[": "]", "{": "}"}.get(self._take()), 0
        if end is None:  # the rest of a number or a time
            while self.word not in {",", "]", "}", ""} and self._line == line:
                self._take()
            return
        while self.word not in {end, ""}:
            if self.word == ",":
                self._take()
            elif end == "}":
                self.read_pair(path)
            else:
                self.lines.setdefault((*path, index), self._line)
                self._read_value((*path, index))
                index += 1
        self._take()


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Yield what a text is made of, without blanks and comments, each with its line."""
    line, counted = 1, 0
    for match in re.finditer(_TOKEN, text, re.DOTALL):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        if not match[0].startswith("#"):
            yield match[0], line
    yield "", 0
