"""The blocking names are the async ones, with the same parameters and the same behaviour."""

import asyncio
import inspect
import threading
from typing import Any

import pytest

import haptera
import haptera.sync
from haptera import AgentError, ErrorCode, QueryEnded, TextDelta, tool
from haptera.agent.verbs import SessionVerbs
from haptera.sync.background_loop import background_loop
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import MODEL

CLASSES = ["Agent", "AgentRemote", "AgentSession", "QueryStream"]
FUNCTIONS = [
    "create_agent_session",
    "list_local_models",
    "pull_model",
    "remove_local_model",
    "run_agent",
    "run_agent_result",
    "run_agent_stream",
    "with_retry",
]

# What only one side has, and why.
ONLY_ASYNC = {
    "AgentSession": {"attach"},  # a buffer belongs to one event loop
    "QueryStream": {"aclose"},  # called `close` where nothing is awaited
}
ONLY_BLOCKING = {"QueryStream": {"close"}}


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def parameters_of(function: Any) -> list[tuple[str, Any, Any]]:
    """Return the parameters of a function: name, kind and default."""
    parameters = inspect.signature(function).parameters.values()
    return [(item.name, item.kind, item.default) for item in parameters]


def test_the_blocking_module_has_the_names_that_block() -> None:
    assert set(haptera.sync.__all__) == {*CLASSES, *FUNCTIONS}
    assert set(haptera.sync.__all__) <= set(haptera.__all__)


@pytest.mark.parametrize("name", CLASSES)
def test_both_sides_of_a_class_have_the_same_methods(name: str) -> None:
    there, here = getattr(haptera, name), getattr(haptera.sync, name)
    assert public_names(there) - public_names(here) == ONLY_ASYNC.get(name, set())
    assert public_names(here) - public_names(there) == ONLY_BLOCKING.get(name, set())


@pytest.mark.parametrize("name", CLASSES)
def test_both_sides_of_a_method_have_the_same_parameters(name: str) -> None:
    there, here = getattr(haptera, name), getattr(haptera.sync, name)
    for method in public_names(there) & public_names(here):
        one, other = getattr(there, method), getattr(here, method)
        if callable(one):
            assert parameters_of(one) == parameters_of(other), method
            assert inspect.getdoc(other), method
        else:
            assert isinstance(one, property)
            assert isinstance(other, property)


@pytest.mark.parametrize("face", [haptera.AgentSession, haptera.AgentRemote])
def test_the_verbs_of_a_session_are_declared_once(face: type) -> None:
    verbs = public_names(SessionVerbs)
    assert verbs >= {"send", "steer", "approve", "deny", "configure"}
    assert verbs >= {"rewind", "undo_rewind", "compact", "fork"}
    assert [name for name in verbs if getattr(face, name) is not getattr(SessionVerbs, name)] == []


@pytest.mark.parametrize("module", [haptera, haptera.sync])
def test_a_session_and_a_remote_one_are_told_the_same_with_the_same_parameters(module: Any) -> None:
    for name in (*public_names(SessionVerbs), "abort", "events", "view"):
        here, there = getattr(module.AgentSession, name), getattr(module.AgentRemote, name)
        assert parameters_of(here) == parameters_of(there), name


@pytest.mark.parametrize("name", CLASSES)
def test_no_blocking_method_is_a_coroutine(name: str) -> None:
    kind = getattr(haptera.sync, name)
    names = public_names(kind)
    assert [item for item in names if inspect.iscoroutinefunction(getattr(kind, item))] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_sides_of_a_function_have_the_same_parameters(name: str) -> None:
    one, other = getattr(haptera, name), getattr(haptera.sync, name)
    assert parameters_of(one) == parameters_of(other)


def an_agent(*steps: Step, **options: Any) -> tuple[haptera.sync.Agent, ScriptedProvider]:
    provider = ScriptedProvider(steps)
    options = {"clock": FakeClock(), "environment": {}, **options}
    return haptera.sync.Agent(MODEL, providers=[provider], **options), provider


