"""Strategies that make any value of our vocabulary, read off its type hints."""

import enum
import types
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from haptera.model.known_events import KnownEntry
from haptera.model.log.entry import Entry

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WHOLE = st.integers(min_value=0, max_value=2**50)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
JSON_OBJECT: st.SearchStrategy[dict[str, Any]] = st.dictionaries(TEXT, JSON, max_size=3)

_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    Any: JSON,
    dict[str, Any]: JSON_OBJECT,
    str: TEXT,
    int: WHOLE,
    float: st.floats(0, 1e9, allow_nan=False),
    bool: st.booleans(),
    type(None): st.none(),
    Decimal: st.decimals(0, 1000, places=6),
    dict[str, bool]: st.dictionaries(TEXT, st.booleans(), max_size=2),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type hint."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, NewType):
        return values_of(hint.__supertype__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(item) for item in arguments])
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    return structs_of(hint)


def structs_of(kind: Callable[..., Any], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for a struct, every field of it drawn by its type."""
    hints = get_type_hints(kind)
    names = [name for name in msgspec.structs.fields(kind) if name.name != "raw"]  # type: ignore[arg-type]
    drawn = {field.name: values_of(hints[field.name]) for field in names if field.name not in given}
    return st.builds(kind, **drawn, **given)


ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    [structs_of(kind, seq=st.integers(1, 10**6)) for kind in get_args(KnownEntry)]
)
