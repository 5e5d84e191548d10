"""Operations as options are: what can be given of each, and the check of what was given."""

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.operations.operation import Operation, SessionCommand
from haptera.model.option import Option
from haptera.options.checks import value_fault
from haptera.options.declarations import Declared, split_annotation


@cache
def given_fields(kind: type[Operation]) -> Mapping[str, Declared]:
    """Return what can be given of an operation; worked out once for each."""
    beside = SessionCommand.__struct_fields__ if issubclass(kind, SessionCommand) else ()
    fields = msgspec.structs.fields(kind)
    return {field.name: _declared(field) for field in fields if field.name not in beside}


def _declared(field: msgspec.structs.FieldInfo) -> Declared:
    plain, option = split_annotation(field.type)
    if option is None:
        extras = get_args(field.type) if plain is not field.type else ()
        meta = next((each for each in extras if isinstance(each, msgspec.Meta)), msgspec.Meta())
        option = Option(meta.description or "", least=meta.ge, above=meta.gt, most=meta.le)
    default = msgspec.UNSET if field.default is msgspec.NODEFAULT else field.default
    return Declared(name=field.name, kind=plain, option=option, default=default)


def check_order(order: Operation, *, function: str) -> None:
    """Refuse values that cannot be meant: a struct does not check what it is made of.

    Raises:
        ConfigError: CONFIG_INVALID naming the option.

    """
    for name, declared in given_fields(type(order)).items():
        if (fault := value_fault(getattr(order, name), declared)) is not None:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{function}: option {name!r} {fault}")


def meant(
    kind: type[Operation], given: dict[str, Any]
) -> tuple[type[Operation], dict[str, Any], list[str]]:
    """Return which operation is asked for, with what, and the names of what is not for it."""
    otherwise = kind.facts.otherwise
    if otherwise is None or given[otherwise.field] is not None:
        return kind, given, []
    declared = given_fields(otherwise.operation)
    others = [name for name in given if name not in declared and name != otherwise.field]
    values = {name: given[name] for name in declared}
    return otherwise.operation, values, others if any(given[name] for name in others) else []


async def ask(face: object, kind: type[Operation], given: Mapping[str, Any]) -> object:
    """Ask a face for an operation as a program does: by its method, without what is not given."""
    facts, names = kind.facts, list(given_fields(kind))
    by_place = [given[name] for name in names[: facts.by_place] if name != facts.rest]
    named = {name: given[name] for name in names[facts.by_place :] if name in given}
    answer = getattr(face, facts.face)(*by_place, *given.get(facts.rest, ()), **named)
    return await answer if inspect.isawaitable(answer) else answer
