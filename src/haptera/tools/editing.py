"""Edits of a text, decided purely: what it becomes, and the difference as a person reads it."""

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

_CONTEXT = 3
_MOST_COMPARED = 4000
"""Lines on one side of a change up to which lines are matched with each other."""
_MOST_TRIED = 32
"""Lines on one side up to which each is compared with each; the time grows with the square."""
_DEEPEST = 8
"""How often a piece is divided at lines that occur once; each level looks at all of its lines."""


class Edit(msgspec.Struct, frozen=True):
    """A piece of text to be replaced; it must occur exactly once, unless all are meant."""

    old: str
    new: str
    all: bool = False


class EditError(Exception):
    """An edit that cannot be made as it was asked for; no other edit of the call is made."""


def apply_edits(text: str, edits: list[Edit]) -> str:
    """Return the text after all edits, in their order; raises EditError and changes nothing."""
    if not edits:
        raise EditError("the list of edits is empty")
    for number, edit in enumerate(edits, 1):
        text = _apply(
            text, edit, f"edit {number} of {len(edits)}" if len(edits) > 1 else "the edit"
        )
    return text


def _apply(text: str, edit: Edit, which: str) -> str:
    if not edit.old:
        raise EditError(f"{which} has no old text; write the file instead")
    if edit.old == edit.new:
        raise EditError(f"{which} changes nothing: old and new text are the same")
    count = text.count(edit.old)
    if count == 0:
        raise EditError(f"{which}: the old text is not in the file; read it and copy it exactly")
    if count > 1 and not edit.all:
        lines = ", ".join(str(line) for line in _lines_of(text, edit.old))
        raise EditError(
            f"{which}: the old text occurs {count} times (lines {lines}); "
            "give more of what is around it, or all=true"
        )
    return text.replace(edit.old, edit.new)


_SHOWN_LINES = 10
"""How many places are named for the model to choose from."""


def _lines_of(text: str, piece: str) -> list[int]:
    """Return the first lines on which a piece of text begins."""
    lines: list[int] = []
    at = text.find(piece)
    while at >= 0 and len(lines) < _SHOWN_LINES:
        lines.append(text.count("\n", 0, at) + 1)
        at = text.find(piece, at + 1)
    return lines


def difference(before: str, after: str, name: str) -> str:
    """Return a unified diff. Of a very large change only the number of lines is told."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    # Matching lines takes time in the square of their number, so it gets only what differs.
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    first = max(start - _CONTEXT, 0)
    left = old[first : len(old) - max(end - _CONTEXT, 0)]
    right = new[first : len(new) - max(end - _CONTEXT, 0)]
    if max(len(left), len(right)) > _MOST_COMPARED:
        return (
            f"{name}: {len(old) - start - end} lines from line {start + 1} on were replaced by "
            f"{len(new) - start - end} lines"
        )
    return "".join(_hunks(left, right, name, first))


def _hunks(left: list[str], right: list[str], name: str, before: int) -> Iterator[str]:
    """Yield the lines of a unified diff of what comes behind so many lines of a file."""
    matcher = difflib.SequenceMatcher(None, (), ())
    # The library groups the changes. It would take quadratic time to find them.
    matcher.opcodes = _changes(left, right)
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT)):
        if number == 0:
            yield f"--- a/{name}\n"
            yield f"+++ b/{name}\n"
        (_, old, _, new, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        ranges = (_range(old + before, old_end - old), _range(new + before, new_end - new))
        yield f" -{ranges[0]} +{ranges[1]} \n"
        for tag, start, end, other, other_end in group:
            if tag == "equal":
                yield from (_ended(f" {line}") for line in left[start:end])
                continue
            yield from (_ended(f"-{line}") for line in left[start:end])
            yield from (_ended(f"+{line}") for line in right[other:other_end])


def _range(start: int, count: int) -> str:
    """Return a range of lines as the head of a hunk has it: of none, the line before it."""
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


_OpCode = tuple[str, int, int, int, int]
_Region = tuple[int, int, int, int]
"""Where a piece begins and ends, in the old lines and in the new ones."""


def _changes(old: Sequence[str], new: Sequence[str]) -> list[_OpCode]:
    """Return what makes the new lines of the old ones, as `SequenceMatcher.get_opcodes` does."""
    found: list[_OpCode] = []
    at, other = 0, 0
    for start, begin, count in _blocks(sorted(_matches(old, new)), (len(old), len(new))):
        if at < start or other < begin:
            is_one = at == start or other == begin
            tag = "replace" if not is_one else "delete" if at < start else "insert"
            found.append((tag, at, start, other, begin))
        at, other = start + count, begin + count
        if count:
            found.append(("equal", start, at, begin, other))
    return found


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
    """Yield which line of the one is which of the other.

    A long piece is divided at the lines that occur once on both sides. Between these it is matched
    in the same way, and line by line once it is short.
    """
    waiting: list[tuple[_Region, int]] = [((0, len(old), 0, len(new)), 0)]
    while waiting:
        (start, end, other, other_end), depth = waiting.pop()
        same = _common(old[start:end], new[other:other_end])
        yield from zip(range(start, start + same), range(other, other + same), strict=True)
        start, other = start + same, other + same
        same = _common(old[start:end][::-1], new[other:other_end][::-1])
        end, other_end = end - same, other_end - same
        yield from zip(range(end, end + same), range(other_end, other_end + same), strict=True)
        left, right = old[start:end], new[other:other_end]
        if max(len(left), len(right)) <= _MOST_TRIED:
            matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
            for at, begin, count in matcher.get_matching_blocks():
                first, second = start + at, other + begin
                yield from zip(
                    range(first, first + count), range(second, second + count), strict=True
                )
        elif left and right and depth < _DEEPEST:
            before, before_other = start, other
            for at, begin in _unique_matches(left, right):
                yield start + at, other + begin
                waiting.append(((before, start + at, before_other, other + begin), depth + 1))
                before, before_other = start + at + 1, other + begin + 1
            if before > start:
                waiting.append(((before, end, before_other, other_end), depth + 1))


def _unique_matches(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Return lines that occur once on each side: the most of them that are in the same order."""
    counts, others = Counter(left), Counter(right)
    places = {line: at for at, line in enumerate(right) if others[line] == 1}
    pairs = [
        (at, places[line]) for at, line in enumerate(left) if counts[line] == 1 and line in places
    ]
    # The longest rising sequence: of each length, the one with the lowest end is kept.
    lowest: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(lowest, place)
        before.append(ends[length - 1] if length else None)
        lowest[length : length + 1], ends[length : length + 1] = [place], [number]
    found: list[tuple[int, int]] = []
    last = ends[-1] if ends else None
    while last is not None:
        found.append(pairs[last])
        last = before[last]
    return found[::-1]


def _common(left: list[str], right: list[str]) -> int:
    """Return how many lines two lists begin with together."""
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return number
    return min(len(left), len(right))


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
