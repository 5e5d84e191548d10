"""Answers and commands that meet: each takes effect once, and none is lost."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentSession, ApprovalRequest, Approve, ErrorCode, tool
from haptera.hooks import Hooks, Proceed
from haptera.model.approvals import Decision
from haptera.model.errors import StoreError
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued, QueryEnded
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Lease
from haptera.stores.memory import MemoryLog, MemoryStore
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, says
from tests.attacks.moments import others_run, until
from tests.attacks.slow_store import HeldStore
from tests.kernel.session.failing_store import FailingStore
from tests.scripted_agents import failure_of, live_of
from tests.stores.store_factories import open_store

RAN: list[str] = []
ASKS = calls(("pay", {}))


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool(approval="ask")
async def pay() -> str:
    """Pay."""
    RAN.append("pay")
    return "paid"


def _agent(steps: list[Any], store: Any, **options: Any) -> Agent:
    provider = ScriptedProvider(steps)
    options = {"tools": [pay], "clock": FakeClock(), **options}
    return Agent("scripted/m", providers=[provider], store=store, environment={}, **options)


async def _never(_request: ApprovalRequest) -> Decision:
    await asyncio.Event().wait()
    raise AssertionError


async def _entries(session: AgentSession) -> list[Entry]:
    live = await live_of(session)
    return await live.store.log.read(live.session_id)


async def _settled(session: AgentSession) -> list[str]:
    entries = await _entries(session)
    return [entry.decision for entry in entries if isinstance(entry, ApprovalSettled)]


async def _asked(session: AgentSession) -> str:
    """Wait until a question is in the log."""
    await until(lambda: session.unfinished.approvals)
    return session.unfinished.approvals[0].id


class NotingLog(MemoryLog):
    """Notes what came with every command that was consumed."""

    def __init__(self, sessions: Any) -> None:
        super().__init__(sessions)
        self.consuming: list[list[str]] = []

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append, and note."""
        await super().append(lease, entries, consumed=consumed)
        if consumed:
            self.consuming.append([entry.kind for entry in entries])


# Commands.


async def test_every_command_is_consumed_by_the_append_that_holds_its_effect() -> None:
    store = MemoryStore()
    store.log = log = NotingLog(store._sessions)
    async with (
        _agent([ASKS, ASKS, says("b"), says("c")], store) as agent,
        agent.session("s") as session,
    ):
        remote = await agent.remote("s")
        first = (await session.chat("go")).pending[0].id
        await remote.send("and this")
        await until(lambda: session.unfinished.approvals and len(log.consuming) == 1)
        second = await _asked(session)
        assert second != first
        await session.wait_idle()
        await remote.deny(second)
        await remote.approve(second)
        await until(lambda: len(log.consuming) == 3)
        await remote.abort()
        await until(lambda: len(log.consuming) == 4)
        assert (await session.resume()).text == "b"
        await remote.send("last")
        await until(lambda: len(log.consuming) == 5)
        await session.wait_idle()
    assert log.consuming == [
        ["approval.settled", "input.queued"],
        ["approval.settled"],
        [],
        [],
        ["input.queued"],
    ]


async def test_an_abort_of_a_query_that_has_ended_stops_no_other() -> None:
    gate, store = Gate(), MemoryStore()
    store.log = log = NotingLog(store._sessions)
    steps = [says("one"), [gate, *says("two")], says("three")]
    async with _agent(steps, store) as agent, agent.session("s") as session:
        remote = await agent.remote("s")
        stale = await remote.send("first")
        await until(lambda: not session.unfinished and len(session.messages) == 2)
        asking = asyncio.ensure_future(session.chat("second"))
        await gate.reached.wait()
        await remote.abort(query_id=stale)
        await until(lambda: len(log.consuming) == 2)
        gate.open()
        assert (await asking).text == "two"


async def test_a_message_that_is_sent_eight_times_at_once_is_taken_in_once(tmp_path: Path) -> None:
    # A store of a file: others run while the log is read.
    store = open_store("sqlite", tmp_path)
    async with _agent([says("one")], store) as agent, agent.session("s") as session:
        remote = await agent.remote("s")
        senders = [remote.send, session.send] * 4
        sent = await asyncio.gather(*(send("hello", message_id="msg_x") for send in senders))
        assert len(set(sent)) == 1
        await session.wait_idle()
        await until(lambda: not session.unfinished)
        assert [message.text for message in session.messages] == ["hello", "one"]
        entries = await _entries(session)
        assert sum(entry.kind == "input.queued" for entry in entries) == 1
    await store.close()


def test_a_session_hears_commands_in_each_event_loop_that_uses_it() -> None:
    agent = Agent(
        "scripted/m",
        providers=[ScriptedProvider([says("a"), says("b"), says("c")])],
        environment={},
    )
    session = agent.session("s")

    async def first() -> None:
        assert (await session.chat("one")).text == "a"

    async def second() -> None:
        assert (await session.chat("two")).text == "b"
        remote = await agent.remote("s")
        await remote.send("three")
        await until(lambda: len(session.messages) == 6)
        await agent.close()

    asyncio.run(first())
    asyncio.run(second())


