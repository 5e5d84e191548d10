"""Sessions as a collection: finding, changing and deleting them, on every store."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from haptera import (
    Agent,
    AgentSession,
    ConfigError,
    ErrorCode,
    ProviderError,
    SessionError,
    StoreError,
)
from haptera.access.descriptions import (
    ActiveContext,
    SessionEvent,
    SessionSummary,
    default_title,
    is_default_title,
)
from haptera.access.keywords import CountKeywords, ListKeywords
from haptera.model.ids import SessionId
from haptera.model.messages import Sender
from haptera.ports.session_store import Store
from haptera.testing import calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of, make_agent
from tests.stores.store_factories import STORE_FACTORIES, open_store


@pytest.fixture(params=list(STORE_FACTORIES))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(request.param, tmp_path)
    yield opened
    await opened.close()


def agent_on(store: Store, steps: Sequence[Step] = (), **options: Any) -> Agent:
    agent, _ = make_agent(steps, store=store, project="house", **options)
    return agent


async def talk(agent: Agent, name: str, *prompts: str) -> str:
    async with agent.session(name) as session:
        for prompt in prompts:
            await session.chat(prompt)
        return str(session.session_id)


async def test_sessions_are_listed_by_page_project_tag_and_archive(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b"), says("c")])
    other, _ = make_agent([says("d")], store=store, project="garden")
    for name in ("one", "two", "three"):
        await talk(agent, name, "hi")
    await talk(other, "four", "hi")
    sessions = agent.sessions
    assert {info.name for info in await sessions.list()} == {"one", "two", "three"}
    everywhere = await sessions.list(everywhere=True)
    assert {info.name for info in everywhere} == {"one", "two", "three", "four"}
    first = await sessions.list(limit=2)
    rest = await sessions.list(limit=2, after=first[-1].id)
    assert {info.name for info in (*first, *rest)} == {"one", "two", "three"}
    await sessions.tag("one", "billing", "x")
    await sessions.untag("one", "x")
    assert [info.name for info in await sessions.list(tag="billing")] == ["one"]
    await sessions.archive("two")
    assert {info.name for info in await sessions.list()} == {"one", "three"}
    assert [info.name for info in await sessions.list(archived=True)] == ["two"]
    assert len(await sessions.list(archived=None)) == 3
    await sessions.archive("two", undo=True)
    assert len(await sessions.list()) == 3


async def test_sessions_are_found_and_counted_by_what_programs_say_of_them(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b"), says("c")])
    for name in ("ana-1", "ana-2", "bo-1"):
        async with agent.session(name) as session:
            await session.chat("hi", sender=Sender(user_id=name.partition("-")[0]))
    sessions = agent.sessions
    await sessions.update("ana-1", metadata={"tenant": "x", "plan": 1}, tags=["a", "b"])
    await sessions.update("bo-1", metadata={"tenant": "x"}, tags=["a"], status="in review")
    cases: tuple[tuple[ListKeywords, set[str]], ...] = (
        ({"metadata": {"tenant": "x"}}, {"ana-1", "bo-1"}),
        ({"metadata": {"tenant": "x", "plan": 1}}, {"ana-1"}),
        ({"metadata": {"plan": "1"}}, set()),
        ({"tags": ["a", "b"]}, {"ana-1"}),
        ({"tag": "a", "tags": ["b"]}, {"ana-1"}),
        ({"name_prefix": "ana-"}, {"ana-1", "ana-2"}),
        ({"sender": "ana"}, {"ana-1", "ana-2"}),
        ({"sender": "ana", "metadata": {"tenant": "x"}}, {"ana-1"}),
        ({"status": "in review"}, {"bo-1"}),
        ({"status": "idle"}, {"ana-1", "ana-2"}),
        ({"since": datetime(2000, 1, 1, tzinfo=UTC)}, {"ana-1", "ana-2", "bo-1"}),
        ({"since": datetime(2100, 1, 1, tzinfo=UTC)}, set()),
        ({"since": 0}, {"ana-1", "ana-2", "bo-1"}),
    )
    for options, names in cases:
        assert {info.name for info in await sessions.list(**options)} == names, options
        assert await sessions.count(**cast("CountKeywords", options)) == len(names), options
    assert [info.name for info in await sessions.list(order="name")] == ["ana-1", "ana-2", "bo-1"]
    oldest = await sessions.list(order="oldest")
    assert list(await sessions.list(order="created")) == list(reversed(oldest))
    with pytest.raises(ConfigError, match="order"):
        await sessions.list(order="size")  # type: ignore[arg-type]


async def test_beginnings_of_words_are_found(store: Store) -> None:
    agent = agent_on(store, [says("Swallows nest."), says("我喜欢燕子的窝")])
    await talk(agent, "birds", "What nests?", "In Chinese?")
    (found,) = await agent.sessions.search("swal*")
    assert found.hit.snippet == "Swallows nest."
    assert await agent.sessions.search("swal", prefix=True) == (found,)
    assert await agent.sessions.search("swal") == ()
    (found,) = await agent.sessions.search("燕子")
    assert found.session.name == "birds"


async def test_what_was_said_is_found_with_its_session(store: Store) -> None:
    agent = agent_on(store, [says("The fjord is deep."), says("Nothing.")])
    await talk(agent, "norway", "Tell me about Bergen")
    await talk(agent, "other", "And this?")
    (found,) = await agent.sessions.search("fjord deep")
    assert (found.session.name, "fjord" in found.hit.snippet) == ("norway", True)
    assert await agent.sessions.search("submarine") == ()


async def test_a_session_is_described_by_name_and_by_id(store: Store) -> None:
    agent = agent_on(store, [says("a")])
    session_id = await talk(agent, "one", "hi")
    by_name, by_id = await agent.sessions.get("one"), await agent.sessions.get(session_id)
    assert by_name == by_id
    assert (by_name.project, by_name.model, by_name.status) == ("house", "scripted/one", "idle")
    assert is_default_title(by_name.title)


async def test_a_session_that_is_not_there_names_the_project_and_where_it_is(store: Store) -> None:
    agent = agent_on(store)
    other, _ = make_agent([says("d")], store=store, project="garden")
    await talk(other, "roses", "hi")
    error = await failure_of(agent.sessions.get("roses"))
    assert error.code is ErrorCode.NOT_FOUND
    assert "'house'" in error.message
    assert "'garden'" in error.message
    elsewhere = await failure_of(agent.sessions.get("tulips"))
    assert "garden" not in elsewhere.message


async def test_another_owner_s_sessions_are_neither_listed_nor_named(store: Store) -> None:
    ana = agent_on(store, [says("a")], owner="ana")
    bob = agent_on(store, owner="bob")
    session_id = await talk(ana, "secret-plan", "hi")
    assert await bob.sessions.list(everywhere=True) == ()
    for reference in ("secret-plan", session_id):
        for attempt in (bob.sessions.get(reference), bob.sessions.delete(reference)):
            error = await failure_of(attempt)
            assert error.code is ErrorCode.NOT_FOUND
            assert "ana" not in error.message
    assert len(await ana.sessions.list()) == 1


async def test_fields_are_changed_and_cleared(store: Store) -> None:
    agent = agent_on(store, [says("a")])
    await talk(agent, "one", "hi")
    info = await agent.sessions.update(
        "one",
        title="Invoices",
        metadata={"customer": 7},
        status="queued",
        workflow_id="w-1",
        error_message="none yet",
        system_prompt="Be brief.",
    )
    assert (info.title, info.status, info.workflow_id) == ("Invoices", "queued", "w-1")
    assert (info.error_message, info.metadata["customer"]) == ("none yet", 7)
    async with agent.session("one") as session:
        assert session.settings.system_prompts == ("Be brief.",)
    cleared = await agent.sessions.update(
        "one", title=None, status=None, metadata={"customer": None}
    )
    assert (is_default_title(cleared.title), cleared.status) == (True, "idle")
    assert cleared.metadata == {"workflow_id": "w-1", "error_message": "none yet"}


async def test_a_renamed_session_is_found_by_its_new_name_only(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b")])
    await talk(agent, "one", "hi")
    await talk(agent, "two", "hi")
    await agent.sessions.rename("one", "first")
    assert (await agent.sessions.get("first")).name == "first"
    assert (await failure_of(agent.sessions.get("one"))).code is ErrorCode.NOT_FOUND
    with pytest.raises(StoreError) as caught:
        await agent.sessions.rename("first", "two")
    assert caught.value.code is ErrorCode.CONFLICT


async def test_an_open_session_is_changed_where_it_is(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b")])
    async with agent.session("one") as session:
        await session.chat("hi")
        assert (await agent.sessions.update("one", title="T")).title == "T"
        await session.chat("again")
    assert (await agent.sessions.get("one")).title == "T"


async def test_a_session_that_another_agent_holds_is_changed_by_its_holder(store: Store) -> None:
    holder, other = agent_on(store, [says("a"), says("b")]), agent_on(store)
    async with holder.session("one") as session:
        await session.chat("hi")
        await other.sessions.update("one", title="from afar")
        async for event in session.events():
            if event.kind == "session.changed":
                break
    assert (await other.sessions.get("one")).title == "from afar"


async def test_touching_makes_a_session_the_last_updated_one(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b")])
    await talk(agent, "one", "hi")
    await talk(agent, "two", "hi")
    await agent.sessions.touch("one")
    heads = {info.name: info.head for info in await agent.sessions.list()}
    assert heads["one"] == heads["two"] + 1


async def test_an_unknown_option_says_what_was_meant(store: Store) -> None:
    sessions: Any = agent_on(store).sessions
    for attempt in (
        sessions.list(archivd=True),
        sessions.update("x", titel="y"),
        sessions.create(nam="z"),
    ):
        error = await failure_of(attempt)
        assert (error.code, "did you mean" in error.message) == (ErrorCode.CONFIG_INVALID, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", -1),
        ("limit", "all"),
        ("phase", "sleeping"),
        ("tag", ["a"]),
        ("archived", "yes"),
        ("updated_after", "today"),
        ("updated_after", -1),
        ("updated_before", -1),
        ("project", None),
    ],
)
async def test_a_list_of_sessions_that_cannot_be_meant_is_refused(
    store: Store, name: str, value: object
) -> None:
    sessions: Any = agent_on(store).sessions
    error = await failure_of(sessions.list(**{name: value}))
    assert error.code is ErrorCode.CONFIG_INVALID
    assert error.message.startswith(f"sessions.list(): option {name!r} ")


@pytest.mark.parametrize(
    ("name", "value"), [("title", 7), ("tags", "billing"), ("metadata", ["a"]), ("status", True)]
)
async def test_a_change_that_cannot_be_meant_is_refused_and_changes_nothing(
    store: Store, name: str, value: object
) -> None:
    agent = agent_on(store, [says("a")])
    await talk(agent, "one", "hi")
    sessions: Any = agent.sessions
    before = await sessions.list()
    for attempt in (
        sessions.update("one", **{name: value}),
        sessions.create(name="two", **{name: value}),
    ):
        error = await failure_of(attempt)
        assert error.code is ErrorCode.CONFIG_INVALID
        assert f"option {name!r} " in error.message
    assert await sessions.list() == before


async def test_a_page_may_be_empty_or_hold_everything(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b")])
    await talk(agent, "one", "hi")
    await talk(agent, "two", "hi")
    assert await agent.sessions.list(limit=0) == ()
    assert len(await agent.sessions.list(limit=None, tag=None, after=None)) == 2


async def test_statistics_add_up_what_the_log_says(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b")])
    await talk(agent, "one", "hi", "there")
    stats = await agent.sessions.stats("one")
    assert (stats.messages, stats.queries, stats.turns, stats.tool_calls) == (4, 2, 2, 0)


async def test_messages_come_in_pages_with_what_is_known_of_them(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b"), says("c")])
    await talk(agent, "one", "1", "2", "3")
    sessions = agent.sessions
    whole = await sessions.messages("one")
    assert [each.message.text for each in whole] == ["1", "a", "2", "b", "3", "c"]
    assert [each.parent for each in whole[1:]] == [each.message.id for each in whole[:-1]]
    assert all(each.time and each.folder == "house" for each in whole)
    answer = whole[1]
    assert (len(answer.parts), answer.parts[0].ended is not None) == (1, True)
    middle = whole[3].message.id
    after = await sessions.messages("one", after=middle, limit=1)
    before = await sessions.messages("one", before=middle, limit=2)
    assert [each.message.text for each in (*before, *after)] == ["a", "2", "3"]
    error = await failure_of(sessions.messages("one", after="msg_unknown"))
    assert error.code is ErrorCode.MESSAGE_NOT_FOUND


async def test_messages_are_shown_as_they_were_after_a_seq(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b")])
    await talk(agent, "one", "1")
    head = (await agent.sessions.get("one")).head
    await talk(agent, "one", "2")
    then = await agent.sessions.messages("one", through=head)
    assert [each.message.text for each in then] == ["1", "a"]


async def test_a_deleted_session_is_gone_and_a_prompt_to_it_is_not_found(store: Store) -> None:
    agent = agent_on(store, [says("a")])
    session_id = await talk(agent, "one", "hi")
    remote = await agent.remote("one")
    await agent.sessions.delete("one")
    assert await agent.sessions.list(archived=None) == ()
    assert await agent.sessions.search("hi") == ()
    assert await store.log.read(SessionId(session_id)) == []
    with pytest.raises(SessionError) as caught:
        await remote.send("hello?")
    assert caught.value.code is ErrorCode.NOT_FOUND
    async with agent.session("one") as again:
        assert again.messages == ()


async def test_an_open_session_is_closed_before_it_is_deleted(store: Store) -> None:
    agent = agent_on(store, [says("a")])
    async with agent.session("one") as session:
        await session.chat("hi")
        await agent.sessions.delete("one")
        assert session.closed


async def test_a_session_deletes_itself(store: Store) -> None:
    agent = agent_on(store, [says("a")])
    session = await agent.session("one").open()
    await session.chat("hi")
    await session.delete()
    assert (session.closed, await agent.sessions.list()) == (True, ())


async def test_a_session_that_another_agent_holds_is_not_deleted(store: Store) -> None:
    holder, other = agent_on(store, [says("a"), says("b")]), agent_on(store)
    async with holder.session("one") as session:
        await session.chat("hi")
        assert (await failure_of(other.sessions.delete("one"))).code is ErrorCode.BUSY
        await session.chat("still here")


async def test_a_session_that_is_not_deleted_keeps_the_sessions_of_its_sub_agents(
    store: Store,
) -> None:
    helper, _ = make_agent([says("helped")])
    tools = [helper.as_tool(name="helper", description="Helps.")]
    holder = agent_on(store, [calls(("helper", {"prompt": "help"})), says("a")], tools=tools)
    other = agent_on(store)
    async with holder.session("one") as session:
        await session.chat("hi")
        assert (await failure_of(other.sessions.delete("one"))).code is ErrorCode.BUSY
        (child,) = (await other.sessions.tree("one")).children
    await other.sessions.delete("one")
    assert await store.log.read(SessionId(child.session.id)) == []


async def test_a_fork_keeps_what_it_needs_of_a_deleted_parent(store: Store) -> None:
    agent = agent_on(store, [says("a"), says("b"), says("c")])
    async with agent.session("parent") as session:
        await session.chat("hi")
        fork = await session.fork(name="child")
        await fork.close()
    parent_id = (await agent.sessions.get("parent")).id
    assert [info.name for info in await agent.sessions.children("parent")] == ["child"]
    await agent.sessions.delete("parent")
    assert [info.name for info in await agent.sessions.list()] == ["child"]
    assert (await failure_of(agent.sessions.get(parent_id))).code is ErrorCode.NOT_FOUND
    async with agent.session("child", must_exist=True) as child:
        assert [message.text for message in child.messages] == ["hi", "a"]
        await child.chat("more")
    assert [found.session.name for found in await agent.sessions.search("more")] == ["child"]
    await agent.sessions.delete("child")
    assert await store.log.read(parent_id) == []


async def test_context_and_summary_are_saved_merged_and_restored(store: Store) -> None:
    agent = agent_on(store, [says("a")])
    await talk(agent, "one", "hi")
    sessions = agent.sessions
    assert await sessions.context("one") == ActiveContext()
    assert await sessions.summary("one") is None
    await sessions.set_context("one", ActiveContext(cwd="/work", open_files=("a.py",)))
    await sessions.set_context("one", ActiveContext(preferences={"theme": "dark"}))
    saved = await sessions.context("one")
    assert (saved.cwd, saved.open_files, saved.preferences) == (
        "/work",
        ("a.py",),
        {"theme": "dark"},
    )
    await sessions.set_summary("one", SessionSummary(title="T", body="B", topics=("x",)))
    summary = await sessions.summary("one")
    assert summary is not None
    assert (summary.title, summary.topics, summary.made > 0) == ("T", ("x",), True)


async def test_created_switched_updated_and_deleted_sessions_are_announced(store: Store) -> None:
    agent = agent_on(store, [says("a")])
    seen: list[SessionEvent] = []
    stop = agent.sessions.on(seen.append)
    async with await agent.sessions.create(name="one", title="T", tags=["x"]) as session:
        assert (await agent.sessions.get("one")).tags == ("x",)
    assert (await failure_of(agent.sessions.create(name="one"))).code is ErrorCode.CONFLICT
    async with await agent.sessions.create(name="two"):
        pass
    active = await agent.sessions.switch_to("one")
    assert (agent.sessions.active, await agent.sessions.switch_to("one")) == (active, active)
    await agent.sessions.switch_to("two")
    assert active.closed
    await agent.sessions.update("two", title="Two")
    await agent.sessions.delete("two")
    assert agent.sessions.active is None
    stop()
    await agent.sessions.delete("one")
    assert [event.kind for event in seen] == [
        "created",
        "created",
        "switched",
        "switched",
        "updated",
        "deleted",
    ]
    assert seen[0].session_id == session.session_id
    await agent.close()


async def test_verifying_and_pruning(store: Store) -> None:
    agent = agent_on(store, [says("a")])
    await talk(agent, "one", "hi")
    health = await agent.sessions.verify("one")
    assert (health.ok, health.entries > 3) == (True, True)
    assert await agent.sessions.repair() == 1
    assert [info.name for info in await agent.sessions.prune(days=-1, dry_run=True)] == ["one"]
    assert len(await agent.sessions.list()) == 1
    assert await agent.sessions.prune(days=30) == ()
    assert [info.name for info in await agent.sessions.prune(days=-1)] == ["one"]
    assert await agent.sessions.list() == ()


def test_default_titles_say_when_and_whether_it_is_a_child() -> None:
    assert default_title(0) == "New session - 1970-01-01T00:00:00.000Z"
    assert is_default_title(default_title(1_790_000_000_123, is_child=True))
    assert not is_default_title("New session - today")


async def test_a_failed_query_shows_in_the_list(store: Store) -> None:
    refusal = ProviderError(ErrorCode.AUTH, "no such key")
    agent = agent_on(store, [refusal])
    async with agent.session("one") as session:
        await failure_of(session.chat("hi"))
    info = await agent.sessions.get("one")
    assert (info.status, bool(info.error_message)) == ("failed", True)


async def test_a_closed_agent_opens_no_store_again(tmp_path: Path) -> None:
    agent, _ = make_agent([], store=f"sqlite:{tmp_path / 'chats.db'}")
    assert await agent.sessions.list() == ()
    await agent.close()
    for attempt in (agent.sessions.list(), agent.sessions.get("x"), agent.remote("x")):
        assert (await failure_of(attempt)).code is ErrorCode.CLOSED


async def test_sessions_are_made_by_the_factory_that_was_set(store: Store) -> None:
    class Watched(AgentSession):
        """A session of the program's own kind."""

    agent = agent_on(store, [says("a")])
    agent.sessions.factory = Watched
    async with await agent.sessions.create(name="one") as made:
        assert isinstance(made, Watched)
    switched = await agent.sessions.switch_to("one")
    assert isinstance(switched, Watched)
    assert (await switched.chat("hi")).text == "a"
    await agent.close()
