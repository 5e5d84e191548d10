"""What a call costs: every token once, exactly, or not at all."""

import decimal
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.kernel.blocks.pricing import (
    Price,
    PriceList,
    PriceTier,
    Pricing,
    Rates,
    cost_of,
    price_at,
)
from haptera.model.usage import Usage

SONNET = Rates(
    input=Decimal(3),
    output=Decimal(15),
    cache_read=Decimal("0.3"),
    cache_write=Decimal("3.75"),
    cache_write_1h=Decimal(6),
)
FREE = (Price(rates=Rates(input=Decimal(0), output=Decimal(0))),)


def prices_known(prices: PriceList | None) -> Pricing:
    return Pricing(known=lambda _provider, _model: prices)


def test_cached_and_written_tokens_are_parts_of_the_input() -> None:
    usage = Usage(input=1_000_000, output=100_000, cache_read=600_000, cache_write=100_000)
    expected = Decimal("0.9") + Decimal("0.18") + Decimal("0.375") + Decimal("1.5")
    assert cost_of(usage, SONNET) == expected


def test_reasoning_is_inside_the_output_and_never_charged_twice() -> None:
    without = Usage(input=1000, output=5000)
    thoughtful = Usage(input=1000, output=5000, reasoning=4000)
    assert cost_of(thoughtful, SONNET) == cost_of(without, SONNET) == Decimal("0.078")


def test_reasoning_has_its_own_rate_where_the_provider_has_one() -> None:
    rates = Rates(input=Decimal(2), output=Decimal(8), reasoning=Decimal(3))
    usage = Usage(output=1_000_000, reasoning=400_000)
    assert cost_of(usage, rates) == Decimal("4.8") + Decimal("1.2")


def test_the_hour_long_cache_has_its_own_rate() -> None:
    usage = Usage(input=300_000, cache_write=300_000, cache_write_1h=200_000)
    assert cost_of(usage, SONNET) == Decimal("0.375") + Decimal("1.2")


def test_cache_counts_that_exceed_the_input_do_not_make_it_negative() -> None:
    usage = Usage(input=100, cache_read=500)
    assert cost_of(usage, SONNET) == Decimal("0.00015")


def test_cached_tokens_without_a_rate_cost_what_input_costs() -> None:
    rates = Rates(input=Decimal(1), output=Decimal(2))
    usage = Usage(input=1_000_000, cache_read=500_000, cache_write=100_000, cache_write_1h=50_000)
    assert cost_of(usage, rates) == Decimal(1)


def test_a_zero_rate_is_a_price_and_not_a_missing_one() -> None:
    rates = Rates(input=Decimal(1), output=Decimal(2), cache_read=Decimal(0))
    assert cost_of(Usage(input=1_000_000, cache_read=1_000_000), rates) == 0


def test_used_tokens_without_a_rate_make_the_cost_unknown() -> None:
    assert cost_of(Usage(input=10, output=1), Rates(input=Decimal(1))) is None
    assert cost_of(Usage(input=10), Rates(input=Decimal(1))) == Decimal("0.00001")


def test_costs_are_exact_where_floats_are_not() -> None:
    assert cost_of(Usage(input=3), Rates(input=Decimal("0.1"))) == Decimal("0.0000003")
    narrow = decimal.Context(prec=3, traps=[decimal.Inexact])
    with decimal.localcontext(narrow):
        cost = cost_of(Usage(input=123_457), Rates(input=Decimal("1.2345")))
    assert cost == Decimal("0.1524076665")


@pytest.mark.parametrize(
    ("tokens", "expected"), [(200_000, "0.6"), (200_001, "1.200006"), (600_000, "5.4")]
)
def test_a_tier_applies_to_the_whole_call_once_its_input_is_larger(
    tokens: int, expected: str
) -> None:
    price = Price(
        rates=SONNET,
        tiers=(
            PriceTier(above=200_000, rates=Rates(input=Decimal(6))),
            PriceTier(above=500_000, rates=Rates(input=Decimal(9))),
        ),
    )
    usage = Usage(input=tokens)
    assert cost_of(usage, price.rates_for(usage.input)) == Decimal(expected)


