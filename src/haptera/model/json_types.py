"""Plain values from outside, which stay opaque: JSON, and text that can be written down."""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

Json: TypeAlias = Any
"""Any value that JSON can hold."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object whose shape is not ours to define."""

_NO_TEXT = (bytes, bytearray, memoryview, date, datetime, time, timedelta, UUID)
"""What msgspec would write as text, and would then take for the text that was asked for."""

_EXPONENT = re.compile(rb"[eE][+-]?[0-9]{3}")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
_MOST_EXPONENTS = 1000
_LOOKED_AT_ONCE = 64 * 1024

DEEPEST = 200
"""How many levels of a value from outside are kept.

A reader has about a thousand, less what its program has called by then: what was written with less
to spare might not be read back.
"""


def has_costly_numbers(raw: bytes) -> bool:
    """Whether JSON has very many numbers with exponents of three digits.

    `1e300` takes 7 microseconds to read, hundreds of times what other numbers of its length take:
    a megabyte of them would keep all threads waiting for more than a second.
    """
    # A text may look like it, so that strings count in a first look only.
    return _has_exponents(raw) and _has_exponents(_STRING.sub(b"", raw))


def _has_exponents(raw: bytes) -> bool:
    count = 0
    for at in range(0, len(raw), _LOOKED_AT_ONCE):  # so that other threads run in between
        count += sum(1 for _ in _EXPONENT.finditer(raw, at, at + _LOOKED_AT_ONCE))
        if count > _MOST_EXPONENTS:
            return True
    return False


def is_too_deep(value: Json, *, levels: int = DEEPEST) -> bool:
    """Whether a value has more levels than are kept."""
    # Level by level: a recursive search would fail on the values that it is to find.
    level: list[Any] = [value]
    while level and levels:
        level = [each for item in level for each in _inside(item)]
        levels -= 1
    return bool(level)


def _inside(value: Json) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) is list or type(value) is tuple else ()


def objects_in(value: Json) -> list[JsonObject]:
    """Return the objects of a list; none if it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def plain_value(value: object) -> Json:
    """Make a value plain; a struct keeps every field, those with their defaults, too."""
    if isinstance(value, msgspec.Struct):
        return {name: plain_value(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple | list):
        return [plain_value(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): plain_value(item) for name, item in value.items()}
    return value


def built_in_value(value: object) -> Json:
    """Make a value one that JSON can hold; what is no text stays what it is, and no JSON.

    Raises:
        TypeError: when it has no such form, or holds itself.

    """
    try:
        return msgspec.to_builtins(value, builtin_types=_NO_TEXT)
    except RecursionError:
        raise TypeError("it is nested too deeply") from None
    except UnicodeEncodeError as error:
        raise TypeError(str(error)) from None


def writable(text: str) -> str:
    """Replace halves of character pairs, which no encoding takes; the length stays the same.

    They come from file names that are no text, and from streams that were cut inside a character.
    """
    if text.isascii():
        return text
    try:
        text.encode()  # faster than a search, and finds just these
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text


def writable_or_none(text: str | None) -> str | None:
    """Do the same for a text that may be missing."""
    return None if text is None else writable(text)


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The base of what a session holds by the thousand: entries, events, messages and parts.

    They are made of text, numbers and JSON, so they cannot hold themselves, and the garbage
    collector need not visit them (`gc=False`).
    """


_PYTHON_WORDS = {"array": "list", "object": "dict", "null": "None"}
_TOML_WORDS = {"object": "table", " | null": ""}


def python_words(fault: str) -> str:
    """Return what msgspec says of a value with Python's words for types in place of JSON's."""
    return _in_words(fault, _PYTHON_WORDS)


def toml_words(fault: str) -> str:
    """Return what msgspec says of a value with TOML's words for types, which has no null."""
    return _in_words(fault, _TOML_WORDS)


def _in_words(fault: str, words: Mapping[str, str]) -> str:
    def replaced(quoted: re.Match[str]) -> str:
        text = quoted[0]
        for word, other in words.items():
            text = re.sub(rf"{re.escape(word)}\b", other, text)
        return text

    # Types are in backquotes, and so is the place of the value, which begins with a dollar sign.
    return re.sub(r"`[^`$]*`", replaced, fault)
