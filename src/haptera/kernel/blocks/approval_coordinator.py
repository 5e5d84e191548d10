"""ApprovalCoordinator: the one place where an approval is settled, by any answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from haptera.model.approvals import Approve, Decision
from haptera.model.errors import AgentError
from haptera.model.events import Event
from haptera.model.ids import ApprovalId
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.operations.operation import CommandId
from haptera.system.clock import Clock, Stamp

NEW_PROMPT = "a new prompt came"
"""Why a question is void that was not answered before the conversation went on."""


class Commit(Protocol):
    """Appends events together with the commands that they carry out."""

    async def __call__(
        self, events: Sequence[Event], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Stage before the first wait; return when it is in the log."""
        ...


class ApprovalCoordinatorInterface(Protocol):
    """Where tool calls wait for answers; a substitute for `ApprovalCoordinator` has these methods.

    - The first answer to a question stands. A later answer, or one to a question that was never
      asked, changes nothing and is reported as False.
    - A call that waits goes on with the settled entry once that is committed, and not before.
    - When a commit fails, everything that waits fails with the same error.
    - After `forget` nothing waits any more.
    """

    def park(self, approval_id: ApprovalId) -> "asyncio.Future[ApprovalSettled]":
        """Return the future answer to a question that is about to be asked."""
        ...

    async def settle(
        self, approval_id: ApprovalId, decision: Decision, *, consumed: Sequence[CommandId] = ()
    ) -> bool:
        """Record an answer; False when it is not the first one, or there is no such question.

        The commands that it came with are `consumed` in the same commit.
        """
        ...

    async def flush(self) -> None:
        """Record what the cancelled caller of `settle` left staged; raises nothing of the store."""
        ...

    def cancellations(self, reason: str) -> list[ApprovalSettled]:
        """Return entries that settle every question without an answer as cancelled."""
        ...

    def wake(self, events: Sequence[Event]) -> None:
        """Let calls go on whose settled entry is among these committed events."""
        ...

    def forget(self) -> None:
        """Cancel every wait."""
        ...


MakeApprovals: TypeAlias = Callable[..., ApprovalCoordinatorInterface]
"""Makes the coordinator of one conversation, of the parameters of `ApprovalCoordinator`."""


class ApprovalCoordinator:
    """Settles approvals: each once, and in the log before any tool call acts on it.

    Owns which tool calls wait for an answer. The first answer that is staged stands, and every
    later one is refused; a call is woken by the settled entry once it is in the log, and by nothing
    else. Does not own the question (the dispatcher records it) or the rules that say what must be
    asked.
    """

    def __init__(
        self,
        *,
        unanswered: Callable[[], Mapping[ApprovalId, ApprovalRequested]],
        commit: Commit,
        clock: Clock,
    ) -> None:
        self._unanswered = unanswered
        self._commit = commit
        self._clock = clock
        self._parked: dict[ApprovalId, asyncio.Future[ApprovalSettled]] = {}

    def park(self, approval_id: ApprovalId) -> "asyncio.Future[ApprovalSettled]":
        """Return the future answer. Call it before the question can be seen."""
        future: asyncio.Future[ApprovalSettled] = asyncio.get_running_loop().create_future()
        self._parked[approval_id] = future
        return future

    async def settle(
        self, approval_id: ApprovalId, decision: Decision, *, consumed: Sequence[CommandId] = ()
    ) -> bool:
        """Record an answer; False when there is one already, or the question was never asked.

        Raises:
            StoreError: the answer could not be recorded, and every call that waits fails with it.

        """
        # No wait between the look-up and staging the answer: the next answer finds this one staged.
        asked = self._unanswered().get(approval_id)
        if asked is None:
            return False
        await self._record([settled(self._stamp_of(asked), asked, decision)], consumed)
        return True

    async def flush(self) -> None:
        """Record what the cancelled caller of `settle` left staged: a call may wait for it."""
        with suppress(AgentError):  # the calls that wait get the error
            await self._record(())

    def cancellations(self, reason: str) -> list[ApprovalSettled]:
        """Return entries that settle what has no answer yet: to be committed in the same step."""
        return [
            ApprovalSettled(
                **self._stamp_of(asked)(),
                approval_id=asked.approval_id,
                call_id=asked.call_id,
                decision="cancelled",
                reason=reason,
            )
            for asked in self._unanswered().values()
        ]

    def wake(self, events: Sequence[Event]) -> None:
        """Let calls go on whose answer is in the log now."""
        # Most appends come while no call waits.
        for event in events if self._parked else ():
            if isinstance(event, ApprovalSettled):
                future = self._parked.pop(event.approval_id, None)
                if future is not None and not future.done():
                    future.set_result(event)

    def forget(self) -> None:
        """Wait for nothing any more: the query that asked has ended."""
        for future in self._parked.values():
            future.cancel()
        self._parked.clear()

    async def _record(self, entries: Sequence[Event], consumed: Sequence[CommandId] = ()) -> None:
        try:
            await self._commit(entries, consumed=consumed)
        except AgentError as error:
            self._fail(error)
            raise

    def _fail(self, error: AgentError) -> None:
        """End every wait: a store that fails takes no answer."""
        for future in self._parked.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # the query may have stopped waiting; then nothing retrieves it
        self._parked.clear()

    def _stamp_of(self, asked: ApprovalRequested) -> Stamp:
        # Those of the question: an answer may come while neither its query nor its turn runs.
        return Stamp(self._clock, query_id=asked.query_id, turn_id=asked.turn_id)


def settled(stamp: Stamp, asked: ApprovalRequested, decision: Decision) -> ApprovalSettled:
    """Say how a question was decided."""
    if isinstance(decision, Approve):
        return ApprovalSettled(
            **stamp(),
            approval_id=asked.approval_id,
            call_id=asked.call_id,
            decision="approved",
            arguments=decision.arguments,
            scope=decision.scope,
            by=decision.by,
            feedback=decision.feedback,
        )
    return ApprovalSettled(
        **stamp(),
        approval_id=asked.approval_id,
        call_id=asked.call_id,
        decision="denied",
        reason=decision.reason,
        by=decision.by,
    )
