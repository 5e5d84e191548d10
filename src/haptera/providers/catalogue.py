"""Model catalogue: the limits, abilities and prices of models, from a data file read on first use.

The file is generated from public price data. The models of a provider are decoded when one of them
is looked up. What the file does not contain is None: a fact is never guessed from a similar name.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from functools import cache, cached_property
from importlib.resources import files
from typing import Literal, TypeAlias

import msgspec

from haptera.kernel.blocks.pricing import Price, PriceList, PriceTier, Pricing, Rates
from haptera.model.late_names import late_module
from haptera.model.usage import Usage
from haptera.providers.vendors import VENDORS, protocol_of
from haptera.system.clock import Clock

Ability: TypeAlias = Literal["image", "document", "audio", "reasoning"]

_FEW = 2
"""How many names are offered for one that is not known."""
_SHORTEST_PART = 3
"""Characters that a part of a model's name must have to stand for it in a suggestion."""

_FREE = (Price(rates=Rates(input=Decimal(0), output=Decimal(0))),)
"""The prices of a model that runs on this machine."""
_DATE_SUFFIX = re.compile(r"[-@](20\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])$")


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The known facts about one model; None means unknown."""

    provider: str
    """The provider whose table has the model; for a model that another one offers, its maker."""
    model: str
    context_window: int | None = None
    max_output: int | None = None
    abilities: frozenset[Ability] | None = None
    """What the model accepts beside text, and whether it can think; empty means neither."""
    prices: PriceList | None = None
    deprecated: bool = False


class _RatesRow(msgspec.Struct, array_like=True, frozen=True):
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None


class _PriceRow(msgspec.Struct, array_like=True, frozen=True):
    rates: _RatesRow
    tiers: tuple[tuple[int, _RatesRow], ...] | None = None
    starts: date | None = None
    hours: tuple[time, time] | None = None


class _ModelRow(msgspec.Struct, array_like=True, frozen=True):
    model: str
    rules: tuple[str | tuple[str, ...], ...] | None = None
    """Rules for names of this model, of which one must match; None: its own name only."""
    context_window: int | None = None
    prices: tuple[_PriceRow, ...] | None = None
    max_output: int | None = None
    abilities: frozenset[Ability] | None = None
    deprecated: bool | None = None


class _ProviderTable(msgspec.Struct, frozen=True):
    models: tuple[_ModelRow, ...]
    also: tuple[str, ...] = ()
    """Providers whose models this one also offers."""


class _Catalogue(msgspec.Struct, frozen=True):
    source: str
    # Undecoded: most programs use the models of one or two providers.
    providers: dict[str, msgspec.Raw]


class CatalogueFile:
    """Looks up models. Reads the data file on first use and caches what it decodes."""

    def __init__(self, content: bytes | None = None) -> None:
        self._content = content
        self._tables: dict[str, _ProviderTable | None] = {}
        self._found: dict[tuple[str, str], ModelFacts | None] = {}

    def find(self, provider: str, model: str) -> ModelFacts | None:
        """Return the facts about a model, also if its name ends with a date; None if unknown."""
        key = (_owner_of_models(provider), model.lower())
        # Not `get`: what is unknown is remembered as None, and asked for again with every turn.
        if key not in self._found:
            self._found[key] = self._search(*key)
        return self._found[key]

    def prices(self, provider: str, model: str) -> PriceList | None:
        """Return the prices of a model; None if unknown."""
        facts = self.find(provider, model)
        return None if facts is None else facts.prices

    def models(self, provider: str) -> tuple[ModelFacts, ...]:
        """Return all models in a provider's table."""
        provider = _owner_of_models(provider)
        table = self._table(provider)
        return () if table is None else tuple(_facts(provider, row) for row in table.models)

    def full_names(self, model: str) -> tuple[str, ...]:
        """Return `provider/model` for a name without a provider; the closest, if none is it.

        For a provider's own name, its usual model.

        For the error of a name that lacks its provider: of several providers the first ones of the
        table of vendors, which are the models' makers.
        """
        makers = [name for name, vendor in VENDORS.items() if vendor.default_model]
        if (maker := model.rstrip("/")) in makers:
            return (f"{maker}/{VENDORS[maker].default_model}",)
        if len(named := self._with_colon(model)) > 0:
            return named
        names: dict[str, list[str]] = {}
        for maker in makers:
            own = {VENDORS[maker].default_model, *(each.model for each in self.models(maker))}
            for name in own:
                names.setdefault(name or "", []).append(f"{maker}/{name}")
        matches = late_module("difflib").get_close_matches
        close = [model] if model in names else matches(model, names, n=1)
        if not close and len(model) >= _SHORTEST_PART:
            usual = [VENDORS[maker].default_model or "" for maker in makers]
            close = [name for name in (*usual, *sorted(names, reverse=True)) if model in name]
        return tuple(names[close[0]][:_FEW]) if close else ()

    def _with_colon(self, model: str) -> tuple[str, ...]:
        """Return the full name of `provider:model`, which is how other libraries write it."""
        provider, _, name = model.partition(":")
        if provider not in VENDORS or not name:
            return ()
        names = [each.model for each in self.models(provider)]
        if name in names:
            return (f"{provider}/{name}",)
        close = late_module("difflib").get_close_matches(name, names, n=1, cutoff=0.8)
        return (f"{provider}/{close[0] if close else name}",)

    @property
    def source(self) -> str:
        """The package and version that the data comes from."""
        return self._decoded.source

    @cached_property
    def _decoded(self) -> _Catalogue:
        content = self._content
        if content is None:
            content = files("haptera.providers").joinpath("catalogue.json").read_bytes()
        return msgspec.json.decode(content, type=_Catalogue)

    def _table(self, provider: str) -> _ProviderTable | None:
        if provider not in self._tables:
            raw = self._decoded.providers.get(provider)
            table = None if raw is None else msgspec.json.decode(raw, type=_ProviderTable)
            self._tables[provider] = table
        return self._tables[provider]

    def _search(self, provider: str, model: str) -> ModelFacts | None:
        table = self._table(provider)
        offered = () if table is None else table.also
        # By spelling first: the exact name in another provider's table is better than a name
        # without its date in the own one.
        for name in _spellings(model):
            for owner in (provider, *offered):
                owned = self._table(owner)
                if owned is None:
                    continue
                row = next((row for row in owned.models if _matches(row, name)), None)
                if row is not None:
                    return _facts(owner, row)
        return None


