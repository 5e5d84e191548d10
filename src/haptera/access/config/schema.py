"""What a configuration file can say, as values, beside settings.

The tables of settings are in `haptera.model.settings`; those here are for the file alone.
"""

from decimal import Decimal
from typing import Annotated

import msgspec

from haptera.access.auth.oauth_settings import OAuthSettings
from haptera.model.json_types import Json, JsonObject
from haptera.model.option import Option
from haptera.model.vendors import VendorFields
from haptera.options.mcp_settings import McpServerSettings


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
        names = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(names) != 1:
            raise ValueError("give exactly one of env, keyring and command")
        if not getattr(self, names[0]):
            raise ValueError(f"{names[0]} must not be empty")
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
