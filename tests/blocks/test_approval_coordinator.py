"""The approval coordinator: an answer finds its question and is used once; nobody waits long."""

from holdfast import Approve, Deny
from holdfast.blocks.approval_coordinator import CANCELLED, ApprovalCoordinator
from holdfast.vocabulary.ids import ApprovalId

ONE, TWO = ApprovalId("apr_1"), ApprovalId("apr_2")


async def test_an_answer_finds_its_question() -> None:
    coordinator = ApprovalCoordinator()
    first, second = coordinator.park(ONE), coordinator.park(TWO)
    assert coordinator.waiting == (ONE, TWO)
    assert coordinator.respond(TWO, Approve())
    assert await second == Approve()
    assert not first.done()
    assert coordinator.respond(ONE, Deny("no"))
    assert await first == Deny("no")
    assert len(coordinator.waiting) == 0


async def test_an_answer_to_nothing_is_ignored() -> None:
    coordinator = ApprovalCoordinator()
    assert not coordinator.respond(ONE, Approve())
    assert not coordinator.park(ONE).done()


async def test_an_answer_is_used_once() -> None:
    coordinator = ApprovalCoordinator()
    parked = coordinator.park(ONE)
    assert coordinator.respond(ONE, Deny("first"))
    assert not coordinator.respond(ONE, Approve())
    assert await parked == Deny("first")


async def test_cancelling_denies_everything_that_waits() -> None:
    coordinator = ApprovalCoordinator()
    parked = [coordinator.park(ONE), coordinator.park(TWO)]
    coordinator.cancel()
    assert [await item for item in parked] == [CANCELLED, CANCELLED]
    assert Deny("cancelled") == CANCELLED
    assert coordinator.cancelled


async def test_a_late_answer_after_cancelling_changes_nothing() -> None:
    coordinator = ApprovalCoordinator()
    parked = coordinator.park(ONE)
    coordinator.cancel()
    assert not coordinator.respond(ONE, Approve())
    assert await parked == CANCELLED


async def test_what_is_asked_after_cancelling_is_denied_at_once() -> None:
    coordinator = ApprovalCoordinator()
    coordinator.cancel()
    assert coordinator.park(ONE).result() == CANCELLED
    assert coordinator.waiting == ()


async def test_a_new_query_may_ask_again() -> None:
    coordinator = ApprovalCoordinator()
    left_over = coordinator.park(ONE)
    coordinator.cancel()
    coordinator.reset()
    assert not coordinator.cancelled
    parked = coordinator.park(TWO)
    assert coordinator.respond(TWO, Approve())
    assert (await left_over, await parked) == (CANCELLED, Approve())


async def test_beginning_a_new_query_lets_nobody_wait_for_the_old_one() -> None:
    coordinator = ApprovalCoordinator()
    left_over = coordinator.park(ONE)
    coordinator.reset()
    assert await left_over == CANCELLED


async def test_a_question_whose_asker_left_takes_no_answer() -> None:
    coordinator = ApprovalCoordinator()
    coordinator.park(ONE).cancel()
    assert not coordinator.respond(ONE, Approve())
