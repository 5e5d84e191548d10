"""Options as they were given: checked, and with defaults for those that were not.

Which names a function knows, which values fit and what holds without them derive from the
declarations (`option_declarations`).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import built_in_value, python_words
from haptera.model.option_declarations import (
    Declared,
    allowed_words,
    bounds_fault,
    declared_fields,
    options_of,
    unknown_name,
    word_fault,
)

OptionsT = TypeVar("OptionsT", bound=Mapping[str, Any])
StructT = TypeVar("StructT", bound=msgspec.Struct)
Elsewhere: TypeAlias = Callable[[str], str | None]
"""Says where an option belongs that a function does not have; None where it belongs nowhere."""


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


def check_options(
    options: OptionsT, kind: type[OptionsT], *, function: str, elsewhere: Elsewhere = _nowhere
) -> OptionsT:
    """Return options with their defaults; refuse what is unknown and what cannot be meant.

    A default that is found elsewhere (in a struct, or by configuration) is not filled in.

    Raises:
        UnknownOptionError: when the function has no such option; says where it belongs or what may
            be meant.
        ConfigError: CONFIG_INVALID naming the option whose value is wrong.

    """
    check_given(options, kind, function=function, elsewhere=elsewhere)
    filled: Any = {**_defaults_of(kind), **options}
    for name, make in _makers_of(kind).items():
        if name not in options:
            filled[name] = make()
    checked: OptionsT = filled
    return checked


@cache
def _defaults_of(kind: type) -> Mapping[str, object]:
    """Return the defaults that are filled in."""
    said = {name: declared.option for name, declared in options_of(kind).items()}
    return {name: each.default for name, each in said.items() if each.default is not msgspec.UNSET}


@cache
def _makers_of(kind: type) -> Mapping[str, Callable[[], object]]:
    """Return what makes the defaults that are made anew for each call."""
    makers = {name: declared.option.make for name, declared in options_of(kind).items()}
    return {name: make for name, make in makers.items() if make is not None}


def check_given(
    options: Mapping[str, object], kind: type, *, function: str, elsewhere: Elsewhere = _nowhere
) -> None:
    """Refuse options that a function does not have, and values that cannot be meant.

    Raises:
        UnknownOptionError: as `check_names`.
        ConfigError: CONFIG_INVALID naming the option.

    """
    known = check_names(options, kind, function=function, elsewhere=elsewhere)
    for name, value in options.items():
        if (fault := _fault(value, known[name])) is not None:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{function}: option {name!r} {fault}")


def checked_fields(settings: StructT) -> StructT:
    """Return a struct of options that a program made, with each value as its field declares it.

    A struct does not check what it is made of. Those that a file or the environment can set have
    checks that name the line or the variable.

    Raises:
        ConfigError: CONFIG_INVALID naming the field.

    """
    kind = type(settings)
    for name, declared in declared_fields(kind).items():
        if (fault := _fault(getattr(settings, name), declared)) is not None:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{kind.__name__}: {name} {fault}")
    return msgspec.convert(msgspec.to_builtins(settings), kind)


def check_names(
    names: Iterable[str], kind: type, *, function: str, elsewhere: Elsewhere = _nowhere
) -> Mapping[str, Declared]:
    """Refuse options that a function does not have; returns those that it has.

    Raises:
        UnknownOptionError: saying where each of them belongs, or what may be meant.

    """
    known = options_of(kind)
    if unknown := sorted(set(names) - set(known)):
        told = [elsewhere(name) or f"{name} is {unknown_name(name, known)}" for name in unknown]
        raise UnknownOptionError(f"{function}: {'; '.join(told)}")
    return known


def _fault(value: object, declared: Declared) -> str | None:
    """Say what is wrong with the value of an option; None if nothing is."""
    said = declared.option
    if said.fits is not None:
        is_fine = said.fits(value)
        return None if is_fine else f"must be {said.wanted}, not {type(value).__name__}"
    if (words := allowed_words(declared.kind)) and isinstance(value, str) and value not in words:
        return f"is not valid: {word_fault(value, words)}"
    # Also for our own types: a struct does not check what it is made of.
    try:
        msgspec.convert(built_in_value(value), declared.kind)
    except (msgspec.ValidationError, UnicodeEncodeError, TypeError) as error:
        return f"is not valid: {python_words(str(error))}"
    return bounds_fault(value, said)
