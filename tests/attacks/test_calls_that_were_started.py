"""Tool calls under attack: whatever is rewound or forked, one that was started runs once."""

from collections.abc import Sequence
from typing import Any

import pytest

from haptera import AgentSession, ErrorCode, tool
from haptera.model.ids import SessionId
from haptera.model.log.approvals import ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.model.log.turns import TurnEnded
from haptera.model.messages import Message
from haptera.model.parts import ToolResultPart
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, calls, says
from tests.scripted_agents import failure_of, live_of, make_agent, outcomes_in

CALL = ("pay", {"amount": 5})
ASKING = calls(CALL, ids=("call_1",), text="I pay.")


class Till:
    """A tool named `pay`, and how often it was used."""

    def __init__(self, **rules: Any) -> None:
        self.paid = 0
        self.tool = tool(name="pay", **rules)(self._pay)

    async def _pay(self, amount: int) -> str:
        """Pay."""
        self.paid += 1
        return f"paid {amount}"


async def killed(till: Till, last: type[Entry], *, turn: int = 0) -> tuple[MemoryStore, SessionId]:
    """Return what a process leaves behind that was killed after an entry of this kind."""
    store = MemoryStore()
    steps = [*([ASKING] * (turn + 1)), says("done")]
    agent, _ = make_agent(steps, tools=[till.tool], store=store)
    async with agent, agent.session() as session:
        result = await session.chat("pay")
        if result.pending:
            await session.approve(result.pending[0].id)
            await session.resume()
        entries = await store.log.read((await live_of(session)).session_id)
    cut = [place for place, entry in enumerate(entries) if isinstance(entry, last)][turn] + 1
    till.paid = sum(isinstance(entry, ToolStarted) for entry in entries[:cut])
    return await stored(entries[:cut])


async def stored(entries: Sequence[Entry]) -> tuple[MemoryStore, SessionId]:
    """Put a log into a store of its own."""
    store = MemoryStore()
    session_id: SessionId = entries[0].session_id  # type: ignore[attr-defined]
    lease = await store.leases.acquire(session_id, "gone")
    await store.log.append(lease, entries)
    await store.leases.release(lease)
    return store, session_id


def fates(session: AgentSession) -> list[str]:
    return [call.fate for call in session.unfinished.calls]


def told(messages: Sequence[Message]) -> list[str]:
    """Return how the calls of a conversation ended, as far as a model is told."""
    parts = [part for message in messages for part in message.parts]
    return [part.outcome for part in parts if isinstance(part, ToolResultPart)]


async def carried_on(session: AgentSession, provider: ScriptedProvider) -> list[str]:
    """Resume, and return what the model is told then."""
    await session.resume()
    return [outcome for _, outcome, _ in outcomes_in(provider.requests[-1])]


@pytest.mark.parametrize("place", [-1, -2], ids=["to the results", "to the answer"])
async def test_a_call_that_was_running_stays_unknown_after_a_rewind(place: int) -> None:
    till = Till()
    store, name = await killed(till, ToolStarted)
    agent, provider = make_agent([says("I see")], tools=[till.tool], store=store)
    async with agent, agent.session(name, must_exist=True) as session:
        assert fates(session) == ["unknown"]
        await session.rewind(to=session.messages[place].id)
        assert fates(session) == ["unknown"]
        assert await carried_on(session, provider) == ["unknown"]
    assert till.paid == 1


async def test_no_number_of_rewinds_and_undos_makes_a_call_new() -> None:
    till = Till()
    store, name = await killed(till, ToolStarted)
    agent, provider = make_agent([says("I see")], tools=[till.tool], store=store)
    async with agent, agent.session(name, must_exist=True) as session:
        prompt, answer, results = (message.id for message in session.messages)
        for to in (results, answer, prompt, answer, results):
            await session.rewind(to=to)
            assert told(session.messages) == ([] if to == prompt else ["unknown"])
        for before in (["unknown"], [], ["unknown"], ["unknown"], ["unknown"]):
            await session.undo_rewind()
            assert told(session.messages) == before
        assert await carried_on(session, provider) == ["unknown"]
    assert till.paid == 1


@pytest.mark.parametrize("place", [-1, -2, None], ids=["results", "answer", "end"])
@pytest.mark.parametrize("last", [ToolStarted, ToolEnded])
async def test_a_fork_knows_what_became_of_the_calls_it_keeps(
    last: type[Entry], place: int | None
) -> None:
    till = Till()
    store, name = await killed(till, last)
    agent, provider = make_agent([says("I see")], tools=[till.tool], store=store)
    expected = ["unknown" if last is ToolStarted else "ok"]
    async with agent, agent.session(name, must_exist=True) as trunk:
        after = None if place is None else trunk.messages[place].id
        async with await trunk.fork(after=after) as branch:
            assert told(branch.messages) == expected
            async with await branch.fork(after=branch.messages[1].id) as twig:
                assert told(twig.messages) == expected
                await twig.rewind(to=twig.messages[1].id)
                await twig.chat("and?")
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[-1])] == expected
    assert till.paid == 1


async def test_what_a_parent_does_after_the_fork_does_not_change_the_branch() -> None:
    till = Till()
    store, name = await killed(till, TurnEnded)
    agent, _ = make_agent([says("done")], tools=[till.tool], store=store)
    async with agent, agent.session(name, must_exist=True) as trunk:
        branch = await trunk.fork(after=trunk.messages[1].id)
        branch_id = (await live_of(branch)).session_id
        before = branch.messages
        await branch.close()
        await trunk.resume()
        assert (till.paid, told(trunk.messages)) == (1, ["ok"])
        async with agent.session(branch_id, must_exist=True) as again:
            assert (again.messages, told(again.messages)) == (before, ["interrupted"])


