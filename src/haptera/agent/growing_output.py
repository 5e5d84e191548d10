"""Growing output: the value of a type while its answer comes, without reading anything twice.

Fields that are not there yet are None, or what the type has as their default; keys of a TypedDict
and items of lists are absent. Nothing is validated but single values: text grows where the type
takes any text, and everything else is there once it is complete and fits.
"""

import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, NotRequired, Required, TypeAlias, TypeVar, Union, get_args

import msgspec

from haptera.agent.outputs import WRAPPER
from haptera.formats.growing_json import GrowingJson, UnfinishedText
from haptera.kernel.blocks.tool_registry.foreign_types import (
    TypeHint,
    generic_origin,
    parse_value,
    understood,
)
from haptera.kernel.blocks.tool_registry.object_unions import fields_of
from haptera.model.events import Event, TextDelta, ToolInputDelta
from haptera.model.ids import PartId
from haptera.model.json_types import Json
from haptera.model.late_names import late_module
from haptera.model.log.turns import PartStarted, TurnDiscarded, TurnStarted
from haptera.ports.runner import OutputSpec
from haptera.system.clock import Clock

NOTHING: Any = msgspec.UNSET
"""Stands for a value that is not there."""
_SECONDS = 0.05
"""Between two values."""

_Value: TypeAlias = Any
"""A value of the type that was asked for, or a part of one."""
_Container: TypeAlias = list[Json] | dict[str, Json]


class GrowingOutput:
    """The output of a query while it comes, by the events of the query.

    Owns when it is shown: not more often than every 50 ms. A turn that begins anew begins it anew.
    """

    def __init__(self, output: OutputSpec | None, clock: Clock) -> None:
        self._name = None if output is None or output.schema is None else output.schema.name
        self._shape = None if self._name is None or output is None else shape_of(output.hint)
        self._is_wrapped = output is not None and output.is_wrapped
        self._clock = clock
        self._shown_at = float("-inf")
        self._call: PartId | None = None
        """The part of a call that is the answer: some models can only answer so."""
        self._begin()

    def _begin(self) -> None:
        self._pieces: list[str] = []
        self._shown_changes = 0
        self._value: GrowingValue | None = None
        if self._shape is not None:
            self._value = GrowingValue(self._shape, is_wrapped=self._is_wrapped)

    def take(self, events: Iterable[Event]) -> _Value:
        """Take in events; returns the value as far as it has come, or NOTHING to show."""
        for event in events:
            match event:
                case TextDelta(text=text) if self._call is None:
                    self._pieces.append(text)
                case ToolInputDelta(part_id=part_id, text=text) if part_id == self._call:
                    self._pieces.append(text)
                case TurnStarted() | TurnDiscarded():
                    self._call = None
                    self._begin()
                case PartStarted(part_kind="tool_call", name=name) if name == self._name:
                    self._begin()
                    self._call = event.part_id
        now = self._clock.now()
        return NOTHING if now - self._shown_at < _SECONDS else self._shown(now)

    def _shown(self, now: float) -> _Value:
        """Return the value, if it has changed since it was shown."""
        if self._value is None:
            if len(self._pieces) <= self._shown_changes:
                return NOTHING
            # Joined once: what was joined before is one piece.
            self._pieces, self._shown_changes, self._shown_at = ["".join(self._pieces)], 1, now
            return self._pieces[0]
        for text in self._pieces:
            self._value.feed(text)
        self._pieces.clear()
        if self._value.changes == self._shown_changes:
            return NOTHING
        self._shown_changes, self._shown_at = self._value.changes, now
        return self._value.value()


