"""What one model call costs, in US dollars, exactly or not at all.

Owns the arithmetic: which rate applies to which tokens, and when. Does not own the prices: the
catalogue and the user's configuration hand them in. A call is priced by itself, because tiers look
at the size of one request; a query's cost is the sum of its calls' costs.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import TypeAlias

import msgspec

from haptera.model.believed_values import moment_of
from haptera.model.usage import Usage
from haptera.model.vendors import split_model

# A caller may have narrowed the thread's own decimal context; money must not notice.
_EXACT = Context(prec=100)
_MILLION_DIGITS = -6


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """US dollars per million tokens. A rate that is not given is not known."""

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    """Without it a cached token costs what an input token costs."""
    cache_write: Decimal | None = None
    """Without it a written token costs what an input token costs."""
    cache_write_1h: Decimal | None = None
    """Without it the hour costs what the short lifetime costs."""
    reasoning: Decimal | None = None
    """Without it reasoning costs what other output costs."""

    def over(self, base: "Rates") -> "Rates":
        """Return these rates, with those of `base` where one is not given."""
        given = {
            name: value
            for name in Rates.__struct_fields__
            if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(base, **given)


class PriceTier(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rates of every token of a call whose whole input is larger than `above` tokens."""

    above: int
    rates: Rates


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rates, and when they hold: from a day on, or at hours of every day (UTC)."""

    rates: Rates
    tiers: tuple[PriceTier, ...] = ()
    """In ascending order; the last one that applies wins."""
    starts: date | None = None
    hours: tuple[time, time] | None = None
    """From the first (included) to the second (excluded); may run over midnight."""

    def holds_at(self, moment: datetime) -> bool:
        """Whether this price is the one asked for at `moment`."""
        moment = moment.astimezone(UTC)
        if self.starts is not None and moment.date() < self.starts:
            return False
        if self.hours is None:
            return True
        begin, end = self.hours
        now = moment.time()
        return begin <= now < end if begin <= end else now >= begin or now < end

    def rates_for(self, input_tokens: int) -> Rates:
        """Return the rates of a call with that much input."""
        rates = self.rates
        for tier in self.tiers:
            if input_tokens > tier.above:
                rates = tier.rates.over(rates)
        return rates


PriceList: TypeAlias = tuple[Price, ...]
"""All prices of one model; the last one that holds wins, the first if none does."""

PriceLookup: TypeAlias = Callable[[str, str], PriceList | None]
"""Finds the prices of provider and model; None when they are not known."""


def price_at(prices: PriceList, moment: datetime) -> Price | None:
    """Return the price that holds at `moment`."""
    holding = (price for price in reversed(prices) if price.holds_at(moment))
    return next(holding, prices[0] if prices else None)


def cost_of(usage: Usage, rates: Rates) -> Decimal | None:
    """Price one call's tokens; None when tokens were used whose rate is not known.

    Reasoning is a part of the output and cached tokens are parts of the input: every token is
    charged once, at the most particular rate known for it.
    """
    cache_write = rates.cache_write if rates.cache_write is not None else rates.input
    # Parts of a whole: a report in which they exceed it must not be charged twice.
    written_1h = min(usage.cache_write_1h, usage.cache_write)
    reasoning = min(usage.reasoning, usage.output)
    charges = (
        (usage.fresh_input, rates.input),
        (usage.cache_read, rates.cache_read if rates.cache_read is not None else rates.input),
        (usage.cache_write_5m, cache_write),
        (written_1h, rates.cache_write_1h if rates.cache_write_1h is not None else cache_write),
        (usage.visible_output, rates.output),
        (reasoning, rates.reasoning if rates.reasoning is not None else rates.output),
    )
    total = Decimal(0)
    for tokens, rate in charges:
        if tokens <= 0:
            continue
        if rate is None:
            return None
        total = _EXACT.add(total, _EXACT.multiply(Decimal(tokens), rate))
    # The decimal point is moved: a division could be rounded.
    return _EXACT.scaleb(total, _MILLION_DIGITS)


class Pricing:
    """Says what a call costs by the user's own price, or else by the known one.

    Built once, holds nothing of any call but which prices its model has.
    """

    def __init__(self, *, known: PriceLookup, own: Mapping[str, PriceList] | None = None) -> None:
        self._known = known
        self._prices: dict[str, PriceList | None] = dict(own or {})
        """The user's own, and those that were looked up."""

    def cost(self, usage: Usage, *, model: str, at_ms: int) -> Decimal | None:
        """Return the cost of one call to `provider/model` made at `at_ms`, or None if unknown.

        `at_ms` is wall-clock time in milliseconds since 1970, because some prices depend on it.
        """
        prices = self.prices_of(model)
        price = price_at(prices, moment_of(at_ms)) if prices else None
        return None if price is None else cost_of(usage, price.rates_for(usage.input))

    def prices_of(self, model: str) -> PriceList | None:
        """Return the prices of `provider/model`: the user's own before the known ones."""
        if model not in self._prices:
            self._prices[model] = self._known(*split_model(model))
        return self._prices[model]
