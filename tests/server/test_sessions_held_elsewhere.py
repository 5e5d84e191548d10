"""Two servers over one store: each answers for every session, whichever of them holds it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from haptera import AgentSession
from haptera.model.log.sessions import CommandEnded
from haptera.testing import calls, says
from haptera.testing.scripted_provider import Step
from tests.agent.sessions.test_native_sessions import transcript_of, turn
from tests.providers.claude_agent.children import FIRST, Child, agent_of
from tests.scripted_agents import HeldWork, live_of, log_of, make_agent, texts_in
from tests.server.serving import Served, serving

LONG = "word " * 340


@contextlib.asynccontextmanager
async def held_elsewhere(
    folder: Path, steps: Sequence[Step], **options: Any
) -> AsyncIterator[tuple[AgentSession, Served, str]]:
    """Serve a session that another agent holds, and return the URL of it."""
    store = f"sqlite:{folder / 'sessions.db'}"
    holder, provider = make_agent(steps, store=store, **options)
    other, _ = make_agent([], store=store)
    async with holder, holder.session() as session, serving(other) as served:
        yield session, served, f"/api/v1/sessions/{session.session_id}"
    provider.check()


@pytest.mark.slow
async def test_a_session_is_rewound_forked_and_configured_through_its_holder(
    tmp_path: Path,
) -> None:
    steps = [says("one"), says("two"), says("three")]
    async with held_elsewhere(tmp_path, steps) as (session, served, path):
        await session.chat("a")
        await session.chat("b")
        ids = [item.id for item in session.messages]
        to = {"message_id": ids[1]}
        status, tried = await served.call("POST", f"{path}/rewind", {**to, "dry_run": True})
        assert (status, tried["rewind"]["is_done"]) == (200, False)
        assert tried["rewind"]["messages"] == ids[2:]
        status, moved = await served.call("POST", f"{path}/rewind", to)
        assert (status, moved["rewind"]["is_done"]) == (200, True)
        assert moved["head"] > tried["head"]
        _, page = await served.call("GET", f"{path}/messages")
        assert [item["message"]["id"] for item in page["data"]] == ids[:2]
        assert (await served.call("POST", f"{path}/rewind"))[0] == 200
        status, fork = await served.call("POST", f"{path}/fork", {"at_message_id": ids[1]})
        assert (status, fork["parent"]) == (201, session.session_id)
        status, changed = await served.call("PATCH", path, {"model": "scripted/two"})
        assert (status, changed["model"]) == (200, "scripted/two")
        assert session.settings.model == "scripted/two"
        await session.wait_idle()
        assert (await session.chat("c")).text == "three"
        assert [item.id for item in session.messages[:4]] == ids
        ends = [entry for entry in await log_of(session) if isinstance(entry, CommandEnded)]
        assert [entry.error for entry in ends] == [None] * 4


@pytest.mark.slow
async def test_only_a_query_that_runs_makes_a_session_busy(tmp_path: Path) -> None:
    work = HeldWork()
    steps = [says("one"), calls(("work", {})), says("done")]
    async with held_elsewhere(tmp_path, steps, tools=[work.tool]) as (session, served, path):
        await session.chat("a")
        to = {"message_id": session.messages[1].id}
        running = asyncio.ensure_future(session.chat("work"))
        await work.started.wait()
        for route, body in (("rewind", to), ("rewind", {}), ("compact", {})):
            status, problem = await served.call("POST", f"{path}/{route}", body)
            assert (status, problem["code"]) == (409, "BUSY")
        assert (await served.call("POST", f"{path}/fork"))[0] == 201
        assert (await served.call("PATCH", path, {"model": "scripted/two"}))[0] == 200
        status, told = await served.call("POST", f"{path}/resume")
        assert (status, told["resumed"]) == (200, True)
        assert told["query_id"] == session.unfinished.query_id
        work.release.set()
        assert (await running).text == "done"
        missing = await served.call("POST", f"{path}/rewind", {"message_id": "msg_none"})
        assert (missing[0], missing[1]["code"]) == (404, "MESSAGE_NOT_FOUND")


@pytest.mark.slow
async def test_a_session_is_compacted_by_its_holder_and_resumed_without_its_lease(
    tmp_path: Path,
) -> None:
    steps = [says("one"), says("two"), says("the summary")]
    async with held_elsewhere(tmp_path, steps) as (session, served, path):
        await session.chat(f"a {LONG}")
        await session.chat(f"b {LONG}")
        status, compaction = await served.call("POST", f"{path}/compact", {"instructions": "all"})
        assert status == 200, compaction
        assert "the summary" in compaction["summary"]
        status, told = await served.call("POST", f"{path}/resume", {"model": "scripted/two"})
        assert status == 200, told
        assert (told["provider"], told["model"]) == ("scripted", "two")
        assert (told["resumed"], told["messages_loaded"]) == (False, len(session.messages))
        assert (told["compactions_applied"], told["auto_compacted"]) == (1, False)
        assert told["context_tokens"] > 0
        assert (await live_of(session)).closed is False


async def test_a_message_after_a_rewind_is_answered_and_nothing_else() -> None:
    agent, provider = make_agent([says("one"), says("two"), says("three")])
    async with serving(agent) as served:
        path = f"/api/v1/sessions/{await served.new_session()}"
        wait = {"prefer": "wait=30"}
        for text in ("a", "b"):
            await served.call("POST", f"{path}/messages", {"content": text}, headers=wait)
        _, page = await served.call("GET", f"{path}/messages")
        to = {"message_id": page["data"][2]["message"]["id"]}
        assert (await served.call("POST", f"{path}/rewind", to))[0] == 200
        _, ended = await served.call("POST", f"{path}/messages", {"content": "c"}, headers=wait)
        assert ended["text"] == "three"
    provider.check()
    assert [texts_in(request)[-1] for request in provider.requests] == ["a", "b", "bc"]


@pytest.mark.parametrize("body", [{"files": True}, {"dry_run": True}])
async def test_what_a_rewind_without_a_message_cannot_take_is_refused(body: Any) -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        path = f"/api/v1/sessions/{await served.new_session()}/rewind"
        assert (await served.call("POST", path, body))[0] == 400
        files = {"message_id": "msg_none", "files": True}
        status, problem = await served.call("POST", path, files)
        assert (status, problem["code"]) == (409, "CONFIG_MISSING")


async def test_usage_is_told_by_session_day_and_model() -> None:
    agent, _ = make_agent([says("hi"), says("ho")])
    async with serving(agent) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        for model in ("scripted/one", "scripted/two"):
            await served.call("PATCH", path, {"model": model})
            body, wait = {"content": "hello"}, {"prefer": "wait=30"}
            assert (await served.call("POST", f"{path}/messages", body, headers=wait))[0] == 200
        _, stats = await served.call("GET", f"{path}/usage")
        _, by_model = await served.call("GET", "/api/v1/usage?group_by=model")
        assert [each["model"] for each in by_model["data"]] == ["scripted/one", "scripted/two"]
        assert [each["stats"]["turns"] for each in by_model["data"]] == [1, 1]
        _, by_day = await served.call("GET", "/api/v1/usage?group_by=day")
        (day,) = by_day["data"]
        assert day["day"].count("-") == 2
        assert {**day["stats"], "messages": stats["messages"]} == stats
        assert (await served.call("GET", "/api/v1/usage?group_by=owner"))[0] == 400


@pytest.mark.slow
async def test_an_agent_that_keeps_its_own_session_is_resumed_without_replaying(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, turn("Hello."))
    transcript_of(child)
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    async with agent_of(child, store=store) as agent, agent.session() as session:
        await session.chat("hi")
        session_id = session.session_id
    async with serving(agent_of(child, store=store)) as served:
        status, told = await served.call("POST", f"/api/v1/sessions/{session_id}/resume")
    assert status == 200, told
    assert (told["resumed"], told["native_session_id"]) == (True, FIRST)
    assert told["provider"] == "claude-agent"
    replayed = {
        "context_tokens",
        "context_window",
        "messages_loaded",
        "compactions_applied",
        "auto_compacted",
    }
    assert replayed.isdisjoint(told)
