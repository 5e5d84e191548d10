"""Titles are made in the background by a small model, and cost a query nothing."""

import asyncio
import gc
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from haptera import Agent, AgentSession, ConfigError, ErrorCode, ProviderError, Settings
from haptera.kernel.session.opening import open_session
from haptera.kernel.session.session_descriptions import SessionRequest
from haptera.kernel.session.titles import clean_title
from haptera.model.ids import new_message_id, new_query_id
from haptera.model.log.sessions import SessionChanged
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import TextPart
from haptera.ports.runner import QueryInput
from haptera.testing import Gate, ScriptedProvider, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import make_agent, tasks_left


def titled_agent(
    steps: Sequence[Step], titles: Sequence[Step], **options: Any
) -> tuple[Agent, ScriptedProvider]:
    small = ScriptedProvider(titles, provider="small")
    agent, _ = make_agent(steps, providers=[small], title_model="small/one", **options)
    return agent, small


async def next_change(session: AgentSession) -> SessionChanged:
    async with aclosing(session.events()) as events:
        return await anext(event async for event in events if isinstance(event, SessionChanged))


async def test_a_session_gets_a_title_after_its_first_exchange() -> None:
    agent, small = titled_agent([says("383 m"), says("b")], [says('"How deep fjords are."\n')])
    async with agent, agent.session("one") as session:
        await session.chat("How deep is it?")
        changed = await next_change(session)
        assert changed.changes == {"title": "How deep fjords are", "title_made_by": "small/one"}
        assert (await agent.sessions.get("one")).title == "How deep fjords are"
        await session.chat("And?")
    asked = small.requests[0]
    assert asked.messages[0].text == "User: How deep is it?\n\nAssistant: 383 m"
    assert asked.tools == ()
    assert len(small.requests) == 1
    assert tasks_left() == []


async def test_an_answer_does_not_wait_for_the_title() -> None:
    gate = Gate()
    agent, small = titled_agent([says("a"), says("b")], [[gate, *says("Late")]])
    async with agent, agent.session("one") as session:
        assert (await session.chat("hi")).text == "a"
        await gate.reached.wait()
        assert (await session.chat("again")).text == "b"
        gate.open()
        assert (await next_change(session)).changes["title"] == "Late"
    small.check()


async def test_a_title_that_a_person_gave_stands() -> None:
    gate = Gate()
    agent, small = titled_agent([says("a"), says("b")], [[gate, *says("Made")]])
    async with agent:
        async with await agent.sessions.create(name="given", title="Mine") as session:
            await session.chat("hi")
        assert small.requests == []
        async with agent.session("meanwhile") as session:
            await session.chat("hi")
            await gate.reached.wait()
            await agent.sessions.update("meanwhile", title="Mine")
            gate.open()
        assert (await agent.sessions.get("meanwhile")).title == "Mine"
    assert tasks_left() == []


@pytest.mark.parametrize(
    "step", [ProviderError(ErrorCode.AUTH, "no key"), says("  \n"), ValueError("a bug")]
)
async def test_a_title_that_cannot_be_made_fails_nothing(step: Step) -> None:
    agent, small = titled_agent([says("a"), says("b")], [step])
    async with agent, agent.session("one") as session:
        assert (await session.chat("hi")).text == "a"
        assert (await session.chat("again")).text == "b"
        small.replace_rest()
    assert tasks_left() == []


async def test_a_title_maker_with_a_bug_is_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = asyncio.Event()

    async def make(messages: Sequence[Message]) -> str:
        asked.set()
        raise KeyError("a bug")

    agent, _ = make_agent([says("a")])
    async with agent:
        resources = replace(agent._composition.session_resources(), make_title=make)
        request = SessionRequest(owner="local", settings=Settings(model="scripted/one"))
        live = await open_session(resources, request)
        message = UserMessage(id=new_message_id(), parts=(TextPart(text="hi"),))
        await live.queue.admit(QueryInput(query_id=new_query_id(), message=message), "queue")
        await asked.wait()
        await live.close()
        gc.collect()  # asyncio logs an exception that nothing retrieved when its task is freed
    assert [(item.name, item.getMessage()) for item in caplog.records] == [
        ("haptera.kernel.session.titles", "no title was made")
    ]
    assert "KeyError: 'a bug'" in caplog.text


async def test_closing_a_session_gives_a_title_up_and_the_next_exchange_makes_it() -> None:
    gate = Gate()
    agent, small = titled_agent([says("a"), says("b")], [[gate], says("Second")])
    async with agent:
        async with agent.session("one") as session:
            await session.chat("hi")
            await gate.reached.wait()
        assert small.open_streams == 0
        async with agent.session("one") as session:
            await session.chat("again")
            assert (await next_change(session)).changes["title"] == "Second"
    assert tasks_left() == []


async def test_a_session_for_one_query_and_a_failed_query_get_no_title() -> None:
    broken = ProviderError(ErrorCode.AUTH, "no key")
    agent, small = titled_agent([says("a"), broken], [])
    async with agent:
        await agent.run("hi")
        async with agent.session("one") as session:
            with pytest.raises(ProviderError):
                await session.chat("hi")
    assert small.requests == []


def test_a_model_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        make_agent([], title_model="nonsense")
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("## Fjords\n\nMore", "Fjords"),
        ("Title: Fjords", "Fjords"),
        ("\n“Fjords in\tNorway.”", "Fjords in Norway"),
        ("x" * 200, "x" * 79 + "…"),
        ("\x1b[31mred", "[31mred"),
        ("***", ""),
    ],
)
def test_a_title_is_one_short_line(answer: str, title: str) -> None:
    assert clean_title(answer) == title
