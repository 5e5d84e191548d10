"""A tool, a hook or an approver that would wait for its own query is told so, however it waits."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentSession, ApprovalRequest, ErrorCode, sync, tool
from haptera.hooks import BeforeTool, Hooks, Proceed
from haptera.model.approvals import Approve, Decision
from haptera.model.events import TextDelta
from haptera.model.log.queries import QueryEnded
from haptera.model.settings import RuntimeSettings
from haptera.stores.memory import MemoryStore
from haptera.testing import Gate, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.attacks.moments import others_run
from tests.scripted_agents import failure_of, make_agent, playing

Way = Callable[[AgentSession], Awaitable[Any]]


async def _in_a_thread(session: AgentSession) -> Any:
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(
        lambda: asyncio.run_coroutine_threadsafe(session.chat("again"), loop).result(20)
    )


async def _in_a_group(session: AgentSession) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(session.chat("again"))
    except* AgentError as errors:
        raise errors.exceptions[0] from None


async def _consumed(session: AgentSession) -> None:
    async for _ in session.stream("again", delivery="steer"):
        pass


_WAYS: dict[str, Way] = {
    "await": lambda session: session.chat("again"),
    "gather": lambda session: asyncio.gather(session.chat("again")),
    "wait_for": lambda session: asyncio.wait_for(session.chat("again"), 20),
    "task": lambda session: asyncio.ensure_future(session.chat("again")),
    "group": _in_a_group,
    "thread": _in_a_thread,
    "a stream that steers": _consumed,
    "wait_idle": lambda session: asyncio.gather(session.wait_idle()),
}


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("place", ["tool", "hook", "approver"])
async def test_waiting_for_the_own_session_is_refused(way: str, place: str) -> None:
    held: list[AgentSession] = []
    errors: list[AgentError] = []

    async def ask() -> None:
        errors.append(await failure_of(_WAYS[way](held[0])))

    @tool(approval="ask")
    async def work() -> str:
        """Work."""
        if place == "tool":
            await ask()
        return "worked"

    async def before_tool(given: BeforeTool) -> Proceed:
        if place == "hook":
            await ask()
        return Proceed()

    async def approver(request: ApprovalRequest) -> Decision:
        if place == "approver":
            await ask()
        return Approve()

    options = {"tools": [work], "hooks": Hooks(before_tool=before_tool), "approver": approver}
    async with playing([calls(("work", {})), says("done")], **options) as (session, _):
        held.append(session)
        assert (await session.chat("go")).text == "done"
        (error,) = errors
        assert error.code is ErrorCode.BUSY
        assert "session.steer()" in error.message


def test_waiting_for_the_own_session_through_the_blocking_names_is_refused() -> None:
    held: list[sync.AgentSession] = []
    told: list[AgentError] = []

    @tool
    def ask_again(how: str) -> str:
        """Ask the session that waits for this tool."""
        try:
            held[0].chat("again") if how == "chat" else list(held[0].stream("again"))
        except AgentError as error:
            told.append(error)
        return "told"

    steps = [*(calls(("ask_again", {"how": how})) for how in ("chat", "stream")), says("done")]
    with (
        sync.Agent("scripted/m", providers=[ScriptedProvider(steps)], tools=[ask_again]) as agent,
        agent.session() as session,
    ):
        held.append(session)
        assert session.chat("go").text == "done"
    assert [error.code for error in told] == [ErrorCode.BUSY] * 2


async def test_another_handle_that_would_wait_for_the_own_session_is_refused() -> None:
    agents: list[Agent] = []

    @tool
    async def ask_again() -> str:
        """Wait for the lease that this very query keeps."""
        other = agents[0].session("one", busy="wait")
        error = await failure_of(asyncio.gather(other.chat("again")))
        return str(error.code)

    agent, provider = make_agent([calls(("ask_again", {})), says("done")], tools=[ask_again])
    agents.append(agent)
    async with agent, agent.session("one") as session:
        assert (await session.chat("go")).text == "done"
    assert "BUSY" in provider.requests[1].messages[-1].parts[0].text  # type: ignore[union-attr]


async def test_a_circle_through_other_sessions_is_refused_where_it_would_close() -> None:
    sessions: dict[str, AgentSession] = {}
    told: list[AgentError] = []

    @tool
    async def ask(name: str) -> str:
        """Ask another session, and wait for its answer."""
        try:
            (result,) = await asyncio.gather(sessions[name].chat("go"))
        except AgentError as error:
            told.append(error)
            return "refused"
        return str(result.text)

    steps = [
        calls(("ask", {"name": "b"})),
        calls(("ask", {"name": "c"})),
        calls(("ask", {"name": "a"})),
        *(says(name) for name in "cba"),
    ]
    agent, provider = make_agent(steps, tools=[ask])
    async with agent:
        sessions |= {name: agent.session(name) for name in "abc"}
        assert (await sessions["a"].chat("go")).text == "a"
        assert [error.code for error in told] == [ErrorCode.BUSY]
    provider.check()


async def test_a_circle_through_a_queue_is_refused_where_it_would_close() -> None:
    """B is busy; A's tool waits in B's queue; then B's tool asks A."""
    sessions: dict[str, AgentSession] = {}
    told: list[AgentError] = []
    in_b = asyncio.Event()

    @tool
    async def ask_b() -> str:
        """Wait in the queue of B."""
        return (await sessions["b"].chat("from a")).text

    @tool
    async def ask_a() -> str:
        """Ask A once it waits for B."""
        in_b.set()
        while not sessions["b"].view().pending:
            await others_run()
        told.append(await failure_of(asyncio.gather(sessions["a"].chat("from b"))))
        return "refused"

    one = ScriptedProvider([calls(("ask_b", {})), says("a is done")], provider="one")
    two = ScriptedProvider([calls(("ask_a", {})), says("b"), says("to a")], provider="two")
    store = MemoryStore()
    first, _ = make_agent([], providers=[one], model="one/m", tools=[ask_b], store=store)
    second, _ = make_agent([], providers=[two], model="two/m", tools=[ask_a], store=store)
    async with first, second:
        sessions |= {"a": first.session("a"), "b": second.session("b")}
        asking_b = asyncio.ensure_future(sessions["b"].chat("go"))
        await in_b.wait()
        assert (await sessions["a"].chat("go")).text == "a is done"
        assert (await asking_b).text == "b"
    assert [error.code for error in told] == [ErrorCode.BUSY]


