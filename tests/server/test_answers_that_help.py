"""What a client is told when a request cannot be done, or the application is mounted elsewhere."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from haptera.model.parts import MediaPart, TextPart
from haptera.server import create_app
from haptera.server.app import OPERATIONS
from haptera.testing import says
from tests.scripted_agents import make_agent
from tests.server.serving import TOKEN, serving

pytestmark = pytest.mark.slow

SESSIONS = "/api/v1/sessions"


async def test_a_session_of_another_project_can_be_read_and_a_message_to_it_says_why_not(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'chats.db'}"
    elsewhere, _ = make_agent([says("hello")], store=store, project="/there")
    async with elsewhere, elsewhere.session("talk") as session:
        await session.chat("hi")
        session_id = session.session_id
    agent, _ = make_agent([], store=store, project="/here")
    async with serving(agent) as served:
        path = f"{SESSIONS}/{session_id}"
        assert (await served.call("GET", f"{path}/messages"))[0] == 200
        for route, body in (("messages", {"content": "and now?"}), ("rewind", {}), ("resume", {})):
            status, problem = await served.call("POST", f"{path}/{route}", body)
            assert (status, problem["code"]) == (409, "OTHER_PROJECT"), route
            assert "'/there'" in problem["detail"]
        assert (await served.call("DELETE", path))[0] == 204
        status, problem = await served.call("POST", f"{path}/messages", {"content": "and now?"})
        assert (status, problem["code"]) == (404, "NOT_FOUND")


async def test_a_session_is_found_by_its_name() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        made = await served.new_session(name="ana-1")
        await served.new_session(name="ana-2")
        status, page = await served.call("GET", f"{SESSIONS}?name=ana-1")
        assert (status, [each["id"] for each in page["data"]]) == (200, [made])
        for other in ("ana", made):
            status, page = await served.call("GET", f"{SESSIONS}?name={other}")
            assert (status, page["data"]) == (200, [])


async def test_a_message_has_text_and_media_as_the_guide_writes_them() -> None:
    agent, provider = make_agent([says("A dot.")])
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "media", "mime": "image/png", "data": "AAAA"},
    ]
    async with serving(agent) as served:
        path = f"{SESSIONS}/{await served.new_session()}/messages"
        wait = {"prefer": "wait=30"}
        status, ended = await served.call("POST", path, {"content": parts}, headers=wait)
        assert (status, ended["text"]) == (200, "A dot.")
    (request,) = provider.requests
    assert [type(part) for part in request.messages[0].parts] == [TextPart, MediaPart]


async def test_messages_are_read_from_the_end_backwards() -> None:
    agent, _ = make_agent([says(each) for each in ("one", "two", "three")])
    async with serving(agent) as served:
        path = f"{SESSIONS}/{await served.new_session()}/messages"
        for number in range(3):
            sent = {"content": f"question {number}"}
            await served.call("POST", path, sent, headers={"prefer": "wait=30"})
        _, everything = await served.call("GET", path)
        _, last = await served.call("GET", f"{path}?newest=true&limit=4")
        first_id = last["data"][0]["message"]["id"]
        _, before = await served.call("GET", f"{path}?before={first_id}&limit=4")
        assert [*before["data"], *last["data"]] == everything["data"]
        assert len(last["data"]) == 4


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"id": "chat-1"}, "a UUID in lower case"),
        ({"id": "BE21249A-8E61-4482-9776-4CE8B273558B"}, "a UUID in lower case"),
        ({"id": ""}, "a UUID in lower case"),
    ],
)
async def test_an_id_that_is_no_uuid_is_refused_with_these_words(
    body: dict[str, Any], told: str
) -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        status, problem = await served.call("POST", SESSIONS, body)
        assert (status, problem["code"]) == (400, "BODY_INVALID")
        assert told in problem["detail"]


async def test_a_wrong_word_is_answered_with_the_right_ones() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        path = f"{SESSIONS}/{await served.new_session()}"
        body = {"content": "hi", "delivery": "later"}
        status, problem = await served.call("POST", f"{path}/messages", body)
        assert status == 400
        assert problem["detail"].endswith("; it is one of interrupt, queue, reject, steer")
        status, problem = await served.call("POST", f"{path}/approvals/x", {"decision": "yes"})
        assert status == 400
        assert "allow_once" in problem["detail"]


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/x-ndjson", 201),
        ("application/octet-stream", 201),
        ("application/json", 201),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ],
)
async def test_an_export_is_imported_as_the_type_it_was_sent_with(
    content_type: str, expected: int
) -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        path = f"{SESSIONS}/{await served.new_session(title='Plans')}/export"
        _, file = await served.call("GET", path)
        headers = {"content-type": content_type, "authorization": f"Bearer {TOKEN}"}
        url = f"{served.url}{SESSIONS}:import"
        async with served.client.post(url, data=file, headers=headers) as answer:
            assert answer.status == expected
            told = await answer.json(content_type=None)
    assert told["session"]["title"] == "Plans" if expected == 201 else "x-ndjson" in told["detail"]


async def test_paths_of_a_mounted_application_begin_where_it_is_mounted() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    outer = Starlette(routes=[Mount("/ai", app)])
    headers = {"authorization": f"Bearer {TOKEN}"}
    transport = httpx.ASGITransport(app=outer)
    async with (
        agent,
        httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers
        ) as http,
    ):
        made = await http.post(f"/ai{SESSIONS}", json={})
        where = made.headers["location"]
        assert where == f"/ai{SESSIONS}/{made.json()['id']}"
        assert (await http.get(where)).json() == made.json()
        share = await http.post(f"{where}/shares", json={})
        assert share.headers["location"] == share.json()["path"]
        shown = await http.get(share.json()["path"], headers={"authorization": ""})
        assert shown.status_code == 200
        assert (await http.get("/ai/openapi.json")).json()["servers"] == [{"url": "/ai"}]
        await app.close()


def test_the_page_lists_every_route() -> None:
    page = (Path(__file__).parents[2] / "docs/server.md").read_text()
    table = page.partition("<!-- table: routes -->\n")[2].partition("\n<!--")[0].splitlines()
    rows = [f"| `{each.method} {each.path}` | {each.summary} |" for each in OPERATIONS]
    assert table == ["| route | does |", "| --- | --- |", *rows]
