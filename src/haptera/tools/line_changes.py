"""Which lines of two texts are the same, found in time that grows with their number.

`difflib` alone takes quadratic time where every second line differs. Here a long piece is divided
at the lines that occur once on both sides, and `difflib` gets only what is short.
"""

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

_MOST_TRIED = 32
"""Lines on one side up to which each is compared with each; the time grows with the square."""
_DEEPEST = 8
"""How often a piece is divided; each level looks at all of its lines once."""

Change: TypeAlias = tuple[str, int, int, int, int]
"""What `difflib.SequenceMatcher.get_opcodes` returns."""


class _Region(NamedTuple):
    """A piece of both texts, by the numbers of lines."""

    old: int
    old_end: int
    new: int
    new_end: int


def line_changes_of(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Return what makes the new lines of the old ones."""
    changes: list[Change] = []
    at = other = 0
    for start, begin, count in _blocks(sorted(_matches(old, new)), (len(old), len(new))):
        if at < start and other < begin:
            changes.append(("replace", at, start, other, begin))
        elif at < start:
            changes.append(("delete", at, start, other, begin))
        elif other < begin:
            changes.append(("insert", at, start, other, begin))
        at, other = start + count, begin + count
        if count:
            changes.append(("equal", start, at, begin, other))
    return changes


def common_lines(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many lines two lists begin with together."""
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return number
    return min(len(left), len(right))


def _blocks(pairs: list[tuple[int, int]], ends: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield matching lines in blocks: where each begins, and how many lines it has."""
    at = 0
    while at < len(pairs):
        (old, new), count = pairs[at], 1
        while pairs[at + count : at + count + 1] == [(old + count, new + count)]:
            count += 1
        yield old, new, count
        at += count
    yield (*ends, 0)


def _matches(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield which line of the one is which of the other."""
    waiting = [(_Region(0, len(old), 0, len(new)), 0)]
    while waiting:
        region, depth = waiting.pop()
        before = common_lines(old[region.old : region.old_end], new[region.new : region.new_end])
        yield from _pairs(region.old, region.new, before)
        region = region._replace(old=region.old + before, new=region.new + before)
        left, right = old[region.old : region.old_end], new[region.new : region.new_end]
        behind = common_lines(left[::-1], right[::-1])
        region = region._replace(old_end=region.old_end - behind, new_end=region.new_end - behind)
        yield from _pairs(region.old_end, region.new_end, behind)
        left, right = left[: len(left) - behind], right[: len(right) - behind]
        if max(len(left), len(right)) <= _MOST_TRIED:
            matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
            for at, begin, count in matcher.get_matching_blocks():
                yield from _pairs(region.old + at, region.new + begin, count)
        elif depth < _DEEPEST and (matched := _unique_matches(left, right)):
            yield from ((region.old + at, region.new + begin) for at, begin in matched)
            waiting += [(each, depth + 1) for each in _between(region, matched)]


def _pairs(old: int, new: int, count: int) -> Iterator[tuple[int, int]]:
    return zip(range(old, old + count), range(new, new + count), strict=True)


def _between(region: _Region, matched: list[tuple[int, int]]) -> Iterator[_Region]:
    """Yield the pieces between lines of a region that match."""
    old, new = region.old, region.new
    for at, begin in matched:
        yield _Region(old, region.old + at, new, region.new + begin)
        old, new = region.old + at + 1, region.new + begin + 1
    yield _Region(old, region.old_end, new, region.new_end)


def _unique_matches(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Return lines that occur once on each side: the most of them that are in the same order."""
    counts, others = Counter(left), Counter(right)
    places = {line: at for at, line in enumerate(right) if others[line] == 1}
    pairs = [
        (at, places[line]) for at, line in enumerate(left) if counts[line] == 1 and line in places
    ]
    # The longest rising sequence. Of the sequences of each length, the one with the lowest end is
    # kept, by what it ends with.
    lowest: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(lowest, place)
        before.append(ends[length - 1] if length else None)
        lowest[length : length + 1], ends[length : length + 1] = [place], [number]
    matches: list[tuple[int, int]] = []
    last = ends[-1] if ends else None
    while last is not None:
        matches.append(pairs[last])
        last = before[last]
    return matches[::-1]
