"""TurnGuards: what is looked at between the turns of a query, and may end it."""

from collections.abc import Sequence

from holdfast.blocks.conversation.tool_calls import CallRecord
from holdfast.engine.file_snapshots import NO_SNAPSHOTS, FileSnapshots
from holdfast.engine.query_scope import QueryScope
from holdfast.ports.runner import QueryOutcome


class TurnGuards:
    """Looks at a query between its turns. Keeps nothing of any query."""

    def __init__(self, *, files: FileSnapshots = NO_SNAPSHOTS) -> None:
        self._files = files

    async def after_tools(
        self, scope: QueryScope, records: Sequence[CallRecord]
    ) -> QueryOutcome | None:
        """Note what the tools of a turn did; returns why the query ends, if it does."""
        await self._files.after_tools(scope)
        return None if records else None


NO_GUARDS = TurnGuards()
