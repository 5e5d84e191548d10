"""Checks plain values against our types, and says where the first wrong one stands."""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from types import UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec

from holdfast.config.toml_lines import KeyPath
from holdfast.vocabulary.errors import ConfigError
from holdfast.vocabulary.json_types import Json
from holdfast.vocabulary.text import did_you_mean

T = TypeVar("T")

Complain: TypeAlias = Callable[[KeyPath, str], ConfigError]
"""Makes the error for a value: where it stands, and what is wrong with it."""

_PLACE = re.compile(r" - at `(?:key in )?\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")

_RANGES: Mapping[str, tuple[float, float]] = {
    "max_tokens": (0, float("inf")),
    "loop_threshold": (2, float("inf")),
    "limits.turns": (1, float("inf")),
    "limits.tokens": (1, float("inf")),
    "limits.cost": (0, float("inf")),
    "limits.seconds": (0, float("inf")),
    "limits.tool_calls": (0, float("inf")),
    "limits.part_characters": (1, float("inf")),
    "limits.answer_characters": (1, float("inf")),
    "limits.answer_parts": (1, float("inf")),
    "limits.reply_bytes": (1, float("inf")),
    "retry.max_retries": (0, 100),
    "retry.first_delay": (0, float("inf")),
    "retry.factor": (1, float("inf")),
    "retry.longest_delay": (0, float("inf")),
    "retry.jitter": (0, 1),
    "retry.longest_retry_after": (0, float("inf")),
    "retry.interruption_retries": (0, 100),
    "retry.interruption_delay": (0, float("inf")),
    "timeouts.connect": (0.001, float("inf")),
    "timeouts.first_byte": (0.001, float("inf")),
    "timeouts.between_bytes": (0.001, float("inf")),
    "timeouts.content": (0.001, float("inf")),
    "max_concurrent_sessions": (1, float("inf")),
    "session_timeout": (0, float("inf")),
    "buffer_size": (1, float("inf")),
    "observer_buffer": (1, float("inf")),
    "checkpoint_bytes": (1, float("inf")),
    "checkpoint_seconds": (0, float("inf")),
    "close_drain_seconds": (0, float("inf")),
    "context_window": (1, float("inf")),
    "max_output": (1, float("inf")),
}
"""Smallest and largest sensible number of each setting, by its path."""


def checked(values: Json, kind: type[T], *, at: KeyPath, complain: Complain) -> T:
    """Make a `kind` of plain values; raises what `complain` makes of the first wrong one.

    Unknown fields are wrong, at any depth.
    """
    refuse_unknown(values, kind, at=at, complain=complain)
    try:
        result = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        steps = _steps(place.group(1)) if place else ()
        raise complain((*at, *steps), _PLACE.sub("", str(error))) from None
    refuse_out_of_range(values, at=at, complain=complain)
    return result


def refuse_unknown(values: Json, kind: Any, *, at: KeyPath, complain: Complain) -> None:  # noqa: ANN401
    """Raise for the first field that `kind` does not have."""
    struct = _struct_in(kind)
    if struct is None or not isinstance(values, Mapping):
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for name, value in values.items():
        if name not in fields:
            raise complain((*at, name), unknown_name(name, fields))
        refuse_unknown(value, fields[name], at=(*at, name), complain=complain)


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that a name is not known, and which one may have been meant."""
    hint = did_you_mean(name, known)
    return f"unknown; {hint}" if hint else "unknown"


def refuse_out_of_range(values: Json, *, at: KeyPath, complain: Complain, inside: str = "") -> None:
    """Raise for the first number that is too small or too large to make sense."""
    if not isinstance(values, Mapping):
        return
    for name, value in values.items():
        path = f"{inside}{name}"
        if isinstance(value, Mapping):
            refuse_out_of_range(value, at=(*at, name), complain=complain, inside=f"{path}.")
        elif path in _RANGES and isinstance(value, int | float):
            low, high = _RANGES[path]
            if not low <= value <= high:
                wanted = f"at least {low:g}" if high == float("inf") else f"{low:g} to {high:g}"
                raise complain((*at, name), f"must be {wanted}, not {value:g}")


def without_decimals(values: Json) -> Json:
    """Turn exact numbers into floats, for everything that is not money."""
    match values:
        case Decimal():
            return float(values)
        case dict():
            return {name: without_decimals(value) for name, value in values.items()}
        case list():
            return [without_decimals(value) for value in values]
        case _:
            return values


def dotted(path: KeyPath) -> str:
    """Write a path as it would stand in a TOML file."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", step) is not None
            text += ("." if text else "") + (step if bare else f'"{step}"')
    return text


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401
    """Return the one struct that a type is or may be."""
    if get_origin(kind) in {Union, UnionType}:
        found = [struct for part in get_args(kind) if (struct := _struct_in(part)) is not None]
        return found[0] if len(found) == 1 else None
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _steps(path: str) -> KeyPath:
    steps: list[str | int] = []
    for name, index in _STEP.findall(path):
        if index == "...":
            break
        steps.append(name or int(index))
    return tuple(steps)
