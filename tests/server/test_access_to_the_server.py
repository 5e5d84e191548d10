"""Who may call a server, from where, and with what: tables of hosts, origins and credentials."""

import asyncio
import json
import random
from typing import Any

import pytest

from haptera import Agent, ConfigError, ErrorCode, tool
from haptera.model.ids import new_session_id
from haptera.model.secrets import token_digest
from haptera.server import Access, ApiKey, ServerSettings, create_app, new_token
from haptera.server.app import OPERATIONS
from haptera.server.endpoint import Endpoint
from haptera.server.limits import RateLimit
from haptera.server.operations import ServedOperation
from haptera.server.problems import ProblemError
from haptera.server.rpc_routes import RpcEndpoint
from haptera.testing import FakeClock, Gate, calls, says
from tests.scripted_agents import make_agent
from tests.server.serving import TOKEN, serving

pytestmark = pytest.mark.slow

PUBLIC = {"health", "readiness", "openapi", "log_in", "read_shared_page", "read_shared_session"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def ask(
    app: Any, path: str = "/api/v1/info", method: str = "GET", **more: Any
) -> tuple[int, dict[str, str], bytes]:
    """Ask an application without a network; `headers` may hold a name twice."""
    headers = more.get("headers", [("host", "127.0.0.1:4000"), *BEARER.items()])
    body = more.get("body", b"")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.partition("?")[0],
        "raw_path": path.encode(),
        "query_string": path.partition("?")[2].encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "server": ("127.0.0.1", 4000),
        "client": ("127.0.0.1", 5000),
    }
    sent: list[Any] = []
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not given:
            await asyncio.Event().wait()
        return given.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    await asyncio.wait_for(app(scope, receive, send), 10)
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, b"".join(each.get("body", b"") for each in sent[1:])


HOSTS = [
    (["127.0.0.1:4000"], 200),
    (["localhost:4000"], 200),
    (["LOCALHOST:4000"], 200),
    (["[::1]:4000"], 200),
    (["127.0.0.1:4001"], 400),
    (["127.0.0.1"], 400),
    (["evil.com"], 400),
    (["evil.com:4000"], 400),
    (["localhost.evil.com:4000"], 400),
    (["localhost:4000/#@x"], 400),
    (["user@localhost:4000"], 400),
    (["0.0.0.0:4000"], 400),
    (["localhost:4000", "localhost:4000"], 400),
    (["localhost:4000", "evil.com"], 400),
    ([""], 400),
    ([], 400),
]


@pytest.mark.parametrize(("hosts", "expected"), HOSTS)
async def test_only_the_names_of_this_machine_are_answered_to(
    hosts: list[str], expected: int
) -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    headers = [*(("host", each) for each in hosts), *BEARER.items()]
    assert (await ask(app, headers=headers))[0] == expected


async def test_configured_host_names_replace_those_of_the_machine() -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(hosts=frozenset({"chat.example"}))
    app = create_app(agent, token=TOKEN, settings=settings)
    for host, expected in (("chat.example", 200), ("localhost:4000", 400)):
        headers = [("host", host), *BEARER.items()]
        assert (await ask(app, headers=headers))[0] == expected


