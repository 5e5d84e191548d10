"""Edits of a text, decided purely: what it becomes, and the difference as a person reads it."""

import difflib
from collections.abc import Iterator

import msgspec

from haptera.tools.line_changes import common_lines, line_changes_of

_CONTEXT = 3
_MOST_COMPARED = 4000
"""Lines on one side of a change up to which lines are matched with each other."""


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
    start = common_lines(old, new)
    end = common_lines(old[start:][::-1], new[start:][::-1])
    first = max(start - _CONTEXT, 0)
    left = old[first : len(old) - max(end - _CONTEXT, 0)]
    right = new[first : len(new) - max(end - _CONTEXT, 0)]
    if max(len(left), len(right)) > _MOST_COMPARED:
        return (
            f"{name}: {len(old) - start - end} lines from line {start + 1} on were replaced by "
            f"{len(new) - start - end} lines"
        )
    return "".join(_hunks(left, right, name, before=first))


def _hunks(left: list[str], right: list[str], name: str, *, before: int) -> Iterator[str]:
    """Yield the lines of a unified diff of what comes behind so many lines of a file."""
    matcher = difflib.SequenceMatcher[str](None, (), ())
    # The library groups the changes. It would take quadratic time to find them.
    vars(matcher)["opcodes"] = line_changes_of(left, right)
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


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
