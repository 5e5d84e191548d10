"""Reads JSON into a struct and leaves out what does not fit, where strict reading has failed."""

from types import UnionType
from typing import TypeVar, Union, get_args, get_origin

import msgspec

from holdfast.vocabulary.json_types import Json, JsonObject

StructT = TypeVar("StructT", bound=msgspec.Struct)


def keep_what_fits(value: JsonObject, kind: type[StructT]) -> StructT:
    """Make a `kind`, all of whose fields have defaults, of the fields that are as expected."""
    made = kind()
    for field in msgspec.structs.fields(kind):
        if field.encode_name in value:
            try:
                setattr(made, field.name, _fitted(value[field.encode_name], field.type))
            except msgspec.ValidationError:
                continue
    return made


def _fitted(value: Json, kind: Json) -> Json:
    if kind is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if isinstance(value, float) and value.is_integer():
            # Some languages write a count with a point.
            return msgspec.convert(int(value), kind)
        for option in get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,):
            if get_origin(option) is list and isinstance(value, list):
                return _fitted_items(value, get_args(option)[0])
            is_struct = isinstance(option, type) and issubclass(option, msgspec.Struct)
            if is_struct and isinstance(value, dict):
                return keep_what_fits(value, option)
        raise


def _fitted_items(values: list[Json], kind: Json) -> list[Json]:
    kept = []
    for value in values:
        try:
            kept.append(_fitted(value, kind))
        except msgspec.ValidationError:
            continue
    return kept
