"""Sessions: opened once, seen as values, restored elsewhere, and gone when they are closed."""

import asyncio
import gc
import weakref
from typing import Any

import msgspec
import pytest

from haptera import (
    AssistantMessage,
    ConfigError,
    ErrorCode,
    SessionError,
    SessionState,
    StatusChanged,
    TextDelta,
    create_agent_session,
)
from haptera.kernel.session.live_session import LiveSession
from haptera.model.errors import ProviderError
from haptera.model.events import Busy, Failed, Idle, ObserverLagged
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.parts import ToolResultPart
from haptera.model.session_state import check_state
from haptera.model.settings import RuntimeSettings
from haptera.ports.session_store import Lease
from haptera.stores.memory import MemoryLeases, MemoryStore
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, says
from tests.messages_by_hand import assistant, call, user
from tests.scripted_agents import (
    MODEL,
    HeldWork,
    failure_of,
    live_of,
    make_agent,
    playing,
    texts_in,
)

# Looking at a session.


async def test_a_view_is_a_value_that_later_messages_do_not_change() -> None:
    async with playing([says("one"), says("two")], thinking="low") as (session, _):
        await session.chat("go")
        view = session.view()
        await session.chat("on")
        assert (view.session_id, view.provider, view.model) == (
            session.session_id,
            "scripted",
            "one",
        )
        assert (view.thinking, view.pending) == ("low", ())
        assert [message.text for message in view.messages] == ["go", "one"]
        with pytest.raises(AttributeError):
            view.messages = ()  # type: ignore[misc]


async def test_the_status_follows_the_session() -> None:
    gate = Gate()
    refused = ProviderError(ErrorCode.AUTH, "no", basis="status")
    async with playing([[gate, *says("x")], refused, says("y")]) as (session, _):
        seen: list[Any] = []
        session.on(StatusChanged, lambda event: seen.append(type(event.status)))
        asking = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        gate.open()
        await asking
        await failure_of(session.chat("again"))
        await session.chat("once more")
        assert seen == [Busy, Idle, Busy, Failed, Busy, Idle]


# Exporting and restoring.


async def test_a_session_can_be_exported_and_goes_on_elsewhere() -> None:
    options: Any = {"system_prompt": "Be brief.", "thinking": "low"}
    async with playing([says("Ana, hello")], clock=FakeClock(start_ms=5), **options) as (
        session,
        _,
    ):
        await session.chat("I am Ana")
        state = await session.export()
    assert (state.version, state.provider, state.model, state.thinking) == (
        1,
        "scripted",
        "one",
        "low",
    )
    assert (state.system_prompt, state.exported_at) == ("Be brief.", 5)
    again = check_state(msgspec.json.decode(msgspec.json.encode(state)))
    agent, provider = make_agent([says("Ana!")], model="scripted/two", thinking="high")
    async with agent, agent.session(restore=again) as session:
        await session.chat("who am I?")
    request = provider.requests[0]
    assert texts_in(request) == ["I am Ana", "Ana, hello", "who am I?"]
    assert (request.model, request.thinking, request.system) == ("two", "high", ())


async def test_an_empty_state_is_a_beginning() -> None:
    agent, provider = make_agent([says("hi")])
    async with agent, agent.session(restore={"version": 1, "messages": []}) as session:
        await session.chat("go")
    assert texts_in(provider.requests[0]) == ["go"]


async def test_a_state_of_another_version_is_refused_by_its_number() -> None:
    agent, _ = make_agent([])
    async with agent:
        with pytest.raises(ConfigError, match="99") as caught:
            agent.session(restore={"version": 99, "messages": []})
        assert caught.value.code is ErrorCode.CONFIG_INVALID


async def test_a_state_that_ends_with_an_open_call_can_be_gone_on_with() -> None:
    state = SessionState(messages=(user("hi"), assistant("let me", call("1"))))
    agent, provider = make_agent([says("sorry")])
    async with agent, agent.session(restore=state) as session:
        await session.chat("well?")
    *_, last = provider.requests[0].messages
    assert [type(part).__name__ for part in last.parts] == ["ToolResultPart", "TextPart"]


async def test_an_export_does_not_wait_and_holds_what_is_committed() -> None:
    gate = Gate()
    async with playing([says("one"), [*says("half")[:3], gate, *says("x")[3:]]]) as (session, _):
        await session.chat("go")
        asking = asyncio.ensure_future(session.chat("on"))
        await gate.reached.wait()
        during = await session.export()
        assert [message.text for message in during.messages] == ["go", "one", "on"]
        gate.open()
        await asking
        assert [m.text for m in (await session.export()).messages][-1] == "half"
        assert len(during.messages) == 3


