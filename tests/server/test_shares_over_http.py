"""Links to sessions over HTTP: what they show without a credential, and what guessing gets."""

import base64
import json
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from haptera import Agent, ErrorCode, StoreError
from haptera.access.sharing import new_share_token
from haptera.model.ids import SessionId, new_session_id
from haptera.model.log.entry import Entry
from haptera.model.secrets import token_digest
from haptera.server import Access, ApiKey, HapteraApp, ServerSettings, create_app, new_token
from haptera.stores.memory import MemoryLog, MemoryStore
from haptera.testing import FakeClock, says
from tests.scripted_agents import make_agent
from tests.server.serving import TOKEN, Served, serving
from tests.server.test_access_to_the_server import ask

HOST = ("host", "localhost:4000")
JSON = ("content-type", "application/json")
DAY = 24 * 3600
UNBOUNDED = ServerSettings(failures_per_second=1e9, readings_per_second=1e9)
SECRET = "sk-ant-" + "a1B2c3D4e5F6g7H8"


async def talk(agent: Agent, *prompts: str) -> str:
    async with agent.session() as session:
        for prompt in prompts:
            await session.chat(prompt)
        return str(session.session_id)


async def shared_by(app: HapteraApp, session_id: str, **fields: Any) -> dict[str, Any]:
    """Make a link with the token of the server."""
    headers = [HOST, JSON, ("authorization", f"Bearer {TOKEN}")]
    path, body = f"/api/v1/sessions/{session_id}/shares", json.dumps(fields).encode()
    status, told, content = await ask(app, path, "POST", headers=headers, body=body)
    assert status == 201, content
    made: dict[str, Any] = json.loads(content)
    assert told["location"] == made["path"] == f"/s/{made['token']}"
    return made


async def seen(app: HapteraApp, path: str) -> tuple[int, dict[str, str], bytes]:
    """Read a path as a stranger does; the id of the request is in every problem."""
    return await ask(app, path, headers=[HOST, ("x-request-id", "same")])


