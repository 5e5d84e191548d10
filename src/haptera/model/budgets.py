"""Budgets and watchdogs: what sessions may spend, and when a query that gets nowhere is ended."""

from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

import msgspec

from haptera.model.option import Option

UnknownPrice: TypeAlias = Literal["refuse", "allow"]


class Budgets(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What may be spent; None means no limit. Checked before each call of a model."""

    session_cost: Annotated[
        float | None,
        Option(
            "US dollars that one session may cost, with the sessions that its tools started.",
            least=0,
            variable="MAX_SESSION_COST",
        ),
    ] = None
    session_tokens: Annotated[
        int | None, Option("Tokens that such a session may use.", least=0)
    ] = None
    day_cost: Annotated[
        float | None,
        Option(
            "US dollars that all sessions of the owner may cost on one day (UTC).",
            least=0,
            variable="MAX_DAY_COST",
        ),
    ] = None
    day_tokens: Annotated[int | None, Option("Tokens that they may use on one day.", least=0)] = (
        None
    )
    owner_cost: Annotated[
        float | None,
        Option(
            "US dollars that all sessions of the owner may cost in all.",
            least=0,
            variable="MAX_OWNER_COST",
        ),
    ] = None
    owner_tokens: Annotated[int | None, Option("Tokens that they may use in all.", least=0)] = None
    unknown_price: Annotated[
        UnknownPrice,
        Option(
            "With a budget in US dollars, a model without a known price is refused "
            "(`refuse`), or called without being counted, with a warning (`allow`)."
        ),
    ] = "refuse"

    @property
    def has_costs(self) -> bool:
        """Whether any of them is in US dollars."""
        return any(cost is not None for cost in (self.session_cost, self.day_cost, self.owner_cost))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return self == Budgets(unknown_price=self.unknown_price)


class Watchdogs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a query that gets nowhere is ended; None means never."""

    repeated_errors: Annotated[
        int | None,
        Option(
            "How often in a row a tool may fail with the same error, whatever its arguments: "
            "then the model is told to do something else, and the next one ends the query with "
            "the stop reason `loop`. In so many turns in a row may a model call fail with the same "
            "error; then it is not repeated any more.",
            least=2,
        ),
    ] = 5
    idle_seconds: Annotated[
        float | None,
        Option(
            "Seconds without any progress (nothing recorded, no progress of a tool, no approval "
            "that waits) after which a query ends with the stop reason `limit`.",
            least=0.001,
            variable="IDLE_TIMEOUT",
        ),
    ] = None


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What calls of models came to, by the log."""

    cost: Decimal = Decimal(0)
    """In US dollars, of the calls whose price is known."""
    tokens: int = 0
    unpriced: int = 0
    """How many calls used tokens at a price that is not known."""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            cost=self.cost + other.cost,
            tokens=self.tokens + other.tokens,
            unpriced=self.unpriced + other.unpriced,
        )
