"""Wildcards in words and paths, matched in linear steps whatever the pattern.

`*` is any text and `?` any character, neither crosses a slash in a path; `**` is any number of
folders. `{a,b}` is either. Standard library only: a process of its own imports this for searches.
"""

import re
from functools import lru_cache

# Groups multiply, and a pattern may hold any number of them. One group of a rule, which has at most
# 1000 characters, is never too large.
_MOST_ALTERNATIVES = 512
_LONGEST = 1000


def matches_word(pattern: str, word: str) -> bool:
    """Whether a word fits a pattern with `*` and `?`."""
    at, star, resume = 0, -1, 0
    position = 0
    while position < len(word):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, position
            at += 1
        elif at < len(pattern) and pattern[at] in {"?", word[position]}:
            at += 1
            position += 1
        elif star >= 0:
            # Only the last `*` is tried again, with one more character: what an earlier one could
            # take, this one can take as well. So there is no exponential search.
            resume += 1
            at, position = star + 1, resume
        else:
            return False
    return all(character == "*" for character in pattern[at:])


def matches_path(pattern: str, path: str) -> bool:
    """Whether a path, or a folder above it, fits a pattern.

    A pattern without a slash fits a name in any folder; one with a slash begins at the root.
    """
    names = [name for name in path.split("/") if name not in {"", "."}]
    return any(_matches_names(each, names) for each in alternatives(pattern))


def matches_file(pattern: str, path: str) -> bool:
    """Whether a path itself fits a pattern; a folder above it does not count."""
    names = path.split("/")
    return any(len(names) in _ends(_segments(each), names) for each in alternatives(pattern))


def _matches_names(pattern: str, names: list[str]) -> bool:
    segments = _segments(pattern)
    if set(segments) <= {"**"}:
        return True
    # Where the pattern ends before the path does, it fits a folder above.
    return bool(_ends(segments, names) - {0})


def _segments(pattern: str) -> list[str]:
    segments = [part for part in pattern.split("/") if part not in {"", "."}]
    return segments if "/" in pattern.rstrip("/") else ["**", *segments]


def _ends(segments: list[str], names: list[str]) -> set[int]:
    """Return how many names the segments can fit, from the first name on."""
    reached = {0}
    for segment in segments:
        if segment == "**":
            # Any number of folders: every place from the first one on can be reached.
            reached = set(range(min(reached), len(names) + 1)) if reached else set()
            continue
        reached = {at + 1 for at in reached if at < len(names) and matches_word(segment, names[at])}
    return reached


@lru_cache(maxsize=256)
def alternatives(pattern: str) -> "tuple[str, ...]":
    """Return the patterns that `{a,b}` stands for, in any depth.

    A brace without a partner is a character, and so are those around text without a comma.

    Raises:
        ValueError: when the pattern is too long, or there are too many of them. Leaving some out
            would make a rule narrower than it is written.

    """
    if len(pattern) > _LONGEST:
        message = f"it is longer than {_LONGEST} characters"
        raise ValueError(message)
    pieces = re.split(r"([{},])", pattern)
    groups = _groups(pieces)
    # What is open, from the outside in: the options of a group that are complete, and the one that
    # is being read. The first is the pattern as a whole.
    levels: list[tuple[list[str], list[str]]] = [([], [""])]
    for at, piece in enumerate(pieces):
        done, current = levels[-1]
        if at not in groups:
            current[:] = [each + piece for each in current]
        elif piece == "{":
            levels.append(([], [""]))
        elif piece == ",":
            done += current
            current[:] = [""]
        else:
            levels.pop()
            options = [*done, *current]
            before = levels[-1][1]
            if len(before) * len(options) > _MOST_ALTERNATIVES:
                message = f"its braces stand for more than {_MOST_ALTERNATIVES} patterns"
                raise ValueError(message)
            before[:] = [each + option for each in before for option in options]
    return tuple(levels[0][1])


def _groups(pieces: list[str]) -> set[int]:
    """Return where groups have their signs: braces that close and hold a comma, and the commas."""
    signs: set[int] = set()
    # Of each brace that is open, from the outside in: where it is, and its commas.
    pending: list[tuple[int, list[int]]] = []
    for at, piece in enumerate(pieces):
        if piece == "{":
            pending.append((at, []))
        elif piece == "," and pending:
            pending[-1][1].append(at)
        elif piece == "}" and pending:
            start, commas = pending.pop()
            if commas:
                signs.update((start, *commas, at))
    return signs
