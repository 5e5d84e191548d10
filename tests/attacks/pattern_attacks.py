"""Texts that make a regular expression go back: made of the expression itself, for any expression.

A search takes more than linear time in one of two ways: it begins anew at every place and reads on
to the end each time, or a repetition can give back what the next one takes as well. So for every
place in the expression the texts repeat what leads up to it, or what is repeated there, and then
go on so that the whole does not fit.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

words: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")

_ALPHABET = [chr(code) for code in range(0x20, 0x7F)] + [
    "\n",
    "\t",
    "\r",
    "\x1b",
    "\x01",
    "é",
    "\ud800",
]
_MISFITS = ("", "\x00", "\n\x00", "!", " ")
_MOST_TEXTS = 60


def attacks_on(pattern: "re.Pattern[str] | re.Pattern[bytes]") -> "list[Callable[[int], str]]":
    """Return makers of hostile texts for a pattern, each by the length of the text."""
    source = (
        pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    )
    tree = parser.parse(
        source, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    )
    pieces = dict.fromkeys(_pieces(list(tree), ""))
    return [
        _maker(head, pumped, tail)
        for head, pumped in list(pieces)[:_MOST_TEXTS]
        for tail in _MISFITS[:3]
        if pumped
    ]


def _maker(head: str, pumped: str, tail: str) -> "Callable[[int], str]":
    return lambda size: head + pumped * max(size // len(pumped), 1) + tail


def _pieces(nodes: "list[Any]", before: str) -> "Iterator[tuple[str, str]]":
    """Yield what to write once and what to repeat, for every place in a sequence."""
    at = before
    for node in nodes:
        op, value = node
        if op in {words.MAX_REPEAT, words.MIN_REPEAT, words.POSSESSIVE_REPEAT}:
            low, _, inner = value
            once = _example(list(inner))
            yield at, once
            yield "", at + once
            yield from _pieces(list(inner), at)
            for other in _firsts(list(inner)):
                yield at, other
            at += once * max(low, 1)
        elif op is words.SUBPATTERN:
            yield from _pieces(list(value[-1]), at)
            at += _example(list(value[-1]))
        elif op is words.ATOMIC_GROUP:
            yield from _pieces(list(value), at)
            at += _example(list(value))
        elif op is words.BRANCH:
            for branch in value[1]:
                yield from _pieces(list(branch), at)
            at += _example(list(value[1][0]))
        elif op in {words.ASSERT, words.ASSERT_NOT}:
            yield from _pieces(list(value[1]), at)
        else:
            at += _example([node])
            yield "", at
    yield "", at


def _firsts(nodes: "list[Any]") -> "Iterator[str]":
    """Yield further characters that a repeated class takes, besides the one in the example."""
    for op, value in nodes:
        if op is words.IN:
            fits = [c for c in _ALPHABET if _in(value, c)]
            yield from fits[:: max(len(fits) // 4, 1)]


def _example(nodes: "list[Any]") -> str:
    return "".join(map(_example_of, nodes))


def _example_of(node: "tuple[Any, Any]") -> str:
    op, value = node
    if op is words.LITERAL:
        return chr(int(value))
    if op in {words.NOT_LITERAL, words.IN, words.ANY, words.CATEGORY}:
        return next((c for c in "a0-_ /.=:\n" + "".join(_ALPHABET) if _fits(op, value, c)), "")
    if op in {words.MAX_REPEAT, words.MIN_REPEAT, words.POSSESSIVE_REPEAT}:
        return _example(list(value[2])) * int(value[0])
    if op is words.SUBPATTERN:
        return _example(list(value[-1]))
    if op is words.ATOMIC_GROUP:
        return _example(list(value))
    if op is words.BRANCH:
        return _example(list(value[1][0]))
    return ""


def _fits(op: Any, value: Any, character: str) -> bool:
    if op is words.ANY:
        return character != "\n"
    if op is words.NOT_LITERAL:
        return character != chr(value)
    return _in(value if op is words.IN else [(op, value)], character)


def _in(items: "Iterable[tuple[Any, Any]]", character: str) -> bool:
    negated, found = False, False
    for op, value in items:
        if op is words.NEGATE:
            negated = True
        elif op is words.LITERAL:
            found = found or ord(character) == value
        elif op is words.RANGE:
            found = found or value[0] <= ord(character) <= value[1]
        elif op is words.CATEGORY:
            found = found or bool(re.match(_CATEGORIES[value], character))
    return found != negated


_CATEGORIES = {
    words.CATEGORY_DIGIT: r"\d",
    words.CATEGORY_NOT_DIGIT: r"\D",
    words.CATEGORY_SPACE: r"\s",
    words.CATEGORY_NOT_SPACE: r"\S",
    words.CATEGORY_WORD: r"\w",
    words.CATEGORY_NOT_WORD: r"\W",
}
