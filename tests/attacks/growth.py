"""Measures how the time of a call grows with the size of its input."""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

HIGHEST_EXPONENT = 1.35
SIZES = (1, 2, 4, 8)
_ROUNDS = 5
_CLEAR = 1.2
"""An exponent below which further rounds tell nothing new."""
_ATTEMPTS = 3
_SHORTEST = 0.002
"""Seconds at the smallest size: far above what the clock and other processes add."""
_LONGEST = 0.1
"""Seconds at the largest size; no input is made larger if that would take longer."""
_FIRST = 500
_WORTH_WHILE = 1.2


class Entry(NamedTuple):
    """One function that reads text from outside, with its worst input for each size."""

    name: str
    call: Callable[[Any], object]
    make: Callable[[int], Any]
    """The input of about so many characters."""
    most: int = 1 << 20
    """The largest input that can come there."""
    reads: tuple[str, ...] = ()
    """The functions that this is about, as `module:name`, without the package's name."""


def exponent(entry: Entry, *, attempts: int = _ATTEMPTS) -> float:
    """Return the exponent of the growth: 1 for linear, 2 for quadratic; the lowest of a few tries.

    Only the time of this thread counts. What else runs on the machine can only make a try longer.
    """
    return min(_exponents(entry, attempts))


def _exponents(entry: Entry, attempts: int) -> list[float]:
    found: list[float] = []
    for _ in range(attempts):
        found.append(_measured(entry))
        if found[-1] < HIGHEST_EXPONENT:
            break
    return found


def _measured(entry: Entry) -> float:
    base, repeats = _base(entry)
    inputs = [entry.make(base * size) for size in SIZES]
    best = [math.inf] * len(SIZES)
    slope = math.inf
    for done in range(1, _ROUNDS + 1):
        for at, given in enumerate(inputs):
            best[at] = min(best[at], seconds(entry, given, repeats))
        slope = _slope([math.log(size) for size in SIZES], [math.log(each) for each in best])
        if done > 1 and slope < _CLEAR:
            break
    return slope


def _base(entry: Entry) -> tuple[int, int]:
    """Return the smallest size, and how often a call is repeated where inputs cannot be larger."""
    base = min(_FIRST, entry.most // SIZES[-1])
    while base * SIZES[-1] * 2 <= entry.most:
        spent = seconds(entry, entry.make(base))
        # If it is quadratic, the largest must not take too long.
        room = math.sqrt(_LONGEST / seconds(entry, entry.make(base * SIZES[-1])))
        factor = min(_SHORTEST / spent, room, 4)
        if factor < _WORTH_WHILE:
            break
        base = min(math.ceil(base * factor), entry.most // SIZES[-1])
    spent = min(seconds(entry, entry.make(base), 1) for _ in range(2))
    return base, max(1, min(10_000, math.ceil(_SHORTEST / max(spent, 1e-7))))


def seconds(entry: Entry, given: Any, repeats: int = 1) -> float:
    """Return the time of this thread for so many calls."""
    call = entry.call
    begin = time.thread_time()
    for _ in range(repeats):
        call(given)
    return max(time.thread_time() - begin, 1e-7)


def _slope(xs: list[float], ys: list[float]) -> float:
    """Return the slope of the line with the least squares."""
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - middle_x) ** 2 for x in xs)