async def test_a_session_that_was_only_told_something_may_ask_back() -> None:
    """A steers B and does not wait: B's tool may wait for A."""
    sessions: dict[str, AgentSession] = {}

    @tool
    async def tell() -> str:
        """Tell B, and go on."""
        await sessions["b"].steer("hello")
        return "told"

    @tool
    async def ask_a() -> str:
        """Wait for A."""
        return (await sessions["a"].chat("from b")).text

    one = ScriptedProvider([calls(("tell", {})), says("a"), says("again a")], provider="one")
    two = ScriptedProvider([calls(("ask_a", {})), says("b")], provider="two")
    first, _ = make_agent([], providers=[one], model="one/m", tools=[tell])
    second, _ = make_agent([], providers=[two], model="two/m", tools=[ask_a])
    async with first, second:
        sessions |= {"a": first.session("a"), "b": second.session("b")}
        await sessions["b"].open()
        assert (await sessions["a"].chat("go")).text == "a"
        await sessions["b"].wait_idle()
        assert [item.text for item in sessions["b"].messages][-1] == "b"
        assert [item.text for item in sessions["a"].messages][-1] == "again a"


async def test_what_outlives_its_tool_may_wait_for_the_session_again() -> None:
    """A task that a tool left behind waits for another query: nothing waits for the task."""
    tasks: list[asyncio.Task[Any]] = []
    go_on, gate = asyncio.Event(), Gate()
    held: list[AgentSession] = []

    async def later() -> Any:
        await go_on.wait()
        return await held[0].chat("from a task")

    @tool
    async def leave_a_task() -> str:
        """Leave a task behind."""
        tasks.append(asyncio.ensure_future(later()))
        return "left"

    steps: list[Step] = [
        calls(("leave_a_task", {})),
        says("one"),
        [gate, *says("two")],
        says("three"),
    ]
    async with playing(steps, tools=[leave_a_task]) as (session, _):
        held.append(session)
        await session.chat("first")
        second = asyncio.ensure_future(session.chat("second"))
        await gate.reached.wait()
        go_on.set()
        while not session.view().pending:
            await others_run()
        gate.open()
        assert (await second).text == "two"
        assert (await tasks[0]).text == "three"


@pytest.mark.parametrize("way", ["await", "gather", "wait_for", "task", "group", "thread"])
async def test_a_handler_may_wait_for_an_answer_however_far_it_is_behind(way: str) -> None:
    """The query does not wait for it meanwhile, though its buffer is full."""
    answers: list[str] = []

    async def ask(event: TextDelta) -> None:
        if event.text == "first":
            await _WAYS[way](session)
            answers.append("answered")

    steps = [says("first", *["x"] * 50), says(*["y"] * 50)]
    async with playing(steps, runtime=RuntimeSettings(buffer_size=1)) as (session, _):
        session.on(TextDelta, ask)
        await session.chat("go")
        while not answers:
            await others_run()
        assert answers == ["answered"]
        assert [message.text for message in session.messages][1::2] == [
            "first" + 50 * "x",
            50 * "y",
        ]


async def test_a_handler_may_close_its_session_through_another_task() -> None:
    closed = asyncio.Event()
    async with playing([says("bye")]) as (session, _):

        async def close(_event: QueryEnded) -> None:
            await asyncio.wait_for(session.close(), 10)
            closed.set()

        session.on(QueryEnded, close)
        assert (await session.chat("go")).text == "bye"
        await closed.wait()
        assert session.closed


def test_a_context_passes_into_the_background_loop() -> None:
    """Another thread of the tool's that copied its context is the tool, too."""
    held: list[sync.AgentSession] = []
    told: list[ErrorCode] = []

    @tool
    def ask_in_a_thread() -> str:
        """Ask from a thread of its own."""

        def ask() -> None:
            try:
                held[0].chat("again")
            except AgentError as error:
                told.append(error.code)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(ask,))
        thread.start()
        thread.join(20)
        return "told"

    provider = ScriptedProvider([calls(("ask_in_a_thread", {})), says("done")])
    with (
        sync.Agent("scripted/m", providers=[provider], tools=[ask_in_a_thread]) as agent,
        agent.session() as session,
    ):
        held.append(session)
        assert session.chat("go").text == "done"
    assert told == [ErrorCode.BUSY]
