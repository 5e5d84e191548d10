"""TurnGuards: what is looked at between the turns of a query, and may end it."""

from collections.abc import Sequence

from haptera.kernel.engine.file_snapshots import NO_SNAPSHOTS, FileSnapshots
from haptera.kernel.engine.query_scope import QueryScope
from haptera.model.log.tools import CallRecord
from haptera.model.parts import lines_of
from haptera.model.settings import Limits
from haptera.ports.budgets import BudgetCheck
from haptera.ports.runner import QueryOutcome

_SHOWN = 200
"""Characters of a repeated error that the end of a query shows."""


class TurnGuards:
    """Looks at a query between its turns: budgets, repeated errors, files. Keeps nothing of it."""

    def __init__(
        self, *, files: FileSnapshots = NO_SNAPSHOTS, budget: BudgetCheck | None = None
    ) -> None:
        self._files = files
        self._budget = budget

    async def before_turn(self, scope: QueryScope) -> QueryOutcome | None:
        """Return the end of a query whose budget is used up; None to go on.

        Raises:
            ConfigError: CONFIG_MISSING when a budget cannot be kept, because a price is unknown.

        """
        if self._budget is None:
            return None
        settings = scope.settings
        # A fallback may be asked in the same turn, so its price has to be known as well.
        for model in (settings.model, *(step.model for step in settings.fallbacks)):
            refused = await self._budget.refusal(scope.session.session_id, model)
            if refused is not None:
                return QueryOutcome(stop_reason="limit", stop_detail=refused)
        return None

    async def after_tools(
        self, scope: QueryScope, records: Sequence[CallRecord]
    ) -> QueryOutcome | None:
        """Note what the tools of a turn did; returns why the query ends, if it does."""
        await self._files.after_tools(scope)
        for record in records:
            if record.ended is None:
                continue
            failed = record.ended.outcome in {"error", "timed_out"}
            error = lines_of(record.ended.content) if failed else None
            verdict = scope.errors.end_tool(record.part.name, error)
            if verdict == "insisting":
                told = f"{record.part.name} failed again and again: {(error or '')[:_SHOWN]}"
                return QueryOutcome(stop_reason="loop", stop_detail=told)
            if verdict == "repeated":
                scope.notes.append(
                    f"The tool {record.part.name} has failed with the same error several times in "
                    "a row. Do not call it like that again: do something else, or answer with what "
                    "you have and say what is missing."
                )
        return None


NO_GUARDS = TurnGuards()


def limit_reached(scope: QueryScope, limits: Limits, *, now: float) -> str | None:
    """Return the limit that allows one more turn and no other after it, as `turns=50`."""
    cost = float(scope.cost or 0) + float(scope.children.cost or 0)
    used: dict[str, float] = {
        # Counts the turn that is about to begin.
        "turns": scope.turns + 1,
        "tokens": scope.usage.total + scope.children.usage.total,
        "cost": cost,
        "seconds": now - scope.started_at,
        "tool_calls": scope.tool_calls,
    }
    for name, amount in used.items():
        limit: float | None = getattr(limits, name)
        if limit is not None and amount >= limit:
            return f"{name}={limit:g}"
    return None
