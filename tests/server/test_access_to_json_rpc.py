"""Who may speak JSON-RPC with a server, from where: tables of hosts, origins and credentials."""

import json
from typing import Any

import aiohttp
import pytest

from haptera.model.secrets import token_digest
from haptera.server import Access, ApiKey, ServerSettings, create_app, new_token
from haptera.server.app import OPERATIONS
from haptera.testing import FakeClock, says
from tests.scripted_agents import make_agent
from tests.server.rpc_client import CallError, websocket
from tests.server.serving import TOKEN, Served, serving

pytestmark = pytest.mark.slow

OWN = "http://{host}"
CONNECTIONS: list[tuple[dict[str, str], int]] = [
    ({}, 101),
    ({"authorization": f"bearer {TOKEN}"}, 101),
    ({"origin": OWN}, 101),
    ({"authorization": "", "origin": OWN}, 401),
    ({"authorization": "Bearer wrong", "origin": OWN}, 401),
    ({"authorization": f"Basic {TOKEN}"}, 401),
    ({"authorization": "Bearer ' OR '1'='1"}, 401),
    ({"authorization": f"Bearer {'a' * 2000}"}, 401),
    ({"authorization": "Bearer EXPIRED"}, 401),
    ({"authorization": "Bearer UNSERVED"}, 101),
    ({"origin": "https://evil.com"}, 403),
    ({"origin": "http://localhost:3000"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "https://app.example"}, 101),
    ({"host": "evil.com"}, 400),
    ({"host": "localhost.evil.com"}, 400),
    ({"host": "127.0.0.1:1"}, 400),
    ({"sec-fetch-site": "cross-site"}, 403),
]
"""Headers of a WebSocket handshake, and its status."""


def _access() -> tuple[Access, dict[str, str]]:
    made = {name: new_token() for name in ("EXPIRED", "UNSERVED", "OTHER", "READER")}
    keys = [
        ApiKey(digest=token_digest(made["EXPIRED"]), owner="local", expires=1_000),
        ApiKey(digest=token_digest(made["UNSERVED"]), owner="ben"),
        ApiKey(digest=token_digest(made["OTHER"]), owner="ana"),
        ApiKey(digest=token_digest(made["READER"]), owner="local", scopes=("read",)),
    ]
    access = Access(TOKEN, keys=keys, clock=FakeClock(start_ms=2_000))
    login = access.log_in(TOKEN)
    assert login is not None
    return access, made | {"COOKIE": login.cookie, "SECRET": login.secret}


async def _status(served: Served, headers: dict[str, str]) -> int:
    """Open a WebSocket and return the status of the handshake."""
    try:
        async with served.client.ws_connect(served.url + "/rpc", headers=headers):
            return 101
    except aiohttp.WSServerHandshakeError as error:
        return error.status


