"""What a model call used: inclusive totals with a breakdown that does not overlap."""

from decimal import Decimal

import msgspec

from haptera.model.believed_values import summable_cost


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Tokens of one or more model calls.

    `input` and `output` are inclusive totals. Cached and written tokens are parts of `input`,
    `reasoning` is a part of `output`; the properties give the rest, never below zero.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    """All tokens written to a cache, of any lifetime."""
    cache_write_1h: int = 0
    """Those of `cache_write` with a lifetime of one hour."""
    reasoning: int = 0

    @property
    def total(self) -> int:
        """All tokens in and out, each counted once."""
        return self.input + self.output

    @property
    def fresh_input(self) -> int:
        """Input tokens that came neither from a cache nor were written to one."""
        return max(0, self.input - self.cache_read - self.cache_write)

    @property
    def visible_output(self) -> int:
        """Output tokens that are not reasoning."""
        return max(0, self.output - self.reasoning)

    @property
    def cache_write_5m(self) -> int:
        """Tokens written to the cache with the short lifetime."""
        return max(0, self.cache_write - self.cache_write_1h)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            cache_write_1h=self.cache_write_1h + other.cache_write_1h,
            reasoning=self.reasoning + other.reasoning,
        )


def add_costs(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    """Add two costs; an unknown one makes the sum unknown, never invented."""
    first, second = summable_cost(first), summable_cost(second)
    return None if first is None or second is None else first + second