async def test_an_export_during_tools_answers_every_call() -> None:
    work = HeldWork()
    async with playing([calls(("work", {})), says("ok")], tools=[work.tool]) as (session, _):
        asking = asyncio.ensure_future(session.chat("go"))
        await work.started.wait()
        state = await session.export()
        work.release.set()
        await asking
    (result,) = [p for p in state.messages[-1].parts if isinstance(p, ToolResultPart)]
    assert result.outcome == "unknown"


# Observing.


async def test_an_observer_sees_what_was_and_what_happens_and_nothing_twice() -> None:
    async with playing([says("one"), says("two")]) as (session, _):
        await session.chat("go")
        seen: list[Any] = []
        caught_up = asyncio.Event()

        async def observe() -> None:
            async for event in session.events():
                seen.append(event)
                if event.kind == "query.ended":
                    caught_up.set()

        observing = asyncio.ensure_future(observe())
        await caught_up.wait()
        await session.chat("on")
        await session.close()
        await observing
    stored = [event.seq for event in seen if isinstance(event, Entry)]
    assert stored == list(range(1, len(stored) + 1))
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "two"


async def test_an_observer_may_begin_later() -> None:
    async with playing([says("one")]) as (session, _):
        await session.chat("go")
        events = session.events(after=3)
        first = await anext(events)
        assert isinstance(first, Entry)
        assert first.seq == 4
        await events.aclose()


async def test_an_observer_that_falls_behind_is_told_where_to_resume() -> None:
    runtime = RuntimeSettings(observer_buffer=3)
    async with playing([says(*"abcdefgh")], runtime=runtime) as (session, _):
        events = session.events()
        await anext(events)
        await session.chat("go")
        rest = [event async for event in events]
        lagged = rest[-1]
        assert isinstance(lagged, ObserverLagged)
        resumed = session.events(after=lagged.resume_after)
        kinds = [(await anext(resumed)).kind for _ in range(2)]
        assert kinds[0] == "query.started"
        await resumed.aclose()


# Opening and closing.


class SlowLeases(MemoryLeases):
    """Gives a lease only when its gate is open."""

    gate: Gate

    async def acquire(self, session_id: SessionId, holder: str, **options: Any) -> Lease:
        await self.gate.wait()
        return await super().acquire(session_id, holder, **options)


def slow_store() -> tuple[MemoryStore, Gate]:
    store = MemoryStore()
    leases = SlowLeases(store._sessions)
    leases.gate = Gate()
    store.leases = leases
    return store, leases.gate


async def test_two_first_uses_at_the_same_time_open_one_session() -> None:
    store, gate = slow_store()
    agent, _ = make_agent([says("one"), says("two")], store=store)
    async with agent:
        session = agent.session()
        asking = [asyncio.ensure_future(session.chat(text)) for text in "ab"]
        await gate.reached.wait()
        gate.open()
        first, second = await asyncio.gather(*asking)
        assert first.session_id == second.session_id
        assert len(session.messages) == 4


async def test_a_session_that_is_closed_while_it_opens_gives_its_lease_back() -> None:
    store, gate = slow_store()
    agent, _ = make_agent([], store=store)
    async with agent:
        session = agent.session("one")
        opening = asyncio.ensure_future(session.open())
        await gate.reached.wait()
        await session.close()
        gate.open()
        assert (await failure_of(opening)).code is ErrorCode.CLOSED
        async with agent.session("one"):
            pass


async def test_a_session_that_opens_while_its_agent_closes_gives_its_lease_back() -> None:
    store, gate = slow_store()
    agent, _ = make_agent([], store=store)
    opening = asyncio.ensure_future(agent.session("one").open())
    await gate.reached.wait()
    await agent.close()
    gate.open()
    assert (await failure_of(opening)).code is ErrorCode.CLOSED
    other, _ = make_agent([], store=store)
    async with other, other.session("one"):
        pass


async def test_nothing_can_be_done_with_a_closed_session() -> None:
    agent, _ = make_agent([])
    async with agent:
        session = agent.session()
        await session.open()
        await session.close()
        await session.close()
        for work in (
            session.chat("go"),
            session.steer("go"),
            session.configure(seed=1),
            session.export(),
            session.approve("apr_1"),
            session.drain_queue(),
        ):
            assert (await failure_of(work)).code is ErrorCode.CLOSED
        session.abort()


async def test_nothing_can_be_done_with_a_closed_agent() -> None:
    agent, _ = make_agent([])
    await agent.close()
    await agent.close()
    assert (await failure_of(agent.run("go"))).code is ErrorCode.CLOSED


async def test_a_session_must_be_open_to_be_looked_at() -> None:
    agent, _ = make_agent([])
    async with agent:
        session = agent.session()
        assert (session.session_id, session.status) == (None, Idle())
        session.abort()
        for name in ("messages", "settings", "unfinished"):
            with pytest.raises(SessionError, match="not open"):
                getattr(session, name)
        with pytest.raises(SessionError, match="not open"):
            session.view()


