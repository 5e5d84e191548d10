"""SessionSurroundings: what a session has around its conversation, such as its budget."""

from typing import TYPE_CHECKING

from holdfast.vocabulary.budgets import Budgets

if TYPE_CHECKING:
    from holdfast.assembly.composition import Composition
    from holdfast.session.live_session import LiveSession


class SessionSurroundings:
    """What an open session can say of the means it works with."""

    _composition: "Composition"

    async def _live_session(self) -> "LiveSession":
        raise NotImplementedError

    async def remaining_budget(self) -> Budgets:
        """Return the budgets of the agent less what was spent, for what this session starts.

        What an agent of your own does for this session stays within it if it gets these `budgets`.
        """
        session_id = (await self._live_session()).session_id
        return await self._composition.budget.remaining(session_id)
