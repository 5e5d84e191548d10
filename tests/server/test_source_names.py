"""The source names of JSON-RPC: chat sessions by fields of other programs, and their resuming."""

from pathlib import Path
from typing import Any

import pytest

from haptera import ErrorCode, SessionError
from haptera.model.ids import new_session_id
from haptera.server import Access, ApiKey
from haptera.testing import says
from tests.agent.sessions.test_native_sessions import transcript_of, turn
from tests.providers.claude_agent.children import (
    FIRST,
    USER,
    Child,
    agent_of,
    emit,
    init,
    result,
    text,
)
from tests.providers.claude_agent.machines import Machine
from tests.scripted_agents import make_agent
from tests.server.rpc_client import CallError, websocket
from tests.server.serving import TOKEN, serving

CONTEXT = {
    "contextTokens",
    "contextWindow",
    "messagesLoaded",
    "compactionsApplied",
    "autoCompacted",
}


async def test_a_chat_session_is_created_read_and_changed_field_by_field() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served, websocket(served) as client:
        made = await client.call(
            "chat/session/create", workflowId="w-1", systemPrompt="Be brief.", title="Plans"
        )
        assert made == {
            "id": made["id"],
            "title": "Plans",
            "provider": "scripted",
            "model": "one",
            "systemPrompt": "Be brief.",
            "cliSessionId": None,
            "status": "idle",
            "errorMessage": None,
            "workflowId": "w-1",
            "createdAt": made["createdAt"],
            "updatedAt": made["updatedAt"],
        }
        assert await client.call("chat/session/get", id=made["id"]) == made
        changes: list[dict[str, Any]] = [
            {"status": "failed", "errorMessage": "no such file"},
            {"systemPrompt": "Be long."},
            {"workflowId": "w-2"},
            {"provider": "scripted", "model": "two"},
            {"errorMessage": None},
        ]
        expected = made
        for change in changes:
            changed = await client.call("chat/session/update", id=made["id"], **change)
            expected = {**expected, **change, "updatedAt": changed["updatedAt"]}
            assert changed == expected
            assert await client.call("chat/session/get", id=made["id"]) == expected
        unchanged = await client.call("chat/session/update", id=made["id"])
        assert unchanged == expected
        described = await client.call("session/get", session_id=made["id"])
        assert described["metadata"] == {"workflow_id": "w-2", "status": "failed"}


async def test_an_id_that_is_missing_or_unknown_is_refused() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served, websocket(served) as client:
        methods = {
            "ai/session/resume": "chatSessionId",
            "chat/session/get": "id",
            "chat/session/update": "id",
        }
        for method, field in methods.items():
            given: tuple[tuple[dict[str, Any], int], ...] = (
                ({}, -32602),
                ({field: 1}, -32602),
                ({field: new_session_id(), "unknown": 1}, -32602),
                ({field: new_session_id()}, -32011),
                ({field: "nothing"}, -32011),
            )
            for params, code in given:
                with pytest.raises(CallError) as caught:
                    await client.call(method, **params)
                assert caught.value.code == code, (method, params)
        with pytest.raises(CallError) as refused:
            await client.call("chat/session/create", cliSessionId=1)
        assert refused.value.code == -32602


async def test_a_session_that_is_replayed_says_what_was_loaded() -> None:
    agent, _ = make_agent([says("hello"), says("again")])
    async with serving(agent) as served, websocket(served) as client:
        session_id = (await client.call("chat/session/create"))["id"]
        empty = await client.call("ai/session/resume", chatSessionId=session_id)
        assert (empty["messagesLoaded"], empty["contextTokens"]) == (0, 0)
        await client.call("message/send", session_id=session_id, content="hi", wait=30)
        told = await client.call("ai/session/resume", chatSessionId=session_id)
        assert set(told) == {
            "aiSessionId",
            "provider",
            "model",
            "sdkSessionId",
            "resumed",
            "resume",
            *CONTEXT,
        }
        assert (told["aiSessionId"], told["provider"], told["model"]) == (
            session_id,
            "scripted",
            "one",
        )
        assert (told["sdkSessionId"], told["resumed"]) == (None, False)
        assert (told["messagesLoaded"], told["autoCompacted"]) == (2, False)
        assert told["contextTokens"] > 0
        # What is given wins over what is stored; what is stored wins over the default.
        for given, model in (
            ({"model": "scripted/two"}, "two"),
            ({}, "two"),
            ({"provider": "scripted", "model": "three"}, "three"),
            ({"model": "four"}, "four"),
            ({"provider": "scripted"}, "four"),
        ):
            told = await client.call("ai/session/resume", chatSessionId=session_id, **given)
            assert (told["provider"], told["model"]) == ("scripted", model), given