class GrowingValue:
    """The value of a type while its JSON comes.

    What is complete is made once. What is open is made anew for each value, of what is complete in
    it, so that no value changes once it was given out.
    """

    def __init__(self, shape: "_Shape", *, is_wrapped: bool = False) -> None:
        self._json = GrowingJson()
        self.feed = self._json.feed
        self._bare = shape
        self._wrapper = _Shape(
            make=_identity,
            is_object=True,
            inner=lambda at: shape if at == WRAPPER else _ANYTHING,
        )
        self._is_wrapped = is_wrapped
        self._made: dict[int, _Made] = {}
        """What was made of lists and objects that were open; each is in the value that grows."""

    @property
    def changes(self) -> int:
        """Grows with every change of the value."""
        return self._json.changes

    def value(self) -> _Value:
        """Return the value as far as it has come; NOTHING before there is any."""
        json = self._json
        first: str | None = None
        if self._is_wrapped and isinstance(json.root, dict):
            # The first name tells; it may be that of a value that has not begun.
            first = next(iter(json.root), "") or (json.open[0].key if json.open else "")
        if not json.changes or first == "":
            return NOTHING
        shape = self._wrapper if first == WRAPPER else self._bare
        if not json.open:
            text = json.text
            whole = self._converted(json.root if text is None else text, shape)
        else:
            whole = self._grown(shape)
        return whole.get(WRAPPER, NOTHING) if shape is self._wrapper else whole

    def _grown(self, shape: "_Shape") -> _Value:
        """Return what is open, from the inside out."""
        opened = self._json.open
        levels: list[_Made] = []
        for level in opened:
            growth = self._made.get(id(level.value))
            own = shape.chosen(level.value)
            if growth is None or growth.shape is not own:
                growth = self._made[id(level.value)] = _Made(own)
            levels.append(growth)
            shape = own.inner(level.key if isinstance(level.value, dict) else len(level.value) - 1)
        text = self._json.text
        inner = NOTHING
        for index in range(len(opened) - 1, -1, -1):
            level, growth = opened[index], levels[index]
            is_innermost = index == len(opened) - 1
            if is_innermost and text is not None:
                at = level.key if isinstance(level.value, dict) else len(level.value)
                inner = growth.shape.inner(at).leaf(text)
            self._complete(growth, level.value, but=0 if is_innermost else 1)
            inner = growth.with_more(level.key, inner)
        return inner

    def _complete(self, growth: "_Made", value: _Container, *, but: int) -> None:
        """Make what has become complete in a list or an object since the last time."""
        end = len(value) - but
        if isinstance(value, dict):
            for name, item in islice(value.items(), growth.count, end):
                growth.add(name, self._converted(item, growth.shape.inner(name)))
        else:
            for index in range(growth.count, end):
                growth.add(index, self._converted(value[index], growth.shape.inner(index)))
        growth.count = end

    def _converted(self, value: Json, shape: "_Shape") -> _Value:
        """Return a complete value."""
        if not isinstance(value, list | dict):
            return shape.leaf(value)
        growth, own = self._made.pop(id(value), None), shape.chosen(value)
        if own.parse is not None:
            return own.leaf(value)
        if growth is None or growth.shape is not own:
            growth = _Made(own)
        self._complete(growth, value, but=0)
        return growth.with_more("", NOTHING)


class _Made:
    """What was made of the complete parts of a list or an object."""

    __slots__ = ("count", "fields", "items", "shape")

    def __init__(self, shape: "_Shape") -> None:
        self.shape = shape
        self.count = 0
        self.items: list[Any] = []
        self.fields: dict[str, Any] = {}

    def add(self, at: str | int, value: _Value) -> None:
        """Add a complete part."""
        if isinstance(at, str):
            if value is not NOTHING:
                self.fields[at] = value
        elif value is not NOTHING or self.shape.is_fixed:
            self.items.append(None if value is NOTHING else value)

    def with_more(self, name: str, value: _Value) -> _Value:
        """Return the whole, made of a copy, with a part that is not complete."""
        if self.shape.is_object:
            fields = self.fields.copy()
            if value is not NOTHING:
                fields[name] = value
            return self.shape.make(fields)
        items = self.items.copy()
        if value is not NOTHING:
            items.append(value)
        return self.shape.make(items)


# Shapes: what a type needs to be made of parts.


