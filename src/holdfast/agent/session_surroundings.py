"""SessionSurroundings: what a session has around its conversation: context files and its budget.

A module of its own because the face of a session is at the limit of its size.
"""

from typing import TYPE_CHECKING

from holdfast.vocabulary.budgets import Budgets
from holdfast.vocabulary.context_files import ContextFile, Skill
from holdfast.vocabulary.tools import ToolSpec

if TYPE_CHECKING:
    from holdfast.assembly.composition import Composition
    from holdfast.session.live_session import LiveSession


class SessionSurroundings:
    """What an open session can say of the means it works with."""

    _composition: "Composition"
    _live: "LiveSession | None"

    async def _live_session(self) -> "LiveSession":
        raise NotImplementedError

    def _opened(self) -> "LiveSession":
        raise NotImplementedError

    @property
    def taken_over(self) -> bool:
        """Whether another process has taken the session: nothing more can be written here.

        It is known of sessions in a PostgreSQL store, and False until the session is open.
        """
        return self._live is not None and self._live.taken_over

    @property
    def is_native(self) -> bool:
        """Whether its model is run by an agent that keeps a session of its own."""
        return self._composition.clients.is_native(self._opened().fold.settings.model)

    @property
    def context_files(self) -> tuple[ContextFile, ...]:
        """The instruction files that the model is told, as the last query found them."""
        context = self._opened().fold.context
        return () if context is None else context.files

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills that the model can load, as the last query found them."""
        context = self._opened().fold.context
        return () if context is None else context.skills

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that its queries offer to the model."""
        live = self._opened()
        allowed, denied = live.fold.settings.allowed_tools, live.fold.settings.denied_tools
        return tuple(live.registry.current().view(allowed, denied).wire_tools)

    async def remaining_budget(self) -> Budgets:
        """Return the budgets of the agent less what was spent, for what this session starts.

        What an agent of your own does for this session stays within it if it gets these `budgets`.
        """
        session_id = (await self._live_session()).session_id
        return await self._composition.budget.remaining(session_id)