def test_a_tier_keeps_the_rates_it_does_not_name() -> None:
    tier = PriceTier(above=10, rates=Rates(output=Decimal(30)))
    rates = Price(rates=SONNET, tiers=(tier,)).rates_for(11)
    assert (rates.input, rates.output) == (Decimal(3), Decimal(30))


def test_two_small_calls_do_not_reach_a_tier_together() -> None:
    prices = (
        Price(rates=SONNET, tiers=(PriceTier(above=200_000, rates=Rates(input=Decimal(6))),)),
    )
    call = Usage(input=150_000)
    cost = prices_known(prices).cost(call, model="anthropic/x", at_ms=0)
    assert cost == Decimal("0.45")


def test_a_price_holds_from_its_day_on() -> None:
    old = Price(rates=Rates(input=Decimal(5)))
    new = Price(rates=Rates(input=Decimal(4)), starts=date(2026, 3, 13))
    last_evening = datetime(2026, 3, 12, 23, 59, tzinfo=UTC)
    assert price_at((old, new), last_evening) is old
    assert price_at((old, new), datetime(2026, 3, 13, tzinfo=UTC)) is new


def test_hours_of_a_price_may_run_over_midnight() -> None:
    day = Price(rates=Rates(input=Decimal(2)))
    night = Price(rates=Rates(input=Decimal(1)), hours=(time(22), time(6)))
    chosen = [price_at((day, night), datetime(2026, 1, 1, h, tzinfo=UTC)) for h in (21, 22, 5, 6)]
    assert chosen == [day, night, night, day]


def test_the_first_price_stands_when_none_holds() -> None:
    later = Price(rates=SONNET, starts=date(2030, 1, 1))
    assert price_at((later,), datetime(2026, 1, 1, tzinfo=UTC)) is later


def test_the_users_own_price_wins_over_the_known_one() -> None:
    pricing = Pricing(known=lambda _p, _m: FREE, own={"openrouter/a/b": (Price(rates=SONNET),)})
    assert pricing.cost(Usage(input=1_000_000), model="openrouter/a/b", at_ms=0) == Decimal(3)
    assert pricing.cost(Usage(input=1_000_000), model="openrouter/c", at_ms=0) == 0


def test_an_unknown_model_costs_none_and_not_nothing() -> None:
    assert prices_known(None).cost(Usage(input=5), model="unknown/model", at_ms=0) is None
    assert prices_known(()).cost(Usage(input=5), model="unknown/model", at_ms=0) is None


def test_only_the_first_slash_parts_provider_from_model() -> None:
    asked: list[tuple[str, str]] = []

    def known(provider: str, model: str) -> None:
        asked.append((provider, model))

    Pricing(known=known).cost(Usage(), model="openrouter/google/gemini", at_ms=0)
    assert asked == [("openrouter", "google/gemini")]


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Usages whose parts fit into their totals."""
    input_, output = (draw(st.integers(min_value=0, max_value=10**12)) for _ in range(2))
    cached = draw(st.integers(min_value=0, max_value=input_))
    written = draw(st.integers(min_value=0, max_value=input_ - cached))
    return Usage(
        input=input_,
        output=output,
        cache_read=cached,
        cache_write=written,
        cache_write_1h=draw(st.integers(min_value=0, max_value=written)),
        reasoning=draw(st.integers(min_value=0, max_value=output)),
    )


@given(usages())
def test_every_token_is_charged_exactly_once(usage: Usage) -> None:
    one_dollar_each = Rates(**dict.fromkeys(Rates.__struct_fields__, Decimal(1)))
    assert cost_of(usage, one_dollar_each) == Decimal(usage.total).scaleb(-6)
