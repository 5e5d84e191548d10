"""Options as they were given: checked by their declarations, and filled up with defaults."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar, get_args

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import Json, built_in_value, python_words
from haptera.model.option import Option
from haptera.options.declarations import (
    Declared,
    Keywords,
    Taken,
    allowed_words,
    declared_fields,
    declared_options,
    options_of,
    struct_in,
)
from haptera.options.wording import unknown_name, word_fault

StructT = TypeVar("StructT", bound=msgspec.Struct)
T = TypeVar("T")
KeyPath: TypeAlias = tuple[str | int, ...]
"""From the root to a value: names of tables and keys, and places in arrays."""
Complain: TypeAlias = Callable[[KeyPath, str], ConfigError]
"""Makes the error for a value: where it stands, and what is wrong with it."""
Elsewhere: TypeAlias = Callable[[str], str | None]
"""Says where an option belongs that a function does not have; None where it belongs nowhere."""
_PLACE = " - at `"
"""What msgspec puts between what is wrong and where."""
_STEP = r"\.([^.\[]+)|\[(\d+|\.\.\.)\]"
_LARGE = 1e300
"""What is smaller can be written as a float."""


class UnknownOptionError(ConfigError, TypeError):
    """A function was given an option that it does not have.

    Also a TypeError, which is what Python raises for a keyword that a function does not have.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CONFIG_INVALID, message)

    def __reduce__(self) -> tuple[Any, ...]:
        # The one of `AgentError` goes by the code, and would make a plain ConfigError.
        return UnknownOptionError, (self.message,)


def _nowhere(_name: str) -> None:
    """Know of no other place for an option."""


def check(
    given: Mapping[str, object], taken: Taken, *, function: str, elsewhere: Elsewhere = _nowhere
) -> None:
    """Refuse options that a function does not have, and values that cannot be meant.

    Values that configuration decides about are checked where it does.

    Raises:
        UnknownOptionError: when the function has no such option; says where it belongs or what may
            be meant.
        ConfigError: CONFIG_INVALID naming the option whose value is wrong.

    """
    if not given:
        return
    options = check_names(given, taken, function=function, elsewhere=elsewhere)
    configured = taken.configured if isinstance(taken, Keywords) else ()
    for name, value in given.items():
        declared = options[name]
        if declared.option.of in configured and declared.option.fits is None:
            continue
        if (fault := value_fault(value, declared)) is not None:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{function}: option {name!r} {fault}")


def check_names(
    names: Iterable[str], taken: Taken, *, function: str, elsewhere: Elsewhere = _nowhere
) -> Mapping[str, Declared]:
    """Refuse options that a function does not have; returns those that it has.

    Raises:
        UnknownOptionError: saying where each of them belongs, or what may be meant.

    """
    options = options_of(taken)
    if unknown := sorted(set(names) - set(options)):
        faults = [elsewhere(name) or f"{name} is {unknown_name(name, options)}" for name in unknown]
        raise UnknownOptionError(f"{function}: {'; '.join(faults)}")
    return options


def filled(given: Mapping[str, Any], kind: type[StructT]) -> StructT:
    """Return the options of a struct that were given, and its defaults for the others.

    Unchecked: what is given has passed `check`.
    """
    own, values = declared_options(kind), {}
    for name in given.keys() & own.keys():
        values[name] = given[name]
    return kind(**values)


def checked(
    given: Mapping[str, Any],
    kind: type[StructT],
    *,
    function: str,
    elsewhere: Elsewhere = _nowhere,
) -> StructT:
    """Return the options of a function that takes those of one struct, checked and filled up.

    Raises:
        ConfigError: as `check`.

    """
    check(given, kind, function=function, elsewhere=elsewhere)
    return filled(given, kind)


def checked_fields(settings: StructT) -> StructT:
    """Return a struct of options that a program made, with each value as its field declares it.

    A struct does not check what it is made of. Those that a file or the environment can set have
    checks that name the line or the variable.

    Raises:
        ConfigError: CONFIG_INVALID naming the field.

    """
    kind = type(settings)
    for name, declared in declared_fields(kind).items():
        if (fault := value_fault(getattr(settings, name), declared)) is not None:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{kind.__name__}: {name} {fault}")
    return msgspec.convert(msgspec.to_builtins(settings), kind)