async def test_a_websocket_needs_a_credential_and_the_right_host_and_origin(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent, _ = make_agent([])
    access, made = _access()
    settings = ServerSettings(origins=frozenset({"https://app.example"}), failures_per_second=1e6)
    async with serving(agent, access=access, settings=settings) as served:
        host = served.url.removeprefix("http://")
        for given, expected in CONNECTIONS:
            headers = {name: value.format(host=host) for name, value in given.items()}
            for name, value in made.items():
                headers = {key: each.replace(name, value) for key, each in headers.items()}
            assert await _status(served, headers) == expected, given
    assert caplog.records == []  # a refusal is no error of the server


async def test_a_cookie_opens_no_websocket_for_a_page_of_another_origin() -> None:
    agent, _ = make_agent([])
    access, made = _access()
    settings = ServerSettings(origins=frozenset({"https://app.example"}))
    async with serving(agent, access=access, settings=settings) as served:
        headers = {
            "cookie": f"haptera_session={made['COOKIE']}",
            "sec-websocket-protocol": f"haptera, haptera.login.{made['SECRET']}",
        }
        async with aiohttp.ClientSession() as client:
            for origin, expected in (
                ("https://app.example", 403),
                (None, 403),
                (served.url, 101),
            ):
                more = headers | ({"origin": origin} if origin else {})
                there = Served(served.url, client, served.app, served.server)
                assert await _status(there, more) == expected, origin


@pytest.mark.parametrize(
    ("protocols", "status"),
    [
        ([], 401),
        (["haptera"], 401),
        (["haptera", "haptera.login."], 401),
        (["haptera", "haptera.login.wrong"], 401),
        (["haptera", "haptera.login.{SECRET}", "haptera.login.{SECRET}"], 401),
        (["haptera", "haptera.login.{COOKIE}"], 401),
        (["haptera", "haptera.login.{SECRET}"], 101),
    ],
)
async def test_a_page_opens_a_websocket_with_both_halves_of_its_login(
    protocols: list[str], status: int
) -> None:
    agent, _ = make_agent([])
    access, made = _access()
    async with serving(agent, access=access) as served, aiohttp.ClientSession() as client:
        cookie = f"haptera_session={made['COOKIE']}"
        headers = {"cookie": cookie, "origin": served.url}
        offered = [each.format(**made) for each in protocols]
        url = served.url + "/rpc"
        try:
            async with client.ws_connect(url, headers=headers, protocols=offered) as socket:
                found = 101
                assert socket.protocol == "haptera"
        except aiohttp.WSServerHandshakeError as error:
            found = error.status
    assert found == status


async def test_a_cookie_that_was_logged_out_answers_no_call_any_more() -> None:
    agent, _ = make_agent([])
    access, made = _access()
    async with serving(agent, access=access) as served, aiohttp.ClientSession() as client:
        there = Served(served.url, client, served.app, served.server)
        cookie = f"haptera_session={made['COOKIE']}"
        told = {"cookie": cookie, "origin": served.url, "x-login-secret": made["SECRET"]}
        async with websocket(there, **told) as rpc:
            assert (await rpc.call("server/info"))["owner"] == "local"
            access.log_out(made["COOKIE"])
            with pytest.raises(CallError) as caught:
                await rpc.call("server/info")
            assert (caught.value.code, caught.value.data["code"]) == (-32012, "TOKEN_REQUIRED")


async def test_owners_and_scopes_are_checked_for_every_method(tmp_path: Any) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    own, _ = make_agent([says("hi")], store=store)
    other, _ = make_agent([], store=store, owner="ana")
    access, made = _access()
    async with other, serving(own, access=access, agents={"ana": other}.get) as served:
        session_id = await served.new_session()

        async def failure(key: str, method: str, **params: Any) -> tuple[int, str, str]:
            async with websocket(served, authorization=f"Bearer {made[key]}") as client:
                with pytest.raises(CallError) as caught:
                    await client.call(method, **params)
            return caught.value.code, caught.value.data["code"], str(caught.value)

        params: dict[str, Any] = {
            "session_id": session_id,
            "approval_id": "apr_1",
            "share_id": "shr_1",
            "content": "hi",
            "decision": "allow_once",
        }
        for operation in OPERATIONS:
            if operation.rpc is None or operation.scope is None:
                continue
            code, name, _ = await failure("UNSERVED", operation.rpc)
            assert (code, name) == (-32012, "OWNER_UNKNOWN"), operation.rpc
            if operation.scope == "write":
                code, name, _ = await failure("READER", operation.rpc)
                assert (code, name) == (-32012, "SCOPE_MISSING"), operation.rpc
            if "{session_id}" in operation.path:
                named = {name for name in params if f"{{{name}}}" in operation.path}
                needed = {"message/send": {"content"}, "approval/answer": {"decision"}}
                named |= needed.get(operation.rpc, set())
                given = {key: params[key] for key in named}
                code, name, told = await failure("OTHER", operation.rpc, **given)
                assert (code, name) == (-32011, "NOT_FOUND"), operation.rpc
                assert told == f"there is no session {session_id!r}"
        for method in ("chat/session/get", "chat/session/update"):
            assert (await failure("OTHER", method, id=session_id))[0] == -32011
        assert (await failure("OTHER", "ai/session/resume", chatSessionId=session_id))[0] == -32011
        assert (await failure("READER", "chat/session/create"))[1] == "SCOPE_MISSING"
        assert (await failure("READER", "chat/session/update", id=session_id, title="x"))[1] == (
            "SCOPE_MISSING"
        )


POSTS: list[tuple[dict[str, str], bytes, int]] = [
    ({}, b"CALL", 200),
    ({"authorization": ""}, b"CALL", 401),
    ({"authorization": "Bearer wrong"}, b"CALL", 401),
    ({"authorization": ""}, b"{", 401),
    ({"content-type": "text/plain"}, b"CALL", 415),
    ({"content-type": "application/x-www-form-urlencoded"}, b"CALL", 415),
    ({"origin": "https://evil.com"}, b"CALL", 403),
    ({"sec-fetch-site": "cross-site"}, b"CALL", 403),
    ({"host": "evil.com"}, b"CALL", 400),
    ({}, b'{"x":"' + b"a" * 5000 + b'"}', 413),
]


async def test_post_needs_what_every_change_needs() -> None:
    agent, _ = make_agent([])
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/info"}).encode()
    access, made = _access()
    settings = ServerSettings(body_bytes=1000)
    async with serving(agent, access=access, settings=settings) as served:
        for given, content, expected in POSTS:
            headers = {"content-type": "application/json"} | given
            data = call if content == b"CALL" else content
            status, told = await served.call("POST", "/rpc", data=data, headers=headers)
            assert status == expected, given
            assert ("result" in told) == (expected == 200)
        async with aiohttp.ClientSession() as client:
            there = Served(served.url, client, served.app, served.server)
            cookie = {
                "cookie": f"haptera_session={made['COOKIE']}",
                "content-type": "application/json",
                "x-login-secret": made["SECRET"],
            }
            for more, expected in (
                ({}, 403),
                ({"origin": served.url}, 403),
                ({"x-csrf": "1"}, 403),
                ({"origin": served.url, "x-csrf": "1"}, 200),
            ):
                status, _ = await there.call("POST", "/rpc", data=call, headers=cookie | more)
                assert status == expected, more


async def test_a_message_that_is_too_large_closes_the_websocket() -> None:
    agent, _ = make_agent([])
    async with (
        serving(agent, settings=ServerSettings(body_bytes=1000)) as served,
        served.client.ws_connect(served.url + "/rpc") as socket,
    ):
        await socket.send_str("x" * 2000)
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1009


async def test_connections_count_as_streams() -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(streams_per_owner=1)
    async with serving(agent, settings=settings) as served:
        async with websocket(served):
            assert await _status(served, {}) == 429
        while served.app.hub.streams.open:
            await served.call("GET", "/healthz")
        assert await _status(served, {}) == 101


async def test_where_a_refusal_cannot_be_a_response_the_websocket_is_closed() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost:4000"), (b"authorization", b"Bearer wrong")]
    scope = {
        "type": "websocket",
        "path": "/rpc",
        "raw_path": b"/rpc",
        "root_path": "",
        "query_string": b"",
        "scheme": "ws",
        "headers": headers,
        "server": ("127.0.0.1", 4000),
        "subprotocols": [],
    }
    await app(scope, receive, send)
    assert [(each["type"], each["code"]) for each in sent] == [("websocket.close", 1008)]
