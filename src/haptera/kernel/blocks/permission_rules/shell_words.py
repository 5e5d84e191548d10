"""Shell commands, read conservatively: as words that mean the same to every shell, or not at all.

What is read: words of plain characters, quotes without anything to be replaced in them, the
operators between commands, and redirections that touch no file. Everything else (variables,
substitutions, globs, braces, functions, loops, assignments, escapes) is not read:
the caller gets a reason instead of a guess.

With the extra `bash`, a grammar of the whole language reads every command as well. Where the two do
not find the same programs with the same words, the command counts as not read.
"""

import importlib.util
import re
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Words: TypeAlias = tuple[str, ...]
"""A program and its arguments."""

_LONGEST = 10_000
_MOST_COMMANDS = 50
_MOST_WORDS = 1_000

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_MID_WORD = re.compile(r"(?<=[A-Za-z0-9])[\^~#]+")
"""Characters that mean themselves after a letter and may mean something else elsewhere."""
_SINGLE = re.compile(r"'([^']*)'")
# Without `$`, backquotes, backslashes and `!`, which a shell replaces inside of double quotes.
_DOUBLE = re.compile(r'"([^"$`\\!]*)"')
_HARMLESS_REDIRECTION = re.compile(
    r"(?:&>>?[ \t]*/dev/null|[12]?>>?[ \t]*/dev/null|[12]?>&[12]|<[ \t]*/dev/null)(?=[\s;|&]|$)"
)
# `|&` joins the error output, too, and `;;` ends a case: neither is read.
_OPERATOR = re.compile(r"&&|\|\||\|(?!&)|;(?!;)|&|\n")
_UNREADABLE_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_RESERVED = frozenset(
    {
        "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
        "function", "if", "in", "select", "then", "time", "until", "while", "{", "}",
    }
)  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


class Unreadable(msgspec.Struct, frozen=True):
    """A command that is not read, and why."""

    reason: str


def read_command(text: str) -> tuple[Words, ...] | Unreadable:
    """Return the simple commands that a shell would run, in any order; or why that is not known."""
    if len(text) > _LONGEST:
        return Unreadable(f"it is longer than {_LONGEST} characters")
    if _UNREADABLE_CHARACTER.search(text):
        return Unreadable("it holds a control character")
    reader = _Reader(text)
    reason = reader.read()
    if reason is not None:
        return Unreadable(reason)
    checked = _checked(reader.commands)
    if isinstance(checked, Unreadable) or (grammar := _grammar()) is None:
        return checked
    agrees = _agrees(grammar, text, reader.commands)
    return checked if agrees else Unreadable("two parsers read it differently")


def read_pattern(text: str) -> Words | Unreadable:
    """Return the words of one command in a rule, in which `*` and `?` are wildcards."""
    reader = _Reader(text, wildcards=True)
    reason = reader.read()
    if reason is not None:
        return Unreadable(reason)
    if len(reader.commands) != 1:
        return Unreadable("it is not one simple command")
    return tuple(reader.commands[0])


class _Reader:
    """Goes through a text once, from left to right."""

    def __init__(self, text: str, *, wildcards: bool = False) -> None:
        self._text = text
        self._at = 0
        self._wildcards = wildcards
        self._word: str | None = None
        self._words: list[str] = []
        self.commands: list[list[str]] = []

    def read(self) -> str | None:
        """Read everything; returns why it could not be read."""
        while self._at < len(self._text):
            if not (self._take_word() or self._take_space() or self._take_operator()):
                return f"it holds {self._text[self._at]!r} where that may mean more than itself"
        self._end_word()
        self._end_command()
        return None

    def _take(self, pattern: "re.Pattern[str]") -> "re.Match[str] | None":
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _take_word(self) -> bool:
        # Before plain characters, which would take the digit of `2>&1` for a word.
        if self._word is None and self._take(_HARMLESS_REDIRECTION):
            return True
        if self._wildcards and self._text[self._at] in "*?":
            self._add(self._text[self._at])
            self._at += 1
            return True
        if (found := self._take(_PLAIN)) is not None:
            self._add(found[0])
            return True
        if self._word is not None and (found := self._take(_MID_WORD)) is not None:
            self._add(found[0])
            return True
        found = self._take(_SINGLE) or self._take(_DOUBLE)
        if found is not None:
            self._add(found[1])
        return found is not None

    def _take_space(self) -> bool:
        if self._text[self._at] not in " \t":
            return False
        self._end_word()
        self._at += 1
        return True

    def _take_operator(self) -> bool:
        # A digit before a redirection belongs to it: `2>&1` was read above, anything else is not.
        if self._text[self._at] in "<>" or (found := self._take(_OPERATOR)) is None:
            return False
        self._end_word()
        if not self._words and found[0] != "\n":
            self._at = found.start()  # a shell expects a command before it
            return False
        self._end_command()
        return True

    def _add(self, piece: str) -> None:
        self._word = (self._word or "") + piece

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
            self._word = None

    def _end_command(self) -> None:
        if self._words:
            self.commands.append(self._words)
            self._words = []


