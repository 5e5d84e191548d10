"""Object unions: tells apart types that are all JSON objects, by how well a value fits each.

Dataclasses, TypedDicts, structs and pydantic models are objects here. msgspec refuses a union of
several of them unless each has a tag. What it can parse one by one is tried one by one.

A module of its own because it knows nothing of JSON Schema or of the union's other readers.
"""

import types
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from haptera.model.late_names import late_module

if TYPE_CHECKING:
    import dataclasses

Hint: TypeAlias = Any
"""A type hint, which may be any value."""
Parse: TypeAlias = Callable[[object, Hint], object]
"""Makes a value of a type from plain JSON values; raises ValueError or TypeError if it does not
fit."""

_origin: Callable[[Hint], Hint] = get_origin


_FAILURES = 2_000
"""How often a member may fail in one value: members inside each other make for any number."""
_failures: ContextVar[list[int] | None] = ContextVar("haptera_failures", default=None)


def best_fit(value: object, members: Iterable[tuple[Hint, Hint]], parse: Parse) -> object:
    """Parse a value as the member of a union that knows most of its keys.

    Each member is a hint as it was written, and as `parse` takes it. Of members that fit equally
    well, the first one counts.

    Raises:
        ValueError: when none fits, saying why for each.

    """
    outer = _failures.get()
    failures = [0] if outer is None else outer
    counts: _Counts = {}
    ordered = sorted(members, key=lambda member: _unknown_keys(value, member[0], counts))
    faults: list[str] = []
    token = _failures.set(failures)
    try:
        for written, own in ordered:
            if failures[0] > _FAILURES:
                break
            try:
                return parse(value, own)
            except (msgspec.ValidationError, ValueError, TypeError) as error:
                failures[0] += 1
                faults.append(f"{_name_of(written)} ({error})"[:_SHOWN])
    finally:
        _failures.reset(token)
    raise ValueError(f"it fits none of these: {'; '.join(faults)}")


_SHOWN = 500
"""Characters of what is said of one member; it may hold what is said of others."""
_Counts: TypeAlias = dict[tuple[int, Hint], int]
"""Of each part of a value and type, which may come by several ways."""


def _unknown_keys(value: object, hint: Hint, counts: _Counts) -> int:
    """Count the keys of a value, at any depth, that a type does not know."""
    hint = _bare(hint)
    if not isinstance(value, list | Mapping):
        return 0
    try:
        key = (id(value), hint)
        counted = counts.get(key)
    except TypeError:  # an annotation may hold what cannot be hashed
        return _count_keys(value, hint, counts)
    if counted is None:
        counted = counts[key] = _count_keys(value, hint, counts)
    return counted


def _count_keys(value: list[Any] | Mapping[str, Any], hint: Hint, counts: _Counts) -> int:
    if _origin(hint) in (Union, types.UnionType):
        return min(_unknown_keys(value, member, counts) for member in get_args(hint))
    if isinstance(value, list):
        item = next(iter(get_args(hint)), Any)
        return sum(_unknown_keys(each, item, counts) for each in value)
    fields = fields_of(hint)
    if fields is None:
        return 0
    known = [_unknown_keys(value[name], fields[name], counts) for name in value if name in fields]
    return len(value) - len(known) + sum(known)


def fields_of(hint: Hint) -> dict[str, Hint] | None:
    """Return the keys that an object type knows, with their hints; None for any other type."""
    if not isinstance(hint, type):
        return None
    if issubclass(hint, msgspec.Struct):
        # By the names in JSON: a field of a struct may be renamed there.
        return {field.encode_name: field.type for field in msgspec.structs.fields(hint)}
    if _is_typed_dict(hint) or hasattr(hint, "__dataclass_fields__"):
        return get_type_hints(hint, include_extras=True)
    models: Mapping[str, Any] | None = getattr(hint, "model_fields", None)
    return None if models is None else {name: each.annotation for name, each in models.items()}


def _is_typed_dict(kind: type) -> bool:
    """Whether a type is a TypedDict: of `typing` or, for older Pythons, of `typing_extensions`."""
    return issubclass(kind, dict) and hasattr(kind, "__required_keys__")


class Mirror(msgspec.Struct, frozen=True):
    """A struct that reads what another type holds, for a type with such unions among its fields."""

    kind: Hint
    struct: type[msgspec.Struct]

    def restore(self, parsed: object) -> object:
        """Make a value of the type itself; a field that was not given has the type's default."""
        given = {name: getattr(parsed, name) for name in self.struct.__struct_fields__}
        present = {name: value for name, value in given.items() if value is not msgspec.UNSET}
        return self.kind(**present)


def mirror_of(kind: type, understand: Callable[[Hint], Hint]) -> Mirror | None:
    """Return the mirror of a dataclass, a TypedDict or a struct; None for any other type."""
    if issubclass(kind, msgspec.Struct):
        facts = [(item.name, item.type, item.required) for item in msgspec.structs.fields(kind)]
        names = {item.name: item.encode_name for item in msgspec.structs.fields(kind)}
    elif _is_typed_dict(kind):
        required: frozenset[str] = getattr(kind, "__required_keys__", frozenset())
        hints = get_type_hints(kind, include_extras=True)
        facts, names = [(name, hint, name in required) for name, hint in hints.items()], {}
    elif hasattr(kind, "__dataclass_fields__"):
        hints = get_type_hints(kind, include_extras=True)
        items = [item for item in late_module("dataclasses").fields(kind) if item.init]
        facts, names = [(item.name, hints[item.name], _is_required(item)) for item in items], {}
    else:
        return None
    fields: list[Any] = []
    for name, hint, must_be_there in facts:
        own = understand(_bare(hint, keeps_notes=True))
        # UNSET and not the default: `restore` leaves such a field to the type itself, whose default
        # may be made anew each time.
        optional = (name, own | msgspec.UnsetType, msgspec.UNSET)
        fields.append((name, own) if must_be_there else optional)
    config = getattr(kind, "__struct_config__", None)
    struct = msgspec.defstruct(
        kind.__name__,
        fields,
        kw_only=True,
        rename=names or None,
        tag=config.tag if config is not None else None,
        tag_field=config.tag_field if config is not None else None,
        forbid_unknown_fields=config is not None and config.forbid_unknown_fields,
    )
    return Mirror(kind, struct)


def _is_required(item: "dataclasses.Field[Any]") -> bool:
    missing = late_module("dataclasses").MISSING
    return item.default is missing and item.default_factory is missing


def _bare(hint: Hint, *, keeps_notes: bool = False) -> Hint:
    """Return a hint without what only says how it is used."""
    while _origin(hint) in (Required, NotRequired) or (
        _origin(hint) is Annotated and not keeps_notes
    ):
        hint = get_args(hint)[0]
    return hint


def _name_of(hint: Hint) -> str:
    return str(getattr(hint, "__name__", hint))