def value_fault(value: object, declared: Declared) -> str | None:
    """Say what is wrong with the value of an option; None if nothing is."""
    option = declared.option
    if option.fits is not None:
        fits = option.fits(value)
        return None if fits else f"must be {option.wanted}, not {type(value).__name__}"
    if (words := allowed_words(declared.kind)) and isinstance(value, str) and value not in words:
        return f"is not valid: {word_fault(value, words)}"
    # Also for our own types: a struct does not check what it is made of. What is inside of tables
    # is checked where they are merged.
    try:
        msgspec.convert(built_in_value(value), declared.kind)
    except (msgspec.ValidationError, UnicodeEncodeError, TypeError) as error:
        return f"is not valid: {python_words(str(error))}"
    return bounds_fault(value, option)


def checked_table(values: Json, kind: type[T], *, at: KeyPath, complain: Complain) -> T:
    """Make a `kind` of plain values; raises what `complain` makes of the first wrong one.

    Unknown fields are wrong, at any depth, and numbers out of their bounds.
    """
    # First, as msgspec's own error does not say which name may have been meant.
    refuse_unknown(values, kind, at=at, complain=complain)
    try:
        result = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        path, fault = _type_fault(error, values, kind)
        raise complain((*at, *path), fault) from None
    for path, declared, value, _ in _fields_in(values, kind):
        if declared is not None and (wrong := bounds_fault(value, declared.option)) is not None:
            raise complain((*at, *path), wrong)
    return result


def refuse_unknown(values: Json, kind: object, *, at: KeyPath, complain: Complain) -> None:
    """Raise for the first field that `kind` does not have."""
    for path, declared, _, names in _fields_in(values, kind):
        if declared is None:
            raise complain((*at, *path), unknown_name(str(path[-1]), names))


def _fields_in(
    values: Json, kind: object, at: KeyPath = ()
) -> Iterator[tuple[KeyPath, Declared | None, Json, Iterable[str]]]:
    """Yield each field of the structs in plain values, at any depth.

    Where it is, its declaration (None: there is no such field), its value, and all fields there.
    """
    for index, value in enumerate(values if isinstance(values, list) else ()):
        yield from _fields_in(value, _item_of(kind), (*at, index))
    struct = struct_in(kind)
    if struct is None or not isinstance(values, Mapping):
        return
    fields = declared_fields(struct)
    for name, value in values.items():
        declared, path = fields.get(name), (*at, name)
        yield path, declared, value, fields
        if declared is not None:
            yield from _fields_in(value, declared.kind, path)


def _type_fault(error: msgspec.ValidationError, values: Json, kind: object) -> tuple[KeyPath, str]:
    """Return where a value has another type, and what is wrong: of several words, which ones."""
    # From the end: what is wrong may quote a value, in which anything may be written.
    fault, _, place = str(error).rpartition(_PLACE)
    place = place.removeprefix("key in ")
    if not (place.startswith("$") and place.endswith("`")):
        fault, place = str(error), ""
    steps: list[str | int] = []
    for name, index in re.findall(_STEP, place[1:-1]):
        if index == "...":  # msgspec's way to say: some item
            break
        steps.append(name or int(index))
    value: Any = values
    for step in steps:
        if isinstance(step, int):
            kind, value = _item_of(kind), value[step]
            continue
        struct = struct_in(kind)
        fields = declared_fields(struct) if struct is not None else {}
        if step not in fields or not isinstance(value, Mapping) or step not in value:
            return tuple(steps), fault
        kind, value = fields[step].kind, value[step]
    allowed = allowed_words(kind)
    is_word = allowed and isinstance(value, str)
    return tuple(steps), word_fault(value, allowed) if is_word else fault


def _item_of(kind: object) -> object:
    """Return what a list is made of, if `kind` is one."""
    return next(iter(get_args(kind)), None)


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


def bounds_fault(value: object, option: Option) -> str | None:
    """Say what is wrong with a number that is too small, too large or no number; None if nothing.

    JSON has no infinity, and nothing that is stored could be read back with one.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, not {value:g}"
    if not isinstance(value, int | float):
        return None
    is_small = option.least is not None and value < option.least
    is_small = is_small or (option.above is not None and value <= option.above)
    if is_small or (option.most is not None and value > option.most):
        shown = f"{value:g}" if abs(value) < _LARGE else "a number with so many digits"
        return f"must be {_bounds(option)}, not {shown}"
    return None


def _bounds(option: Option) -> str:
    """Write the bounds of a number as a reader would."""
    if option.least is not None and option.most is not None:
        return f"{option.least:g} to {option.most:g}"
    bounds = [("at least", option.least), ("more than", option.above), ("at most", option.most)]
    return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
