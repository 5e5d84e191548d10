"""Options: how one is declared (sentence, default, bounds, variable), and how that is read back.

A declaration stands beside the type: `name: Annotated[type, Option("A sentence.")]`, as a field of
a struct or of a TypedDict. Checks (`given_options`), signatures, help, documentation and
configuration derive from it.
"""

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from types import UnionType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

import msgspec

from haptera.model.late_names import late_module

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_LARGE = 1e300
"""What is smaller can be written as a float."""
_END = re.compile(r"[.;](?:\s|$)")


class Shown(str):
    """A default that is made when it is needed: what to say of it in a signature."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Sentence(msgspec.Struct, frozen=True):
    """The one thing of an option that is given without a name."""

    sentence: str = ""
    """What it does, in one sentence."""


class Option(_Sentence, frozen=True, kw_only=True):
    """What is said of an option beside its type."""

    of: type[msgspec.Struct] | None = None
    """The struct that declares it as a field: what is not said here is said there."""
    field: str = ""
    """The name of that field, where it is another one."""
    default: object = msgspec.UNSET
    """What holds without it; a field of a struct has its default there."""
    make: Callable[[], object] | None = None
    """Makes the default anew for each caller."""
    shown: str = ""
    """What to say of a default that is made when it is needed, or found elsewhere."""
    least: float | None = None
    above: float | None = None
    """A number that the value must exceed, where no least one can be named."""
    most: float | None = None
    fits: Callable[[Any], bool] | None = None
    """Tells whether a value can be used, where the type alone does not."""
    wanted: str = ""
    """What the value must be, for the error of one that does not fit."""
    variable: str | None = None
    """The variable that sets it, without the prefix HAPTERA_."""
    whole: bool = False
    """Whether the variable is one text, also where the option is a list."""


def path_option(sentence: str = "", *, of: type[msgspec.Struct] | None = None) -> Option:
    """Declare an option that is a path, or None."""
    return Option(sentence, of=of, default=None, fits=_is_path, wanted="a path")


def function_option(sentence: str) -> Option:
    """Declare an option that is a function, or None."""
    return Option(sentence, default=None, fits=_is_function, wanted="a function")


def list_option(sentence: str, *, wanted: str) -> Option:
    """Declare an option that is a list of objects."""
    return Option(sentence, default=(), fits=is_list, wanted=wanted)


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


class Declared(msgspec.Struct, frozen=True, kw_only=True, dict=True):
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
        said = msgspec.structs.replace(self.option, sentence=f"{first}. {more}".rstrip())
        return msgspec.structs.replace(self, option=said)

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

    # Made once for all functions that take the option: importing the package makes hundreds.

    @cached_property
    def parameter(self) -> inspect.Parameter:
        """The option in the signature of a function."""
        keyword = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(self.name, keyword, default=self.default, annotation=self.kind)

    @cached_property
    def help_line(self) -> str:
        """The option as `help` shows it."""
        said = f"{self.name} ({self.shown_type}): {self.option.sentence}"
        return f"    {said} Default: {self.shown_default}."


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


@cache
def declared_fields(kind: type[msgspec.Struct]) -> dict[str, Declared]:
    """Return the fields of a struct as options; one without a declaration has an empty one.

    Worked out once for each type, because every agent asks; callers do not change it.
    """
    found = {}
    for field in msgspec.structs.fields(kind):
        plain, said = split_annotation(field.type)
        default = msgspec.UNSET if field.default is msgspec.NODEFAULT else field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        found[field.encode_name] = Declared(
            name=field.encode_name, kind=plain, option=said or Option(), default=default
        )
    return found


@cache
def options_of(kind: type) -> Mapping[str, Declared]:
    """Return the keys of a TypedDict as options.

    Worked out once for each type, because every call asks; callers do not change it.

    Raises:
        TypeError: when an option has no sentence or no default. This is a mistake in the
            declaration; it is found when the module of what takes the option is imported.

    """
    found = {name: _declared_once(name, item) for name, item in kind.__annotations__.items()}
    for name, declared in found.items():
        if not declared.option.sentence or declared.default is msgspec.UNSET:
            raise TypeError(f"the option {name!r} of {kind.__name__} is not fully declared")
    return found


_by_annotation: dict[tuple[str, int], Declared] = {}


def _declared_once(name: str, annotation: object) -> Declared:
    """Return a key as an option; types that inherit it have the same annotation, and one option."""
    # By identity, because a default may have no hash; the cache of `options_of` keeps it alive.
    key = (name, id(annotation))
    if key not in _by_annotation:
        _by_annotation[key] = _declared_key(name, annotation)
    return _by_annotation[key]


def _declared_key(name: str, annotation: object) -> Declared:
    kind, own = split_annotation(annotation)
    said = own or Option()
    default = Shown(said.shown) if said.shown else said.default
    if said.of is not None:
        field = declared_fields(said.of)[said.field or name]
        default = field.default if default is msgspec.UNSET else default
        said = msgspec.structs.replace(
            field.option,
            sentence=said.sentence or field.option.sentence,
            of=said.of,
            field=field.name,
            shown=said.shown,
            fits=said.fits or field.option.fits,
            wanted=said.wanted or field.option.wanted,
        )
    return Declared(name=name, kind=kind, option=said, default=default)


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
        found = [struct for part in get_args(plain) if (struct := struct_in(part)) is not None]
        return found[0] if len(found) == 1 else None
    return plain if isinstance(plain, type) and issubclass(plain, msgspec.Struct) else None


def bounds_fault(value: object, said: Option) -> str | None:
    """Say what is wrong with a number that is too small, too large or no number; None if nothing.

    JSON has no infinity, and nothing that is stored could be read back with one.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, not {value:g}"
    if not isinstance(value, int | float):
        return None
    is_small = said.least is not None and value < said.least
    is_small = is_small or (said.above is not None and value <= said.above)
    if is_small or (said.most is not None and value > said.most):
        told = f"{value:g}" if abs(value) < _LARGE else "a number with so many digits"
        return f"must be {_bounds(said)}, not {told}"
    return None


