"""Limits of a query: whether the next turn is the last one it may have."""

from holdfast.engine.scopes import QueryScope
from holdfast.vocabulary.settings import Limits

WRAP_UP = (
    "This is your last turn: you can use no more tools. Answer now with what you have, and say "
    "briefly what is left undone."
)


def is_last_turn(scope: QueryScope, limits: Limits, *, now: float) -> bool:
    """Whether the query may have one more turn, and no other after it."""
    cost = float(scope.cost) if scope.cost is not None else 0.0
    used: tuple[tuple[float | None, float], ...] = (
        (limits.turns, scope.turns + 1),
        (limits.tokens, scope.usage.total),
        (limits.cost, cost),
        (limits.seconds, now - scope.started_at),
        (limits.tool_calls, scope.tool_calls),
    )
    return any(limit is not None and amount >= limit for limit, amount in used)
