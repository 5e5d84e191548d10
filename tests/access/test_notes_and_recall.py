"""What sessions know of each other: notes of a project, included sessions, the recall tool."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentSession, ConfigError, ErrorCode, SessionError
from haptera.access.descriptions import SessionSummary
from haptera.model.parts import ReminderPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.ports.session_store import Store
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of, make_agent
from tests.stores.store_factories import STORE_FACTORIES, open_store

pytestmark = pytest.mark.slow


@pytest.fixture(params=list(STORE_FACTORIES))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(request.param, tmp_path)
    yield opened
    await opened.close()


def agent_on(
    store: Store, steps: Sequence[Step] = (), **options: Any
) -> tuple[Agent, ScriptedProvider]:
    return make_agent(steps, **{"store": store, "project": "house", **options})


def told(request: ModelRequest) -> list[str]:
    parts = [part for message in request.messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, ReminderPart)]


async def talk(session: AgentSession, *prompts: str) -> None:
    for prompt in prompts:
        await session.chat(prompt)


# Notes.


async def test_a_note_is_told_once_here_and_with_the_first_prompt_of_new_sessions(
    store: Store,
) -> None:
    agent, provider = agent_on(store, [says("a"), says("b"), says("c"), says("d")])
    async with agent:
        async with agent.session("one") as session:
            await talk(session, "hi")
            await session.note("  Use tabs. ")
            await talk(session, "go on")
        async with agent.session("two") as session:
            await talk(session, "hi", "again")
    first, second, third, fourth = map(told, provider.requests)
    assert first == []
    assert second == third == fourth == ["A note for this project: Use tabs."]


async def test_notes_are_merged_over_the_sessions_of_one_project_and_owner(store: Store) -> None:
    agent, _ = agent_on(store)
    for name, texts in {"one": ["Use tabs.", "No emoji."], "two": ["No emoji.", "Ask."]}.items():
        async with agent.session(name) as session:
            for text in texts:
                await session.note(text)
    assert [note.text for note in await agent.sessions.notes()] == [
        "Use tabs.",
        "No emoji.",
        "Ask.",
    ]
    for options in ({"project": "garden"}, {"owner": "bob"}):
        other, provider = agent_on(store, [says("a")], **options)
        assert await other.sessions.notes() == ()
        async with other.session("three") as session:
            await talk(session, "hi")
        assert told(provider.requests[0]) == []


async def test_a_note_that_was_taken_back_is_not_told_to_new_sessions(store: Store) -> None:
    agent, provider = agent_on(store, [says("a")])
    for name in ("one", "two"):
        async with agent.session(name) as session:
            await session.note("Use tabs.")
            await session.note("Ask.")
    tabs, ask = await agent.sessions.notes()
    await agent.sessions.forget_note(tabs)
    assert [note.text for note in await agent.sessions.notes()] == [ask.text]
    async with agent.session("three") as session:
        await talk(session, "hi")
    assert told(provider.requests[0]) == ["A note for this project: Ask."]
    await agent.sessions.repair()
    assert [note.text for note in await agent.sessions.notes()] == [ask.text]


async def test_notes_go_with_the_session_that_they_were_made_in(store: Store) -> None:
    agent, _ = agent_on(store)
    async with agent.session("one") as session:
        await session.note("Use tabs.")
    await agent.sessions.delete("one")
    assert await agent.sessions.notes() == ()


async def test_sessions_that_are_kept_apart_hear_nothing_of_each_other(store: Store) -> None:
    agent, _ = agent_on(store)
    async with agent.session("one") as session:
        await session.note("Use tabs.")
    apart, provider = agent_on(store, [says("a")], runtime={"cross_session_context": False})
    async with apart.session("two") as session:
        await talk(session, "hi")
        error = await failure_of(session.include("one"))
    assert error.code is ErrorCode.CONFIG_INVALID
    assert told(provider.requests[0]) == []
    with pytest.raises(ConfigError, match="cross_session_context"):
        agent_on(store, recall=True, runtime={"cross_session_context": False})


async def test_a_fork_hears_a_note_once_and_a_blank_note_is_refused(store: Store) -> None:
    agent, provider = agent_on(store, [says("a"), says("b")])
    async with agent.session("one") as session:
        await session.note("Use tabs.")
        assert (await failure_of(session.note(" "))).code is ErrorCode.CONFIG_INVALID
        await talk(session, "hi")
        branch = await session.fork()
        async with branch:
            await talk(branch, "and?")
    assert told(provider.requests[1]) == ["A note for this project: Use tabs."]


async def test_notes_of_an_imported_session_stay_in_it(store: Store, tmp_path: Path) -> None:
    agent, _ = agent_on(store)
    async with agent.session("one") as session:
        await session.note("Obey.")
    await agent.sessions.export_to(tmp_path / "one.archive", "one")
    await agent.sessions.delete("one")
    imported = await agent.sessions.import_from(tmp_path / "one.archive")
    assert await agent.sessions.notes() == ()
    again, provider = agent_on(store, [says("a")])
    async with again.session(imported.session.id) as session:
        await talk(session, "hi")
    assert told(provider.requests[0]) == ["A note for this project: Obey."]


# Included sessions.


async def test_a_stored_summary_is_told_with_the_next_prompt(store: Store) -> None:
    agent, provider = agent_on(store, [says("a"), says("b"), says("c")])
    async with agent.session("one") as session:
        await talk(session, "hi")
    summary = SessionSummary(title="Fjords", body="They are deep.", topics=("water",))
    await agent.sessions.set_summary("one", summary)
    async with agent.session("two") as session:
        await talk(session, "hello")
        await session.include("one")
        await talk(session, "and?")
    (text,) = told(provider.requests[2])
    assert "They are deep." in text
    assert "Topics: water" in text
    assert len(provider.requests) == 3


async def test_a_missing_summary_is_made_by_the_model_of_the_session(store: Store) -> None:
    agent, provider = agent_on(store, [says("383 m"), says("It is about depth."), says("b")])
    async with agent.session("one") as session:
        await talk(session, "How deep is it?")
    async with agent.session("two") as session:
        await session.include("one")
        await talk(session, "and?")
    asked, after = provider.requests[1:]
    assert "User: How deep is it?\n\nAssistant: 383 m" in asked.messages[0].text
    assert asked.tools == ()
    assert "It is about depth." in told(after)[0]
    assert await agent.sessions.summary("one") is None


async def test_a_whole_session_is_told_with_its_tool_calls(store: Store) -> None:
    def depth(place: str) -> str:
        """Say how deep it is."""
        return f"{place}: 383 m"

    steps = [calls(("depth", {"place": "Bergen"})), says("Deep."), says("b"), says("c")]
    agent, provider = agent_on(store, steps, tools=[depth])
    async with agent.session("one") as session:
        await talk(session, "How deep is it?")
    async with agent.session("two") as session:
        await session.include("one", as_="full")
        await talk(session, "and?", "more?")
    (text,) = told(provider.requests[2])
    for said in ("User: How deep is it?", 'called depth: {"place":"Bergen"}', "Bergen: 383 m"):
        assert said in text
    assert told(provider.requests[3]) == [text]


async def test_only_sessions_of_the_same_project_that_say_something_are_included(
    store: Store,
) -> None:
    other, _ = agent_on(store, [says("a")], project="garden")
    async with other.session("roses") as session:
        await talk(session, "hi")
        foreign = str(session.session_id)
    agent, _ = agent_on(store)
    async with agent.session("empty"), agent.session("two") as session:
        for reference in ("roses", foreign, "nowhere"):
            with pytest.raises(SessionError) as caught:
                await session.include(reference)
            assert caught.value.code is ErrorCode.NOT_FOUND
        assert (await failure_of(session.include("empty"))).code is ErrorCode.CONFIG_INVALID
        wrong: Any = "half"
        assert (await failure_of(session.include("empty", as_=wrong))).code is (
            ErrorCode.CONFIG_INVALID
        )


# Recall.


async def test_recall_finds_what_other_sessions_of_the_project_said(store: Store) -> None:
    elsewhere, _ = agent_on(store, [says("A fjord in another project.")], project="garden")
    async with elsewhere.session("roses") as session:
        await talk(session, "hi")
    steps = [
        says("The fjord is 383 m deep."),
        calls(("recall", {"words": "fjord"})),
        says("383 m."),
    ]
    agent, provider = agent_on(store, steps, recall=True)
    async with agent.session("one") as session:
        await talk(session, "How deep?")
    async with agent.session("two") as session:
        await talk(session, "What did we say of the fjord?")
    results = [
        part.text
        for message in provider.requests[2].messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]
    assert len(results) == 1
    assert "383 m deep" in results[0]
    assert "one" in results[0]
    assert "another project" not in results[0]
    assert "What did we say" not in results[0]


async def test_recall_is_offered_only_when_it_is_asked_for(store: Store) -> None:
    for recall, names in ((False, []), (True, ["recall"])):
        agent, provider = agent_on(store, [says("a")], recall=recall)
        async with agent.session() as session:
            await talk(session, "hi")
        assert [spec.name for spec in provider.requests[0].tools] == names
