"""Budgets: what sessions may spend is checked before each call, by what the logs say was spent."""

import asyncio
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from haptera import Agent, AgentSession, ErrorCode, tool
from haptera.model.budgets import Budgets
from haptera.model.ids import MessageId, SessionId, new_session_id
from haptera.model.log.entry import Entry
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.turns import TurnEnded
from haptera.model.stream_parts import StreamFinished
from haptera.model.usage import Usage
from haptera.system.clock import Stamp
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import MODEL, failure_of, live_of

PRICES = '[prices."scripted/one"]\ninput = 1000\noutput = 1000\n'
"""A thousandth of a dollar for each token."""
USED = Usage(input=600, output=400)
DAY = 86_400


def answer(text: str = "Hello.") -> Step:
    """Script an answer that costs one dollar and uses 1,000 tokens."""
    return says(text, usage=USED)


def make_agent(
    folder: Path, steps: list[Any], clock: FakeClock | None = None, /, **options: Any
) -> tuple[Agent, ScriptedProvider]:
    (folder / "config.toml").write_text(options.pop("prices", PRICES))
    provider = ScriptedProvider(steps)
    store = options.pop("store", f"sqlite:{folder / 'chat.db'}")
    agent = Agent(
        MODEL,
        providers=[provider],
        environment={},
        config_dir=folder,
        clock=clock or FakeClock(),
        store=store,
        **options,
    )
    return agent, provider


async def stops_of(session: AgentSession, prompts: int) -> list[tuple[str, str | None]]:
    results = [await session.chat("go") for _ in range(prompts)]
    return [(result.stop_reason, result.stop_detail) for result in results]


async def test_a_session_stops_before_the_call_once_its_budget_is_used_up(tmp_path: Path) -> None:
    steps = [answer(), answer()]
    agent, provider = make_agent(tmp_path, steps, budgets={"session_cost": 2})
    async with agent:
        async with agent.session("one") as session:
            assert (await session.remaining_budget()).session_cost == 2
            stopped = ("limit", "session_cost=2: 2 spent")
            assert await stops_of(session, 3) == [("complete", None)] * 2 + [stopped]
            assert (await session.remaining_budget()).session_cost == 0
        provider.check()
        async with agent.session("two") as other:
            assert (await other.remaining_budget()).session_cost == 2


async def test_tokens_are_limited_also_between_the_turns_of_a_query(tmp_path: Path) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    step = list(calls(("look", {})))
    step[-1] = replace(step[-1], usage=USED)
    agent, provider = make_agent(tmp_path, [step], tools=[look], budgets={"session_tokens": 1000})
    async with agent, agent.session() as session:
        assert await stops_of(session, 1) == [("limit", "session_tokens=1000: 1000 used")]
        assert session.messages[0].text == "go"
    provider.check()


async def test_a_day_is_limited_over_sessions_and_processes_and_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    budgets = {"day_cost": 2}
    for name in ("one", "two"):
        agent, _ = make_agent(tmp_path, [answer()], clock, budgets=budgets)
        async with agent, agent.session(name) as session:
            assert await stops_of(session, 1) == [("complete", None)]
    agent, _ = make_agent(tmp_path, [answer()], clock, budgets=budgets)
    async with agent, agent.session("three") as session:
        assert await stops_of(session, 1) == [("limit", "day_cost=2: 2 spent")]
        clock.advance(DAY)
        assert await stops_of(session, 1) == [("complete", None)]
    other, _ = make_agent(tmp_path, [answer()], clock, budgets=budgets, owner="ana")
    async with other, other.session("one") as session:
        assert await stops_of(session, 1) == [("complete", None)]


async def test_the_first_millisecond_of_a_day_belongs_to_it(tmp_path: Path) -> None:
    clock = FakeClock(start_ms=10 * DAY * 1000)
    agent, _ = make_agent(tmp_path, [answer()], clock, budgets={"day_cost": 1})
    async with agent, agent.session("one") as session:
        live = await live_of(session)
        turn = TurnEnded(**Stamp(clock)(), message_id=MessageId("msg"), usage=USED, cost=Decimal(1))
        await live.recorder.commit([turn])
        record = await agent.sessions.get("one")
        assert record.updated == 10 * DAY * 1000, "the last entry is of midnight itself"
        clock.advance(DAY - 1)
        assert await stops_of(session, 1) == [("limit", "day_cost=1: 1 spent")]


