"""Puts a function call's arguments together that arrive in pieces, each with its path."""

import re
from itertools import pairwise
from typing import Any

import msgspec

from holdfast.vocabulary.json_types import Json, JsonObject

_LONGEST_PATH = 100
_LAST_POSITION = 10_000
"""No model counts further, and every position before it would be filled."""
_STEP = re.compile(r"\.?([A-Za-z_$][\w$-]*)|\[(\d{1,9})\]|\[['\"](.*?)['\"]\]")


class PartialArgument(msgspec.Struct, rename="camel"):
    """A value, or a piece of a text, and where it belongs."""

    json_path: str = "$"
    string_value: str | None = None
    number_value: float | int | None = None
    bool_value: bool | None = None
    null_value: Json = msgspec.UNSET
    will_continue: bool = False

    @property
    def value(self) -> Json:
        """The value, whatever its kind."""
        for value in (self.string_value, self.bool_value, self.number_value):
            if value is not None:
                return value
        return None


def put_argument(arguments: JsonObject, piece: PartialArgument) -> None:
    """Put one piece in its place; a text goes on where an earlier piece of it ended."""
    steps = steps_of(piece.json_path)
    far = any(isinstance(step, int) and step > _LAST_POSITION for step in steps)
    if not steps or far or len(steps) > _LONGEST_PATH:
        return
    here: Any = arguments
    for step, following in pairwise(steps):
        here = _child(here, step, [] if isinstance(following, int) else {})
    last = steps[-1]
    before = _child(here, last, None)
    value = piece.value
    if isinstance(before, str) and isinstance(value, str):
        value = before + value
    _put(here, last, value)


def steps_of(path: str) -> list[str | int]:
    """Split a path like `$.files[0].name` into names and positions."""
    return [
        int(position) if position else name or quoted
        for name, position, quoted in _STEP.findall(path.removeprefix("$"))
    ]


def _child(here: Any, step: str | int, default: Any) -> Any:  # noqa: ANN401
    if isinstance(here, list) and isinstance(step, int):
        while len(here) <= step:
            here.append(None)
        if here[step] is None:
            here[step] = default
        return here[step]
    if isinstance(here, dict):
        return here.setdefault(str(step), default)
    return default


def _put(here: Any, step: str | int, value: Json) -> None:  # noqa: ANN401
    if isinstance(here, list) and isinstance(step, int):
        here[step] = value
    elif isinstance(here, dict):
        here[str(step)] = value
