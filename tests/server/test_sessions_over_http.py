"""Sessions over HTTP: create, list, change, read, fork, rewind, export, import and delete them."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest

from haptera import tool
from haptera.model.ids import new_session_id
from haptera.server.app import OPERATIONS
from haptera.server.openapi import document
from haptera.testing import calls, says
from haptera.testing.scripted_provider import Gate
from tests.scripted_agents import make_agent
from tests.server.serving import Served, serving

WAIT = {"prefer": "wait=30"}


async def _say(served: Served, session_id: str, text: str = "hello", **fields: Any) -> Any:
    """Send a message, wait for the answer, and return it."""
    path = f"/api/v1/sessions/{session_id}/messages"
    body = {"content": text, **fields}
    status, ended = await served.call("POST", path, body, headers=WAIT)
    assert status == 200, ended
    return ended


async def test_health_and_the_document_need_no_token_and_the_rest_does() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        for path in ("/healthz", "/readyz", "/openapi.json"):
            status, body = await served.call("GET", path, headers={"authorization": ""})
            assert status == 200
            assert body
        status, problem = await served.call("GET", "/api/v1/info", headers={"authorization": ""})
        assert (status, problem["code"]) == (401, "TOKEN_REQUIRED")
        status, info = await served.call("GET", "/api/v1/info")
        assert status == 200
        assert info["owner"] == "local"
        assert info["model"] == "scripted/one"


async def test_what_the_router_refuses_is_a_problem_too() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        status, problem = await served.call("GET", "/api/v1/nothing")
        assert (status, problem["status"], problem["code"]) == (404, 404, "NOT_FOUND")
        async with served.client.put(served.url + "/api/v1/sessions") as answer:
            assert answer.status == 405
            assert answer.content_type == "application/problem+json"
            assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


async def test_sessions_are_found_and_counted_by_metadata_tags_and_order() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        for name, tenant in (("b", "x"), ("a", "x"), ("c", "y")):
            body = {"name": name, "tags": ["t", name], "metadata": {"tenant": tenant}}
            await served.call("POST", "/api/v1/sessions", body)
        wanted = quote(json.dumps({"tenant": "x"}))
        _, page = await served.call("GET", f"/api/v1/sessions?metadata={wanted}&order=name")
        assert [each["name"] for each in page["data"]] == ["a", "b"]
        _, page = await served.call("GET", "/api/v1/sessions?tags=t,c&since=2000-01-01T00:00:00Z")
        assert [each["name"] for each in page["data"]] == ["c"]
        for query, count in ((f"metadata={wanted}", 2), ("name_prefix=c", 1), ("sender=ana", 0)):
            _, counted = await served.call("GET", f"/api/v1/sessions:count?{query}")
            assert counted == {"count": count}, query
        for query in ("metadata=[1]", "metadata={", "order=size", "since=soon"):
            status, _ = await served.call("GET", f"/api/v1/sessions?{query}")
            assert status == 400, query


async def test_a_session_is_created_once_with_an_id_of_the_clients_choice() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        body = {"id": new_session_id(), "title": "Plans", "tags": ["b", "a"]}
        status, made = await served.call("POST", "/api/v1/sessions", body)
        assert status == 201
        assert made["id"] == body["id"]
        assert made["tags"] == ["a", "b"]
        status, again = await served.call("POST", "/api/v1/sessions", body)
        assert status == 200
        assert again["id"] == made["id"]
        status, problem = await served.call("POST", "/api/v1/sessions", {**body, "title": "Other"})
        assert (status, problem["code"]) == (409, "CONFLICT")
        status, _ = await served.call("POST", "/api/v1/sessions", {"id": "x" * 36})
        assert status == 400


async def test_the_model_and_the_system_prompt_of_a_new_session_are_those_of_its_queries() -> None:
    agent, provider = make_agent([says("Ahoy.")], system_prompt="Be brief.")
    async with serving(agent) as served:
        session_id = await served.new_session(model="scripted/two", system_prompt="Be a sailor.")
        await _say(served, session_id)
        _, found = await served.call("GET", f"/api/v1/sessions/{session_id}")
    assert found["model"] == "scripted/two"
    assert [(each.model, each.system) for each in provider.requests] == [("two", ("Be a sailor.",))]


async def test_a_session_whose_name_is_taken_leaves_nothing_behind() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        await served.new_session(name="ana")
        status, problem = await served.call("POST", "/api/v1/sessions", {"name": "ana"})
        assert (status, problem["code"]) == (409, "CONFLICT")
        _, page = await served.call("GET", "/api/v1/sessions")
        assert len(page["data"]) == 1


@pytest.mark.slow
async def test_sessions_are_listed_in_pages_and_found_by_what_was_said() -> None:
    agent, _ = make_agent([says("the anchor holds"), says("something else")])
    async with serving(agent) as served:
        first, second = await served.new_session(), await served.new_session()
        await _say(served, first)
        await _say(served, second)
        _, page = await served.call("GET", "/api/v1/sessions?limit=1")
        _, rest = await served.call("GET", f"/api/v1/sessions?after={page['next_cursor']}")
        assert {each["id"] for each in page["data"] + rest["data"]} == {first, second}
        _, found = await served.call("GET", "/api/v1/sessions?q=anchor")
        assert [each["id"] for each in found["data"]] == [first]
        _, made = await served.call("GET", f"/api/v1/sessions/{first}")
        listed = {
            f"project={quote(made['project'], safe='')}": 2,
            "project=elsewhere": 0,
            "phase=idle": 2,
            "phase=waiting": 0,
            f"parent_id={first}": 0,
            "tag=none": 0,
        }
        for query, count in listed.items():
            _, page = await served.call("GET", f"/api/v1/sessions?{query}")
            assert len(page["data"]) == count, query
        for query in ("nonsense=1", "phase=nonsense", "limit=0", "limit=1&limit=2", "after=x"):
            assert (await served.call("GET", f"/api/v1/sessions?{query}"))[0] == 400, query


async def test_a_session_is_changed_only_as_it_was_read_then_archived_and_deleted() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        path = f"/api/v1/sessions/{await served.new_session(name='ana')}"
        async with served.client.get(served.url + path) as answer:
            etag = answer.headers["etag"]
        change = {"title": "Plans", "name": None, "model": "scripted/two", "archived": True}
        status, made = await served.call("PATCH", path, change, headers={"if-match": etag})
        assert status == 200, made
        assert (made["title"], made.get("name"), made["model"]) == ("Plans", None, "scripted/two")
        assert made["archived"]
        for method, body in (("PATCH", {}), ("DELETE", None)):
            for stale in (etag, f"W/{etag}", f'"x", {etag}', f'W/"{made["head"]}"', ""):
                status, problem = await served.call(method, path, body, headers={"if-match": stale})
                assert (status, problem["code"]) == (412, "CHANGED"), (method, stale)
        for right in ("*", f'"{made["head"]}"', f'{etag} ,"{made["head"]}"'):
            assert (await served.call("PATCH", path, {}, headers={"if-match": right}))[0] == 200
        _, page = await served.call("GET", "/api/v1/sessions")
        assert page["data"] == []
        assert (await served.call("DELETE", path))[0] == 204
        assert (await served.call("GET", path))[0] == 404
        assert (await served.call("DELETE", path))[0] == 404


async def test_messages_say_how_far_they_reach() -> None:
    agent, _ = make_agent([says("hi")])
    async with serving(agent) as served:
        session_id = await served.new_session()
        ended = await _say(served, session_id)
        assert (ended["text"], ended["end"]["stop_reason"]) == ("hi", "complete")
        _, page = await served.call("GET", f"/api/v1/sessions/{session_id}/messages")
        assert [each["message"]["role"] for each in page["data"]] == ["user", "assistant"]
        assert page["watermark"] == ended["seq"]


@pytest.mark.slow
async def test_fork_and_rewind_and_back() -> None:
    agent, _ = make_agent([says("one"), says("two")])
    async with serving(agent) as served:
        session_id = await served.new_session()
        first = await _say(served, session_id)
        await _say(served, session_id)
        path = f"/api/v1/sessions/{session_id}"
        at = {"at_message_id": first["end"]["message_id"]}
        status, fork = await served.call("POST", f"{path}/fork", at)
        assert status == 201
        assert fork["parent"] == session_id
        _, page = await served.call("GET", f"/api/v1/sessions/{fork['id']}/messages")
        assert len(page["data"]) == 2
        to = {"message_id": first["end"]["message_id"]}
        assert (await served.call("POST", f"{path}/rewind", to))[0] == 200
        assert len((await served.call("GET", f"{path}/messages"))[1]["data"]) == 2
        assert (await served.call("POST", f"{path}/rewind"))[0] == 200
        assert len((await served.call("GET", f"{path}/messages"))[1]["data"]) == 4
        missing = await served.call("POST", f"{path}/rewind", {"message_id": "msg_none"})
        assert (missing[0], missing[1]["code"]) == (404, "MESSAGE_NOT_FOUND")


FORMATS = (
    "archive",
    "claude-code",
    "codex",
    "opencode",
    "pi",
    "openai",
    "anthropic",
    "markdown",
    "html",
)


@pytest.mark.slow
async def test_every_format_is_exported_and_what_can_be_read_is_imported() -> None:
    agent, _ = make_agent([says("hi")])
    async with serving(agent) as served:
        session_id = await served.new_session()
        await _say(served, session_id)
        imported = []
        for name in FORMATS:
            path = f"/api/v1/sessions/{session_id}/export?format={name}&redact=true"
            async with served.client.get(served.url + path) as answer:
                assert answer.status == 200
                assert answer.headers["content-disposition"].startswith("attachment")
                assert "sandbox" in answer.headers["content-security-policy"]
                content = await answer.read()
            assert b"hi" in content, name
            headers = {"content-type": "application/octet-stream"}
            status, made = await served.call(
                "POST", f"/api/v1/sessions:import?format={name}", data=content, headers=headers
            )
            if status == 201:
                imported.append(name)
                assert made["format"] == name
            else:
                assert status == 400, made
        assert imported == [name for name in FORMATS if name not in {"markdown", "html"}]


async def test_usage_models_and_tools_are_told() -> None:
    @tool
    def look() -> str:
        """Look around."""
        return "nothing"

    agent, _ = make_agent([says("hi")], tools=[look])
    async with serving(agent) as served:
        session_id = await served.new_session()
        await _say(served, session_id)
        _, stats = await served.call("GET", f"/api/v1/sessions/{session_id}/usage")
        _, page = await served.call("GET", "/api/v1/usage")
        assert stats["usage"]["output"] == 5
        assert page["data"] == [{"session_id": session_id, "model": "scripted/one", "stats": stats}]
        _, tools = await served.call("GET", "/api/v1/tools")
        assert [each["name"] for each in tools["data"]] == ["look"]
        _, models = await served.call("GET", "/api/v1/models")
        assert models["default"] == "scripted/one"


async def test_a_message_with_an_id_is_answered_once_however_often_it_is_sent() -> None:
    agent, provider = make_agent([says("hi")])
    async with serving(agent) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}/messages"
        body = {"content": "hello", "id": "client-1"}
        answers = await asyncio.gather(*(served.call("POST", path, body) for _ in range(5)))
        assert {status for status, _ in answers} == {202}
        assert len({told["query_id"] for _, told in answers}) == 1
        ended = await _say(served, session_id, id="client-1")
        assert ended["text"] == "hi"
        assert ended["query_id"] == answers[0][1]["query_id"]
        status, problem = await served.call("POST", path, {"content": "other", "id": "client-1"})
        assert (status, problem["code"]) == (409, "CONFLICT")
    assert len(provider.requests) == 1


async def test_a_message_may_be_streamed_in_the_reply() -> None:
    agent, _ = make_agent([says("Hel", "lo")])
    async with serving(agent) as served:
        session_id = await served.new_session()
        path, body = f"/api/v1/sessions/{session_id}/messages", {"content": "hello"}
        async with served.events(path, method="POST", body=body) as events:
            got = [event async for event in events]
        kinds = [each.kind for each in got]
        assert kinds[-1] == "query.ended"
        assert "text.delta" in kinds
        assert "".join(e.data["text"] for e in got if e.kind == "text.delta") == "Hello"


async def test_cancel_ignores_the_id_of_a_query_that_does_not_run() -> None:
    gate = Gate()
    agent, _ = make_agent([[says("a")[0], gate, *says("a")[1:]]])
    async with serving(agent) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        _, admitted = await served.call("POST", f"{path}/messages", {"content": "go"})
        await gate.reached.wait()
        assert (await served.call("POST", f"{path}/cancel", {"query_id": "qry_old"}))[0] == 202
        _, now = await served.call("GET", path)
        assert now["phase"] != "idle"
        meant = {"query_id": admitted["query_id"], "reason": "enough"}
        assert (await served.call("POST", f"{path}/cancel", meant))[0] == 202
        async with served.events(f"{path}/events") as events:
            async for event in events:
                if event.kind == "query.ended":
                    break
        assert event.data["stop_reason"] == "aborted"


@pytest.mark.slow
async def test_a_disconnect_aborts_only_where_that_was_asked_for() -> None:
    for choice, expected in (("continue", "complete"), ("abort", "aborted")):
        gate = Gate()
        agent, _ = make_agent([[says("a")[0], gate, *says("a")[1:]]])
        async with serving(agent) as served:
            session_id = await served.new_session()
            path = f"/api/v1/sessions/{session_id}"
            body = {"content": "go", "on_disconnect": choice}
            async with served.events(f"{path}/messages", method="POST", body=body) as events:
                await anext(events)
                await gate.reached.wait()
            while served.app.hub.streams.open:
                await served.call("GET", "/healthz")
            gate.open()
            async with served.events(f"{path}/events") as events:
                async for event in events:
                    if event.kind == "query.ended":
                        break
            assert event.data["stop_reason"] == expected


async def test_an_approval_over_http_carries_the_query_on() -> None:
    ran: list[str] = []

    @tool(approval="ask")
    def remove(path: str) -> str:
        """Remove a file."""
        ran.append(path)
        return "removed"

    script = [calls(("remove", {"path": "a"})), says("done")]
    agent, provider = make_agent(script, tools=[remove])
    async with serving(agent) as served:
        session_id = await served.new_session()
        ended = await _say(served, session_id)
        assert ended["end"]["stop_reason"] == "approval"
        assert not ran
        path = f"/api/v1/sessions/{session_id}"
        _, waiting = await served.call("GET", "/api/v1/sessions?phase=waiting")
        assert [each["id"] for each in waiting["data"]] == [session_id]
        _, pending = await served.call("GET", f"{path}/approvals")
        (asked,) = pending["data"]
        assert asked["tool"] == "remove"
        (card,) = pending["cards"]
        assert card["approval_id"] == asked["id"]
        assert card["parts"] == [
            {"kind": "tool", "words": "tool", "text": "remove"},
            {"kind": "argument", "words": "model", "text": "a", "name": "path"},
        ]
        answer = {"decision": "allow_once"}
        where = f"{path}/approvals/{asked['id']}"
        assert (await served.call("POST", where, answer))[0] == 202
        assert (await served.call("POST", where, answer))[0] == 404
        async with served.events(f"{path}/events?after={ended['seq']}") as events:
            async for event in events:
                if event.kind == "query.ended":
                    break
        assert event.data["stop_reason"] == "complete"
        assert ran == ["a"]
    provider.check()


async def test_resume_says_what_was_loaded_and_carries_a_cut_off_query_on(tmp_path: Any) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    agent, _ = make_agent([calls(("nap", {}))], store=store, tools=[_nap()])
    async with agent, agent.session() as session:
        session_id = session.session_id
        result = await session.chat("go")
        assert result.stop_reason == "approval"
        await session.approve(result.pending[0].id)
    agent, provider = make_agent([says("done")], store=store, tools=[_nap()])
    async with serving(agent) as served:
        path = f"/api/v1/sessions/{session_id}"
        status, told = await served.call("POST", f"{path}/resume", {"model": "scripted/two"})
        assert status == 200, told
        assert told["resumed"] is True
        assert told["query_id"]
        assert (told["provider"], told["model"]) == ("scripted", "two")
        assert told["messages_loaded"] == 3
        assert told["context_tokens"] > 0
        assert (told["compactions_applied"], told["auto_compacted"]) == (0, False)
        assert "native_session_id" not in told
        async with served.events(f"{path}/events?after={told['seq']}") as events:
            async for event in events:
                if event.kind == "query.ended":
                    break
        assert event.data["stop_reason"] == "complete"
        unknown = await served.call("POST", f"/api/v1/sessions/{new_session_id()}/resume")
        assert (unknown[0], unknown[1]["code"]) == (404, "NOT_FOUND")
    provider.check()


def _nap() -> Any:
    @tool(approval="ask")
    def nap() -> str:
        """Sleep."""
        return "rested"

    return nap


async def test_a_session_that_another_process_holds_is_reached_through_its_inbox(
    tmp_path: Any,
) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    holder, provider = make_agent([says("from the holder")], store=store)
    server_agent, _ = make_agent([], store=store)
    async with holder, holder.session() as session, serving(server_agent) as served:
        assert session.session_id is not None
        path = f"/api/v1/sessions/{session.session_id}"
        status, told = await served.call("POST", f"{path}/messages", {"content": "go", "id": "m1"})
        assert status == 202
        async with served.events(f"{path}/events?after={told['seq']}") as events:
            async for event in events:
                if event.kind == "query.ended":
                    break
        assert event.data["query_id"] == told["query_id"]
        status, again = await served.call("POST", f"{path}/messages", {"content": "go", "id": "m1"})
        assert (status, again["query_id"]) == (202, told["query_id"])
        other = await served.call("POST", f"{path}/messages", {"content": "no", "id": "m1"})
        assert (other[0], other[1]["code"]) == (409, "CONFLICT")
        status, fork = await served.call("POST", f"{path}/fork")
        assert (status, fork["parent"]) == (201, session.session_id)
    provider.check()


async def test_one_stream_tells_what_happens_in_all_open_sessions() -> None:
    agent, _ = make_agent([says("a"), says("b")])
    async with serving(agent) as served, served.events("/api/v1/events") as events:
        first, second = await served.new_session(), await served.new_session()
        await _say(served, first)
        await _say(served, second)
        ended: list[str] = []
        created: list[str] = []
        async for event in events:
            if event.kind == "session.created":
                created.append(event.data["session_id"])
            if event.kind == "query.ended":
                ended.append(event.data["session_id"])
            if len(ended) == 2:
                break
        assert created == [first, second]
        assert sorted(ended) == sorted([first, second])


def test_the_document_is_what_the_routes_declare() -> None:
    told = json.loads(json.dumps(document(OPERATIONS)))
    assert told["openapi"] == "3.1.0"
    listed = {
        (method.upper(), path, described["operationId"])
        for path, methods in told["paths"].items()
        for method, described in methods.items()
    }
    assert listed == {(each.method, each.path, each.name) for each in OPERATIONS}
    assert len({name for *_, name in listed}) == len(listed)
