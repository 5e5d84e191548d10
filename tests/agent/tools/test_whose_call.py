"""Whose call it is: what a tool learns of the query, its sender, and the program around it."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import haptera.sync
from haptera import AgentSession, ToolContext, tool
from haptera.model.messages import Sender
from haptera.model.requests import ModelRequest
from haptera.stores.memory import MemoryStore
from haptera.testing import Gate, calls, says
from haptera.testing.scripted_provider import Step
from tests.attacks.moments import until
from tests.scripted_agents import make_agent, outcomes_in, playing

user: ContextVar[str] = ContextVar("user", default="unset")


@dataclass
class Deps:
    """What a program hands to its tools."""

    database: str


@dataclass
class Seen:
    """What a tool saw of one call."""

    deps: Deps | None
    user: str
    sender: str | None
    query_id: str
    session: object
    cwd: Path


class Watch:
    """Tools that note whose call they are in: one in the loop, one in a thread."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.tools = [tool(name="note")(self._note), tool(name="block")(self._block)]

    async def _note(self, context: ToolContext[Deps]) -> str:
        """Note who calls."""
        self._take(context)
        return "noted"

    def _block(self, context: ToolContext[Deps] | None) -> str:
        """Note who calls, in a thread."""
        assert context is not None
        self._take(context)
        return "noted"

    def _take(self, context: ToolContext[Deps]) -> None:
        sender = context.sender.user_id if context.sender else None
        self.seen.append(
            Seen(
                deps=context.deps,
                user=user.get(),
                sender=sender,
                query_id=context.query_id,
                session=context.session,
                cwd=context.cwd,
            )
        )


def steps(*names: str) -> list[Step]:
    """Script answers that call these tools, one query for each."""
    return [step for name in names for step in (calls((name, {})), says("ok"))]


async def ask_as(name: str, session: AgentSession, **options: Any) -> str:
    """Ask as a user whom the context knows, too."""
    user.set(name)
    result = await session.chat(
        f"from {name}", sender=Sender(user_id=name), deps=Deps(f"{name}.db"), **options
    )
    return str(result.text)


@pytest.mark.parametrize("name", ["note", "block"])
async def test_two_users_on_one_session_each_have_their_own_context_and_deps(name: str) -> None:
    watch, gate = Watch(), Gate()
    first, *others = steps(name, name, name)
    script: Sequence[Step] = [[gate, *first], *others]  # type: ignore[misc]
    async with playing(script, tools=watch.tools, deps=Deps("shared.db")) as (session, _):
        ana = asyncio.ensure_future(ask_as("ana", session))
        await gate.reached.wait()
        ben = asyncio.ensure_future(ask_as("ben", session))
        await until(lambda: session.view().pending)
        gate.open()
        await asyncio.gather(ana, ben)
        await session.chat("from the program")
    told = [(seen.user, seen.sender, seen.deps and seen.deps.database) for seen in watch.seen]
    assert told == [
        ("ana", "ana", "ana.db"),
        ("ben", "ben", "ben.db"),
        ("unset", None, "shared.db"),
    ]
    assert len({seen.query_id for seen in watch.seen}) == 3


async def test_a_prompt_that_was_only_sent_runs_in_the_context_of_its_sender() -> None:
    watch, gate = Watch(), Gate()
    first, *others = steps("note", "note")

    async def send(session: AgentSession) -> None:
        user.set("ben")
        await session.send("later", sender=Sender(user_id="ben"))

    script: Sequence[Step] = [[gate, *first], *others]  # type: ignore[misc]
    async with playing(script, tools=watch.tools) as (session, _):
        ana = asyncio.ensure_future(ask_as("ana", session))
        await gate.reached.wait()
        await asyncio.ensure_future(send(session))
        gate.open()
        await ana
        await session.wait_idle()
    assert [(seen.user, seen.sender) for seen in watch.seen] == [("ana", "ana"), ("ben", "ben")]


async def test_what_a_tool_sets_is_seen_by_no_other_query() -> None:
    seen: list[str] = []

    @tool
    async def become(name: str) -> str:
        """Become the user of that name."""
        seen.append(user.get())
        user.set(name)
        return name

    script = [calls(("become", {"name": "ana"})), says("ok")] * 2
    async with playing(script, tools=[become]) as (session, _):
        await session.chat("go")
        await session.chat("go")
    assert (seen, user.get()) == (["unset", "unset"], "unset")


async def test_deps_of_a_query_win_over_the_session_s_and_these_over_the_agent_s() -> None:
    watch = Watch()
    agent, _ = make_agent(steps(*["note"] * 3), tools=watch.tools, deps=Deps("agent"))
    async with agent, agent.session(deps=Deps("session")) as session:
        await agent.run("go")
        await session.chat("go")
        await session.chat("go", deps=Deps("query"))
    assert [seen.deps for seen in watch.seen] == [Deps("agent"), Deps("session"), Deps("query")]


async def test_a_tool_knows_its_session_and_its_folder(tmp_path: Path) -> None:
    watch = Watch()
    agent, _ = make_agent(steps("note"), tools=watch.tools, cwd=tmp_path)
    async with agent, agent.session("x") as session:
        await session.chat("go")
        (seen,) = watch.seen
        assert (seen.session, seen.cwd) == (session, tmp_path)


async def test_a_tool_can_speak_to_the_session_that_it_runs_in() -> None:
    @tool
    async def remind(context: ToolContext) -> str:
        """Send a prompt for later, and say something now."""
        assert context.session is not None
        await context.session.send("and later?")
        await context.session.steer("be brief")
        return f"{len(context.session.messages)} messages"

    script = [calls(("remind", {})), says("now"), says("later")]
    async with playing(script, tools=[remind]) as (session, provider):
        assert (await session.chat("go")).text == "now"
        await session.wait_idle()
        assert session.messages[-1].text == "later"
    told = provider.requests[1]
    assert outcomes_in(told)[0][1] == "ok"
    assert "be brief" in _all_text(told)


async def test_a_resumed_call_belongs_to_the_sender_of_its_prompt() -> None:
    seen: list[str | None] = []

    @tool(approval="ask")
    async def pay(context: ToolContext) -> str:
        """Pay."""
        seen.append(context.sender.user_id if context.sender else None)
        return "paid"

    store = MemoryStore()
    agent, _ = make_agent([calls(("pay", {}))], tools=[pay], store=store)
    async with agent, agent.session("x") as session:
        (asked,) = (await session.chat("go", sender=Sender(user_id="ana"))).pending
    later, _ = make_agent([says("done")], tools=[pay], store=store)
    async with later, later.session("x") as session:
        await session.approve(asked.id)
        await session.resume()
    assert seen == ["ana"]


def test_a_blocking_program_s_context_reaches_its_tools() -> None:
    watch = Watch()
    agent, provider = make_agent(steps("block"), tools=watch.tools, deps=Deps("x"))
    del agent
    with haptera.sync.Agent(
        "scripted/one", providers=[provider], tools=watch.tools, environment={}
    ) as blocking:
        token = user.set("ana")
        try:
            blocking.run("go", deps=Deps("y"))
        finally:
            user.reset(token)
    (seen,) = watch.seen
    assert (seen.user, seen.deps) == ("ana", Deps("y"))


def _all_text(request: ModelRequest) -> str:
    return " ".join(message.text for message in request.messages)
