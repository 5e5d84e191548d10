"""What a configuration file can say, as values; and the check of plain values against our types.

A check says where the first wrong value stands. The tables of settings are in
`haptera.model.settings`; those here are for the file alone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, TypeAlias, TypeVar, get_args

import msgspec

from haptera.access.auth.oauth_settings import OAuthSettings
from haptera.access.config.toml_lines import KeyPath
from haptera.model.errors import ConfigError
from haptera.model.json_types import Json, JsonObject
from haptera.model.mcp_settings import McpServerSettings
from haptera.model.option_declarations import (
    Option,
    allowed_words,
    bounds_fault,
    declared_fields,
    struct_in,
    unknown_name,
    word_fault,
)
from haptera.model.vendors import VendorFields

T = TypeVar("T")

Complain: TypeAlias = Callable[[KeyPath, str], ConfigError]
"""Makes the error for a value: where it stands, and what is wrong with it."""

_PLACE = " - at `"
"""What msgspec puts between what is wrong and where."""
_STEP = r"\.([^.\[]+)|\[(\d+|\.\.\.)\]"


class _Table(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What all tables share: immutable, and nothing in them is passed over."""


HOW_TO_NAME_A_KEY = (
    "secrets are not written into this file; say where the secret is instead: "
    '{ env = "VARIABLE" }, { keyring = "service/user" } or { command = ["program", "argument"] }'
)


class KeyReference(_Table, frozen=True, kw_only=True):
    """Where a secret is; exactly one of the three is given, and never the secret itself."""

    env: Annotated[str | None, Option("The environment variable that contains the secret.")] = None
    keyring: Annotated[
        str | None,
        Option(
            "The entry of the desktop's keyring, as `service/user`; needs the package `keyring`."
        ),
    ] = None
    command: Annotated[
        tuple[str, ...] | None,
        Option(
            "A program and its arguments, run without a shell for at most 10 seconds; the first "
            "line that it prints is the secret."
        ),
    ] = None

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of env, keyring and command")
        if not getattr(self, given[0]):
            raise ValueError(f"{given[0]} must not be empty")
        # The last slash separates, because the name of a service may hold slashes.
        service, _, user = (self.keyring or "a/b").rpartition("/")
        if not service or not user:
            raise ValueError('keyring must be written as "service/user"')