async def test_a_prompt_sent_while_the_holder_closes_is_for_the_next_holder() -> None:
    store, gate = MemoryStore(), Gate()
    async with _agent([[gate, *says("one")], says("two")], store) as agent:
        session = await agent.session("s").__aenter__()
        asking = asyncio.ensure_future(session.chat("first"))
        await gate.reached.wait()
        closing = asyncio.ensure_future(session.close())
        await others_run()  # the session is closed from here on, and waits for its query
        remote = await agent.remote("s")
        await remote.send("second")
        for _ in range(20):
            await others_run()  # the holder sees the command
        gate.open()
        await asyncio.gather(asking, closing)
        async with agent.session("s") as again:
            assert (await again.resume()).text == "two"
            assert [item.text for item in again.messages] == ["first", "one", "second", "two"]


async def test_a_prompt_that_is_being_written_when_the_holder_closes_is_kept() -> None:
    store = HeldStore()
    async with _agent([says("one"), says("two")], store) as agent:
        session = await agent.session("s").__aenter__()
        await session.chat("first")
        store.log.hold = lambda entries: any(isinstance(item, InputQueued) for item in entries)
        await (await agent.remote("s")).send("second")
        await store.log.held.wait()
        closing = asyncio.ensure_future(session.close())
        await others_run()
        store.log.hold = lambda _entries: False
        store.log.go_on.set()
        await closing
        async with agent.session("s") as again:
            await again.wait_idle()
            left = [item.message.text for item in again.unfinished.inputs]
            said = [message.text for message in again.messages]
            assert (left + said).count("second") == 1


async def test_a_prompt_whose_append_fails_is_tried_again() -> None:
    store = FailingStore()
    clock = FakeClock()
    async with (
        _agent([says("one"), says("two")], store, clock=clock) as agent,
        agent.session("s") as session,
    ):
        await session.chat("first")
        store.log.fail_at = len(store.log.appends) + 1
        await (await agent.remote("s")).send("second")
        await store.log.has_failed.wait()
        while session.messages[-1].text != "two":
            clock.advance(1)
            await others_run()
        assert [item.text for item in session.messages] == ["first", "one", "second", "two"]


# Answers.


async def _storm(session: AgentSession, approval: str, answers: Sequence[str]) -> list[str]:
    """Give several answers at once and say what came of each."""

    async def answer(how: str) -> str:
        try:
            await getattr(session, how)(approval)
        except AgentError as error:
            return str(error.code)
        return how

    return await asyncio.gather(*map(answer, answers))


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("first", ["approve", "deny"])
async def test_of_many_answers_at_once_the_first_stands(live: bool, first: str) -> None:
    approver = _never if live else None
    async with (
        _agent([ASKS, says("ok")], HeldStore(), approver=approver) as agent,
        agent.session() as session,
    ):
        asking = asyncio.ensure_future(session.chat("go"))
        approval = await _asked(session)
        if not live:
            await session.wait_idle()
        said = await _storm(session, approval, [first, "deny", "approve", "deny"])
        assert said == [first, *[ErrorCode.NOT_FOUND] * 3]
        result = await asking
        if not live:
            result = await session.resume()
        assert result.text == "ok"
        assert await _settled(session) == ["approved" if first == "approve" else "denied"]
    assert (["pay"] if first == "approve" else []) == RAN


async def test_an_answer_is_in_the_log_before_approve_returns_and_before_the_tool_starts() -> None:
    store = HeldStore()
    async with (
        _agent([ASKS, says("ok")], store, approver=_never) as agent,
        agent.session() as session,
    ):
        asking = asyncio.ensure_future(session.chat("go"))
        approval = await _asked(session)
        store.log.hold = lambda entries: any(isinstance(i, ApprovalSettled) for i in entries)
        answering = asyncio.ensure_future(session.approve(approval))
        await store.log.held.wait()
        for _ in range(20):
            await others_run()
        assert (answering.done(), RAN) == (False, [])
        store.log.go_on.set()
        await answering
        assert await _settled(session) == ["approved"]
        await asking


async def test_an_answer_and_the_approver_do_not_both_count() -> None:
    store, gate = HeldStore(), Gate()

    async def approver(_request: ApprovalRequest) -> Decision:
        await gate.wait()
        return Approve()

    async with (
        _agent([ASKS, says("ok")], store, approver=approver) as agent,
        agent.session() as session,
    ):
        asking = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        store.log.hold = lambda entries: any(isinstance(i, ApprovalSettled) for i in entries)
        denying = asyncio.ensure_future(session.deny(await _asked(session)))
        await store.log.held.wait()
        gate.open()
        for _ in range(20):
            await others_run()  # the approver says yes, too late
        store.log.go_on.set()
        await denying
        await asking
        assert (await _settled(session), RAN) == (["denied"], [])