async def test_an_owner_is_limited_over_all_days(tmp_path: Path) -> None:
    clock = FakeClock()
    agent, _ = make_agent(tmp_path, [answer(), answer()], clock, budgets={"owner_tokens": 2000})
    async with agent, agent.session("one") as session, agent.session("two") as other:
        assert await stops_of(session, 1) == [("complete", None)]
        clock.advance(3 * DAY)
        assert await stops_of(other, 1) == [("complete", None)]
        assert await stops_of(session, 1) == [("limit", "owner_tokens=2000: 2000 used")]


async def test_what_was_rewound_was_paid_for(tmp_path: Path) -> None:
    agent, _ = make_agent(tmp_path, [answer()], budgets=Budgets(session_cost=1))
    async with agent, agent.session() as session:
        await session.chat("go")
        await session.rewind(to=session.messages[0].id)
        assert await stops_of(session, 1) == [("limit", "session_cost=1: 1 spent")]


async def test_an_unknown_price_is_refused_before_the_call(tmp_path: Path) -> None:
    agent, provider = make_agent(tmp_path, [answer()], prices="", budgets={"day_cost": 1})
    async with agent, agent.session() as session:
        error = await failure_of(session.chat("go"))
        assert error.code is ErrorCode.CONFIG_MISSING
        assert "scripted/one" in error.message
    assert provider.requests == []


async def test_a_model_on_this_machine_has_a_price_which_is_zero() -> None:
    local = ScriptedProvider([answer()], provider="local")
    budgets = Budgets(session_cost=1)
    async with Agent("local/smollm2", providers=[local], environment={}, budgets=budgets) as agent:
        result = await agent.run("go")
    assert (result.stop_reason, result.cost) == ("complete", Decimal(0))


async def test_an_unknown_price_can_be_allowed_and_is_said_to_be_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    budgets = {"day_cost": 1, "session_tokens": 1000, "unknown_price": "allow"}
    agent, _ = make_agent(tmp_path, [answer()], prices="", budgets=budgets)
    with caplog.at_level(logging.WARNING, "haptera"):
        async with agent, agent.session() as session:
            used = ("limit", "session_tokens=1000: 1000 used")
            assert await stops_of(session, 2) == [("complete", None), used]
    said = [record.message for record in caplog.records if "price" in record.message]
    assert said == ["the price of scripted/one is not known; its calls count for no cost budget"]


async def test_a_tokens_budget_needs_no_price(tmp_path: Path) -> None:
    agent, _ = make_agent(tmp_path, [answer()], prices="", budgets={"day_tokens": 5000})
    async with agent, agent.session() as session:
        assert await stops_of(session, 1) == [("complete", None)]
        assert (await session.remaining_budget()).day_tokens == 4000


async def append_child(session: AgentSession, *, cost: str) -> SessionId:
    """Write the log of a session that a tool of this one started, with one turn."""
    live, child = await live_of(session), new_session_id()
    stamp, project = Stamp(FakeClock()), live.fold.opened.project if live.fold.opened else ""
    opened = SessionOpened(**stamp(), session_id=child, project=project, spawned_by=live.session_id)
    turn = TurnEnded(**stamp(), message_id=MessageId("msg"), usage=USED, cost=Decimal(cost))
    entries: list[Entry] = [replace(opened, seq=1), replace(turn, seq=2)]
    lease = await live.store.leases.acquire(child, "a child")
    await live.store.log.append(lease, entries)
    await live.store.leases.release(lease)
    return child