def _bounds(said: Option) -> str:
    """Write the bounds of a number as a reader would."""
    if said.least is not None and said.most is not None:
        return f"{said.least:g} to {said.most:g}"
    bounds = [("at least", said.least), ("more than", said.above), ("at most", said.most)]
    return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)


def takes(kind: type) -> Callable[[FunctionT], FunctionT]:
    """Show the options of a TypedDict where a function, or a class when it is called, takes them.

    A type checker reads `Unpack[...]`. An interactive Python, `help` and editors that look at live
    objects read `__signature__` and `__doc__`, which are made here.
    """
    options = options_of(kind)
    told = "\n".join(item.help_line for item in options.values())

    def show(function: FunctionT) -> FunctionT:
        shown: Any = function
        # Of a class, not of its `__init__`: `help` shows both, and would show all options twice.
        shown.__signature__ = _with_options(inspect.signature(function), options)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nKeyword Args:\n{told}\n"
        return function

    return show


def _with_options(
    signature: inspect.Signature, options: Mapping[str, Declared]
) -> inspect.Signature:
    """Return a signature with a keyword-only parameter for each option instead of `**options`.

    A parameter of an option's name stays where it is, and can be given by its name, too.
    """
    own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
    if any(item.name in options for item in own):
        own = [item.replace(kind=item.POSITIONAL_OR_KEYWORD) for item in own]
    taken = {item.name for item in own}
    shown = [item.parameter for name, item in options.items() if name not in taken]
    return signature.replace(parameters=[*own, *shown])


def allowed_words(annotation: object) -> tuple[str, ...]:
    """Return the words that a type allows, where it is a choice between words."""
    plain = split_annotation(annotation)[0]
    if get_origin(plain) is Literal:
        return tuple(word for word in get_args(plain) if isinstance(word, str))
    if get_origin(plain) in {Union, UnionType}:
        return tuple(word for part in get_args(plain) for word in allowed_words(part))
    return ()


def word_fault(value: object, allowed: tuple[str, ...]) -> str:
    """Say that a word is not one of those allowed, and which one may have been meant."""
    words = ", ".join(repr(word) for word in allowed[:-1]) + f" or {allowed[-1]!r}"
    meant = _closest(str(value), allowed, cutoff=0.7)
    hint = f" ({did_you_mean(meant)})" if meant else ""
    return f"{value!r} is not allowed{hint}; use {words}"


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that a name is not known, and which known one may have been meant."""
    return f"unknown{meant_name(name, known)}"


def meant_name(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Say which known name may have been meant, after what was said of this one; else nothing.

    `prefix` is what all of them begin with; the names are given without it.
    """
    meant = _closest(name, known, cutoff=0.6)
    return f"; {did_you_mean([prefix + each for each in meant])}" if meant else ""


def did_you_mean(names: Sequence[str]) -> str:
    """Ask whether one of some names was meant."""
    return f"did you mean {' or '.join(map(repr, names))}?"


def _closest(name: str, known: Iterable[str], *, cutoff: float) -> list[str]:
    matches: list[str] = late_module("difflib").get_close_matches(
        name, list(known), n=1, cutoff=cutoff
    )
    return matches
