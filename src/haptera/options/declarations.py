"""Declarations of options, read back: from the fields of structs to the options of a function.

A field of a struct with an `Option` beside its type is an option. What a function takes by keyword
is a `Keywords`: the options of one struct or of several.
"""

import functools
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard, Union, get_args, get_origin

import msgspec

from haptera.model.option import Option

AnyType: TypeAlias = Any
"""A type hint, which may be any value."""
_origin_of: Callable[[AnyType], AnyType] = get_origin
"""`typing.get_origin` for any value: its own overloads are for particular ones."""
_END = re.compile(r"[.;](?:\s|$)")


class Shown(str):
    """A default that is made when it is needed: what to say of it in a signature."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """An option as it was declared."""

    name: str
    kind: Any
    option: Option
    default: Any
    """What holds without it; UNSET where it must be given."""

    def brief(self, more: str = "") -> "Declared":
        """Return it with the first part of its sentence only, and what a surface adds to that.

        The rest is often about how a program gives the option, and a screen of help is small.
        """
        first = _END.split(self.option.sentence)[0]
        option = msgspec.structs.replace(self.option, sentence=f"{first}. {more}".rstrip())
        return msgspec.structs.replace(self, option=option)

    @property
    def shown_type(self) -> str:
        """The type as a reader would write it."""
        return type_name(self.kind)

    @property
    def shown_default(self) -> str:
        """The default as a reader would write it."""
        kind = type(self.default)
        if issubclass(kind, msgspec.Struct) and self.default == kind():
            return f"{kind.__name__}()"
        return repr(self.default)

    @property
    def struct(self) -> type[msgspec.Struct] | None:
        """The struct that its values are, if they are one."""
        return struct_in(self.kind)


class Keywords(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a function takes by keyword: the options that structs declare, but for a few."""

    structs: tuple[type[msgspec.Struct], ...]
    configured: tuple[type[msgspec.Struct], ...] = ()
    """Structs whose fields configuration decides about: it checks what is given of them."""
    without: tuple[str, ...] = ()

    @cached_property
    def options(self) -> Mapping[str, Declared]:
        """The options by their names; those that configuration decides about come first."""
        own = [item for kind in self.structs for item in declared_options(kind).values()]
        written = {(item.option.of, item.option.field): item for item in own}
        listed: list[Declared] = []
        for kind in self.configured:
            for name, field in declared_fields(kind).items():
                option = msgspec.structs.replace(field.option, of=kind, field=name)
                plain = msgspec.structs.replace(field, option=option, kind=as_given(field.kind))
                # A program may write it in another way, or under another name.
                listed.append(written.get((kind, name), plain))
        by_name = {item.name: item for item in (*listed, *own)}
        return {name: item for name, item in by_name.items() if name not in self.without}


Taken: TypeAlias = type[msgspec.Struct] | Keywords
"""What a function takes: the options of one struct, or of several."""


def options_of(taken: Taken) -> Mapping[str, Declared]:
    """Return the options that a function takes, by their names; callers do not change it."""
    return taken.options if isinstance(taken, Keywords) else declared_options(taken)


ELSEWHERE: Any = None
"""The default of a field that says of which other struct it is: that one has the default."""


@cache
def declared_fields(kind: type[msgspec.Struct]) -> dict[str, Declared]:
    """Return the fields of a struct as options; one without a declaration has an empty one.

    Worked out once for each type, because every agent asks; callers do not change it.
    """
    fields = {}
    for field in msgspec.structs.fields(kind):
        plain, option = split_annotation(field.type)
        default = msgspec.UNSET if field.default is msgspec.NODEFAULT else field.default
        if option is not None and option.shown:
            default = Shown(option.shown)
        # What is no option is not made here: that may load what an import is to leave alone.
        elif option is not None and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        fields[field.encode_name] = Declared(
            name=field.encode_name, kind=plain, option=option or Option(), default=default
        )
    return fields


