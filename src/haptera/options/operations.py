"""Operations as options are: what can be given of each, and the check of what was given."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import built_in_value, python_words
from haptera.model.operations.operation import Operation, SessionCommand
from haptera.model.option import Option
from haptera.options.checks import bounds_fault
from haptera.options.declarations import Declared


@cache
def given_fields(kind: type[Operation]) -> Mapping[str, Declared]:
    """Return what can be given of an operation; worked out once for each."""
    beside = SessionCommand.__struct_fields__ if issubclass(kind, SessionCommand) else ()
    fields = msgspec.structs.fields(kind)
    return {field.name: _declared(field) for field in fields if field.name not in beside}


def _declared(field: msgspec.structs.FieldInfo) -> Declared:
    plain, meta = field.type, msgspec.Meta()
    if get_origin(field.type) is Annotated:
        plain, *notes = get_args(field.type)
        meta = next((each for each in notes if isinstance(each, msgspec.Meta)), meta)
    default = msgspec.UNSET if field.default is msgspec.NODEFAULT else field.default
    option = Option(meta.description or "", least=meta.ge, above=meta.gt, most=meta.le)
    return Declared(name=field.name, kind=plain, option=option, default=default)


def check_order(order: Operation, *, function: str) -> None:
    """Refuse values that cannot be meant: a struct does not check what it is made of.

    Raises:
        ConfigError: CONFIG_INVALID naming the option.

    """
    for name, declared in given_fields(type(order)).items():
        value = getattr(order, name)
        try:
            msgspec.convert(built_in_value(value), declared.kind)
            fault = bounds_fault(value, declared.option)
        except (msgspec.ValidationError, UnicodeEncodeError, TypeError) as error:
            fault = f"is not valid: {python_words(str(error))}"
        if fault is not None:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{function}: option {name!r} {fault}")


def meant(
    kind: type[Operation], given: dict[str, Any]
) -> tuple[type[Operation], dict[str, Any], list[str]]:
    """Return which operation is asked for, with what, and the names of what is not for it."""
    otherwise = kind.facts.otherwise
    if otherwise is None or given[otherwise.field] is not None:
        return kind, given, []
    names = given_fields(otherwise.operation)
    others = [name for name in given if name not in names and name != otherwise.field]
    values = {name: given[name] for name in names}
    return otherwise.operation, values, others if any(given[name] for name in others) else []


async def ask(face: object, kind: type[Operation], given: Mapping[str, Any]) -> object:
    """Ask a face for an operation as a program does: by its method."""
    names = list(given_fields(kind))
    by_place = [given[name] for name in names[: kind.facts.by_place]]
    named = {name: given[name] for name in names[kind.facts.by_place :]}
    return await getattr(face, kind.facts.face)(*by_place, **named)
