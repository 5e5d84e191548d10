"""TurnGuards: what is looked at between the turns of a query, and may end it."""

from collections.abc import Sequence

from haptera.kernel.calls.file_snapshots import NO_SNAPSHOTS, FileSnapshots
from haptera.kernel.query.query import Query
from haptera.kernel.turns.spending import SpendingCheck
from haptera.model.log.tools import CallRecord
from haptera.model.parts import lines_of
from haptera.ports.runner import QueryOutcome

_SHOWN = 200
"""Characters of a repeated error that the end of a query shows."""


class TurnGuards:
    """Looks at a query between its turns: budgets, repeated errors, files. Keeps nothing of it."""

    def __init__(
        self, *, files: FileSnapshots = NO_SNAPSHOTS, budget: SpendingCheck | None = None
    ) -> None:
        self._files = files
        self._budget = budget
        self.has_budget = budget is not None

    async def before_turn(self, query: Query) -> QueryOutcome | None:
        """Return the end of a query whose budget is used up; None to go on.

        Raises:
            ConfigError: CONFIG_MISSING when a budget cannot be kept, because a price is unknown.

        """
        if self._budget is None:
            return None
        settings = query.settings
        # A fallback may be asked in the same turn, so its price has to be known as well.
        for model in (settings.model, *(step.model for step in settings.fallbacks)):
            refused = await self._budget.refusal(query.session.session_id, model)
            if refused is not None:
                return QueryOutcome(stop_reason="limit", stop_detail=refused)
        return None

    async def after_tools(self, query: Query, records: Sequence[CallRecord]) -> QueryOutcome | None:
        """Note what the tools of a turn did; returns why the query ends, if it does."""
        await self._files.after_tools(query)
        for record in records:
            if record.ended is None:
                continue
            failed = record.ended.outcome in {"error", "timed_out"}
            error = lines_of(record.ended.content) if failed else None
            verdict = query.checks.errors.end_tool(record.part.name, error)
            if verdict == "insisting":
                told = f"{record.part.name} failed again and again: {(error or '')[:_SHOWN]}"
                return QueryOutcome(stop_reason="loop", stop_detail=told)
            if verdict == "repeated":
                query.checks.notes.append(
                    f"The tool {record.part.name} has failed with the same error several times in "
                    "a row. Do not call it like that again: do something else, or answer with what "
                    "you have and say what is missing."
                )
        return None


NO_GUARDS = TurnGuards()
