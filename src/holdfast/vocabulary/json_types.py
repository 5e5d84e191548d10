"""Names for plain JSON values, used where a value is somebody else's and stays opaque to us."""

from collections.abc import Iterable
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Any value that JSON can hold."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object whose shape is not ours to define."""

DEEPEST = 200
"""How many levels of somebody else's value are kept.

A reader has about a thousand, less what its program has called by then: what was written with less
to spare might not be read back.
"""


def is_too_deep(value: Json, *, levels: int = DEEPEST) -> bool:
    """Whether a value has more levels than are kept."""
    level: list[Any] = [value]
    while level and levels:
        level = [each for item in level for each in _inside(item)]
        levels -= 1
    return bool(level)


def _inside(value: Json) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) is list or type(value) is tuple else ()