def _checked(commands: list[list[str]]) -> tuple[Words, ...] | Unreadable:
    if not commands:
        return Unreadable("it is empty")
    if len(commands) > _MOST_COMMANDS or sum(map(len, commands)) > _MOST_WORDS:
        return Unreadable(f"it has more than {_MOST_COMMANDS} commands or {_MOST_WORDS} words")
    for words in commands:
        # Behind the first word, words of the shell are plain arguments, as in `echo if`.
        first = words[0]
        if first in _RESERVED:
            return Unreadable(f"it holds the shell's word {first!r}")
        if not first or _ASSIGNMENT.match(first):
            return Unreadable("it sets a variable, or names no program")
    return tuple(tuple(words) for words in commands)


@cache
def _grammar() -> "Parser | None":
    """Return the parser of the extra `bash`; None where that is not installed."""
    if importlib.util.find_spec("tree_sitter_bash") is None:
        return None
    tree_sitter = importlib.import_module("tree_sitter")
    language = importlib.import_module("tree_sitter_bash").language()
    parser: Parser = tree_sitter.Parser(tree_sitter.Language(language))
    return parser


_SIMPLE_COMMANDS = frozenset(
    {"command", "declaration_command", "test_command", "unset_command", "variable_assignment"}
)
_STRUCTURE = frozenset({"program", "list", "pipeline", "redirected_statement"})
_SIGNS = frozenset({"&&", "||", "|", ";", "&", "\n"})
_QUOTED = frozenset({"string", "raw_string"})
_BEYOND_WORDS = re.compile("expansion|substitution|arithmetic|ansi|translated|brace|heredoc|array")
"""Kinds of nodes that stand for more than their text."""


def _agrees(grammar: "Parser", text: str, commands: list[list[str]]) -> bool:
    """Whether the grammar finds the same commands, in whatever order, with the same words."""
    root = grammar.parse(text.encode()).root_node
    found: list[list[str] | None] = []
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type in _SIMPLE_COMMANDS:
            found.append(_words_of(node))
        elif node.type in _STRUCTURE:
            pending += [child for child in node.children if child.type != "file_redirect"]
        elif node.type not in _SIGNS:
            return False
    known = [words for words in found if words is not None]
    return not root.has_error and len(known) == len(found) and sorted(known) == sorted(commands)


def _words_of(command: "Node") -> list[str] | None:
    """Return the words of one command of the grammar, without their quotes; None for more."""
    words: list[str] = []
    end = -1
    pending = [command]
    while pending:
        node = pending.pop()
        if node.type == "file_redirect":
            continue
        quoted = node.type in _QUOTED
        if _BEYOND_WORDS.search(node.type) or (quoted and any(map(_is_more, node.children))):
            return None
        if node.children and not quoted:
            pending += reversed(node.children)
            continue
        piece = (node.text or b"").decode(errors="replace")
        if quoted:
            piece = piece[1:-1]
        # Pieces without space between them are one word.
        if node.start_byte == end:
            words[-1] += piece
        else:
            words.append(piece)
        end = node.end_byte
    return words


def _is_more(part: "Node") -> bool:
    return part.type not in {'"', "'", "string_content"}