class ProviderEntry(VendorFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[providers.NAME]`: how to reach a provider."""

    kind: Annotated[
        str | None,
        Option(
            "The known provider whose protocol and dialect it speaks; None: the table's own name, "
            "if that is one, else `compatible`."
        ),
    ] = None
    base_url: Annotated[str | None, Option("The URL; None: the known provider's own.")] = None
    key: Annotated[KeyReference | None, Option("Where the API key is.")] = None
    oauth: Annotated[
        OAuthSettings | None, Option("How `haptera login` gets tokens, in place of a key.")
    ] = None
    headers: Annotated[
        dict[str, str | KeyReference],
        Option(
            "More headers for each request; one that contains a secret names its variable: "
            '`{ env = "NAME" }`.'
        ),
    ] = msgspec.field(default_factory=dict)
    dialect: Annotated[
        str | JsonObject | None,
        Option(
            "How its Chat Completions differ: the name of a dialect, or single differences; None: "
            "as the known provider's."
        ),
    ] = None


class McpServerEntry(
    McpServerSettings[str | KeyReference, KeyReference],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """One `[mcpServers.NAME]`. What only a file can say is declared here."""

    type: Annotated[
        str | None,
        Option("`stdio` or `http`, as other programs write it; it follows from the rest."),
    ] = None
    disabled: Annotated[
        bool, Option("Whether it is left out, unless the option `mcp_servers` names it.")
    ] = False


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One `[models.ALIAS]`: a model under a short name, with settings of its own."""

    model: Annotated[str, Option("The model that the short name stands for, as `provider/model`.")]
    context_window: Annotated[
        int | None,
        Option("Tokens that it can hold, for models that the catalogue does not know.", least=1),
    ] = None
    max_output: Annotated[int | None, Option("The most tokens that the model writes.", least=1)] = (
        None
    )
    settings: JsonObject = {}
    """Settings that hold when this alias is chosen, as checked plain values."""


MODEL_FIELDS = tuple(name for name in ModelEntry.__struct_fields__ if name != "settings")
"""What a table of [models] says beside settings."""

_INPUT = Option("US dollars per million input tokens.")
_OUTPUT = Option("US dollars per million output tokens.")


class RatesEntry(_Table, frozen=True, kw_only=True):
    """US dollars per million tokens."""

    input: Annotated[Decimal | None, _INPUT] = None
    output: Annotated[Decimal | None, _OUTPUT] = None
    cache_read: Annotated[
        Decimal | None, Option("The same for input that was read from a cache; None: as `input`.")
    ] = None
    cache_write: Annotated[
        Decimal | None, Option("The same for input that was written to a cache; None: as `input`.")
    ] = None
    cache_write_1h: Annotated[
        Decimal | None,
        Option("The same for a cache that lives for an hour; None: as `cache_write`."),
    ] = None
    reasoning: Annotated[
        Decimal | None, Option("The same for output that is reasoning; None: as `output`.")
    ] = None

    def __post_init__(self) -> None:
        for name in RatesEntry.__struct_fields__:
            rate = getattr(self, name)
            if rate is not None and not (rate.is_finite() and rate >= 0):
                raise ValueError(f"{name} must be zero or more")


class TierEntry(RatesEntry, frozen=True, kw_only=True):
    """Rates of calls whose input is larger than `above` tokens."""

    above: Annotated[int, Option("Tokens of input above which these rates hold.", least=0)]


class PriceEntry(RatesEntry, frozen=True, kw_only=True):
    """One `[prices."provider/model"]`: what the user really pays."""

    input: Annotated[Decimal, _INPUT]
    output: Annotated[Decimal, _OUTPUT]
    tiers: Annotated[
        tuple[TierEntry, ...],
        Option("Rates of calls with more input: the same fields, and `above`, in tokens."),
    ] = ()


def checked(values: Json, kind: type[T], *, at: KeyPath, complain: Complain) -> T:
    """Make a `kind` of plain values; raises what `complain` makes of the first wrong one.

    Unknown fields are wrong, at any depth, and numbers out of their bounds.
    """
    # First, as msgspec's own error does not say which name may have been meant.
    refuse_unknown(values, kind, at=at, complain=complain)
    try:
        result = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        steps = _steps(_parted(error)[1])
        raise complain((*at, *steps), _fault(error, values, kind=kind, steps=steps)) from None
    refuse_out_of_bounds(values, kind, at=at, complain=complain)
    return result


def _parted(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return what is wrong, and the path to it; the path is empty when none is told."""
    # From the end: what is wrong may quote a value, in which anything may be written.
    fault, _, place = str(error).rpartition(_PLACE)
    place = place.removeprefix("key in ")
    is_place = place.startswith("$") and place.endswith("`")
    return (fault, place[1:-1]) if is_place else (str(error), "")


def _fault(
    error: msgspec.ValidationError, values: Json, *, kind: object, steps: Sequence[str | int]
) -> str:
    """Say what is wrong; where one of several words is wanted, which ones."""
    found: Any = values
    for step in steps:
        if isinstance(step, int):
            kind, found = _item_of(kind), found[step]
            continue
        struct = struct_in(kind)
        fields = declared_fields(struct) if struct is not None else {}
        if step not in fields or not isinstance(found, Mapping) or step not in found:
            return _parted(error)[0]
        kind, found = fields[step].kind, found[step]
    allowed = allowed_words(kind)
    if not allowed or not isinstance(found, str):
        return _parted(error)[0]
    return word_fault(found, allowed)


def refuse_unknown(values: Json, kind: object, *, at: KeyPath, complain: Complain) -> None:
    """Raise for the first field that `kind` does not have."""
    for index, value in enumerate(values if isinstance(values, list) else ()):
        refuse_unknown(value, _item_of(kind), at=(*at, index), complain=complain)
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
    for index, value in enumerate(values if isinstance(values, list) else ()):
        refuse_out_of_bounds(value, _item_of(kind), at=(*at, index), complain=complain)
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
        if index == "...":  # msgspec's way to say: some item
            break
        steps.append(name or int(index))
    return tuple(steps)