@cache
def shipped_catalogue() -> CatalogueFile:
    """Return the catalogue that comes with the package: read once, for all agents of a process."""
    return CatalogueFile()


class KnownModels:
    """The model catalogue of one agent; implements `ModelCatalogue`.

    `prices` and `windows` are the user's own, by `provider/model`. `same_as` maps provider names
    that the user chose to known providers. `local_window` knows the models of this machine, whose
    list is in their own package.
    """

    def __init__(
        self,
        *,
        catalogue: CatalogueFile,
        clock: Clock,
        prices: Mapping[str, PriceList] | None = None,
        windows: Mapping[str, int] | None = None,
        same_as: Mapping[str, str] | None = None,
        local_window: Callable[[str], int | None] = lambda _model: None,
    ) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self._pricing = Pricing(known=self._known_prices, own=prices)
        self._windows: dict[str, int | None] = dict(windows or {})
        """Those of the user, and those that were looked up."""
        self._same_as = dict(same_as or {})
        self._local_window = local_window

    def cost(self, provider: str, model: str, usage: Usage) -> Decimal | None:
        """Return the cost of a call made now, in US dollars; None if a price is unknown."""
        name = f"{provider}/{model}"
        return self._pricing.cost(usage, model=name, at_ms=self._clock.time_ms())

    def context_window(self, provider: str, model: str) -> int | None:
        """Return the size of a model's context window, in tokens; None if unknown."""
        name = f"{provider}/{model}"
        # Not `get`: what is unknown is remembered as None, and asked for again with every turn.
        if name not in self._windows:
            if protocol_of(provider) == "process":
                self._windows[name] = self._local_window(model)
            else:
                facts = self.facts(provider, model)
                self._windows[name] = facts.context_window if facts is not None else None
        return self._windows[name]

    def facts(self, provider: str, model: str) -> ModelFacts | None:
        """Return the facts about a model; None if unknown."""
        return self._catalogue.find(self._same_as.get(provider, provider), model)

    def _known_prices(self, provider: str, model: str) -> PriceList | None:
        if protocol_of(provider) == "process":
            return _FREE  # it runs on this machine
        return self._catalogue.prices(self._same_as.get(provider, provider), model)


def _owner_of_models(provider: str) -> str:
    """Return the provider whose table lists the models of this one."""
    vendor = VENDORS.get(provider)
    return provider if vendor is None else vendor.same_models_as or vendor.account or provider


def _spellings(model: str) -> tuple[str, ...]:
    """Return a name unchanged, with dashes in its date, and without its date."""
    dated = _DATE_SUFFIX.search(model)
    if dated is None:
        return (model,)
    bare = model[: dated.start()]
    return (model, f"{bare}-{'-'.join(dated.groups())}", bare)


def _matches(row: _ModelRow, name: str) -> bool:
    if row.rules is None:
        return row.model.lower() == name
    return any(
        _rule_holds(rule, name)
        if isinstance(rule, str)
        else all(_rule_holds(part, name) for part in rule)
        for rule in row.rules
    )


def _rule_holds(rule: str, name: str) -> bool:
    mark, text = rule[0], rule[1:]
    match mark:
        case "=":
            return name == text
        case "^":
            return name.startswith(text)
        case "$":
            return name.endswith(text)
        case "~":
            return text in name
        case _:
            return re.search(text, name) is not None


def _facts(provider: str, row: _ModelRow) -> ModelFacts:
    return ModelFacts(
        provider=provider,
        model=row.model,
        context_window=row.context_window,
        max_output=row.max_output,
        abilities=row.abilities,
        prices=None if row.prices is None else tuple(_price(price) for price in row.prices),
        deprecated=bool(row.deprecated),
    )


def _price(row: _PriceRow) -> Price:
    return Price(
        rates=_rates(row.rates),
        tiers=tuple(PriceTier(above=above, rates=_rates(r)) for above, r in row.tiers or ()),
        starts=row.starts,
        hours=row.hours,
    )


def _rates(row: _RatesRow) -> Rates:
    return Rates(**msgspec.structs.asdict(row))