@cache
def declared_options(kind: type[msgspec.Struct]) -> Mapping[str, Declared]:
    """Return the fields of a struct that are options of a function.

    Raises:
        TypeError: when an option has no sentence or no default. This is a mistake in the
            declaration; it is found when the module of what takes the option is imported.

    """
    options = {
        name: _inherited(field, option)
        for name, field in declared_fields(kind).items()
        if (option := split_annotation(_hints(kind)[name])[1]) is not None
    }
    for name, declared in options.items():
        if not declared.option.sentence or declared.default is msgspec.UNSET:
            raise TypeError(f"the option {name!r} of {kind.__name__} is not fully declared")
    return options


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def _inherited(field: Declared, option: Option) -> Declared:
    """Return a field as an option, with what another struct says of it."""
    default = field.default
    if option.of is not None:
        source = declared_fields(option.of)[option.field or field.name]
        option = msgspec.structs.replace(
            source.option,
            sentence=option.sentence or source.option.sentence,
            of=option.of,
            field=source.name,
            shown=option.shown,
            fits=option.fits or source.option.fits,
            wanted=option.wanted or source.option.wanted,
        )
        default = Shown(option.shown) if option.shown else source.default
    return Declared(name=field.name, kind=as_given(field.kind), option=option, default=default)


def as_given(kind: AnyType) -> AnyType:
    """Return a type as a program gives it: any sequence where a tuple is kept."""
    arguments, origin = get_args(kind), _origin_of(kind)
    if origin is tuple and arguments[1:] == (...,):
        return Sequence[arguments[0]]  # type: ignore[valid-type]
    if origin in {Union, UnionType}:
        return functools.reduce(operator.or_, map(as_given, arguments))
    return kind


# Types.


def split_annotation(annotation: object) -> tuple[Any, Option | None]:
    """Return a type without its declaration, and the declaration if it has one."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    plain, *extras = get_args(annotation)
    return plain, next((extra for extra in extras if isinstance(extra, Option)), None)


def struct_in(annotation: object) -> type[msgspec.Struct] | None:
    """Return the one struct that a type is or may be."""
    plain = split_annotation(annotation)[0]
    if get_origin(plain) in {Union, UnionType}:
        structs = [struct for part in get_args(plain) if (struct := struct_in(part)) is not None]
        return structs[0] if len(structs) == 1 else None
    return plain if isinstance(plain, type) and issubclass(plain, msgspec.Struct) else None


def allowed_words(annotation: object) -> tuple[str, ...]:
    """Return the words that a type allows, where it is a choice between words."""
    plain = split_annotation(annotation)[0]
    if get_origin(plain) is Literal:
        return tuple(word for word in get_args(plain) if isinstance(word, str))
    if get_origin(plain) in {Union, UnionType}:
        return tuple(word for part in get_args(plain) for word in allowed_words(part))
    return ()


def type_name(kind: object) -> str:
    """Write a type as a reader would."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in {None, type(None)}:
        return "None"
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if origin in {Union, UnionType}:
        return " | ".join(dict.fromkeys(type_name(argument) for argument in arguments))
    name = getattr(origin or kind, "__name__", str(kind))
    if name == "Callable" or all(item in {Any, ...} for item in arguments):
        return name
    inner = ", ".join("..." if item is ... else type_name(item) for item in arguments)
    return f"{name}[{inner}]"


# Declarations that many make.


def path_option(sentence: str = "", *, of: type[msgspec.Struct] | None = None) -> Option:
    """Declare an option that is a path, or None."""
    return Option(sentence, of=of, fits=_is_path, wanted="a path")


def function_option(sentence: str) -> Option:
    """Declare an option that is a function, or None."""
    return Option(sentence, fits=_is_function, wanted="a function")


def list_option(sentence: str, *, wanted: str) -> Option:
    """Declare an option that is a list of objects."""
    return Option(sentence, fits=is_list, wanted=wanted)


def object_option(sentence: str, *, method: str, wanted: str) -> Option:
    """Declare an option that is an object with a method, or None."""

    def fits(value: object) -> bool:
        is_object = not isinstance(value, type) and callable(getattr(value, method, None))
        return value is None or is_object

    return Option(sentence, fits=fits, wanted=wanted)


def _is_path(value: object) -> bool:
    return value is None or isinstance(value, str | os.PathLike)


def _is_function(value: object) -> bool:
    return value is None or callable(value)


def is_anything(_value: object) -> bool:
    """Leave the check to what takes the value."""
    return True


def is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether a value can be read as a list of objects; text and mappings cannot."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
