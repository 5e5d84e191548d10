"""The approval coordinator: the first answer is recorded, then it wakes the call it is for."""

import asyncio
from collections.abc import Sequence

import pytest

from haptera import Approve, Deny
from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.events import Event
from haptera.model.ids import ApprovalId, CallId, EntryId, QueryId
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.operations.operation import CommandId
from haptera.testing import FakeClock

ONE, TWO = ApprovalId("apr_1"), ApprovalId("apr_2")


def _asked(approval_id: ApprovalId) -> ApprovalRequested:
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


class Log:
    """A log that takes its time, with the coordinator that writes to it."""

    def __init__(self) -> None:
        self.asked = {item: _asked(item) for item in (ONE, TWO)}
        self.written: list[tuple[Event, ...]] = []
        self.consumed: list[CommandId] = []
        self.failure: StoreError | None = None
        self.go_on = asyncio.Event()
        self.coordinator = ApprovalCoordinator(
            unanswered=lambda: self.asked, commit=self.commit, clock=FakeClock()
        )

    async def commit(self, events: Sequence[Event], *, consumed: Sequence[CommandId] = ()) -> None:
        """Stage at once, write when the test says so."""
        for event in events:
            assert isinstance(event, ApprovalSettled)
            del self.asked[event.approval_id]
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        self.written.append(tuple(events))
        self.consumed.extend(consumed)
        self.coordinator.wake(events)


async def test_a_call_is_woken_by_its_answer_once_it_is_written() -> None:
    log = Log()
    first, second = log.coordinator.park(ONE), log.coordinator.park(TWO)
    answering = asyncio.ensure_future(
        log.coordinator.settle(TWO, Approve(by="ana"), consumed=[CommandId("cmd_1")])
    )
    await asyncio.sleep(0)  # noqa: TID251 - the answer is staged
    assert (second.done(), log.consumed) == (False, [])
    log.go_on.set()
    assert await answering
    entry = await second
    assert (entry.decision, entry.by, entry.query_id) == ("approved", "ana", "qry_1")
    assert (first.done(), log.consumed) == (False, ["cmd_1"])


async def test_the_first_answer_stands() -> None:
    log = Log()
    log.go_on.set()
    parked = log.coordinator.park(ONE)
    answers = (Deny("first"), Approve(), Deny("third"))
    said = await asyncio.gather(*(log.coordinator.settle(ONE, answer) for answer in answers))
    assert said == [True, False, False]
    entry = await parked
    assert (entry.decision, entry.reason, len(log.written)) == ("denied", "first", 1)


async def test_an_answer_to_nothing_is_refused() -> None:
    log = Log()
    assert not await log.coordinator.settle(ApprovalId("apr_x"), Approve())


async def test_what_has_no_answer_is_cancelled_and_nothing_else() -> None:
    log = Log()
    log.go_on.set()
    await log.coordinator.settle(ONE, Deny("no"))
    (entry,) = log.coordinator.cancellations("the query ended")
    assert (entry.approval_id, entry.decision, entry.reason) == (
        TWO,
        "cancelled",
        "the query ended",
    )


async def test_a_store_that_fails_ends_every_wait() -> None:
    log = Log()
    log.go_on.set()
    parked = [log.coordinator.park(ONE), log.coordinator.park(TWO)]
    log.failure = StoreError(ErrorCode.UNAVAILABLE, "the disk is on fire")
    with pytest.raises(StoreError):
        await log.coordinator.settle(ONE, Approve())
    for future in parked:
        with pytest.raises(StoreError):
            await future


async def test_a_query_that_has_ended_waits_for_nothing() -> None:
    log = Log()
    log.go_on.set()
    parked = log.coordinator.park(ONE)
    log.coordinator.forget()
    assert parked.cancelled()
    assert await log.coordinator.settle(ONE, Approve())