ORIGINS = [
    ([], 200),
    ([("origin", "http://localhost:4000")], 200),
    ([("origin", "http://localhost:3000")], 403),
    ([("origin", "http://localhost")], 403),
    ([("origin", "https://evil.com")], 403),
    ([("origin", "null")], 403),
    ([("origin", "http://localhost:4000"), ("origin", "https://evil.com")], 403),
    ([("sec-fetch-site", "same-origin")], 200),
    ([("sec-fetch-site", "none")], 200),
    ([("sec-fetch-site", "cross-site")], 403),
    ([("sec-fetch-site", "same-site")], 403),
    ([("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], 403),
    ([("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], 200),
    ([("origin", "https://app.example"), ("sec-fetch-site", "cross-site")], 200),
]


@pytest.mark.parametrize(("more", "expected"), ORIGINS)
async def test_pages_of_other_origins_are_refused_unless_they_are_named(
    more: list[tuple[str, str]], expected: int
) -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(origins=frozenset({"https://app.example"}))
    app = create_app(agent, token=TOKEN, settings=settings)
    headers = [("host", "localhost:4000"), *BEARER.items(), *more]
    status, told, _ = await ask(app, headers=headers)
    assert status == expected
    is_named = ("origin", "https://app.example") in more
    assert ("access-control-allow-origin" in told) == is_named
    assert told["x-content-type-options"] == "nosniff"


async def test_a_navigation_from_another_site_may_read_but_not_change() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    foreign = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]
    headers = [("host", "localhost:4000"), *BEARER.items(), *foreign]
    changes = [each for each in OPERATIONS if each.method != "GET"]
    for operation in changes:
        path = _path(operation, new_session_id())
        status, _, body = await ask(app, path, operation.method, headers=headers)
        assert (status, json.loads(body)["code"]) == (403, "ORIGIN_REFUSED"), operation.name


@pytest.mark.parametrize(
    ("more", "is_refused"),
    [
        ([("origin", "https://evil.com"), *BEARER.items()], True),
        ([("origin", "http://localhost:3000")], True),
        ([], True),
        ([("host", "evil.com")], True),
        ([*BEARER.items()], False),
        ([("origin", "http://localhost:4000")], False),
    ],
)
async def test_a_websocket_from_elsewhere_is_closed_before_anything_looks_at_it(
    more: list[tuple[str, str]], is_refused: bool
) -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    hosts = [] if any(name == "host" for name, _ in more) else [("host", "localhost:4000")]
    scope = {
        "type": "websocket",
        "scheme": "ws",
        "path": "/elsewhere",
        "raw_path": b"/elsewhere",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in [*hosts, *more]],
        "server": ("127.0.0.1", 4000),
        "subprotocols": [],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    # What passes the gate is closed by the router, which has no such route.
    assert [each["type"] for each in sent] == ["websocket.close"]
    assert (sent[0]["code"] == 1008) == is_refused


def _path(operation: ServedOperation, session_id: str) -> str:
    named = {"approval_id": "apr_1", "share_id": "shr_1", "token": "A" * 44}
    return operation.path.format(session_id=session_id, **named)


def _keys() -> tuple[Access, dict[str, str]]:
    """Return the access of four owners' keys, and the keys by what they are."""
    made = {name: new_token() for name in ("other", "reader", "expired", "unserved")}
    keys = [
        ApiKey(digest=token_digest(made["other"]), owner="ana"),
        ApiKey(digest=token_digest(made["reader"]), owner="local", scopes=("read",)),
        ApiKey(digest=token_digest(made["expired"]), owner="local", expires=1_000),
        ApiKey(digest=token_digest(made["unserved"]), owner="ben"),
    ]
    return Access(TOKEN, keys=keys, clock=FakeClock(start_ms=2_000)), made


OWN_TOKEN: list[dict[str, Any]] = [
    {"token": TOKEN},
    {"access": Access(TOKEN)},
    {"access": Access(TOKEN, keys=[ApiKey(digest=token_digest("key"), owner="ben")])},
]


@pytest.mark.parametrize("given", OWN_TOKEN, ids=["token", "access", "keys"])
async def test_the_token_of_a_server_is_of_the_owner_of_its_agent(given: dict[str, Any]) -> None:
    @tool(approval="ask")
    def nap() -> str:
        """Sleep."""
        return "rested"

    script = [calls(("nap", {})), says("done")]
    agent, _ = make_agent(script, tools=[nap], owner="ana")
    async with serving(agent, **given) as served:
        path = f"/api/v1/sessions/{await served.new_session()}"
        wait = {"prefer": "wait=30"}
        await served.call("POST", f"{path}/messages", {"content": "go"}, headers=wait)
        _, pending = await served.call("GET", f"{path}/approvals")
        where = f"{path}/approvals/{pending['data'][0]['id']}"
        assert (await served.call("POST", where, {"decision": "allow_once"}))[0] == 202
        _, told = await served.call("GET", "/api/v1/info")
        _, described = await served.call("GET", path)
        settled = [each for each in await served.log(path.rpartition("/")[2]) if "by" in each.data]
    assert (told["owner"], described["owner"]) == ("ana", "ana")
    assert [each.data["by"] for each in settled] == ["ana"]
    assert served.app.hub.owner("ana").agent is agent


async def test_an_owner_that_is_said_stays_and_the_clock_is_the_agents() -> None:
    clock = FakeClock()
    agent, _ = make_agent([], owner="ana", clock=clock)
    said, left_open = Access(TOKEN, owner="root"), Access(TOKEN)
    for access in (said, left_open):
        create_app(agent, access=access)
    create_app(make_agent([], owner="ben")[0], access=left_open)
    assert (said.owner, left_open.owner, Access(TOKEN).owner) == ("root", "ana", "local")
    made = left_open.log_in(TOKEN)
    clock.advance(12 * 3600)
    assert made is not None
    assert left_open.principal_of_login(made.cookie, made.secret) is None
    async with agent:
        pass


async def test_every_route_is_declared_and_only_the_public_ones_lack_a_scope() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    endpoints: list[Any] = [route.endpoint for route in app.inner.routes]  # type: ignore[attr-defined]
    found = [
        operation
        for each in endpoints
        if isinstance(each, Endpoint)
        for operation in each.operations.values()
    ]
    # JSON-RPC calls the same operations; its own table of credentials is in another file.
    others = [each for each in endpoints if not isinstance(each, Endpoint)]
    assert [type(each.__self__) for each in others] == [RpcEndpoint, RpcEndpoint]
    assert sorted(each.name for each in found) == sorted(each.name for each in OPERATIONS)
    assert {each.name for each in found if each.scope is None} == PUBLIC


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
async def test_a_route_answers_no_caller_without_the_right_credential(
    operation: ServedOperation, tmp_path: Any
) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    own, _ = make_agent([says("hi")], store=store)
    other, _ = make_agent([], store=store, owner="ana")
    access, keys = _keys()
    settings = ServerSettings(failures_per_second=1e6)
    agents = {"ana": other}.get
    app = create_app(own, access=access, agents=agents, settings=settings)
    async with own, other:
        async with own.session() as session:
            await session.chat("hello")
            session_id = str(session.session_id)
        path = _path(operation, session_id)
        wrong = ["", "Bearer ", "Bearer nonsense", f"Basic {TOKEN}", f"Bearer {TOKEN}x"]
        wrong += [f"Bearer {keys['expired']}", "Bearer ' OR '1'='1", f"Bearer {'a' * 60_000}"]
        wrong += ["Bearer \x00", f"Bearer {TOKEN}\x00", "Bearer caf\xe9", f"Bearer {TOKEN[:-1]}"]
        for given in wrong:
            headers = [("host", "localhost:4000"), ("authorization", given)]
            status, _, body = await ask(app, path, operation.method, headers=headers)
            if "{token}" in operation.path:
                assert status == 404  # a link has its credential in its path
            elif operation.name in PUBLIC:
                assert status in {200, 400}
            else:
                assert (status, json.loads(body)["code"]) == (401, "TOKEN_REQUIRED"), given
        for key, expected in (("reader", "SCOPE_MISSING"), ("unserved", "OWNER_UNKNOWN")):
            headers = [("host", "localhost:4000"), ("x-api-key", keys[key])]
            content = [("content-type", "application/json")]
            if operation.scope == "write" or (key == "unserved" and operation.scope):
                status, _, body = await ask(
                    app, path, operation.method, headers=headers + content, body=_body(operation)
                )
                assert (status, json.loads(body)["code"]) == (403, expected)
        if "{session_id}" in operation.path:
            headers = [
                ("host", "localhost:4000"),
                ("x-api-key", keys["other"]),
                ("content-type", "application/json"),
            ]
            status, _, foreign = await ask(
                app, path, operation.method, headers=headers, body=_body(operation)
            )
            missing = _path(operation, new_session_id())
            _, _, unknown = await ask(
                app, missing, operation.method, headers=headers, body=_body(operation)
            )
            assert status == 404
            there = json.loads(foreign)["detail"].replace(session_id, "")
            assert there == json.loads(unknown)["detail"].replace(missing.split("/")[4], "")


def _body(operation: ServedOperation) -> bytes:
    bodies = {
        "send_message": {"content": "hi"},
        "answer_approval": {"decision": "allow_once"},
    }
    return json.dumps(bodies.get(operation.name, {})).encode()


async def test_owners_see_their_own_sessions_only(tmp_path: Any) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    own, _ = make_agent([says("mine")], store=store)
    other, _ = make_agent([says("hers")], store=store, owner="ana")
    access, keys = _keys()
    async with other, serving(own, access=access, agents={"ana": other}.get) as served:
        hers = {"authorization": f"Bearer {keys['other']}"}
        mine_id = await served.new_session(name="same")
        _, made = await served.call("POST", "/api/v1/sessions", {"name": "same"}, headers=hers)
        for headers, expected in ((None, [mine_id]), (hers, [made["id"]])):
            _, page = await served.call("GET", "/api/v1/sessions", headers=headers)
            assert [each["id"] for each in page["data"]] == expected
        taken = await served.call("POST", "/api/v1/sessions", {"id": mine_id}, headers=hers)
        assert (taken[0], taken[1]["owner"]) == (201, "ana")
        _, mine = await served.call("GET", f"/api/v1/sessions/{mine_id}")
        assert mine["owner"] == "local"


async def test_making_a_session_does_not_tell_whether_another_owner_has_its_id(
    tmp_path: Any,
) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    own, _ = make_agent([], store=store)
    other, _ = make_agent([], store=store, owner="ana")
    access, keys = _keys()
    hers = {"authorization": f"Bearer {keys['other']}"}
    async with other, serving(own, access=access, agents={"ana": other}.get) as served:

        async def told(given: str) -> list[Any]:
            """Make a session twice, and say all that is answered but what is random."""
            answers: list[Any] = []
            for _ in range(2):
                status, made = await served.call(
                    "POST", "/api/v1/sessions", {"id": given}, headers=hers
                )
                assert made["id"] != given
                answers.append((status, sorted(made), made["owner"], made["head"]))
                path = f"/api/v1/sessions/{made['id']}"
                answers.append((await served.call("GET", path, headers=hers))[0])
            there = await served.call("GET", f"/api/v1/sessions/{given}", headers=hers)
            answers.append((there[0], there[1]["code"]))
            other = {"id": given, "title": "Another"}
            answers.append((await served.call("POST", "/api/v1/sessions", other, headers=hers))[0])
            return answers

        taken = await told(await served.new_session())
        assert taken == await told(new_session_id())
        assert [each[0] for each in taken[:3:2]] == [201, 200]
        assert taken[-1] == 409
        # One that she made under the id itself is hers still.
        async with other.session(new_session_id()) as before:
            session_id = str(before.session_id)
        body = {"id": session_id}
        status, found = await served.call("POST", "/api/v1/sessions", body, headers=hers)
        assert (status, found["id"]) == (200, session_id)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_two_owners_do_neither_reaches_the_sessions_of_the_other(
    seed: int, tmp_path: Any
) -> None:
    chance = random.Random(seed)
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    own, _ = make_agent([], store=store)
    other, _ = make_agent([], store=store, owner="ana")
    access, keys = _keys()
    app = create_app(own, access=access, agents={"ana": other}.get)
    tokens = {"local": TOKEN, "ana": keys["other"]}
    kept: dict[str, set[str]] = {"local": set(), "ana": set()}

    async def call(owner: str, method: str, path: str, **body: Any) -> tuple[int, Any]:
        headers = [("host", "localhost:4000"), ("authorization", f"Bearer {tokens[owner]}")]
        headers.append(("content-type", "application/json"))
        content = b"" if method == "GET" else json.dumps(body).encode()
        status, _, told = await ask(app, path, method, headers=headers, body=content)
        return status, json.loads(told or b"null")

    async with own, other:
        for _ in range(40):
            owner = chance.choice(["local", "ana"])
            target = chance.choice([*sorted(kept["local"] | kept["ana"]), new_session_id()])
            path, is_own = f"/api/v1/sessions/{target}", target in kept[owner]
            match chance.choice(["create", "name", "fork", "share", "delete", "get", "list"]):
                case "create":
                    status, told = await call(owner, "POST", "/api/v1/sessions", id=target)
                    assert status in (
                        {200} if is_own else {200, 201} if owner == "ana" else {201, 404}
                    )
                    kept[owner] |= {told["id"]} if status == 201 else set()
                case "name":
                    expected = 200 if is_own else 404
                    assert (await call(owner, "PATCH", path, title="same"))[0] == expected
                case "fork":
                    status, told = await call(owner, "POST", f"{path}/fork")
                    assert status == (201 if is_own else 404), told
                    kept[owner] |= {told["id"]} if is_own else set()
                case "share":
                    status, _ = await call(owner, "POST", f"{path}/shares")
                    assert status == (201 if is_own else 404)
                case "delete":
                    status, _ = await call(owner, "DELETE", path)
                    assert status == (204 if is_own else 404)
                    kept[owner] -= {target}
                case "get":
                    assert (await call(owner, "GET", path))[0] == (200 if is_own else 404)
                case _:
                    _, page = await call(owner, "GET", "/api/v1/sessions?limit=200")
                    assert {each["id"] for each in page["data"]} == kept[owner]
        assert not kept["local"] & kept["ana"]
        await app.close()


async def test_a_cookie_is_strict_and_a_change_with_it_needs_more_than_the_browser() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    host = ("host", "localhost:4000")
    json_type = ("content-type", "application/json")
    body = json.dumps({"token": TOKEN}).encode()
    status, told, answer = await ask(
        app, "/api/v1/login", "POST", headers=[host, json_type], body=body
    )
    assert status == 200
    secret = ("x-login-secret", json.loads(answer)["secret"])
    assert secret[1] not in told["set-cookie"]
    cookie, _, attributes = told["set-cookie"].partition(";")
    assert "HttpOnly" in attributes
    assert "SameSite=strict" in attributes
    assert TOKEN not in told["set-cookie"]
    with_cookie = [host, ("cookie", cookie), json_type, secret]
    assert (await ask(app, headers=with_cookie))[0] == 200
    _, _, other = await ask(app, "/api/v1/login", "POST", headers=[host, json_type], body=body)
    for half in (
        [host, ("cookie", cookie)],
        [host, secret],
        [host, ("cookie", cookie), (secret[0], "")],
        [host, ("cookie", cookie), (secret[0], cookie.partition("=")[2])],
        [host, ("cookie", cookie), (secret[0], json.loads(other)["secret"])],
        [host, ("cookie", cookie), secret, secret],
        [host, ("cookie", f"haptera_session={secret[1]}"), secret],
    ):
        assert (await ask(app, headers=half))[0] == 401
    origin, csrf = ("origin", "http://localhost:4000"), ("x-csrf", "1")
    for more, expected in (
        ([], 403),
        ([origin], 403),
        ([csrf], 403),
        ([origin, csrf], 201),
    ):
        status, _, _ = await ask(
            app, "/api/v1/sessions", "POST", headers=[*with_cookie, *more], body=b"{}"
        )
        assert status == expected
    for operation in OPERATIONS:
        if operation.method != "GET" and operation.scope is not None:
            for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
                simple = [host, ("cookie", cookie), ("content-type", kind), origin, secret]
                where = _path(operation, new_session_id())
                status, _, told_body = await ask(app, where, operation.method, headers=simple)
                assert (status, json.loads(told_body)["code"]) == (403, "CSRF_REFUSED")
    assert (await ask(app, "/api/v1/logout", "POST", headers=[*with_cookie, origin, csrf]))[
        0
    ] == 204
    assert (await ask(app, headers=with_cookie))[0] == 401
    wrong = json.dumps({"token": "wrong-token-wrong-token"}).encode()
    assert (await ask(app, "/api/v1/login", "POST", headers=[host, json_type], body=wrong))[
        0
    ] == 401
    await agent.close()


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/plain", b"{}", 415),
        ("application/x-www-form-urlencoded", b"a=1", 415),
        ("multipart/form-data", b"{}", 415),
        ("application/json", b"{", 400),
        ("application/json", b"\xff", 400),
        ("application/json", b'{"metadata":' + b'{"a":' * 70 + b"1" + b"}" * 71, 400),
        ("application/json", b'{"unknown":1}', 400),
        ("application/json", b'{"title":"' + b"a" * 5_000_000 + b'"}', 413),
    ],
)
async def test_bodies_are_bounded_json(content_type: str, body: bytes, expected: int) -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    headers = [("host", "localhost:4000"), *BEARER.items(), ("content-type", content_type)]
    status, told, content = await ask(app, "/api/v1/sessions", "POST", headers=headers, body=body)
    assert status == expected
    assert told["content-type"] == "application/problem+json"
    assert json.loads(content)["status"] == expected


async def test_requests_failures_and_streams_are_limited() -> None:
    clock = FakeClock()
    rate = RateLimit(2, clock=clock)
    for _ in range(4):
        rate.take("ana")
    rate.take("ben")
    with pytest.raises(ProblemError) as caught:
        rate.take("ana")
    assert caught.value.body.status == 429
    assert caught.value.body.retry_after == 0.5
    clock.advance(0.5)
    rate.take("ana")
    agent, _ = make_agent([])
    settings = ServerSettings(streams_per_owner=1, failures_per_second=1)
    async with serving(agent, settings=settings) as served:
        path = f"/api/v1/sessions/{await served.new_session()}/events"
        async with served.events(path):
            status, problem = await served.call("GET", path)
            assert (status, problem["code"]) == (429, "TOO_MANY_STREAMS")
        while served.app.hub.streams.open:
            await served.call("GET", "/healthz")
        async with served.events(path):
            pass
        wrong = {"authorization": "Bearer wrong"}
        statuses = [(await served.call("GET", path, headers=wrong))[0] for _ in range(10)]
        assert statuses[0] == 401
        assert statuses[-1] == 429


async def test_an_owner_with_many_sessions_leaves_places_for_the_others() -> None:
    gate, key = Gate(), new_token()
    access = Access(TOKEN, keys=[ApiKey(digest=token_digest(key), owner="ana")])
    own, _ = make_agent([[gate, *says("first")], says("second")])
    other, _ = make_agent([says("hers")], owner="ana")
    settings = ServerSettings(sessions=2, sessions_per_owner=1)
    wait, hers = {"prefer": "wait=30"}, {"authorization": f"Bearer {key}"}
    async with (
        other,
        serving(own, access=access, agents={"ana": other}.get, settings=settings) as served,
    ):
        first, second = [
            f"/api/v1/sessions/{await served.new_session()}/messages" for _ in range(2)
        ]
        assert (await served.call("POST", first, {"content": "go"}))[0] == 202
        await gate.reached.wait()
        status, problem = await served.call("POST", second, {"content": "go"})
        assert (status, problem["code"]) == (503, "POOL_FULL")
        assert problem["retryable"]
        assert problem["retry_after"] > 0
        _, made = await served.call("POST", "/api/v1/sessions", {}, headers=hers)
        path = f"/api/v1/sessions/{made['id']}/messages"
        status, ended = await served.call("POST", path, {"content": "go"}, headers=wait | hers)
        assert (status, ended["text"]) == (200, "hers")
        gate.open()
        while (await served.call("POST", second, {"content": "go", "id": "m"}))[0] != 202:
            pass


async def test_an_owner_whose_agent_cannot_be_made_does_not_harm_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = new_token()
    access = Access(TOKEN, keys=[ApiKey(digest=token_digest(key), owner="ana")])
    agent, _ = make_agent([says("hi")])

    def agents(owner: str) -> Agent:
        raise KeyError(f"{owner} {TOKEN}")

    async with serving(agent, access=access, agents=agents) as served:
        path = f"/api/v1/sessions/{await served.new_session()}/messages"
        wait = {"prefer": "wait=30"}
        assert (await served.call("POST", path, {"content": "go"}, headers=wait))[0] == 200
        hers = {"authorization": f"Bearer {key}"}
        status, problem = await served.call("GET", "/api/v1/sessions", headers=hers)
        assert (status, problem["code"]) == (500, "INTERNAL")
    told = {record.getMessage() for record in caplog.records}
    assert told == {"the agent of an owner could not be made"}
    assert TOKEN not in caplog.text


async def test_no_response_and_no_error_shows_a_secret() -> None:
    secret = "sk-ant-api03-" + "x" * 40
    agent, _ = make_agent([])
    async with serving(agent) as served:
        paths = ("/openapi.json", "/api/v1/info", "/api/v1/models", "/api/v1/tools")
        told = [str((await served.call("GET", path))[1]) for path in paths]
        status, problem = await served.call("POST", "/api/v1/sessions", {secret: 1})
        told.append(str(problem))
        _, problem = await served.call("GET", f"/api/v1/sessions?{secret}=1")
        told.append(str(problem))
    assert status == 400
    assert not any(TOKEN in each or secret in each for each in told)


def test_a_server_without_a_token_or_with_a_short_one_is_refused() -> None:
    for token, code in ((None, ErrorCode.CONFIG_MISSING), ("short", ErrorCode.CONFIG_INVALID)):
        with pytest.raises(ConfigError) as caught:
            create_app(Agent("scripted/one", environment={}, providers=[]), token=token)
        assert caught.value.code is code


def test_access_keeps_digests_only() -> None:
    access = Access(TOKEN, keys=[ApiKey(digest=token_digest("key"), owner="ana")])
    made = access.log_in(TOKEN)
    kept = repr(vars(access))
    assert made is not None
    assert not any(each in kept for each in (TOKEN, made.cookie, made.secret))
