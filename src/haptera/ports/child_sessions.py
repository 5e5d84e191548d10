"""The ports around sub-agents: the call that a child session works for, and the agent that has it.

A sub-agent is a tool that answers its call with a session of its own, the child session. A module
of its own because the contexts of tools and their surroundings both name these ports.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeVar

from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.events import Event
from haptera.model.ids import ApprovalId, SessionId
from haptera.model.results import AgentResult
from haptera.model.settings import Limits


class ChildCall(Protocol):
    """A tool call as the child session that answers it sees it.

    - `child_id` is the same whenever the same call is run, in any process.
    - `approver` and `put` hand the questions of a child to the session of the call. Each is asked
      once, however often the call is run, and its answer is in that session's log first.
    - When `working` is left, no question of the child is open that its session does not ask.
    """

    @property
    def child_id(self) -> SessionId:
        """The id of the child session of this call."""
        ...

    @property
    def approver(self) -> Callable[[ApprovalRequest], Awaitable[Decision]] | None:
        """Has a question of the child answered in the session of the call; None: it has to rest."""
        ...

    @property
    def unanswered(self) -> Literal["stop", "deny"]:
        """What happens to a question of the child without an approver."""
        ...

    def working(self, *, at_once: int, description: str) -> AbstractAsyncContextManager[None]:
        """Wait until fewer than `at_once` children of the query run, then count as one of them."""
        ...

    def limits(self, own: Limits) -> Limits:
        """Return a child's limits: its own, and no more than what is left of the query's."""
        ...

    async def show(self, events: Sequence[Event]) -> None:
        """Show events of the child to the consumers of the query; waits for the slow ones."""
        ...

    async def put(self, pending: Sequence[ApprovalRequest]) -> Mapping[ApprovalId, Decision]:
        """Put what a resting child waits for to the session of the call, and return the answers.

        The answers are those that are there already, by the id of the question in the child.
        """
        ...

    def count(self, result: AgentResult[Any]) -> None:
        """Count what a query of the child used."""
        ...


GuestT = TypeVar("GuestT")


class ChildHost(Protocol[GuestT]):
    """An agent that has sub-agents.

    - What `adopt` returns works on the store of this agent, for its owner and project, with its
      clock, and is closed with it. The same agent is adopted once.
    """

    @property
    def at_once(self) -> int:
        """How many children of one query may run at the same time."""
        ...

    def adopt(self, guest: GuestT) -> GuestT:
        """Return the blocks of another agent, joined to this one.

        Raises:
            ToolError: TOOL_FAILED when sub-agents may not be nested any deeper.

        """
        ...
