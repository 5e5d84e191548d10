"""ApprovalCoordinator: parks tool calls until somebody decides about them."""

import asyncio

from holdfast.vocabulary.approvals import Decision, Deny
from holdfast.vocabulary.ids import ApprovalId

CANCELLED = Deny(reason="cancelled")


class ApprovalCoordinator:
    """Matches answers to questions by id; each answer is used once.

    Owns who waits. Does not own the question (the dispatcher records it) or the rules that say
    what must be asked.
    """

    def __init__(self) -> None:
        self._waiting: dict[ApprovalId, asyncio.Future[Decision]] = {}
        self.cancelled = False

    @property
    def waiting(self) -> tuple[ApprovalId, ...]:
        """The questions without an answer."""
        return tuple(self._waiting)

    def park(self, approval_id: ApprovalId) -> "asyncio.Future[Decision]":
        """Return the future answer; it is a denial at once when the query was cancelled."""
        future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        if self.cancelled:
            future.set_result(CANCELLED)
        else:
            self._waiting[approval_id] = future
        return future

    def respond(self, approval_id: ApprovalId, decision: Decision) -> bool:
        """Answer a question; False when nobody asks it (any more)."""
        future = self._waiting.pop(approval_id, None)
        if future is None or future.done():
            return False
        future.set_result(decision)
        return True

    def cancel(self) -> None:
        """Deny everything that waits, and everything asked until `reset`."""
        self.cancelled = True
        for approval_id in tuple(self._waiting):
            self.respond(approval_id, CANCELLED)

    def reset(self) -> None:
        """Begin a new query."""
        self.cancel()
        self.cancelled = False