@pytest.mark.slow
async def test_a_session_that_an_agent_keeps_goes_on_there_and_nothing_is_loaded(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    first = Child(tmp_path / "a", turn("Hello Ana."))
    agent = agent_of(first, store=store, project="p")
    async with serving(agent) as served, websocket(served) as client:
        session_id = (await client.call("chat/session/create"))["id"]
        await client.call("message/send", session_id=session_id, content="I am Ana", wait=60)
        chat = await client.call("chat/session/get", id=session_id)
        assert (chat["cliSessionId"], chat["provider"]) == (FIRST, "claude-agent")
    second = Child(tmp_path / "b", turn("You are Ana.", 2))
    transcript_of(second)
    agent = agent_of(second, store=store, project="p")
    async with serving(agent) as served, websocket(served) as client:
        told = await client.call("ai/session/resume", chatSessionId=session_id)
        assert told == {
            "aiSessionId": session_id,
            "provider": "claude-agent",
            "model": "claude-sonnet-4-6",
            "sdkSessionId": FIRST,
            "resumed": True,
            "resume": "native",
        }
        sent = await client.call(
            "message/send", session_id=session_id, content="Who am I?", wait=60
        )
        assert (sent["text"], sent["end"]["resume"]) == ("You are Ana.", "native")
    assert f"--resume={FIRST}" in second.argv


async def test_the_id_of_a_native_session_is_refused_for_another_kind_of_model() -> None:
    agent, _ = make_agent([says("hello")])
    async with serving(agent) as served, websocket(served) as client:
        with pytest.raises(CallError) as caught:
            await client.call("chat/session/create", cliSessionId="native-1")
        assert caught.value.code == -32018
        session_id = (await client.call("chat/session/create"))["id"]
        told = await client.call("ai/session/resume", chatSessionId=session_id)
        assert (told["sdkSessionId"], told["resumed"], told["resume"]) == (None, False, "none")
        assert set(told) > CONTEXT


async def test_an_id_that_is_none_of_the_agents_is_refused_and_leaves_no_session(
    tmp_path: Path,
) -> None:
    agent = agent_of(Child(tmp_path, []), store=f"sqlite:{tmp_path / 's.db'}", project="p")
    async with serving(agent) as served, websocket(served) as client:
        with pytest.raises(CallError) as caught:
            await client.call("chat/session/create", cliSessionId=FIRST)
        assert caught.value.code == -32011
        assert (await client.call("session/list"))["data"] == []


async def test_a_session_of_the_cli_is_adopted_and_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    here = Machine(tmp_path / "a", store)
    await here.say("#one")
    (path,) = here.transcripts
    async with (
        serving(here.agent(store=f"jsonl:{tmp_path / 'other'}")) as served,
        websocket(served) as client,
    ):
        made = await client.call("chat/session/create", cliSessionId=path.stem)
        assert made["cliSessionId"] == path.stem
        told = await client.call("ai/session/resume", chatSessionId=made["id"])
        assert (told["resumed"], told["resume"]) == (True, "native")
        listed = await client.call("message/list", session_id=made["id"])
        assert len(listed["data"]) == 2
        sent = await client.call("message/send", session_id=made["id"], content="#two", wait=60)
        assert (sent["text"], sent["end"]["resume"]) == ("seen #one #two", "native")
        with pytest.raises(CallError):
            await client.call("chat/session/update", id=made["id"], cliSessionId=FIRST)
        gone = await client.call("chat/session/create", cliSessionId=path.stem)
        for each in here.transcripts:
            each.unlink()
        for record in (made, gone):
            await client.call("session/get", session_id=record["id"])


async def test_what_is_said_of_a_session_whose_transcript_is_gone_is_true(tmp_path: Path) -> None:
    here = Machine(tmp_path / "a", tmp_path / "store")
    await here.say("#one")
    there = Machine(tmp_path / "b", tmp_path / "elsewhere")
    (path,) = here.transcripts
    path.unlink()
    agent = here.agent(
        claude_agent={"executable": str(there.folder / "claude"), "resume": "replay"}
    )
    async with serving(agent) as served, websocket(served) as client:
        (found,) = (await client.call("session/list", name="ana"))["data"]
        told = await client.call("ai/session/resume", chatSessionId=found["id"])
        assert (told["resumed"], told["resume"], told["messagesLoaded"]) == (False, "replay", 2)


async def test_a_chat_session_is_changed_by_its_session_id_too() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served, websocket(served) as client:
        made = await client.call("chat/session/create")
        changed = await client.call("chat/session/update", sessionId=made["id"], title="Plans")
        assert (changed["id"], changed["title"]) == (made["id"], "Plans")
        for wrong in ({}, {"id": made["id"], "sessionId": new_session_id()}):
            with pytest.raises(CallError) as caught:
                await client.call("chat/session/update", title="x", **wrong)
            assert caught.value.code == -32602


@pytest.mark.slow
async def test_events_have_the_names_of_the_source_for_clients_that_ask(tmp_path: Path) -> None:
    boundary = emit(
        type="system",
        subtype="compact_boundary",
        session_id=FIRST,
        compact_metadata={"trigger": "manual", "pre_tokens": 1234},
    )
    steps = [USER, init(), boundary, *text("Hello."), result("Hello.")]
    agent = agent_of(Child(tmp_path, steps))
    async with serving(agent) as served, websocket(served) as client:
        session_id = (await client.call("chat/session/create"))["id"]
        await client.call("message/send", session_id=session_id, content="/compact", wait=60)
        told = await client.call(
            "session/events", session_id=session_id, follow=False, names="source"
        )
        assert told["subscription"]
        named: dict[str, Any] = {}
        while (sent := await client.others.get())["method"] == "event":
            named[sent["params"]["kind"]] = sent["params"]["event"]
        assert named["compact_boundary"]["pre_tokens"] == 1234
        assert named["result_usage"]["total_cost_usd"] == "0.25"
        path = f"/api/v1/sessions/{session_id}/events?follow=false&names=source"
        status, body = await served.call("GET", f"{path}&types=compact_boundary,result_usage")
        assert status == 200
        lines = [line for line in body.decode().splitlines() if line.startswith("event: ")]
        assert lines[:2] == ["event: compact_boundary", "event: result_usage"]


@pytest.mark.slow
async def test_a_key_adopts_only_what_sessions_of_its_owner_hold(tmp_path: Path) -> None:
    here = Machine(tmp_path / "a", tmp_path / "store")
    await here.say("#secret")
    (path,) = here.transcripts
    key = "key-of-ben-0123456789"
    hers = {"authorization": f"Bearer {key}"}
    elsewhere = f"jsonl:{tmp_path / 'other'}"
    own, bens = (here.agent(store=elsewhere, owner=owner) for owner in ("local", "ben"))
    access = Access(TOKEN, keys=[ApiKey.of(key, owner="ben")])
    said: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "chat/session/create"}
    answers = []
    async with bens, serving(own, agents={"ben": bens}.get, access=access) as served:
        for native_id in (path.stem, FIRST, "nonsense"):
            body = {**said, "params": {"cliSessionId": native_id}}
            _, told = await served.call("POST", "/rpc", body, headers=hers)
            answers.append((told["error"]["code"], told["error"]["message"].replace(native_id, "")))
        body = {**said, "params": {"cliSessionId": path.stem}}
        _, told = await served.call("POST", "/rpc", body)
        assert told["result"]["cliSessionId"] == path.stem, "the server's own user may"
    assert len(set(answers)) == 1, "whether the server has it is not told"


@pytest.mark.slow
async def test_a_program_adopts_a_session_of_the_cli(tmp_path: Path) -> None:
    here = Machine(tmp_path / "a", tmp_path / "store")
    await here.say("#one")
    (path,) = here.transcripts
    agent = here.agent(store="memory")
    async with agent:
        async with agent.session(native_session_id=path.stem) as session:
            assert [message.text for message in session.messages] == ["#one", "seen #one"]
            assert await session.resume_kind() == "native"
            two = await session.chat("#two")
        assert (two.text, two.resume) == ("seen #one #two", "native")
        with pytest.raises(SessionError) as caught:
            await agent.session("new", native_session_id=FIRST).open()
        assert caught.value.code is ErrorCode.NOT_FOUND
        with pytest.raises(SessionError):
            await agent.session("new", must_exist=True).open()
