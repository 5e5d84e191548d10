"""Text that can be written down: into a log, onto a wire, on a terminal."""

import re

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def writable(text: str) -> str:
    """Replace halves of character pairs, which no encoding takes; the length stays the same.

    They come from file names that are no text, and from streams that were cut inside a character.
    """
    return text if text.isascii() else _LONE_SURROGATES.sub("\ufffd", text)


def writable_or_none(text: str | None) -> str | None:
    """Do the same for a text that may be missing."""
    return None if text is None else writable(text)
