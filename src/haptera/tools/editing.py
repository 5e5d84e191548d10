"""Edits of a text, decided purely: what it becomes, and the difference as a person reads it."""

import difflib

import msgspec

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
    hunks = list(difflib.unified_diff(left, right, f"a/{name}", f"b/{name}", n=_CONTEXT))
    return "".join(_ended(_shifted(line, first)) for line in hunks)


def _common(left: list[str], right: list[str]) -> int:
    """Return how many lines two lists begin with together."""
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return number
    return min(len(left), len(right))


def _shifted(line: str, by: int) -> str:
    """Return the head of a hunk with the numbers of the whole file."""
    if not line.startswith(" "):
        return line
    old, new = line.split()[1:3]
    return f" {_moved(old, by)} {_moved(new, by)} \n"


def _moved(line_range: str, by: int) -> str:
    start, comma, count = line_range[1:].partition(",")
    return f"{line_range[0]}{int(start) + by}{comma}{count}"


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
