"""The port to budgets: whether a model may be called."""

from typing import Protocol

from haptera.model.ids import SessionId


class BudgetCheck(Protocol):
    """Says before each call of a model whether the budgets allow it.

    - What was spent is read from the log, so it is the same for every process that asks.
    - An unknown price is never taken for zero: it is refused, or said.
    """

    async def refusal(self, session_id: SessionId, model: str) -> str | None:
        """Return which budget is used up, as `day_cost=5: 5.02 spent`; None to go on.

        Raises:
            ConfigError: CONFIG_MISSING when a budget in US dollars meets a model without a price.

        """
        ...