def test_a_session_can_be_used_without_a_loop() -> None:
    @tool(approval="ask")
    def erase() -> str:
        """Erase."""
        return "gone"

    agent, provider = an_agent(calls(("erase", {})), says("done"), says("more"), tools=[erase])
    with agent, agent.session("mine") as session:
        result = session.chat("go")
        assert result.stop_reason == "approval"
        session.approve(result.pending[0].id)
        assert session.resume().result().text == "done"
        session.configure(temperature=0.5)
        heard: list[str] = []
        leave = session.on(TextDelta, lambda event: heard.append(event.text))
        assert list(session.stream("on").text()) == ["more"]
        leave()
        assert (heard, session.settings.temperature) == (["more"], 0.5)
        assert session.drain_queue() == ()
        session.wait_idle()
        state = session.export()
        assert len(state.messages) == len(session.messages) == len(session.view().messages)
        events = session.events()
        assert next(iter(events)).kind == "session.opened"
    provider.check()
    assert provider.requests[2].temperature == 0.5


def test_a_prompt_can_be_sent_without_waiting_for_its_answer() -> None:
    agent, provider = an_agent(says("one"), says("two"))
    with agent, agent.session("mine").open() as session:
        first = session.send("a")
        second = agent.remote("mine").send("b")
        ended = (event for event in session.events() if isinstance(event, QueryEnded))
        assert [next(ended).query_id, next(ended).query_id] == [first, second]
        assert [message.text for message in session.messages] == ["a", "one", "b", "two"]
        entries = agent.remote("mine").events(after=1)
        assert next(entries).kind == "input.queued"
    provider.check()


def test_leaving_a_blocking_stream_early_stops_the_query() -> None:
    agent, provider = an_agent([[part] for part in says(*"abcdef")])
    with agent:
        with agent.stream("go") as stream:
            for event in stream:
                if isinstance(event, TextDelta):
                    break
        assert provider.open_streams == 0


def test_taking_no_event_closes_the_stream() -> None:
    agent, provider = an_agent(says("fine"))
    with agent:
        stream = agent.stream("go")
        assert list(stream.take(0)) == []
        assert provider.requests == []
        with pytest.raises(AgentError) as caught:
            stream.result()
        assert caught.value.code is ErrorCode.CLOSED


def test_taking_a_few_events_stops_the_query() -> None:
    agent, provider = an_agent([[part] for part in says(*"abcdef")])
    with agent:
        assert len(list(agent.stream("go").take(2))) == 2
        assert provider.open_streams == 0


def test_a_second_consumer_is_refused() -> None:
    agent, _ = an_agent(says("fine"))
    with agent:
        stream = agent.stream("go")
        first = iter(stream)
        next(first)
        with pytest.raises(AgentError) as caught:
            next(iter(stream))
        assert caught.value.code is ErrorCode.STREAM_BUSY
        assert [event.kind for event in first][-1] == "query.ended"


def test_a_blocking_query_can_be_aborted_from_another_thread() -> None:
    reached = threading.Event()

    @tool
    async def wait() -> None:
        """Wait for ever."""
        reached.set()
        await asyncio.Event().wait()

    agent, _ = an_agent(calls(("wait", {})), tools=[wait])
    with agent, agent.session() as session:

        def stop() -> None:
            reached.wait(10)
            session.abort("from a thread")

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(AgentError, match="from a thread") as caught:
            session.chat("go")
        thread.join()
    assert caught.value.code is ErrorCode.ABORTED


def test_a_handler_that_blocks_its_own_loop_is_refused_instead_of_hanging() -> None:
    agent, _ = an_agent(says("fine"))
    refused: list[BaseException] = []
    with agent, agent.session() as session:

        def block(_event: TextDelta) -> None:
            try:
                session.export()
            except RuntimeError as error:
                refused.append(error)

        session.on(TextDelta, block)
        session.chat("go")
    assert len(refused) == 1


def test_all_blocking_callers_share_one_loop() -> None:
    assert background_loop.loop() is background_loop.loop()