async def test_a_call_that_ended_keeps_its_result_and_is_not_run_again() -> None:
    till = Till()
    store, name = await killed(till, ToolEnded)
    agent, provider = make_agent([says("I see")], tools=[till.tool], store=store)
    async with agent, agent.session(name, must_exist=True) as session:
        await session.rewind(to=session.messages[1].id)
        assert fates(session) == ["done"]
        await session.resume()
    assert outcomes_in(provider.requests[-1]) == [("pay", "ok", "paid 5")]
    assert till.paid == 1


async def test_a_run_after_a_rewind_is_known_where_the_rewind_is_taken_back() -> None:
    till = Till()
    store, name = await killed(till, TurnEnded)
    agent, provider = make_agent(
        [says("never mind"), says("paid"), says("I see")], tools=[till.tool], store=store
    )
    async with agent, agent.session(name, must_exist=True) as session:
        answer = session.messages[1].id
        await session.chat("do not pay yet")
        assert told(session.messages) == ["interrupted"]
        await session.rewind(to=answer)
        await session.resume()
        await session.undo_rewind()
        await session.chat("was it paid?")
    assert outcomes_in(provider.requests[-1]) == [("pay", "ok", "paid 5")]
    assert till.paid == 1


async def test_calls_of_two_answers_with_one_id_have_each_their_own_fate() -> None:
    till = Till()
    store, name = await killed(till, TurnEnded, turn=1)
    agent, provider = make_agent([says("done"), says("I see")], tools=[till.tool], store=store)
    async with agent, agent.session(name, must_exist=True) as session:
        first, second = session.messages[1].id, session.messages[3].id
        await session.rewind(to=second)
        assert fates(session) == ["not_started"]
        assert await carried_on(session, provider) == ["ok", "ok"]
        assert till.paid == 2
        await session.rewind(to=second)
        assert fates(session) == ["done"]
        await session.rewind(to=first)
        assert fates(session) == ["done"]
        assert await carried_on(session, provider) == ["ok"]
    assert till.paid == 2


async def test_a_call_that_was_denied_is_not_asked_about_again() -> None:
    till = Till(approval="ask")
    agent, provider = make_agent([ASKING, says("well")], tools=[till.tool])
    async with agent, agent.session() as session:
        result = await session.chat("pay")
        await session.deny(result.pending[0].id, "too much")
        await session.rewind(to=session.messages[1].id)
        await session.resume()
    assert outcomes_in(provider.requests[-1]) == [("pay", "denied", "too much")]
    assert till.paid == 0


@pytest.mark.parametrize("undone", [False, True])
async def test_an_approval_that_was_not_used_before_a_rewind_is_asked_for_again(
    undone: bool,
) -> None:
    till = Till(approval="ask")
    agent, provider = make_agent([ASKING, says("done")], tools=[till.tool])
    async with agent, agent.session() as session:
        asked = (await session.chat("pay")).pending[0].id
        await session.approve(asked)
        await session.rewind(to=session.messages[1].id)
        if undone:
            await session.undo_rewind()
        result = await session.resume()
        assert (result.stop_reason, till.paid) == ("approval", 0)
        assert (await failure_of(session.approve(asked))).code is ErrorCode.NOT_FOUND
        await session.approve(result.pending[0].id)
        assert await carried_on(session, provider) == ["ok"]
    assert till.paid == 1


async def test_a_used_approval_does_not_come_back() -> None:
    till = Till(approval="ask")
    store, name = await killed(till, ToolStarted)
    agent, provider = make_agent([says("I see")], tools=[till.tool], store=store)
    async with agent, agent.session(name, must_exist=True) as session:
        entries = await store.log.read(name)
        used = next(item.approval_id for item in entries if isinstance(item, ApprovalSettled))
        await session.rewind(to=session.messages[0].id)
        await session.undo_rewind()
        assert session.unfinished.approvals == ()
        assert (await failure_of(session.approve(used))).code is ErrorCode.NOT_FOUND
        assert await carried_on(session, provider) == ["unknown"]
    assert till.paid == 1


async def test_an_idempotent_call_may_run_again_after_a_rewind() -> None:
    till = Till(idempotent=True)
    store, name = await killed(till, ToolStarted)
    agent, provider = make_agent([says("done")], tools=[till.tool], store=store)
    async with agent, agent.session(name, must_exist=True) as session:
        await session.rewind(to=session.messages[-1].id)
        assert await carried_on(session, provider) == ["ok"]
    assert till.paid == 2


async def test_a_call_that_was_started_and_approved_again_is_not_said_to_be_new() -> None:
    till = Till(idempotent=True, approval="ask")
    store, name = await killed(till, ToolStarted)
    agent, provider = make_agent([says("I see")], tools=[till.tool], store=store)
    async with agent, agent.session(name, must_exist=True) as session:
        await session.approve((await session.resume()).pending[0].id)
        await session.chat("stop")
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[-1])] == ["unknown"]
    assert till.paid == 1


async def test_a_restored_conversation_keeps_what_became_of_its_calls() -> None:
    till = Till()
    store, name = await killed(till, ToolStarted)
    agent, provider = make_agent([says("I see")], tools=[till.tool], store=store)
    async with agent, agent.session(name, must_exist=True) as session:
        state = await session.export()
        async with agent.session(restore=state) as restored:
            await restored.rewind(to=restored.messages[1].id)
            assert told(restored.messages) == ["unknown"]
            async with await restored.fork(after=restored.messages[1].id) as branch:
                await branch.chat("and?")
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[-1])] == ["unknown"]
    assert till.paid == 1
