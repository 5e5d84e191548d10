"""What several sources say of options, merged: each is checked once, and the last one wins.

A table is laid over another field by field.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

import msgspec

from haptera.model.json_types import JsonObject, plain_value
from haptera.options.checks import Complain, KeyPath, checked_table
from haptera.options.wording import unknown_name

StructT = TypeVar("StructT", bound=msgspec.Struct)
ValueSource: TypeAlias = Literal["argument", "environment", "project", "file", "default"]


def check_values(
    values: Mapping[str, object],
    kinds: Sequence[type[msgspec.Struct]],
    *,
    complain: Complain,
    at: KeyPath = (),
) -> None:
    """Check what one source says, each value by the struct that declares it.

    Raises what `complain` makes of the first value that is wrong, or that none of them has.
    """
    kind_of_field = {name: kind for kind in kinds for name in kind.__struct_fields__}
    for name in values:
        if name not in kind_of_field:
            raise complain((*at, name), unknown_name(name, kind_of_field))
    for kind in kinds:
        checked_table(_of(kind, values), kind, at=at, complain=complain)


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What holds, and where each value came from."""

    values: JsonObject
    origins: dict[str, ValueSource]
    """By dotted path; what is not here is the default."""

    def built(self, kind: type[StructT]) -> StructT:
        """Return the values of a struct, which were checked before."""
        return msgspec.convert(_of(kind, self.values), kind)


def merged(layers: Iterable[tuple[ValueSource, JsonObject]]) -> Merged:
    """Lay what sources say over each other, from the most general to the most specific."""
    values: JsonObject = {}
    origins: dict[str, ValueSource] = {}
    for origin, layer in layers:
        values = merged_tables(values, layer)
        replaced = tuple(f"{path}." for path in _leaves(layer))
        # A value that is replaced as a whole came from one source.
        places = {path: where for path, where in origins.items() if not path.startswith(replaced)}
        origins = places | dict.fromkeys(_leaves(layer), origin)
    return Merged(values=values, origins=origins)


def merged_tables(below: JsonObject, above: JsonObject) -> JsonObject:
    """Lay one set of values over another; tables are laid over each other field by field."""
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        if isinstance(value, dict) and isinstance(under, dict):
            result[name] = merged_tables(under, value)
        else:
            result[name] = value
    return result


def _of(kind: type[msgspec.Struct], values: Mapping[str, object]) -> JsonObject:
    """Return those of some values that are fields of a struct, as plain values."""
    fields = kind.__struct_fields__
    return {name: plain_value(value) for name, value in values.items() if name in fields}


def _leaves(values: JsonObject, inside: str = "") -> list[str]:
    """Return the dotted paths of all values in nested tables."""
    paths: list[str] = []
    for name, value in values.items():
        path = f"{inside}{name}"
        paths += _leaves(value, f"{path}.") if isinstance(value, dict) else [path]
    return paths
