"""What a configuration file can say, as values."""

from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec

from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.settings import Thinking

PermissionMode: TypeAlias = Literal["ask", "auto", "plan", "deny"]


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
    headers: dict[str, str | KeyReference] = {}
    dialect: str | JsonObject | None = None
    """Whose Chat Completions its own are like: a known dialect's name, or single differences."""
    api_version: str | None = None
    organization: str | None = None
    project: str | None = None
    location: str | None = None


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One `[models.ALIAS]`: a model under a short name, with settings of its own."""

    model: str
    """`provider/model`."""
    context_window: int | None = None
    """For models that the catalogue does not know."""
    max_output: int | None = None
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


class AgentDefaults(_Table, frozen=True, kw_only=True):
    """What an agent is told beside settings: its store, and the owner of its sessions."""

    store: str | None = None
    owner: str = "local"
    project: str | None = None
    """The working folder when left out."""
    log: str | None = None
    """Level of the program's own log."""
    permission_mode: PermissionMode | None = None
    claude_executable: str | None = None
