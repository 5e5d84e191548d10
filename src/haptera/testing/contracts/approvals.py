"""The contract of approval coordinators: the first answer stands, and wakes its call once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinatorInterface, Commit
from haptera.model.approvals import Approve, Deny
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.events import Event
from haptera.model.ids import ApprovalId, CallId, EntryId, QueryId
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.operations.operation import CommandId
from haptera.system.clock import Clock
from haptera.testing.clocks import FakeClock
from haptera.testing.contracts.samples import other_tasks, run_contract
from haptera.testing.promises import Report, require, require_same

_ONE, _TWO = ApprovalId("apr_1"), ApprovalId("apr_2")


class MakeCoordinator(Protocol):
    """Makes a coordinator that knows its questions and commits its answers."""

    def __call__(
        self,
        *,
        unanswered: Callable[[], dict[ApprovalId, ApprovalRequested]],
        commit: Commit,
        clock: Clock,
    ) -> ApprovalCoordinatorInterface:
        """Return a new coordinator."""
        ...


class _Log:
    """A log that holds an append back until it is let go, and the coordinator that writes to it."""

    def __init__(self, make: MakeCoordinator) -> None:
        self.asked = {key: _question(key) for key in (_ONE, _TWO)}
        self.written: list[Event] = []
        self.failure: StoreError | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.coordinator = make(
            unanswered=lambda: self.asked, commit=self._commit, clock=FakeClock()
        )

    async def _commit(self, events: Sequence[Event], *, consumed: Sequence[CommandId] = ()) -> None:
        del consumed
        for event in events:
            if isinstance(event, ApprovalSettled):
                self.asked.pop(event.approval_id, None)  # staged before the first wait
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        self.written.extend(events)
        self.coordinator.wake(events)


def _question(approval_id: ApprovalId) -> ApprovalRequested:
    return ApprovalRequested(
        id=EntryId(f"ent_{approval_id}"),
        time=0,
        query_id=QueryId("qry_1"),
        approval_id=approval_id,
        call_id=CallId(f"call_{approval_id}"),
        tool="pay",
        arguments={},
        arguments_hash="",
    )


async def check_an_answer_wakes_its_call(make: MakeCoordinator) -> None:
    """The call gets the settled entry: the decision, changed arguments and who decided."""
    log = _Log(make)
    one, two = log.coordinator.park(_ONE), log.coordinator.park(_TWO)
    require(await log.coordinator.settle(_ONE, Approve({"x": 1}, by="ana")), "it is the first")
    settled = await one
    answer = (settled.decision, settled.arguments, settled.by, settled.call_id)
    require_same(answer, ("approved", {"x": 1}, "ana", "call_apr_1"), "what the call is told")
    require(not two.done(), "no other call goes on")


async def check_a_denial_has_its_reason(make: MakeCoordinator) -> None:
    """The model is told why."""
    log = _Log(make)
    waiting = log.coordinator.park(_ONE)
    await log.coordinator.settle(_ONE, Deny("too expensive"))
    settled = await waiting
    require_same((settled.decision, settled.reason), ("denied", "too expensive"), "a denial")


async def check_the_first_answer_stands(make: MakeCoordinator) -> None:
    """A later answer is refused, also while the first one is still being written."""
    log = _Log(make)
    waiting = log.coordinator.park(_ONE)
    log.open.clear()
    first = asyncio.ensure_future(log.coordinator.settle(_ONE, Deny()))
    await other_tasks()
    second = asyncio.ensure_future(log.coordinator.settle(_ONE, Approve()))
    await other_tasks()
    log.open.set()
    require(not await second, "the second answer is refused")
    require(await first, "the first answer is taken")
    require_same((await waiting).decision, "denied", "the first answer stands")
    require_same(len(log.written), 1, "one answer was written")


async def check_no_call_goes_on_before_its_answer_is_written(make: MakeCoordinator) -> None:
    """Durable before effect."""
    log = _Log(make)
    waiting = log.coordinator.park(_ONE)
    log.open.clear()
    answering = asyncio.ensure_future(log.coordinator.settle(_ONE, Approve()))
    for _ in range(5):
        await other_tasks()
    require(not waiting.done(), "the call waits until the answer is written")
    log.open.set()
    await answering
    require(waiting.done(), "the call goes on when the answer is written")


async def check_an_unknown_question_has_no_answer(make: MakeCoordinator) -> None:
    """Nothing is written for a question that was never asked."""
    log = _Log(make)
    unknown = ApprovalId("apr_9")
    require(not await log.coordinator.settle(unknown, Approve()), "it is refused")
    require_same(log.written, [], "nothing is written")


async def check_a_log_that_fails_ends_every_wait(make: MakeCoordinator) -> None:
    """A call must not wait for an answer that can never come."""
    log = _Log(make)
    waits = [log.coordinator.park(_ONE), log.coordinator.park(_TWO)]
    log.failure = StoreError(ErrorCode.FULL, "the disk is full")
    try:
        await log.coordinator.settle(_ONE, Approve())
    except StoreError as error:
        require_same(error.code, ErrorCode.FULL, "the caller hears of it")
    else:
        require(condition=False, promise="an answer that was not written raises")
    await other_tasks()
    require(all(wait.done() for wait in waits), "nothing waits any more")
    require_same([str(wait.exception()) for wait in waits], [str(log.failure)] * 2, "all end")


async def check_open_questions_can_be_cancelled(make: MakeCoordinator) -> None:
    """There is one entry for each question without an answer, and a call is woken by its own."""
    log = _Log(make)
    waiting = log.coordinator.park(_ONE)
    await log.coordinator.settle(_TWO, Approve())
    entries = log.coordinator.cancellations("the query ended")
    answers = [(entry.approval_id, entry.decision, entry.reason) for entry in entries]
    require_same(answers, [(_ONE, "cancelled", "the query ended")], "what is open is cancelled")
    log.coordinator.wake(entries)
    require_same((await waiting).decision, "cancelled", "the call hears of it")


async def check_forgetting_ends_every_wait(make: MakeCoordinator) -> None:
    """The query that asked has ended; a late answer finds nothing to wake."""
    log = _Log(make)
    waiting = log.coordinator.park(_ONE)
    log.coordinator.forget()
    require(waiting.cancelled(), "nothing waits any more")
    await log.coordinator.settle(_ONE, Approve())
    require_same(len(log.written), 1, "a late answer is written all the same")


async def check_what_was_left_staged_can_be_recorded(make: MakeCoordinator) -> None:
    """A log that fails then ends every wait, and nothing is raised: no caller asked for it."""
    log = _Log(make)
    waiting = log.coordinator.park(_ONE)
    log.failure = StoreError(ErrorCode.UNAVAILABLE, "no disk")
    await log.coordinator.flush()
    require(waiting.done(), "the wait has ended")
    require_same(str(waiting.exception()), str(log.failure), "with what the log said")


async def approval_coordinator_contract(make: MakeCoordinator) -> Report:
    """Check an approval coordinator; `make` is its class, or a function like it."""
    return await run_contract(__name__, lambda: make)
