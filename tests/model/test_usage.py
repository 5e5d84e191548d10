"""Usage adds up: inclusive totals, a breakdown that does not overlap, nothing below zero."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import Usage
from haptera.model.usage import add_costs

COUNT = st.integers(min_value=0, max_value=10**9)
USAGE = st.builds(
    Usage,
    input=COUNT,
    output=COUNT,
    cache_read=COUNT,
    cache_write=COUNT,
    cache_write_1h=COUNT,
    reasoning=COUNT,
)


@given(USAGE)
def test_no_piece_of_the_breakdown_is_below_zero(usage: Usage) -> None:
    assert min(usage.fresh_input, usage.visible_output, usage.cache_write_5m, usage.total) >= 0


@given(COUNT, COUNT, COUNT, COUNT, COUNT)
def test_the_breakdown_adds_up_to_the_totals(
    fresh: int, read: int, written: int, thought: int, said: int
) -> None:
    usage = Usage(
        input=fresh + read + written,
        output=thought + said,
        cache_read=read,
        cache_write=written,
        reasoning=thought,
    )
    assert usage.fresh_input + usage.cache_read + usage.cache_write == usage.input
    assert usage.visible_output + usage.reasoning == usage.output


def test_reasoning_is_part_of_the_output_and_not_counted_twice() -> None:
    usage = Usage(input=10, output=100, reasoning=80)
    assert (usage.total, usage.visible_output) == (110, 20)


def test_the_two_lifetimes_of_written_cache_are_told_apart() -> None:
    usage = Usage(input=500, cache_write=300, cache_write_1h=100)
    assert (usage.cache_write_5m, usage.cache_write_1h) == (200, 100)


@given(USAGE, USAGE, USAGE)
def test_adding_is_associative_and_zero_is_neutral(
    first: Usage, second: Usage, third: Usage
) -> None:
    assert first + second + third == first + (second + third)
    assert first + Usage() == first


@pytest.mark.parametrize(
    ("first", "second", "total"),
    [
        (Decimal("0.1"), Decimal("0.2"), Decimal("0.3")),
        (None, Decimal(1), None),
        (Decimal(1), None, None),
        (None, None, None),
    ],
)
def test_an_unknown_cost_makes_the_sum_unknown(
    first: Decimal | None, second: Decimal | None, total: Decimal | None
) -> None:
    assert add_costs(first, second) == total
