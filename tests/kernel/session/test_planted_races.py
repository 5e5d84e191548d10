"""Bugs that are planted on purpose: a few hundred schedules of the race model find each of them."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator
from haptera.kernel.session import opening
from haptera.kernel.session.command_effects import CommandOrigin, HeldSession, rewind
from haptera.kernel.session.inbox import SessionCommands
from haptera.kernel.session.live_session import LiveSession
from haptera.kernel.session.prompt_queue import PromptQueue
from haptera.kernel.session.recorder import SessionRecorder
from haptera.kernel.session.session import QueryHandle
from haptera.model.errors import AgentError
from haptera.model.file_snapshots import RewindReport
from haptera.model.log.approvals import ApprovalSettled
from haptera.model.log.tools import CallRecord, ToolEnded, ToolStarted
from haptera.model.operations.operation import HANDLERS, CommandId
from haptera.model.operations.session import Command, RewindSession
from haptera.stores import lease_rules
from tests.kernel.session import pausing_store
from tests.kernel.session.test_races import play_on_seeded_loop

Report = Callable[[str], None]

# A planted bug may leave a task that cannot be ended; it is destroyed here, not in another test.
_LEFT = "ignore::pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings(_LEFT)]

_SEEDS = 500


@pytest.fixture(autouse=True)
def _destroy_what_is_left() -> Iterator[None]:
    yield
    gc.collect()


def _find(bug: str, theme: str, report: Report) -> None:
    """Play races about a theme until one finds the bug that is planted now."""
    for seed in range(_SEEDS):
        try:
            play_on_seeded_loop(seed, theme)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - whatever it is, it shows
            how = type(error).__name__
            report(f"races: the planted bug ({bug}) is found by seed {seed}: {how}")
            return
    pytest.fail(f"{_SEEDS} schedules did not find the planted bug")


def test_an_end_that_leaves_approvals_open_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    monkeypatch.setattr(ApprovalCoordinator, "cancellations", lambda self, reason: [])
    _find("approvals left open", "answers", report)


def test_a_cancelled_opening_that_keeps_its_lease_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    async def keep(giving_back: Coroutine[Any, Any, None]) -> None:
        giving_back.close()

    monkeypatch.setattr(opening, "_to_its_end", keep)
    _find("a lease that is kept", "prompts", report)


def test_a_closing_that_aborts_is_found(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    monkeypatch.setattr(QueryHandle, "suspend", QueryHandle.abort)
    _find("a closing that aborts", "troubles", report)


def test_a_late_lease_that_is_not_given_back_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    async def hold(asked: Any, give_back: Any) -> Any:
        del give_back
        return await asyncio.wrap_future(asked)

    monkeypatch.setattr(pausing_store, "lease_of_thread", hold)
    _find("a lease that is granted to no holder", "troubles", report)


def test_a_store_that_is_waited_for_without_a_bound_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    monkeypatch.setattr(lease_rules, "GIVING_BACK_SECONDS", None)
    monkeypatch.setattr(pausing_store, "GIVING_BACK_SECONDS", None)
    _find("a wait without a bound", "troubles", report)


def test_a_closing_that_ends_with_its_caller_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    async def unshielded(self: LiveSession, *, force: bool = False, abort: bool = False) -> None:
        self.closed = True
        if self.queue.current is not None and (force or abort):
            self.queue.current.suspend("the session was closed")
        if self._closing is None:
            self.queue.close(self._closed_error)
            self._closing = asyncio.ensure_future(self._close())
        await self._closing

    monkeypatch.setattr(LiveSession, "close", unshielded)
    _find("a closing that ends with its caller", "troubles", report)


def test_a_message_that_is_taken_in_as_often_as_it_comes_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    begin = HeldSession.__init__

    def without_lock(self: HeldSession, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self.one_admits = nullcontext()  # type: ignore[assignment]

    monkeypatch.setattr(HeldSession, "__init__", without_lock)
    _find("a message that is taken in twice", "troubles", report)


def test_an_approval_that_takes_a_second_answer_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    """Only what is in the log counts as an answer, not what is on its way there."""
    monkeypatch.setattr(SessionRecorder, "unanswered", lambda self: dict(self.fold.approvals))
    _find("a second answer", "answers", report)


def test_a_holder_that_consumes_the_commands_it_refuses_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    async def take(self: SessionCommands, command: Command, *, opening: bool) -> None:
        try:
            await self._carry_out(command, CommandOrigin((command.id,), opening))
        except AgentError as error:
            await self._refuse(command, error)

    monkeypatch.setattr(SessionCommands, "_take", take)
    _find("a command that is refused and consumed", "prompts", report)


def test_a_command_that_is_consumed_before_its_effect_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    admit = PromptQueue.admit

    async def consume_first(
        self: PromptQueue,
        query: Any,
        delivery: Any,
        *,
        consumed: Sequence[CommandId] = (),
        starts: bool = True,
    ) -> None:
        await self._recorder.commit((), consumed=consumed)
        await admit(self, query, delivery, starts=starts)

    monkeypatch.setattr(PromptQueue, "admit", consume_first)
    _find("a command that is consumed before its effect", "prompts", report)


def test_a_rewind_whose_end_is_recorded_before_it_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    async def end_first(
        held: HeldSession, order: RewindSession, asked: CommandOrigin
    ) -> RewindReport:
        await held.live.recorder.commit(held.ended(asked.consumed), consumed=asked.consumed)
        return await rewind(held, order)

    handlers: dict[Any, Any] = HANDLERS
    monkeypatch.setitem(handlers, RewindSession, end_first)
    _find("a rewind whose end is recorded before it", "commands", report)


def test_fates_of_calls_that_count_on_their_path_only_are_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    for kind in (ToolStarted, ToolEnded, ApprovalSettled):
        monkeypatch.setattr(kind, "is_fate", False)
    _find("fates by path", "branches", report)


def test_permissions_that_outlive_a_rewind_are_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    monkeypatch.setattr(CallRecord, "withdraw_approval", lambda self: None)
    _find("permissions that outlive a rewind", "branches", report)


def test_a_prompt_that_joined_a_query_and_still_waits_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    monkeypatch.setattr(PromptQueue, "_queued", lambda self: list(self._waiting))
    _find("a prompt that leaves the queue twice", "prompts", report)


def test_an_opening_that_ignores_what_is_named_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    monkeypatch.setattr(opening, "_changes_at_opening", lambda fold, request: {})
    _find("settings that are not honoured", "openings", report)


def test_a_change_that_says_the_wrong_origin_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    change = LiveSession.change

    async def mistaken(
        self: LiveSession, changes: Any, *, origin: Any = "configure", **more: Any
    ) -> None:
        del origin
        await change(self, changes, **more)

    monkeypatch.setattr(LiveSession, "change", mistaken)
    _find("a change of an unknown origin", "openings", report)
