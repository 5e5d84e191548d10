"""What a configuration file can say, as values; and the check of plain values against our types.

A check says where the first wrong value stands. The tables of settings are in
`holdfast.vocabulary.settings`; those here are for the file alone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args

import msgspec

from holdfast.auth.oauth_settings import OAuthSettings
from holdfast.config.toml_lines import KeyPath
from holdfast.vocabulary.errors import ConfigError
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.option_declarations import (
    Option,
    allowed_words,
    bounds_fault,
    declared_fields,
    struct_in,
    unknown_name,
    word_fault,
)
from holdfast.vocabulary.settings import Thinking

T = TypeVar("T")

Complain: TypeAlias = Callable[[KeyPath, str], ConfigError]
"""Makes the error for a value: where it stands, and what is wrong with it."""

_PLACE = r" - at `(?:key in )?\$(.*)`$"
_STEP = r"\.([^.\[]+)|\[(\d+|\.\.\.)\]"


class _Table(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What all tables share: immutable, and nothing in them is passed over."""


class KeyReference(_Table, frozen=True, kw_only=True):
    """Where a secret is; exactly one of the three is given, and never the secret itself."""

    env: str | None = None
    """A variable of the environment."""
    keyring: str | None = None
    """`service/user` in the keyring of the desktop."""
    command: tuple[str, ...] | None = None
    """A program and its arguments; the first line that it prints is the secret."""

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of env, keyring and command")
        if not getattr(self, given[0]):
            raise ValueError(f"{given[0]} must not be empty")
        service, _, user = (self.keyring or "a/b").rpartition("/")
        if not service or not user:
            raise ValueError('keyring must be written as "service/user"')


class ProviderEntry(_Table, frozen=True, kw_only=True):
    """One `[providers.NAME]`: how to reach a provider."""

    kind: str | None = None
    """Which known provider or protocol it is; the table's own name when left out."""
    base_url: str | None = None
    key: KeyReference | None = None
    oauth: OAuthSettings | None = None
    """How `holdfast login` gets tokens, in place of a key."""
    headers: dict[str, str | KeyReference] = {}
    dialect: str | JsonObject | None = None
    """Whose Chat Completions its own are like: a known dialect's name, or single differences."""
    api_version: str | None = None
    organization: str | None = None
    project: str | None = None
    location: str | None = None


class McpServerEntry(_Table, frozen=True, kw_only=True):
    """One `[mcpServers.NAME]`: an MCP server, with a `command` or a `url`."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str | KeyReference] = {}
    """Variables for the program; one that is a secret is named by the variable that holds it."""
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str | KeyReference] = {}
    token: KeyReference | None = None
    """A bearer token for the URL."""
    type: str | None = None
    """`stdio` or `http`, as other programs write it; it follows from the rest."""
    approval: Literal["ask", "never"] | None = None
    trust_annotations: bool | None = None
    timeout: float | None = None
    connect_timeout: float | None = None
    disabled: bool = False
    """Whether it is left out."""


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One `[models.ALIAS]`: a model under a short name, with settings of its own."""

    model: str
    """`provider/model`."""
    context_window: Annotated[
        int | None, Option("For models that the catalogue does not know.", least=1)
    ] = None
    max_output: Annotated[int | None, Option("The most that the model writes.", least=1)] = None
    settings: JsonObject = {}
    """Settings that hold when this alias is chosen, as checked plain values."""


class FallbackStep(_Table, frozen=True, kw_only=True):
    """One model to go on with when the one before it fails."""

    model: str
    """An alias or `provider/model`."""
    thinking: Thinking | None = None
    max_attempts: int = 2

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("max_attempts must be at least 1")


class RatesEntry(_Table, frozen=True, kw_only=True):
    """US dollars per million tokens."""

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None

    def __post_init__(self) -> None:
        for name in RatesEntry.__struct_fields__:
            rate = getattr(self, name)
            if rate is not None and not (rate.is_finite() and rate >= 0):
                raise ValueError(f"{name} must be zero or more")


class TierEntry(RatesEntry, frozen=True, kw_only=True):
    """Rates of calls whose input is larger than `above` tokens."""

    above: int


class PriceEntry(RatesEntry, frozen=True, kw_only=True):
    """One `[prices."provider/model"]`: what the user really pays."""

    input: Decimal
    output: Decimal
    tiers: tuple[TierEntry, ...] = ()


def checked(values: Json, kind: type[T], *, at: KeyPath, complain: Complain) -> T:
    """Make a `kind` of plain values; raises what `complain` makes of the first wrong one.

    Unknown fields are wrong, at any depth, and numbers out of their bounds.
    """
    refuse_unknown(values, kind, at=at, complain=complain)
    try:
        result = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        place = re.search(_PLACE, str(error))
        steps = _steps(place.group(1)) if place else ()
        raise complain((*at, *steps), _fault(error, values, kind=kind, steps=steps)) from None
    refuse_out_of_bounds(values, kind, at=at, complain=complain)
    return result


def _fault(
    error: msgspec.ValidationError, values: Json, *, kind: object, steps: Sequence[str | int]
) -> str:
    """Say what is wrong; where one of several words is wanted, which ones."""
    found: Any = values
    for step in steps:
        struct = struct_in(kind)
        fields = declared_fields(struct) if struct is not None else {}
        if step not in fields or not isinstance(found, Mapping) or step not in found:
            return re.sub(_PLACE, "", str(error))
        kind, found = fields[str(step)].kind, found[step]
    allowed = allowed_words(kind)
    if not allowed or not isinstance(found, str):
        return re.sub(_PLACE, "", str(error))
    return word_fault(found, allowed)


def refuse_unknown(values: Json, kind: object, *, at: KeyPath, complain: Complain) -> None:
    """Raise for the first field that `kind` does not have."""
    for place, value in enumerate(values if isinstance(values, list) else ()):
        refuse_unknown(value, _item_of(kind), at=(*at, place), complain=complain)
    struct = struct_in(kind)
    if struct is None or not isinstance(values, Mapping):
        return
    fields = declared_fields(struct)
    for name, value in values.items():
        if name not in fields:
            raise complain((*at, name), unknown_name(name, fields))
        refuse_unknown(value, fields[name].kind, at=(*at, name), complain=complain)


def refuse_out_of_bounds(values: Json, kind: object, *, at: KeyPath, complain: Complain) -> None:
    """Raise for the first number that is too small or too large to make sense."""
    for place, value in enumerate(values if isinstance(values, list) else ()):
        refuse_out_of_bounds(value, _item_of(kind), at=(*at, place), complain=complain)
    struct = struct_in(kind)
    if struct is None or not isinstance(values, Mapping):
        return
    for name, declared in declared_fields(struct).items():
        if name in values:
            if (fault := bounds_fault(values[name], declared.option)) is not None:
                raise complain((*at, name), fault)
            refuse_out_of_bounds(values[name], declared.kind, at=(*at, name), complain=complain)


def _item_of(kind: object) -> object:
    """Return what a list is made of, if `kind` is one."""
    return next(iter(get_args(kind)), None)


def without_decimals(values: Json) -> Json:
    """Turn exact numbers into floats, for everything that is not money."""
    match values:
        case Decimal():
            return float(values)
        case dict():
            return {name: without_decimals(value) for name, value in values.items()}
        case list():
            return [without_decimals(value) for value in values]
        case _:
            return values


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


def _steps(path: str) -> KeyPath:
    steps: list[str | int] = []
    for name, index in re.findall(_STEP, path):
        if index == "...":
            break
        steps.append(name or int(index))
    return tuple(steps)