async def test_closing_lets_a_running_query_end_by_itself() -> None:
    gate = Gate()
    agent, _ = make_agent([[gate, *says("whole")]])
    async with agent:
        session = agent.session()
        asking = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        closing = [asyncio.ensure_future(session.close()) for _ in range(2)]
        await asyncio.wait(closing, timeout=0)
        assert (await failure_of(session.chat("more"))).code is ErrorCode.CLOSED
        gate.open()
        assert (await asking).text == "whole"
        await asyncio.gather(*closing)


async def test_closing_an_agent_closes_its_sessions_but_not_what_was_handed_in() -> None:
    provider = ScriptedProvider()
    agent, _ = make_agent([], providers=[provider])
    session = agent.session()
    await session.open()
    await agent.close()
    assert (await failure_of(session.chat("go"))).code is ErrorCode.CLOSED
    assert not provider.closed


async def test_a_session_of_its_own_agent_closes_both() -> None:
    provider = ScriptedProvider([says("hi")])
    session = await create_agent_session(
        model=MODEL, providers=[provider], environment={}, name="mine"
    )
    async with session:
        assert (await session.chat("go")).text == "hi"
    assert (await failure_of(session.chat("go"))).code is ErrorCode.CLOSED


@pytest.mark.slow
async def test_nothing_of_a_closed_session_is_held() -> None:
    agent, _ = make_agent([says("a lot of text")])
    async with agent:
        session = agent.session()
        live: LiveSession = await live_of(session)
        await session.chat("go")
        held: list[weakref.ref[object]] = [
            weakref.ref(live),
            weakref.ref(live.fold),
            weakref.ref(live.channel),
        ]
        await session.close()
        del live, session
        gc.collect()
        assert [reference() for reference in held] == [None, None, None]


async def test_an_agent_keeps_nothing_of_the_prompts_it_answered() -> None:
    agent, _ = make_agent([says("x")] * 20)
    async with agent:
        for _ in range(20):
            await agent.run("go")
        assert agent._composition._sessions == []


# By name and by id.


async def test_a_name_or_an_id_finds_the_session_again() -> None:
    agent, provider = make_agent([says("one"), says("two"), says("three")])
    async with agent:
        async with agent.session("ana-1") as session:
            first = await session.chat("go")
        async with agent.session("ana-1") as session:
            await session.chat("on")
        assert first.session_id is not None
        async with agent.session(first.session_id) as session:
            await session.chat("and on")
            assert len(session.messages) == 6
        async with agent.session("ana-2") as session:
            assert session.messages == ()
    assert texts_in(provider.requests[2]) == ["go", "one", "on", "two", "and on"]


async def test_what_is_resumed_is_what_was_left() -> None:
    store = MemoryStore()
    agent, _ = make_agent([says("one")], store=store, thinking="low")
    async with agent, agent.session("x") as session:
        await session.chat("go")
        await session.configure(temperature=0.5)
        before = (session.messages, session.settings)
    later, _ = make_agent([], store=store)
    async with later, later.session("x") as session:
        assert (session.messages, session.settings) == before
        answer = session.messages[-1]
        assert isinstance(answer, AssistantMessage)
        assert msgspec.structs.asdict(answer)["finish_reason"] == "end_turn"


async def test_events_are_chosen_by_their_class() -> None:
    async with playing([says("fine")]) as (session, _):
        for kind, handler in (("text.delta", print), (None, print), (TextDelta, "print")):
            with pytest.raises(ConfigError):
                session.on(kind, handler)  # type: ignore[arg-type]
        assert (await session.chat("go")).text == "fine"
        assert repr(session) == f"<AgentSession {session.session_id} idle>"


async def test_a_session_that_is_open_here_says_so() -> None:
    agent, _ = make_agent([])
    async with agent, agent.session("one"):
        error = await failure_of(agent.session("one").open())
    assert "already open in this program" in error.message


@pytest.mark.parametrize("mode", ["deny", "auto", "yolo"])
def test_a_permission_mode_that_does_not_exist_is_refused(mode: str) -> None:
    with pytest.raises(ConfigError, match="HAPTERA_PERMISSION_MODE"):
        make_agent([], environment={"HAPTERA_PERMISSION_MODE": mode})
    with pytest.raises(ConfigError, match="permission_mode"):
        make_agent([], permission_mode=mode)


def test_a_mistyped_option_is_told_what_may_have_been_meant() -> None:
    with pytest.raises(TypeError, match=r"temprature is unknown; did you mean 'temperature'\?"):
        make_agent([], temprature=1)