class _Shape(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How values of one type are made."""

    make: Callable[[Any], Any]
    """Makes one of its fields by their names, or of its items, which it may keep."""
    is_object: bool = False
    names: Collection[str] = ()
    """The fields that it knows."""
    tag: Mapping[str, object] = types.MappingProxyType({})
    """The field that tells it from others, and its value."""
    is_fixed: bool = False
    """Whether items have a meaning by their place."""
    inner: Callable[[str | int], "_Shape"]
    """Returns the shape of a part."""
    choose: "Callable[[_Container], _Shape] | None" = None
    """Returns the member of a union that fits best so far."""
    parse: Callable[[object], Any] | None = None
    """Reads what is not made of parts; raises ValueError or TypeError."""
    takes_text: bool = False
    """Whether any text will do, so that one may grow."""

    def chosen(self, value: _Container) -> "_Shape":
        """Return the shape for a list or an object."""
        if self.choose is not None:
            return self.choose(value)
        fits = self.parse is not None or self.is_object is isinstance(value, dict)
        return self if fits else _NEVER

    def leaf(self, value: Json) -> _Value:
        """Return a value that has no parts, or that is read as a whole."""
        if isinstance(value, UnfinishedText):
            return str(value) if self.takes_text else NOTHING
        if self.parse is None:
            return NOTHING
        return _made_by(self.parse, value)


def _made_by(make: Callable[..., _Value], *values: object, **fields: object) -> _Value:
    try:
        return make(*values, **fields)
    except Exception:  # noqa: BLE001 - a type of the user's may raise anything
        return NOTHING


def shape_of(hint: TypeHint) -> _Shape:
    """Return the shape of a type; those of its parts are found when they come."""
    return _Shapes()(hint)


class _Shapes:
    """Finds shapes, each once: a type may be made of itself."""

    def __init__(self) -> None:
        self._known: dict[Any, _Shape] = {}

    def __call__(self, hint: TypeHint) -> _Shape:
        """Return the shape of a type."""
        try:
            shape = self._known.get(hint)
        except TypeError:  # annotations may hold values that cannot be hashed
            return self._new(hint)
        if shape is None:
            shape = self._known[hint] = self._new(hint)
        return shape

    def _new(self, hint: TypeHint) -> _Shape:
        plain = _plain(hint)
        if plain in (Any, object) or isinstance(plain, TypeVar):
            return _ANYTHING
        if generic_origin(plain) in (Union, types.UnionType):
            return self._union(hint, plain)
        return self._object(plain) or self._collection(plain) or _whole(hint)

    def _object(self, kind: TypeHint) -> _Shape | None:
        fields = fields_of(generic_origin(kind) or kind)
        if getattr(kind, "__pydantic_root_model__", False):
            return None  # it has a field, and its JSON is what is in that
        if fields is None:
            return None
        own = _json_names(kind)
        hints = {own.get(name, name): hint for name, hint in fields.items()}
        config = getattr(kind, "__struct_config__", None)
        field = None if config is None else config.tag_field
        tag = {} if config is None or field is None else {field: config.tag}
        return _Shape(
            make=_maker_of(kind),
            is_object=True,
            names=hints.keys(),
            tag=tag,
            inner=_Fields(hints, self),
        )

    def _collection(self, kind: TypeHint) -> _Shape | None:
        origin, arguments = generic_origin(kind) or kind, get_args(kind)
        if not isinstance(origin, type):
            return None
        if issubclass(origin, tuple) and arguments and arguments[-1] is not ...:
            return self._fixed(arguments)
        make = _COLLECTIONS.get(origin)
        if make is not None:
            item = arguments[0] if arguments else Any
            return _Shape(make=make, inner=lambda _at: self(item))
        key, value = arguments or (str, Any)
        if key is str and issubclass(dict, origin):
            return _Shape(make=_identity, is_object=True, inner=lambda _at: self(value))
        return None

    def _fixed(self, kinds: Sequence[TypeHint]) -> _Shape:
        def make(items: list[Any]) -> tuple[Any, ...]:
            return (*items[: len(kinds)], *(None for _ in kinds[len(items) :]))

        def inner(at: str | int) -> _Shape:
            return self(kinds[at]) if isinstance(at, int) and at < len(kinds) else _ANYTHING

        return _Shape(make=make, is_fixed=True, inner=inner)

    def _union(self, hint: TypeHint, union: TypeHint) -> _Shape:
        members = [self(member) for member in get_args(union)]
        whole = _whole(hint)
        objects = [member for member in members if member.is_object]
        lists = [member for member in members if not member.is_object and member.parse is None]

        def choose(value: _Container) -> _Shape:
            fitting = objects if isinstance(value, dict) else lists
            if not fitting:
                return whole
            # As when it is complete: that which knows most of the names, and then the first one.
            return min(fitting, key=lambda member: _misfits(value, member))

        return msgspec.structs.replace(
            whole,
            choose=choose,
            takes_text=any(member.takes_text for member in members),
        )


class _Fields:
    """The shapes of the fields of an object, found when they come."""

    def __init__(self, hints: dict[str, TypeHint], shapes: _Shapes) -> None:
        self._hints, self._shapes = hints, shapes
        self._found: dict[str | int, _Shape] = {}

    def __call__(self, at: str | int) -> _Shape:
        """Return the shape of a field; one that the object does not know may be anything."""
        shape = self._found.get(at)
        if shape is None:
            is_known = at in self._hints
            shape = self._shapes(self._hints[str(at)]) if is_known else _ANYTHING
            self._found[at] = shape
        return shape


def _misfits(value: _Container, shape: _Shape) -> int:
    """Count the names that an object does not know, and what does not fit in what it knows."""
    if not shape.names or not isinstance(value, dict):
        return 0
    count = 0
    for name, item in value.items():
        if name in shape.tag:
            count += item != shape.tag[name]
        elif name not in shape.names:
            count += 1
        elif not isinstance(item, list | dict):
            count += shape.inner(name).leaf(item) is NOTHING
    return count


def _plain(hint: TypeHint) -> TypeHint:
    """Return a type without what only says how it is used."""
    while generic_origin(hint) in (Required, NotRequired, Annotated):
        hint = get_args(hint)[0]
    return getattr(hint, "__value__", hint) if _is_alias(hint) else hint


def _is_alias(hint: TypeHint) -> bool:
    return type(hint).__name__ == "TypeAliasType"


def _mismatch(_parts: object) -> _Value:
    return NOTHING


def _identity(value: _Value) -> _Value:
    return value


_NEVER = _Shape(make=_mismatch, inner=lambda _at: _ANYTHING)
"""What a list is where an object should be."""
_OBJECT = _Shape(make=_identity, is_object=True, inner=lambda _at: _ANYTHING)
_LIST = _Shape(make=_identity, inner=lambda _at: _ANYTHING)
_ANYTHING: _Shape = _Shape(
    make=_mismatch,
    inner=lambda _at: _ANYTHING,
    choose=lambda value: _OBJECT if isinstance(value, dict) else _LIST,
    parse=_identity,
    takes_text=True,
)
_COLLECTIONS: dict[type, Callable[[list[Any]], Any]] = {
    list: _identity,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    Sequence: _identity,
    Collection: _identity,
    Iterable: _identity,
}


def _whole(hint: TypeHint) -> _Shape:
    """Return the shape of what is read as a whole, such as a number or a date."""
    kind = understood(hint)
    return _Shape(
        make=_mismatch,
        inner=lambda _at: _ANYTHING,
        parse=lambda value: parse_value(value, kind),
        takes_text=_plain(hint) is str,
    )


# Objects that lack fields. Where that is possible, none of their own code is called.


def _json_names(kind: TypeHint) -> dict[str, str]:
    """Return the names in JSON of the fields of a pydantic model that have another one there."""
    models = getattr(kind, "model_fields", None)
    items = models.items() if isinstance(models, dict) else ()
    names = {name: getattr(each, "validation_alias", None) for name, each in items}
    return {name: alias for name, alias in names.items() if isinstance(alias, str)}


def _maker_of(kind: TypeHint) -> Callable[[dict[str, Any]], Any]:
    """Return what makes a value of an object type, of the fields that are there."""
    origin = generic_origin(kind) or kind
    if issubclass(origin, msgspec.Struct):
        return _StructMaker(origin)
    if hasattr(origin, "__dataclass_fields__"):
        return _DataclassMaker(origin)
    if hasattr(origin, "model_construct"):
        return _ModelMaker(origin)
    return _identity


class _StructMaker:
    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._kind = kind
        fields = msgspec.structs.fields(kind)
        self._names = {field.encode_name: field.name for field in fields}
        self._required = {field.name: None for field in fields if field.required}

    def __call__(self, parts: dict[str, Any]) -> _Value:
        names = self._names
        present = {names[name]: value for name, value in parts.items() if name in names}
        # A struct may check itself, and can be made in no other way.
        return _made_by(self._kind, **{**self._required, **present})


class _DataclassMaker:
    def __init__(self, kind: type) -> None:
        self._kind = kind
        dataclasses = late_module("dataclasses")
        self._fields = dataclasses.fields(kind)
        self._missing = dataclasses.MISSING

    def __call__(self, parts: dict[str, Any]) -> object:
        instance: object = object.__new__(self._kind)
        for field in self._fields:
            value = parts.get(field.name, NOTHING)
            if value is NOTHING:
                value = _default(field.default, field.default_factory, self._missing)
            object.__setattr__(instance, field.name, value)
        return instance


class _ModelMaker:
    def __init__(self, kind: TypeHint) -> None:
        self._construct = kind.model_construct
        names = _json_names(kind)
        self._required = {
            names.get(name, name): None
            for name, field in kind.model_fields.items()
            if field.is_required()
        }

    def __call__(self, parts: dict[str, Any]) -> _Value:
        return self._construct(**{**self._required, **parts})


def _default(value: _Value, factory: _Value, missing: object) -> _Value:
    """Return the default of a field; None where it must be given."""
    if value is not missing:
        return value
    return None if factory is missing else factory()
