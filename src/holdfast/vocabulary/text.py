"""Text that can be written down, into a log, onto a wire, on a terminal; and mistyped names."""

import re
from collections.abc import Iterable

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def writable(text: str) -> str:
    """Replace halves of character pairs, which no encoding takes; the length stays the same.

    They come from file names that are no text, and from streams that were cut inside a character.
    """
    return text if text.isascii() else _LONE_SURROGATES.sub("\ufffd", text)


def writable_or_none(text: str | None) -> str | None:
    """Do the same for a text that may be missing."""
    return None if text is None else writable(text)


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that a name is not known, and which known one may have been meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - for those who mistype only

    close = get_close_matches(name, list(known), n=1)
    return f"unknown; did you mean {close[0]!r}?" if close else "unknown"
