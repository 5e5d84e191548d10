"""Flags of commands, made from the declarations of options, for every surface that has commands.

A flag has the words or the bounds of its option, its check, its sentence and its default. It needs
the extra `cli`: only surfaces import this.
"""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from haptera.model.agent_defaults import AgentDefaults
from haptera.model.settings import Settings
from haptera.options.declarations import Declared, allowed_words, declared_fields

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def flag(
    *names: str,
    declared: Declared,
    metavar: str | None = None,
    more: str = "",
    otherwise: str = "",
    is_configured: bool = False,
) -> Callable[[CommandT], CommandT]:
    """Make the flag of an option.

    `more` is added to its sentence. `is_configured`: a file or the environment may say it, too.
    `otherwise` says what holds without the flag, where the default of the option does not. In both
    cases the flag itself has no default.
    """
    is_switch, is_list = declared.kind is bool, isinstance(declared.default, frozenset | tuple)
    default: Any = () if is_list else declared.default
    shown: bool | str = otherwise or bool(default)
    if is_configured:
        text = otherwise or ("" if default is None else f"{default}")
        shown = f"as configured, else {text}" if text else "as configured"
    if otherwise or is_configured:
        default = None
    kind = None if is_switch else _type_of(declared)
    is_number = isinstance(kind, click.IntRange | click.FloatRange)
    return click.option(
        *names,
        type=kind,
        metavar=metavar or ("N" if is_number else None),
        help=f"{declared.option.sentence} {more}".rstrip(),
        default=default,
        show_default=shown,
        is_flag=is_switch,
        multiple=is_list,
        callback=_check_of(declared),
    )


def _type_of(declared: Declared) -> "click.ParamType[Any] | None":
    """Return what click checks: one of some words, or a number within its bounds."""
    option, kinds = declared.option, {declared.kind, *get_args(declared.kind)}
    if words := allowed_words(declared.kind):
        return click.Choice(words)
    bounds: dict[str, Any] = {"min": option.least, "max": option.most}
    if option.above is not None:
        bounds |= {"min": option.above, "min_open": True}
    if int in kinds:
        return click.IntRange(**bounds)
    return click.FloatRange(**bounds) if float in kinds else None


def _check_of(
    declared: Declared,
) -> Callable[[click.Context, click.Parameter, object], object] | None:
    """Return what refuses a value that the option has a check of its own for."""
    fits, wanted = declared.option.fits, declared.option.wanted
    if fits is None:
        return None

    def check(context: click.Context, parameter: click.Parameter, value: object) -> object:
        if value is not None and not fits(value):
            text = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            raise click.BadParameter(f"must be {wanted}, not {text}", context, parameter)
        return value

    return check


MODEL_FLAG = flag(
    "-m",
    "--model",
    declared=declared_fields(Settings)["model"].brief(),
    metavar="PROVIDER/MODEL",
    otherwise="the best one for which a key is found",
    is_configured=True,
)
STORE_FLAG = flag(
    "--store",
    declared=declared_fields(AgentDefaults)["store"].brief(),
    metavar="STORE",
    otherwise="a SQLite file in your data folder",
    is_configured=True,
)