async def test_an_answer_before_the_question_is_asked_again_is_not_asked_twice() -> None:
    """A handler may answer as soon as the question is in the log."""
    async with (
        _agent([ASKS, says("ok")], HeldStore(), approver=_never) as agent,
        agent.session() as session,
    ):

        async def answer(event: ApprovalRequested) -> None:
            await session.approve(event.approval_id)

        session.on(ApprovalRequested, answer)
        assert (await session.chat("go")).text == "ok"
        assert (await _settled(session), RAN) == (["approved"], ["pay"])


@pytest.mark.parametrize(("first", "ran"), [("approve", 1), ("deny", 0)])
async def test_an_answer_while_other_calls_are_prepared_is_acted_on_and_not_asked_for_again(
    first: str, ran: int
) -> None:
    """The query that rests is resumed, and a hook thinks about the second call meanwhile."""
    gate, seen = Gate(), 0

    async def hook(_call: object) -> Proceed:
        nonlocal seen
        seen += 1
        if seen == 4:  # the second call, for the second time
            await gate.wait()
        return Proceed()

    steps = [calls(("pay", {}), ("pay", {})), says("ok")]
    async with (
        _agent(steps, MemoryStore(), hooks=Hooks(before_tool=hook)) as agent,
        agent.session() as session,
    ):
        one, two = (await session.chat("go")).pending
        resuming = asyncio.ensure_future(session.resume().result())
        await gate.reached.wait()
        await getattr(session, first)(one.id)
        gate.open()
        assert [request.id for request in (await resuming).pending] == [two.id]
        assert len(RAN) == ran
        assert (await failure_of(session.approve(one.id))).code is ErrorCode.NOT_FOUND


async def test_an_abort_and_an_answer_settle_an_approval_once() -> None:
    store = HeldStore()
    async with _agent([ASKS], store, approver=_never) as agent, agent.session() as session:
        asking = asyncio.ensure_future(session.chat("go"))
        approval = await _asked(session)
        store.log.hold = lambda entries: any(isinstance(i, ApprovalSettled) for i in entries)
        answering = asyncio.ensure_future(session.approve(approval))
        await store.log.held.wait()
        session.abort()
        for _ in range(20):
            await others_run()
        store.log.go_on.set()
        await answering
        assert (await failure_of(asking)).code is ErrorCode.ABORTED
        assert (await _settled(session), RAN) == (["approved"], [])


async def test_an_answer_while_the_end_is_written_is_too_late() -> None:
    store = HeldStore()
    async with _agent([ASKS], store, approver=_never) as agent, agent.session() as session:
        asking = asyncio.ensure_future(session.chat("go"))
        approval = await _asked(session)
        store.log.hold = lambda entries: any(isinstance(i, QueryEnded) for i in entries)
        session.abort()
        await store.log.held.wait()
        late = asyncio.ensure_future(session.approve(approval))
        await others_run()
        store.log.go_on.set()
        assert (await failure_of(late)).code is ErrorCode.NOT_FOUND
        await failure_of(asking)
        assert await _settled(session) == ["cancelled"]


async def test_two_prompts_at_once_cancel_an_approval_once() -> None:
    async with (
        _agent([ASKS, says("a"), says("b")], HeldStore()) as agent,
        agent.session() as session,
    ):
        await session.chat("go")
        both = await asyncio.gather(session.chat("1"), session.chat("2"))
        assert [result.text for result in both] == ["a", "b"]
        assert await _settled(session) == ["cancelled"]


async def test_a_caller_that_is_cancelled_while_its_answer_is_written_holds_up_nothing() -> None:
    store = HeldStore()
    async with (
        _agent([ASKS, says("ok")], store, approver=_never) as agent,
        agent.session() as session,
    ):
        asking = asyncio.ensure_future(session.chat("go"))
        approval = await _asked(session)
        store.log.hold = lambda entries: any(isinstance(i, ApprovalSettled) for i in entries)
        answering = asyncio.ensure_future(session.approve(approval))
        await store.log.held.wait()
        store.log.hold = lambda _entries: False
        answering.cancel()
        await asyncio.wait({answering})
        assert (await failure_of(session.deny(approval))).code is ErrorCode.NOT_FOUND
        assert (await asking).text == "ok"
        assert (await _settled(session), RAN) == (["approved"], ["pay"])


@pytest.mark.parametrize("stored", [True, False])
async def test_an_answer_that_cannot_be_written_ends_the_query_and_leaves_one_answer(
    stored: bool,
) -> None:
    store = FailingStore()
    async with (
        _agent([ASKS, says("ok")], store, approver=_never) as agent,
        agent.session() as session,
    ):
        asking = asyncio.ensure_future(session.chat("go"))
        approval = await _asked(session)
        store.log.stores_before_failing = stored
        store.log.fail_at = len(store.log.appends) + 1
        assert isinstance(await failure_of(session.approve(approval)), StoreError)
        assert isinstance(await failure_of(asking), StoreError)
        if stored:
            assert (await failure_of(session.deny(approval))).code is ErrorCode.NOT_FOUND
        else:
            await session.approve(approval)
        assert (await session.resume()).text == "ok"
        assert (await _settled(session), RAN) == (["approved"], ["pay"])
