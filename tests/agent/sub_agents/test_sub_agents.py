"""Sub-agents: an agent that answers the calls of another one, each in a session of its own."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import haptera.sync
from haptera import (
    Agent,
    AgentSession,
    ApprovalRequest,
    Approve,
    ConfigError,
    Event,
    QueryEnded,
    TextDelta,
    ToolEnded,
    tool,
)
from haptera.hooks import AfterQuery, BeforeQuery, BeforeTool, HookMessage, Hooks, Proceed
from haptera.model.entry_bytes import encode_event
from haptera.model.errors import ErrorCode, ProviderError, SessionError
from haptera.model.events import SubagentChanged, SubagentEvent
from haptera.stores.memory import MemoryStore
from haptera.testing import Gate, ScriptedProvider, calls, says
from haptera.testing.clocks import one_turn
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import (
    HeldWork,
    events_of,
    failure_of,
    make_agent,
    outcomes_in,
    tasks_left,
)


class Family:
    """A parent whose sub-agents play scripts of their own, by the name of their tools."""

    def __init__(self, parent: list[Step], **children: list[Step]) -> None:
        self.effects: list[str] = []
        self.providers = {name: ScriptedProvider(steps) for name, steps in children.items()}
        self._parent = parent

    def child(self, name: str, **options: Any) -> Agent:
        """Make the agent behind a tool."""

        @tool(approval="ask")
        def write(text: str) -> str:
            """Write a text down."""
            self.effects.append(text)
            return f"wrote {text}"

        options = {"model": "scripted/child", "environment": {}, "tools": [write], **options}
        return Agent(providers=[self.providers[name]], **options)

    def agent(self, child: dict[str, Any] | None = None, **options: Any) -> Agent:
        """Make the parent."""
        tools = [
            self.child(name, **(child or {})).as_tool(name=name, description=f"Does {name}.")
            for name in self.providers
        ]
        agent, self.parent = make_agent(self._parent, tools=tools, **options)
        return agent

    def check(self) -> None:
        """Check that every script was played to its end, and nothing runs any more."""
        for provider in (self.parent, *self.providers.values()):
            provider.check()
        assert tasks_left() == []


async def test_a_call_of_a_sub_agent_is_answered_by_its_own_session() -> None:
    family = Family(
        [calls(("research", {"prompt": "find it"})), says("It is 42.")],
        research=[says("I found ", "42.")],
    )
    async with family.agent() as agent, agent.session("main") as session:
        result = await session.chat("what is it?")
        assert result.text == "It is 42."
        assert outcomes_in(family.parent.requests[1]) == [("research", "ok", "I found 42.")]
        asked = family.providers["research"].requests[0]
        assert [message.text for message in asked.messages] == ["find it"]
    family.check()


BOTH = calls(
    ("careful", {"prompt": "write a"}),
    ("broken", {"prompt": "break"}),
    ids=["call_1", "call_2"],
)
REFUSED = ProviderError(ErrorCode.BAD_REQUEST, "no such thing", provider="scripted")


def _two_children() -> Family:
    """Return a parent that calls two sub-agents at once: one asks, one fails."""
    return Family(
        [BOTH, says("One of two.")],
        careful=[calls(("write", {"text": "a"}), ids=["call_1"]), says("written")],
        broken=[REFUSED],
    )


_ONE_OF_TWO = [
    ("careful", "ok", "written"),
    (
        "broken",
        "error",
        "SubAgentError: BAD_REQUEST: no such thing",
    ),
]


async def test_of_two_sub_agents_at_once_one_asks_the_approver_and_one_fails() -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Approve:
        asked.append(request)
        return Approve(by="ana")

    family = _two_children()
    async with family.agent(approver=approve) as agent, agent.session() as session:
        result = await session.chat("go")
        assert result.text == "One of two."
        assert outcomes_in(family.parent.requests[1]) == _ONE_OF_TWO
        (request,) = asked
        assert (request.tool, request.arguments) == ("write", {"text": "a"})
        assert request.session_id == session.session_id
        assert request.child is not None
        assert request.child.call_id == "call_1"
        children = await agent.sessions.children(str(session.session_id))
        assert request.child.session_id in {each.id for each in children}
    assert family.effects == ["a"]
    family.check()


async def test_a_query_rests_on_what_its_sub_agent_asks_and_goes_on_with_the_answer() -> None:
    family = _two_children()
    async with family.agent() as agent, agent.session() as session:
        result = await session.chat("go")
        assert result.stop_reason == "approval"
        (request,) = result.pending
        assert (request.tool, request.arguments) == ("write", {"text": "a"})
        assert [call.fate for call in session.unfinished.calls] == ["unknown", "done"]
        assert family.effects == []
        await session.approve(request.id, by="ana")
        result = await session.resume()
        assert (result.text, result.pending) == ("One of two.", ())
        assert outcomes_in(family.parent.requests[1]) == _ONE_OF_TWO
    assert family.effects == ["a"]
    family.check()


async def test_a_denial_reaches_the_sub_agent() -> None:
    family = Family(
        [calls(("careful", {"prompt": "write a"})), says("fine")],
        careful=[calls(("write", {"text": "a"})), says("not written")],
    )
    async with family.agent() as agent, agent.session() as session:
        (request,) = (await session.chat("go")).pending
        await session.deny(request.id, "not today")
        await session.resume()
        assert outcomes_in(family.parent.requests[1]) == [("careful", "ok", "not written")]
        told = outcomes_in(family.providers["careful"].requests[1])
        assert told == [("write", "denied", "not today")]
    assert family.effects == []
    family.check()


async def test_resuming_without_an_answer_rests_again_and_asks_no_model() -> None:
    family = Family(
        [calls(("careful", {"prompt": "write a"})), says("done")],
        careful=[calls(("write", {"text": "a"})), says("written")],
    )
    async with family.agent() as agent, agent.session() as session:
        (first,) = (await session.chat("go")).pending
        (again,) = (await session.resume()).pending
        assert again.id == first.id
        assert len(family.providers["careful"].requests) == 1
        await session.approve(first.id)
        assert (await session.resume()).text == "done"
    assert family.effects == ["a"]
    family.check()


async def test_what_a_program_denies_unanswered_a_sub_agent_is_denied_too() -> None:
    family = Family(
        [calls(("careful", {"prompt": "write a"})), says("done")],
        careful=[calls(("write", {"text": "a"})), says("I may not")],
    )
    async with family.agent(unanswered="deny") as agent, agent.session() as session:
        result = await session.chat("go")
        assert (result.text, result.pending) == ("done", ())
    assert family.effects == []
    family.check()


async def test_a_sub_agent_that_needs_an_approval_is_asked_about_once() -> None:
    family = Family(
        [calls(("careful", {"prompt": "write a"})), says("done")],
        careful=[calls(("write", {"text": "a"})), says("written")],
    )
    careful = family.child("careful").as_tool(name="careful", description=".", approval="ask")
    agent, parent = make_agent(family._parent, tools=[careful])
    family.parent = parent
    async with agent, agent.session() as session:
        (own,) = (await session.chat("go")).pending
        assert (own.tool, own.child) == ("careful", None)
        await session.approve(own.id)
        (inner,) = (await session.resume()).pending
        assert inner.tool == "write"
        await session.approve(inner.id)
        assert (await session.resume()).text == "done"
    assert family.effects == ["a"]
    family.check()


async def test_an_imported_session_runs_no_sub_agent_that_waited(tmp_path: Path) -> None:
    family = Family(
        [calls(("careful", {"prompt": "write a"}))],
        careful=[calls(("write", {"text": "a"}))],
    )
    careful = family.child("careful").as_tool(name="careful", description=".", approval="ask")
    agent, family.parent = make_agent(family._parent, tools=[careful])
    async with agent:
        async with agent.session("main") as session:
            (own,) = (await session.chat("go")).pending
            await session.approve(own.id)
            (inner,) = (await session.resume()).pending
            assert inner.tool == "write"
        await agent.sessions.export_to(tmp_path / "main", "main")
        await agent.sessions.import_from(tmp_path / "main", name="copy")
        async with agent.session("copy") as session:
            assert session.unfinished.query_id is None
            with pytest.raises(SessionError) as raised:
                await session.resume()
            assert raised.value.code is ErrorCode.NOTHING_TO_SEND
    assert len(family.providers["careful"].requests) == 1
    assert family.effects == []


async def test_an_answer_in_the_sub_agents_own_session_counts_too() -> None:
    family = Family(
        [calls(("careful", {"prompt": "write a"})), says("done")],
        careful=[calls(("write", {"text": "a"})), says("written")],
    )
    async with family.agent() as agent, agent.session() as session:
        (request,) = (await session.chat("go")).pending
        assert request.child is not None
        remote = await agent.remote(request.child.session_id)
        await remote.approve(request.child.approval_id)
        result = await session.resume()
        assert (result.text, result.pending) == ("done", ())
        assert session.unfinished.approvals == ()
    assert family.effects == ["a"]
    family.check()


async def test_a_new_prompt_makes_what_a_sub_agent_asks_void() -> None:
    family = Family(
        [calls(("careful", {"prompt": "write a"})), says("something else")],
        careful=[calls(("write", {"text": "a"}))],
    )
    async with family.agent() as agent, agent.session() as session:
        (request,) = (await session.chat("go")).pending
        assert (await session.chat("never mind")).text == "something else"
        ((_, outcome, text),) = outcomes_in(family.parent.requests[1])
        assert (outcome, "went on without one" in text) == ("cancelled", True)
        error = await failure_of(session.approve(request.id))
        assert error.code is ErrorCode.NOT_FOUND
    assert family.effects == []
    family.check()


async def _phases(agent: Agent, reference: str) -> list[str]:
    """Return the phases of a session and of all that its sub-agents made."""
    found, todo = [], [await agent.sessions.tree(reference)]
    while todo:
        tree = todo.pop()
        found.append(str(tree.session.phase))
        todo += tree.children
    return found


async def test_a_sub_agent_that_rests_ends_when_its_caller_goes_on_without_it() -> None:
    inner = ScriptedProvider([calls(("ask", {"prompt": "write a"}))])
    family = Family([], careful=[calls(("write", {"text": "a"}))])
    careful = family.child("careful").as_tool(name="ask", description="Writes.")
    middle = Agent("scripted/middle", providers=[inner], tools=[careful], environment={})
    script: list[Step] = [calls(("middle", {"prompt": "write a"})), says("something else")]
    tools = [middle.as_tool(name="middle", description="Delegates.")]
    store = MemoryStore()
    agent, _ = make_agent(script, tools=tools, store=store)
    async with agent, agent.session("main") as session:
        (request,) = (await session.chat("go")).pending
        assert await _phases(agent, "main") == ["waiting"] * 3
        assert (await session.chat("never mind")).text == "something else"
        assert await _phases(agent, "main") == ["idle"] * 3
        assert request.child is not None
        entries = await store.log.read(request.child.session_id)
        ends = [entry.stop_reason for entry in entries if isinstance(entry, QueryEnded)]
        assert ends == ["approval", "aborted"]
    assert family.effects == []


async def test_a_sub_agent_that_rests_ends_when_its_caller_is_aborted() -> None:
    gate = Gate()
    family = Family(
        [calls(("careful", {"prompt": "write a"}), ("slow", {"prompt": "wait"}))],
        careful=[calls(("write", {"text": "a"}))],
        slow=[[*says("half of")[:3], gate]],
    )
    async with family.agent() as agent, agent.session("main") as session:
        chatting = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        while not session.unfinished.approvals:
            await one_turn()
        session.abort()
        assert (await failure_of(chatting)).code is ErrorCode.ABORTED
        assert await _phases(agent, "main") == ["idle"] * 3
    assert family.effects == []
    family.check()


async def test_aborting_the_parent_aborts_and_closes_its_sub_agents() -> None:
    gate = Gate()
    family = Family(
        [calls(("slow", {"prompt": "take your time"}))],
        slow=[[*says("half of")[:3], gate]],
    )
    async with family.agent() as agent, agent.session() as session:
        chatting = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        session.abort("enough")
        error = await failure_of(chatting)
        assert error.code is ErrorCode.ABORTED
        (child,) = await agent.sessions.children(str(session.session_id))
        async with agent.session(child.id) as closed:  # nothing holds it any more
            assert closed.unfinished.query_id is None
            assert closed.messages[-1].text == "half of"
    assert family.providers["slow"].open_streams == 0
    family.check()


async def test_aborting_the_parent_cancels_the_tool_of_a_sub_agent() -> None:
    held = HeldWork()
    family = Family([calls(("busy", {"prompt": "work"}))], busy=[calls(("work", {}))])
    async with family.agent({"tools": [held.tool]}) as agent, agent.session() as session:
        chatting = asyncio.ensure_future(session.chat("go"))
        await held.started.wait()
        session.abort()
        error = await failure_of(chatting)
        assert error.code is ErrorCode.ABORTED
        (child,) = await agent.sessions.children(str(session.session_id))
        for reference in (child.id, str(session.session_id)):
            entries = [event async for event in _log_of(agent, reference)]
            (ended,) = [entry for entry in entries if isinstance(entry, ToolEnded)]
            assert ended.outcome == "cancelled"
    family.check()


def _noting(who: str, noted: list[str]) -> Hooks:
    def ask(given: BeforeTool) -> Proceed:
        given.say(f"{who} asks about {given.call.name}")
        noted.append(f"{who}: {given.call.name}")
        return Proceed()

    def begin(_given: BeforeQuery) -> Proceed:
        noted.append(f"{who} begins")
        return Proceed()

    def end(given: AfterQuery) -> None:
        noted.append(f"{who} ends: {given.ended.stop_reason}")

    return Hooks(before_query=begin, before_tool=ask, after_query=end)


async def test_a_sub_agent_has_its_own_hooks_and_its_call_those_of_the_caller() -> None:
    noted: list[str] = []
    family = Family(
        [calls(("careful", {"prompt": "write a"})), says("done")],
        careful=[calls(("write", {"text": "a"})), says("written")],
    )
    own = {"hooks": _noting("child", noted)}
    agent = family.agent(own, hooks=_noting("parent", noted), approver=lambda _: Approve())
    async with agent, agent.session() as session:
        events = [event async for event in session.stream("go")]
    assert noted == [
        "parent begins",
        "parent: careful",
        "child begins",
        "child: write",
        "child ends: complete",
        "parent ends: complete",
    ]
    said = [event.text for event in events if isinstance(event, HookMessage)]
    inner = [event.event for event in events if isinstance(event, SubagentEvent)]
    assert said == ["parent asks about careful"]
    assert [event.text for event in inner if isinstance(event, HookMessage)] == [
        "child asks about write"
    ]
    family.check()


async def test_a_hook_of_a_sub_agent_that_fails_is_a_failed_call_of_the_caller() -> None:
    def fail(_given: BeforeQuery) -> Proceed:
        raise ValueError("broken")

    family = Family([calls(("careful", {"prompt": "write a"})), says("well")], careful=[])
    async with family.agent({"hooks": Hooks(before_query=fail)}) as agent:
        result = await agent.run("go")
    assert result.text == "well"
    ((_, outcome, text),) = outcomes_in(family.parent.requests[1])
    assert (outcome, "HOOK_FAILED" in text) == ("error", True)
    family.check()


async def test_handlers_and_observers_see_the_events_of_a_sub_agent_too() -> None:
    family = Family([calls(("research", {"prompt": "find it"})), says("ok")], research=[says("42")])
    handled: list[SubagentEvent] = []
    observed: list[Event] = []
    async with family.agent() as agent, agent.session() as session:
        session.on(SubagentEvent, handled.append)
        observing = asyncio.ensure_future(_observe(session, observed))
        await session.chat("go")
        await observing
    assert [event for event in observed if isinstance(event, SubagentEvent)] == handled
    lines = [msgspec.json.decode(encode_event(event)) for event in handled]
    assert {line["kind"] for line in lines} == {"subagent.event"}
    assert [line["event"]["kind"] for line in lines] == [event.event.kind for event in handled]
    family.check()


async def _observe(session: AgentSession, seen: list[Event]) -> None:
    async with aclosing(session.events()) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, QueryEnded):
                return


async def test_the_parents_stream_shows_the_events_of_a_sub_agent_with_its_call() -> None:
    family = Family(
        [calls(("research", {"prompt": "find it"}), ids=["call_9"]), says("ok")],
        research=[says("I found ", "42.")],
    )
    async with family.agent() as agent, agent.session() as session:
        events: list[Event] = await events_of(session)
        (child,) = await agent.sessions.children(str(session.session_id))
        inner = [each for each in events if isinstance(each, SubagentEvent)]
        assert {(each.call_id, each.agent, each.session_id) for each in inner} == {
            ("call_9", "research", child.id)
        }
        texts = [each.event.text for each in inner if isinstance(each.event, TextDelta)]
        assert texts == ["I found ", "42."]
        assert [each.event.kind for each in inner][-1] == "query.ended"
        changes = [each for each in events if isinstance(each, SubagentChanged)]
        assert [(each.change, each.session_id, each.status) for each in changes] == [
            ("joined", child.id, ""),
            ("left", child.id, "complete"),
        ]
        own = [each.text for each in events if isinstance(each, TextDelta)]
        assert own == ["ok"]
        stored = [entry.kind async for entry in _log_of(agent, str(session.session_id))]
        assert "subagent.event" not in stored
    family.check()


class Nested:
    """A parent whose sub-agent has a sub-agent that asks before it writes."""

    def __init__(self) -> None:
        self.effects: list[str] = []

        @tool(approval="ask")
        def write(text: str) -> str:
            """Write a text down."""
            self.effects.append(text)
            return "written"

        inner = self._make(
            [calls(("write", {"text": "a"}), ids=["call_1"]), says("inner")], [write]
        )
        outer = self._make(
            [calls(("inner", {"prompt": "write a"}), ids=["call_1"]), says("outer")],
            [inner.as_tool(name="inner", description=".")],
        )
        self.tools = [outer.as_tool(name="outer", description=".")]
        self.steps = [calls(("outer", {"prompt": "go on"}), ids=["call_1"]), says("end")]

    def _make(self, steps: list[Step], tools: list[Any]) -> Agent:
        provider = ScriptedProvider(steps)
        return Agent("scripted/a", providers=[provider], environment={}, tools=tools)


async def test_what_a_sub_agents_sub_agent_asks_reaches_the_outermost_approver() -> None:
    nested = Nested()
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Approve:
        asked.append(request)
        return Approve()

    agent, _ = make_agent(nested.steps, tools=nested.tools, approver=approve)
    async with agent, agent.session() as session:
        events = await events_of(session)
        inner = [
            event.event.event
            for event in events
            if isinstance(event, SubagentEvent) and isinstance(event.event, SubagentEvent)
        ]
        assert [each.text for each in inner if isinstance(each, TextDelta)] == ["inner"]
    assert [(request.tool, request.call_id) for request in asked] == [
        ("write", "call_1/call_1/call_1")
    ]
    assert nested.effects == ["a"]


async def test_a_session_rests_on_its_sub_agents_sub_agent_and_carries_all_on() -> None:
    nested = Nested()
    agent, _ = make_agent(nested.steps, tools=nested.tools)
    async with agent, agent.session() as session:
        (request,) = (await session.chat("go")).pending
        await session.approve(request.id)
        result = await session.resume()
        assert (result.text, result.pending) == ("end", ())
    assert nested.effects == ["a"]


@pytest.mark.slow
async def test_a_sub_agent_that_takes_too_long_is_stopped_and_asks_nothing_any_more() -> None:
    family = Family(
        [calls(("careful", {"prompt": "write a"})), says("too slow")],
        careful=[calls(("write", {"text": "a"}))],
    )

    async def hesitate(_request: ApprovalRequest) -> Approve:
        await asyncio.Event().wait()
        return Approve()

    careful = family.child("careful").as_tool(name="careful", description=".", timeout=0.5)
    agent, family.parent = make_agent(family._parent, tools=[careful], approver=hesitate)
    async with agent, agent.session() as session:
        result = await session.chat("go")
        assert (result.text, result.pending) == ("too slow", ())
        (child,) = (await agent.sessions.tree(str(session.session_id))).children
        assert child.session.phase == "idle"
    assert family.effects == []
    assert tasks_left() == []


async def test_an_abort_while_a_sub_agent_waits_for_an_approver_leaves_nothing_open() -> None:
    family = Family(
        [calls(("careful", {"prompt": "write a"}))],
        careful=[calls(("write", {"text": "a"}))],
    )
    asked = asyncio.Event()

    async def hesitate(_request: ApprovalRequest) -> Approve:
        asked.set()
        await asyncio.Event().wait()
        return Approve()

    async with family.agent(approver=hesitate) as agent, agent.session() as session:
        chatting = asyncio.ensure_future(session.chat("go"))
        await asked.wait()
        session.abort()
        error = await failure_of(chatting)
        assert error.result is not None
        assert error.result.children_usage.total == 15
        assert session.unfinished.approvals == ()
        (child,) = (await agent.sessions.tree(str(session.session_id))).children
        remote = await agent.remote(child.session.id)
        assert await remote.pending() == ()
    assert family.effects == []
    family.check()


async def test_closing_the_agent_stops_sub_agents_that_still_work() -> None:
    gate = Gate()
    family = Family([calls(("slow", {"prompt": "take your time"}))], slow=[[gate]])
    agent = family.agent(runtime={"close_drain_seconds": 0})
    session = await agent.session().open()
    await session.send("go")
    await gate.reached.wait()
    await agent.close()
    assert family.providers["slow"].open_streams == 0
    assert tasks_left() == []


async def _log_of(agent: Agent, session_id: str) -> Any:
    remote = await agent.remote(session_id)
    async for event in remote.events():
        yield event
        if event.kind == "query.ended":
            return


def test_a_sub_agent_has_a_name() -> None:
    with pytest.raises(ConfigError) as caught:
        Agent("scripted/a", environment={}).as_tool(name="", description="Does nothing.")
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize(("name", "value"), [("approval", "always"), ("timeout", -1)])
@pytest.mark.parametrize("side", [Agent, haptera.sync.Agent], ids=["async", "blocking"])
def test_a_wrong_option_of_a_sub_agent_is_refused(side: Any, name: str, value: object) -> None:
    agent = side("scripted/a", environment={})
    with pytest.raises(ConfigError, match=rf"agent\.as_tool\(\): option '{name}' ") as caught:
        agent.as_tool(name="helper", description="Helps.", **{name: value})
    assert caught.value.code is ErrorCode.CONFIG_INVALID
