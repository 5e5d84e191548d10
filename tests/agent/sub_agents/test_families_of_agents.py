"""What sub-agents may use and cost, how deep they may go, and how the catalogue shows them."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, Limits, ToolContext, Usage, sync, tool
from haptera.access.descriptions import SessionTree
from haptera.model.parts import TextPart
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import make_agent, outcomes_in, tasks_left
from tests.stores.store_factories import DURABLE, store_string

CHEAP = "anthropic/claude-haiku-4-5"
"""A model with a known price; a script answers for it."""


def _agent(steps: Sequence[Step], **options: Any) -> Agent:
    """Return an agent whose model has a price."""
    provider = ScriptedProvider(steps, provider="anthropic")
    return Agent(CHEAP, providers=[provider], environment={}, clock=FakeClock(), **options)


def _spends(count: int, text: str = "done") -> Step:
    return says(text, usage=Usage(input=count, output=count))


def _asks(*names: str) -> Step:
    return calls(*((name, {"prompt": f"for {name}"}) for name in names))


async def test_what_sub_agents_cost_is_counted_once() -> None:
    inner = _agent([_spends(100)]).as_tool(name="inner", description=".")
    outer = _agent([_asks("inner"), _spends(1000)], tools=[inner])
    agent = _agent(
        [_asks("outer"), _spends(10)], tools=[outer.as_tool(name="outer", description=".")]
    )
    async with agent, agent.session() as session:
        result = await session.chat("go")
        own, of_children = Usage(input=20, output=15), Usage(input=1110, output=1105)
        assert (result.usage, result.children_usage) == (own, of_children)
        assert result.total_usage == own + of_children
        assert result.cost
        assert result.children_cost
        assert result.total_cost == result.cost + result.children_cost
        reference = str(session.session_id)
        alone = await agent.sessions.stats(reference)
        assert (alone.usage, alone.cost) == (own, result.cost)
        whole = await agent.sessions.stats(reference, children=True)
        assert (whole.usage, whole.cost) == (result.total_usage, result.total_cost)
        added = [await agent.sessions.stats(each.id) for each in await _everything(agent)]
        assert sum((each.cost or Decimal(0) for each in added), Decimal(0)) == result.total_cost


async def _everything(agent: Agent) -> Sequence[Any]:
    return await agent.sessions.list(children=True)


async def test_a_sub_agent_gets_no_more_than_what_is_left_of_the_querys_limits() -> None:
    thrifty = _agent([calls(("look", {})), _spends(9)], tools=[_look()], limits=Limits(turns=7))
    agent = _agent(
        [_asks("thrifty"), _spends(1)],
        limits=Limits(tokens=50),
        tools=[thrifty.as_tool(name="thrifty", description=".")],
    )
    async with agent, agent.session() as session:
        result = await session.chat("go")
        assert result.stop_reason == "complete"
        (child,) = await agent.sessions.children(str(session.session_id))
        remote = await agent.remote(child.id)
        started = [event async for event in _until_end(remote)][1]
        limits: Any = started
        assert limits.options.settings["limits"]["tokens"] == 35
        assert limits.options.settings["limits"]["turns"] == 7


async def _until_end(remote: Any) -> Any:
    async for event in remote.events():
        yield event
        if event.kind == "query.ended":
            return


def _look() -> Any:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    return look


async def test_what_sub_agents_use_counts_towards_the_limits_of_the_query() -> None:
    greedy = _agent([_spends(100)]).as_tool(name="greedy", description=".")
    provider = ScriptedProvider(
        [_asks("greedy"), _asks("greedy"), _spends(1)], provider="anthropic"
    )
    agent = Agent(
        CHEAP,
        providers=[provider],
        environment={},
        tools=[greedy],
        limits=Limits(tokens=120),
    )
    async with agent, agent.session() as session:
        result = await session.chat("go")
        assert (result.stop_reason, result.stop_detail) == ("limit", "tokens=120")
        assert len(provider.requests) == 2


async def test_a_sub_agent_does_not_begin_when_nothing_is_left_of_a_limit() -> None:
    greedy = _agent([_spends(100)]).as_tool(name="greedy", description=".")
    provider = ScriptedProvider([_asks("greedy", "greedy"), _spends(1)], provider="anthropic")
    agent = Agent(
        CHEAP,
        providers=[provider],
        environment={},
        tools=[greedy],
        limits=Limits(tokens=120),
        parallel_tools=False,
    )
    async with agent, agent.session() as session:
        await session.chat("go")
        first, second = outcomes_in(provider.requests[1])
        assert first == ("greedy", "ok", "done")
        assert second[1] == "error"
        assert "has reached its limit tokens=120" in second[2]
        assert len(await agent.sessions.children(str(session.session_id))) == 1


async def test_sub_agents_are_nested_only_so_deep() -> None:
    told: list[str] = []
    nested: list[Any] = []
    for _ in range(3):
        provider = ScriptedProvider([_asks("deeper"), says("end")] if nested else [says("unasked")])
        agent = Agent("scripted/a", providers=[provider], environment={}, tools=nested)
        nested = [agent.as_tool(name="deeper", description=".")]
        told.append("")
    agent, _ = make_agent(
        [_asks("deeper"), says("end")], tools=nested, runtime={"sub_agent_depth": 2}
    )
    async with agent, agent.session() as session:
        await session.chat("go")
        tree = await agent.sessions.tree(str(session.session_id))
        (first,) = tree.children
        (second,) = first.children
        assert second.children == ()
        messages = await agent.sessions.messages(second.session.id)
        results = [part for each in messages for part in each.message.parts]
        refused = [str(getattr(part, "text", "")) for part in results]
        assert any("nested any deeper" in text for text in refused)
    assert tasks_left() == []


async def test_only_so_many_sub_agents_of_a_query_run_at_once() -> None:
    gates = [Gate(), Gate(), Gate()]
    running: list[int] = []
    most: list[int] = []

    async def begin() -> None:
        running.append(1)
        most.append(len(running))

    async def end() -> None:
        running.pop()

    steps: list[Step] = [[begin, gate, end, *says("done")] for gate in gates]
    worker = Agent("scripted/a", providers=[ScriptedProvider(steps)], environment={})
    agent, _ = make_agent(
        [_asks("work", "work", "work"), says("end")],
        tools=[worker.as_tool(name="work", description=".")],
        runtime={"parallel_sub_agents": 2},
    )
    async with agent, agent.session() as session:
        chatting = asyncio.ensure_future(session.chat("go"))
        for gate in gates:
            await gate.reached.wait()
            gate.open()
        assert (await chatting).text == "end"
    assert max(most) <= 2


async def test_the_catalogue_shows_sub_agents_beneath_their_session() -> None:
    inner = _agent([says("inner")]).as_tool(name="inner", description=".")
    outer = _agent([_asks("inner"), says("outer")], tools=[inner])
    agent = _agent(
        [_asks("outer"), says("end"), says("later")],
        tools=[outer.as_tool(name="outer", description=".")],
    )
    async with agent:
        async with agent.session("main") as session:
            await session.chat("go")
            main = str(session.session_id)
        listed = await agent.sessions.list()
        assert [each.name for each in listed] == ["main"]
        assert len(await agent.sessions.list(children=True)) == 3
        tree = await agent.sessions.tree("main")
        assert _titles(tree) == ("main", [("outer: for outer", [("inner: for inner", [])])])
        (child,) = await agent.sessions.list(spawned_by=main)
        assert (child.spawned_by, child.owner, child.project) == (
            main,
            listed[0].owner,
            listed[0].project,
        )
        assert (await agent.sessions.get(child.id)).phase == "idle"
        await agent.sessions.archive("main")
        assert await agent.sessions.list(children=True) == ()
        await agent.sessions.delete("main")
        assert await agent.sessions.list(children=True, archived=None) == ()


def _titles(tree: SessionTree) -> tuple[str, list[Any]]:
    shown = tree.session.name or tree.session.title
    return shown, [_titles(each) for each in tree.children]


async def test_deleting_a_session_whose_sub_agent_works_stops_and_deletes_both() -> None:
    gate = Gate()
    slow = Agent("scripted/a", providers=[ScriptedProvider([[gate]])], environment={})
    agent, _ = make_agent([_asks("slow")], tools=[slow.as_tool(name="slow", description=".")])
    async with agent:
        session = await agent.session("main").open()
        await session.send("go")
        await gate.reached.wait()
        await agent.sessions.delete("main")
        assert await agent.sessions.list(children=True) == ()


async def test_a_single_call_leaves_nothing_of_its_sub_agents_in_memory() -> None:
    child = Agent("scripted/a", providers=[ScriptedProvider([says("yes")])], environment={})
    agent, _ = make_agent(
        [_asks("child"), says("end")], tools=[child.as_tool(name="child", description=".")]
    )
    async with agent:
        assert (await agent.run("go")).text == "end"
        assert await agent.sessions.list(children=True) == ()


async def test_a_sub_agent_has_the_owner_project_and_deps_of_its_caller() -> None:
    seen: list[Any] = []

    @tool
    def who(context: ToolContext) -> str:
        """Say who asks."""
        seen.append(context.deps)
        return "you"

    child = Agent(
        "scripted/a",
        providers=[ScriptedProvider([calls(("who", {})), says("you")])],
        environment={},
        tools=[who],
        owner="ben",
        store="sqlite:/nowhere/at/all.db",
    )
    agent, _ = make_agent(
        [_asks("child"), says("end")],
        tools=[child.as_tool(name="child", description=".")],
        owner="ana",
        project="shop",
        deps="the agent's",
    )
    async with agent, agent.session() as session:
        await session.chat("go", deps="mine")
        (found,) = await agent.sessions.children(str(session.session_id))
        assert (found.owner, found.project) == ("ana", "shop")
    assert seen == ["mine"]


async def test_the_partial_answer_of_a_limited_sub_agent_says_so() -> None:
    steps: list[Step] = [says("half", finish="length", reason="max_tokens")]
    child = Agent("scripted/a", providers=[ScriptedProvider(steps)], environment={})
    agent, provider = make_agent(
        [_asks("child"), says("end")], tools=[child.as_tool(name="child", description=".")]
    )
    async with agent, agent.session() as session:
        await session.chat("go")
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert (outcome, text) == ("ok", "half\n\n[The answer of the sub-agent was cut off here.]")


def test_sub_agents_work_for_blocking_programs_too() -> None:
    child = sync.Agent("scripted/a", providers=[ScriptedProvider([says("yes")])], environment={})
    provider = ScriptedProvider([_asks("child"), says("end")])
    with sync.Agent(
        "scripted/a",
        providers=[provider],
        environment={},
        tools=[child.as_tool(name="child", description="Answers.")],
    ) as agent:
        with agent.session("main") as session:
            assert session.chat("go").text == "end"
        tree = agent.sessions.tree("main")
        assert len(tree.children) == 1
        assert agent.sessions.stats("main", children=True).queries == 2
    child.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_another_process_can_answer_what_a_sub_agent_asks(kind: str, tmp_path: Path) -> None:
    effects: list[str] = []
    store = store_string(kind, tmp_path)

    @tool(approval="ask")
    def write(text: str) -> str:
        """Write."""
        effects.append(text)
        return "written"

    def family(parent: list[Step], child: list[Step]) -> Agent:
        inner = Agent(
            "scripted/a", providers=[ScriptedProvider(child)], environment={}, tools=[write]
        )
        tools = [inner.as_tool(name="child", description=".")]
        return make_agent(parent, tools=tools, store=store)[0]

    agent = family([_asks("child")], [calls(("write", {"text": "a"}))])
    async with agent, agent.session("main") as session:
        assert (await session.chat("go")).stop_reason == "approval"
    async with family([], []) as other:
        remote = await other.remote("main")
        (pending,) = await remote.pending()
        await remote.approve(pending.id)
    agent = family([says("end")], [says("wrote it")])
    async with agent, agent.session("main") as session:
        result = await session.resume()
        assert result.text == "end"
        contents = [
            part.text
            for message in result.messages
            for result_part in message.parts
            for part in getattr(result_part, "content", ())
            if isinstance(part, TextPart)
        ]
        assert contents == ["wrote it"]
    assert effects == ["a"]


async def test_an_imported_session_of_a_sub_agent_stands_by_itself(tmp_path: Path) -> None:
    child = Agent("scripted/a", providers=[ScriptedProvider([says("yes")])], environment={})
    agent, _ = make_agent(
        [_asks("child"), says("end")], tools=[child.as_tool(name="child", description=".")]
    )
    file = tmp_path / "child.haptera"
    async with agent:
        async with agent.session("main") as session:
            await session.chat("go")
        (found,) = (await agent.sessions.tree("main")).children
        await agent.sessions.export_to(file, found.session.id)
        await agent.sessions.delete("main")
        await agent.sessions.import_from(file)
        (alone,) = await agent.sessions.list()
        assert alone.spawned_by is None