async def test_a_link_shows_a_page_and_messages_without_a_token_and_nothing_else() -> None:
    agent, _ = make_agent([says(f"It is {SECRET}.")], project="/work/house")
    app = create_app(agent, token=TOKEN)
    async with agent:
        session_id = await talk(agent, "What is in /work/house/key.txt?")
        made = await shared_by(app, session_id)
        status, told, page = await seen(app, made["path"])
        assert status == 200
        assert told["content-type"] == "text/html; charset=utf-8"
        assert told["x-robots-tag"].startswith("noindex")
        assert told["cache-control"] == "no-store"
        assert told["referrer-policy"] == "no-referrer"
        policy = told["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert "script-src" not in policy
        assert "content-disposition" not in told
        status, told, content = await seen(app, made["path"] + ".json")
        assert (status, told["content-type"]) == (200, "application/json")
        assert told["x-robots-tag"].startswith("noindex")
        shown = json.loads(content)
        assert [each["role"] for each in shown["messages"]] == ["user", "assistant"]
        for text in (page.decode(), content.decode()):
            assert "It is ****" in text
            assert SECRET not in text
            assert "/work/house" not in text
            assert session_id not in text
        for path in (f"/api/v1/sessions/{session_id}", f"/api/v1/sessions/{session_id}/shares"):
            assert (await seen(app, path))[0] == 401
            with_link = [HOST, ("authorization", f"Bearer {made['token']}")]
            assert (await ask(app, path, headers=with_link))[0] == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_a_live_link_can_only_be_read(method: str) -> None:
    agent, _ = make_agent([says("hi"), says("more")])
    app = create_app(agent, token=TOKEN)
    async with agent:
        session_id = await talk(agent, "hello")
        made = await shared_by(app, session_id, live=True)
        for path in (made["path"], made["path"] + ".json"):
            assert (await ask(app, path, method, headers=[HOST, JSON], body=b"{}"))[0] == 405
        async with agent.session(session_id) as session:
            await session.chat("again")
        _, _, content = await seen(app, made["path"] + ".json")
        assert len(json.loads(content)["messages"]) == 4


async def test_wrong_expired_and_revoked_links_get_one_and_the_same_answer() -> None:
    clock = FakeClock()
    agent, _ = make_agent([says("hi")], clock=clock)
    app = create_app(agent, token=TOKEN, settings=UNBOUNDED)
    async with agent:
        session_id = await talk(agent, "hello")
        short, revoked, gone = [await shared_by(app, session_id, days=days) for days in (1, 30, 30)]
        owned = [HOST, ("authorization", f"Bearer {TOKEN}")]
        path = f"/api/v1/sessions/{session_id}/shares"
        _, _, listed = await ask(app, path, headers=owned)
        assert [each["id"] for each in json.loads(listed)["data"]] == [
            each["id"] for each in (short, revoked, gone)
        ]
        assert b"token" not in listed
        assert b"digest" not in listed
        assert (await ask(app, f"{path}/{revoked['id']}", "DELETE", headers=owned))[0] == 204
        assert (await ask(app, f"{path}/{revoked['id']}", "DELETE", headers=owned))[0] == 404
        clock.advance(DAY)
        assert (await seen(app, gone["path"]))[0] == 200
        unknown = new_share_token(new_session_id(), "local")
        flipped = gone["path"][:-1] + ("A" if gone["path"][-1] != "A" else "B")
        wrong = [short["path"], revoked["path"], flipped, f"/s/{unknown}", "/s/x"]
        wrong += [f"{path}.json" for path in wrong]
        answers = [(await seen(app, path))[::2] for path in wrong]
        await agent.sessions.delete(session_id)
        answers += [(await seen(app, path))[::2] for path in (gone["path"], *wrong)]
        assert len(set(answers)) == 1
        assert answers[0][0] == 404
        browser = [HOST, ("accept", "text/html,application/xhtml+xml,*/*;q=0.8")]
        pages = [await ask(app, path, headers=browser) for path in (gone["path"], "/s/x")]
        for status, told, page in pages:
            assert (status, told["content-type"]) == (404, "text/html; charset=utf-8")
            assert told["content-security-policy"].startswith("default-src 'none'")
            assert b"<p>this link is not valid" in page
        assert pages[0][2] == pages[1][2]


def _guesses(token: str, count: int) -> list[str]:
    """Return wrong tokens: the right one with some bits changed, and random ones."""
    chance, right = random.Random(1), base64.urlsafe_b64decode(token)
    guesses = []
    for number in range(count):
        raw = bytearray(chance.randbytes(len(right)) if number % 2 else right)
        for _ in range(1 + number % 3):
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        if bytes(raw) != right:
            guesses.append(base64.urlsafe_b64encode(raw).decode())
    return guesses


@pytest.mark.slow
async def test_ten_thousand_guesses_find_nothing_and_are_soon_refused() -> None:
    agent, _ = make_agent([says("hi")])
    app = create_app(agent, token=TOKEN)
    async with agent:
        made = await shared_by(app, await talk(agent, "hello"))
        statuses: list[int] = [
            (await seen(app, f"/s/{guess}"))[0] for guess in _guesses(made["token"], 10_000)
        ]
        assert set(statuses) == {404, 429}
        assert statuses[:10] == [404] * 10
        # Who has the link is not kept out by those who guess.
        assert (await seen(app, made["path"]))[0] == 200


async def test_guesses_without_a_limit_find_nothing() -> None:
    agent, _ = make_agent([says("hi")])
    app = create_app(agent, token=TOKEN, settings=UNBOUNDED)
    async with agent:
        made = await shared_by(app, await talk(agent, "hello"))
        for guess in _guesses(made["token"], 200):
            assert (await seen(app, f"/s/{guess}"))[0] == 404


STRANGE = [
    "' OR '1'='1",
    "x'; DROP TABLE session; --",
    "\x00",
    "A" * 43 + "\x00",
    "A" * 1_000_000,
    "é" * 44,
    "\u0661" * 44,
    "A" * 43 + "=",
    "A" * 45,
    "A" * 44 + "\n",
    "..",
    "%00",
    "-" * 44,
    ".json",
]


@pytest.mark.parametrize("token", STRANGE, ids=[str(place) for place in range(len(STRANGE))])
async def test_a_strange_token_is_not_found(token: str, tmp_path: Path) -> None:
    agent, _ = make_agent([], store=f"sqlite:{tmp_path / 'sessions.db'}")
    app = create_app(agent, token=TOKEN)
    async with agent:
        for path in (f"/s/{token}", f"/s/{token}.json"):
            status, _, content = await seen(app, path)
            assert (status, json.loads(content)["code"]) == (404, "NOT_FOUND")


async def test_one_link_is_not_answered_without_end() -> None:
    agent, _ = make_agent([says("hi")])
    app = create_app(agent, token=TOKEN, settings=ServerSettings(readings_per_second=1e-6))
    async with agent:
        first, second = [
            await shared_by(app, session_id) for session_id in [await talk(agent, "hello")] * 2
        ]
        assert (await seen(app, first["path"]))[0] == 200
        status, told, _ = await seen(app, first["path"] + ".json")
        assert status == 429
        assert int(told["retry-after"]) >= 1
        assert (await seen(app, second["path"]))[0] == 200


async def test_links_of_every_owner_are_answered_and_none_of_an_owner_without_an_agent(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    own, _ = make_agent([says("mine")], store=store)
    ana, _ = make_agent([says("hers")], store=store, owner="ana")
    ben, _ = make_agent([says("his")], store=store, owner="ben")
    keys = [ApiKey(digest=token_digest(new_token()), owner=each) for each in ("ana", "ben")]
    app = create_app(own, access=Access(TOKEN, keys=keys), agents={"ana": ana}.get)
    async with own, ana, ben:
        links = [
            await agent.sessions.share(await talk(agent, "hello")) for agent in (own, ana, ben)
        ]
        found = [await seen(app, f"{link.path}.json") for link in links]
    assert [status for status, _, _ in found] == [200, 200, 404]
    assert [text for _, _, text in found[:2] if b"mine" in text or b"hers" in text] == [
        each[2] for each in found[:2]
    ]


class BurntLog(MemoryLog):
    """A log that cannot be read any more, once a test says so."""

    is_burnt = False

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries, or fail as a store of files does."""
        if self.is_burnt:
            told = f"/home/ana/chats.db has no session {session_id}"
            raise StoreError(ErrorCode.CORRUPT, told)
        return await super().read(session_id, after=after, limit=limit)


async def test_a_reader_is_not_told_what_is_wrong_with_a_store() -> None:
    store = MemoryStore()
    store.log = log = BurntLog(store._sessions)
    agent, _ = make_agent([says("hi")], store=store)
    app = create_app(agent, token=TOKEN)
    async with agent:
        session_id = await talk(agent, "hello")
        made = await shared_by(app, session_id)
        log.is_burnt = True
        status, _, content = await seen(app, made["path"])
    assert status == 503
    assert b"/home/ana" not in content
    assert session_id.encode() not in content


@pytest.mark.parametrize(
    "fields",
    [
        {"days": 0},
        {"days": 366},
        {"days": None},
        {"days": "7"},
        {"redact": "no"},
        {"live": 1},
        {"through": 3},
        {"digest": "0" * 64},
    ],
    ids=str,
)
async def test_a_link_with_fields_that_make_no_sense_is_refused(fields: dict[str, Any]) -> None:
    agent, _ = make_agent([says("hi")])
    app = create_app(agent, token=TOKEN)
    async with agent:
        session_id = await talk(agent, "hello")
        path, body = f"/api/v1/sessions/{session_id}/shares", json.dumps(fields).encode()
        headers = [HOST, JSON, ("authorization", f"Bearer {TOKEN}")]
        assert (await ask(app, path, "POST", headers=headers, body=body))[0] == 400
        assert await agent.sessions.shares(session_id) == ()


async def _status(served: Served, path: str) -> int:
    async with aiohttp.ClientSession() as stranger, stranger.get(served.url + path) as answer:
        return answer.status


async def test_a_link_made_by_one_server_is_answered_and_revoked_by_another(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    one, _ = make_agent([says("hi")], store=store)
    two, _ = make_agent([], store=store)
    async with serving(one) as holder, serving(two) as other:
        session_id = await holder.new_session()
        path = f"/api/v1/sessions/{session_id}"
        wait = {"prefer": "wait=30"}
        await holder.call("POST", f"{path}/messages", {"content": "hello"}, headers=wait)
        assert holder.app.hub.open_here("local", session_id) is not None
        status, made = await other.call("POST", f"{path}/shares", {})
        assert status == 201
        assert [await _status(each, made["path"]) for each in (holder, other)] == [200, 200]
        assert (await other.call("DELETE", f"{path}/shares/{made['id']}"))[0] == 204
        assert [await _status(each, made["path"]) for each in (holder, other)] == [404, 404]