async def test_a_child_spends_the_budget_of_its_parent(tmp_path: Path) -> None:
    agent, _ = make_agent(tmp_path, [answer()], budgets={"session_cost": 3})
    async with agent, agent.session("parent") as session:
        await session.chat("go")
        child_id = await append_child(session, cost="2")
        assert (await session.remaining_budget()).session_cost == 0
        assert await stops_of(session, 1) == [("limit", "session_cost=3: 3 spent")]
        async with agent.session(child_id) as child:
            assert await stops_of(child, 1) == [("limit", "session_cost=3: 3 spent")]


async def test_a_deleted_child_that_is_kept_for_its_fork_was_paid_for(tmp_path: Path) -> None:
    agent, _ = make_agent(tmp_path, [answer(), answer()], budgets={"session_cost": 3})
    async with agent, agent.session("parent") as session:
        await session.chat("go")
        child_id = await append_child(session, cost="2")
        await agent.sessions.fork(child_id)
        await agent.sessions.delete(child_id)
        assert (await session.remaining_budget()).session_cost == 0
        assert await stops_of(session, 1) == [("limit", "session_cost=3: 3 spent")]


async def test_a_sub_agent_works_within_the_budget_of_its_caller(tmp_path: Path) -> None:
    helper = ScriptedProvider([answer("Found."), answer("Found again.")], provider="helper")
    small = Budgets(session_tokens=1)
    child = Agent("helper/one", providers=[helper], environment={}, budgets=small)
    find = child.as_tool(name="find", description="Finds things.")
    steps = [calls(("find", {"prompt": f"thing {number}"})) for number in range(3)]
    budgets = {"session_tokens": 2000}
    agent, provider = make_agent(tmp_path, steps, budgets=budgets, tools=[find])
    async with child, agent, agent.session() as session:
        assert await stops_of(session, 1) == [("limit", "session_tokens=2000: 2030 used")]
        assert (await session.remaining_budget()).session_tokens == 0
    assert (len(helper.requests), len(provider.requests)) == (2, 2)


async def test_sessions_at_the_same_time_see_what_the_others_spent(tmp_path: Path) -> None:
    agent, provider = make_agent(tmp_path, [answer()] * 20, budgets={"owner_cost": 5})
    async with agent:

        async def work(name: str) -> int:
            async with agent.session(name) as session:
                return sum(stop == "complete" for stop, _ in await stops_of(session, 5))

        done = await asyncio.gather(*(work(f"s{number}") for number in range(4)))
    assert 5 <= sum(done) <= 8  # calls that were under way when the budget was used up are counted
    assert len(provider.requests) == sum(done)


async def test_the_summary_of_a_compaction_is_paid_from_the_budget(tmp_path: Path) -> None:
    text = "a word and another, " * 400
    steps = [answer(text), answer(text), answer("# Objective\n- go on"), answer()]
    agent, provider = make_agent(tmp_path, steps, budgets={"session_cost": 3})
    async with agent, agent.session("one") as session:
        await session.chat("go")
        await session.chat("go")
        await session.compact()
        assert (await agent.sessions.stats("one")).cost == Decimal(3)
        assert (await session.chat("go")).stop_reason == "limit"
    assert len(provider.requests) == 3


async def test_what_the_provider_says_a_call_cost_counts_and_not_its_price(tmp_path: Path) -> None:
    *parts, end = says("Hello.", usage=USED)
    assert isinstance(end, StreamFinished)
    agent, _ = make_agent(tmp_path, [answer(), [*parts, replace(end, cost=Decimal("0.25"))]])
    async with agent, agent.session() as session:
        costs = [(await session.chat("go")).cost for _ in range(2)]
    assert costs == [Decimal(1), Decimal("0.25")]


async def test_a_budget_in_dollars_allows_a_model_that_is_named_by_its_file(tmp_path: Path) -> None:
    model = f"local:{tmp_path}/none.gguf"
    async with Agent(model, environment={}, budgets=Budgets(session_cost=1)) as agent:
        session = agent.session()
        error = await failure_of(session.chat("go"))
        assert "there is no file" in error.message
        assert (session.view().provider, session.view().model) == ("local", f"{tmp_path}/none.gguf")
