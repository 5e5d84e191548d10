"""What every response carries, how headers of requests are read, and that nothing is unbounded."""

import json
import stat
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from haptera import ErrorCode, tool
from haptera.model.errors import FAMILIES
from haptera.model.ids import new_session_id
from haptera.model.parts import MediaPart, TextPart
from haptera.server import Access, ServerSettings, create_app
from haptera.server.app import OPERATIONS
from haptera.server.event_stream import SSE
from haptera.server.limits import OpenLimit, RateLimit
from haptera.server.openapi import document
from haptera.server.operations import ServedOperation
from haptera.server.problems import TITLES, ProblemError, problem_of
from haptera.server.responses import problem_response
from haptera.server.serving import ServerState, announced
from haptera.testing import FakeClock, calls, says
from haptera.testing.scripted_provider import Gate
from tests.scripted_agents import make_agent
from tests.server.serving import TOKEN, serving
from tests.server.test_access_to_the_server import BEARER, PUBLIC, ask

HOST = ("host", "localhost:4000")
JSON = ("content-type", "application/json")
OWN = [HOST, *BEARER.items(), JSON]
DOCUMENT = json.loads(json.dumps(document(OPERATIONS)))
READS = [each for each in OPERATIONS if each.method == "GET"]


def _path(operation: ServedOperation, session_id: str) -> str:
    named = {"approval_id": "apr_1", "share_id": "shr_1", "token": "A" * 44}
    return operation.path.format(session_id=session_id, **named)


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        (["0af7651916cd43dd8448eb211c80319c"], True),
        (["Root=1-2.3_x"], False),
        (["a" * 64], True),
        (["a" * 65], False),
        ([""], False),
        (["a b"], False),
        (["a\nb"], False),
        (["caf\xe9"], False),
        (["a", "b"], False),
        ([], False),
    ],
)
@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("/healthz", "localhost:4000"),
        ("/nothing", "localhost:4000"),
        ("/api/v1/sessions/x", "localhost:4000"),
        ("/api/v1/info", "evil.com"),
    ],
)
async def test_every_response_has_the_id_of_its_request(
    given: list[str], is_kept: bool, path: str, host: str
) -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    headers = [("host", host), *BEARER.items(), *(("x-request-id", each) for each in given)]
    told = [await ask(app, path, headers=headers) for _ in range(2)]
    ids = [headers["x-request-id"] for _, headers, _ in told]
    assert (ids == [*given, *given]) == is_kept
    assert is_kept or (ids[0] != ids[1] and all(each.startswith("req_") for each in ids))
    for request_id, (status, _, body) in zip(ids, told, strict=True):
        assert json.loads(body).get("request_id") == (None if status == 200 else request_id)


@pytest.mark.parametrize("operation", READS, ids=lambda each: each.name)
async def test_a_head_is_answered_as_its_get_and_needs_the_same_credential(
    operation: ServedOperation,
) -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    async with agent, agent.session() as session:
        path = _path(operation, str(session.session_id))
        is_stream = operation.media == (SSE,)
        for headers in (OWN, [HOST]):
            status, _, _ = await ask(app, path, "HEAD", headers=headers)
            if is_stream:
                assert status == 405  # it would never end
            else:
                assert status == (await ask(app, path, headers=headers))[0]
                assert status == 401 or headers == OWN or operation.name in PUBLIC
            assert (await ask(app, path, "OPTIONS", headers=headers))[0] == 405


async def test_a_head_has_no_body_on_the_wire() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        async with served.client.head(served.url + "/healthz") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
            assert int(answer.headers["content-length"]) > 0
        assert (await served.call("GET", "/healthz"))[0] == 200  # the connection can go on


@pytest.mark.parametrize(
    ("prefer", "is_waited"),
    [
        (["wait=30"], True),
        (["Wait=30"], True),
        (['wait="30"'], True),
        (["respond-async, wait=30"], True),
        (["respond-async", "wait=30"], True),
        (["wait = 30; x=1"], True),
        (["wait=999999"], True),
        (["wait=0"], False),
        (["wait"], False),
        (["wait=x"], False),
        (["wait=-1"], False),
        (["no-wait=30"], False),
        (["respond-async"], False),
        ([], False),
    ],
)
async def test_prefer_wait_is_read_as_its_standard_says(prefer: list[str], is_waited: bool) -> None:
    gate = Gate()
    agent, _ = make_agent([says("hi") if is_waited else [gate, *says("hi")]])
    app = create_app(agent, token=TOKEN)
    async with agent:
        async with agent.session() as session:
            path = f"/api/v1/sessions/{session.session_id}/messages"
        headers = [*OWN, *(("prefer", each) for each in prefer)]
        status, told, body = await ask(
            app, path, "POST", headers=headers, body=b'{"content": "hello"}'
        )
        assert status == (200 if is_waited else 202)
        assert json.loads(body).get("text") == ("hi" if is_waited else None)
        longest = ServerSettings().wait_seconds
        applied = f"wait={longest if '999999' in str(prefer) else 30}"
        assert told.get("preference-applied") == (applied if is_waited else None)
        gate.open()
        await app.close()


async def test_a_page_of_a_named_origin_may_send_and_read_what_the_routes_use() -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(origins=frozenset({"https://app.example"}))
    app = create_app(agent, token=TOKEN, settings=settings)
    documented = {
        parameter["name"].lower()
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for parameter in operation["parameters"]
        if parameter["in"] == "header"
    }
    wanted = documented | {"authorization", "content-type", "x-api-key", "x-request-id"}
    assert {"if-match", "last-event-id", "prefer"} <= documented
    asked = [
        HOST,
        ("access-control-request-method", "PATCH"),
        ("access-control-request-headers", ", ".join(sorted(wanted))),
    ]
    for origin, expected in (("https://app.example", 200), ("https://evil.example", 403)):
        headers = [*asked, ("origin", origin)]
        status, told, _ = await ask(app, "/api/v1/sessions/x", "OPTIONS", headers=headers)
        assert status == expected
        assert ("access-control-allow-origin" in told) == (expected == 200)
        assert "access-control-allow-credentials" not in told
    _, told, _ = await ask(app, headers=[*OWN, ("origin", "https://app.example")])
    exposed = told["access-control-expose-headers"].lower().split(", ")
    assert {"etag", "location", "retry-after", "x-request-id"} <= set(exposed)


@pytest.mark.parametrize(
    ("settings", "scheme", "is_secure", "is_remembered"),
    [
        (ServerSettings(), "http", False, False),
        (ServerSettings(), "https", True, False),
        (ServerSettings(hosts=frozenset({HOST[1]})), "http", False, False),
        (ServerSettings(hosts=frozenset({HOST[1]})), "https", True, True),
        (ServerSettings(hosts=frozenset({HOST[1]}), behind_tls=True), "http", True, True),
    ],
)
async def test_over_tls_cookies_are_for_https_only_and_names_are_remembered(
    settings: ServerSettings, scheme: str, is_secure: bool, is_remembered: bool
) -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN, settings=settings)

    async def reached(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "scheme": scheme}, receive, send)

    body = json.dumps({"token": TOKEN}).encode()
    status, told, _ = await ask(reached, "/api/v1/login", "POST", headers=[HOST, JSON], body=body)
    assert status == 200
    assert ("Secure" in told["set-cookie"].split("; ")) == is_secure
    assert ("strict-transport-security" in told) == is_remembered


async def test_what_a_browser_shows_cannot_run_scripts_or_be_framed() -> None:
    agent, _ = make_agent([says("hi")])
    app = create_app(agent, token=TOKEN)
    async with agent:
        async with agent.session() as session:
            await session.chat("<script>alert(1)</script>")
            path = f"/api/v1/sessions/{session.session_id}"
        for shown, policy in (
            ("/healthz", "default-src 'none'; frame-ancestors 'none'"),
            ("/nothing", "default-src 'none'; frame-ancestors 'none'"),
            (path, "default-src 'none'; frame-ancestors 'none'"),
            (f"{path}/export?format=html", "sandbox"),
            (f"{path}/export?format=markdown", "sandbox"),
        ):
            _, told, _ = await ask(app, shown, headers=OWN)
            assert told["content-security-policy"] == policy, shown
            assert told["x-content-type-options"] == "nosniff"
            assert told["referrer-policy"] == "no-referrer"
            assert told["cache-control"] == "no-store"
            assert ("attachment" in told.get("content-disposition", "")) == ("export" in shown)


TOO_MUCH = [
    ([("x-padding", "a" * 8000)] * 9, b"{}", 431, "HEADERS_TOO_LARGE"),
    ([("content-length", str(10**9))], b"{}", 413, "TOO_LARGE"),
    ([("content-length", "2"), ("content-length", "3")], b"{}", 400, "BAD_REQUEST"),
    ([("content-length", "-1")], b"{}", 400, "BAD_REQUEST"),
    ([("content-length", "2")], b"{" * 5_000_000, 413, "TOO_LARGE"),
    ([("transfer-encoding", "chunked")], b" " * 5_000_000, 413, "TOO_LARGE"),
]


@pytest.mark.parametrize(("more", "body", "status", "code"), TOO_MUCH)
async def test_what_is_too_large_is_refused_by_what_it_says_and_by_what_it_is(
    more: list[tuple[str, str]], body: bytes, status: int, code: str
) -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    answer = await ask(app, "/api/v1/sessions", "POST", headers=[*OWN, *more], body=body)
    assert (answer[0], json.loads(answer[2])["code"]) == (status, code)


async def test_requests_of_one_owner_are_limited_and_told_when_to_come_again() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN, settings=ServerSettings(requests_per_second=0.001))
    assert (await ask(app))[0] == 200
    status, told, body = await ask(app)
    problem = json.loads(body)
    assert (status, problem["code"], problem["retryable"]) == (429, "RATE_LIMITED", True)
    assert int(told["retry-after"]) >= problem["retry_after"] > 0
    assert (await ask(app, "/healthz", headers=[HOST]))[0] == 200


@pytest.mark.parametrize(
    ("seconds", "header"), [(None, None), (0.01, "1"), (1.0, "1"), (1.2, "2"), (2.5, "3")]
)
def test_a_client_is_not_told_to_come_again_too_early(
    seconds: float | None, header: str | None
) -> None:
    problem = ProblemError(503, "UNAVAILABLE", "not now", retryable=True, retry_after=seconds)
    assert problem_response(problem, {"headers": []}).headers.get("retry-after") == header


STATUSES = {
    400: "CONFIG_INVALID TOOL_INVALID_INPUT MODEL_NOT_FOUND",
    403: "ACCESS_DENIED",
    404: "NOT_FOUND MESSAGE_NOT_FOUND",
    409: "NOTHING_TO_SEND BUSY CONFLICT STREAM_BUSY CLOSED FENCED",
    413: "CONTEXT_LENGTH",
    422: "VERSION_UNSUPPORTED CORRUPT",
    429: "RATE_LIMITED QUOTA",
    499: "ABORTED",
    500: "HOOK_FAILED TOOL_FAILED TOOL_NOT_FOUND TOOL_TIMEOUT",
    502: "AUTH SERVER_ERROR BAD_REQUEST CONTENT_FILTER PROTOCOL OUTPUT_INVALID NETWORK "
    "STREAM_INTERRUPTED",
    503: "POOL_FULL UNAVAILABLE OVERLOADED CONFIG_MISSING",
    504: "TIMEOUT",
    507: "FULL",
}


def test_every_error_of_the_library_has_a_status_and_a_title() -> None:
    listed = {code: status for status, codes in STATUSES.items() for code in codes.split()}
    problems = {
        code.value: problem_of(kind(code, "wrong")).body for kind in FAMILIES for code in kind.codes
    }
    assert set(problems) == {code.value for code in ErrorCode}
    assert {code: body.status for code, body in problems.items()} == listed
    assert all(body.title == TITLES[body.status] for body in problems.values())


async def test_wrong_tokens_at_the_login_are_limited() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN, settings=ServerSettings(failures_per_second=0.001))
    body = b'{"token": "wrong-token-wrong-token"}'
    statuses = [
        (await ask(app, "/api/v1/login", "POST", headers=[HOST, JSON], body=body))[0]
        for _ in range(5)
    ]
    assert statuses == [401, 429, 429, 429, 429]
    assert (await ask(app))[0] == 200  # a right token is answered all the same


def test_streams_are_limited_for_one_owner_and_for_all() -> None:
    limit = OpenLimit("streams", each=2, total=3)
    ends = [limit.begin("ana"), limit.begin("ana"), limit.begin("ben")]
    for owner in ("ana", "ben", "eve"):
        with pytest.raises(ProblemError) as caught:
            limit.begin(owner)
        assert caught.value.body.code == "TOO_MANY_STREAMS"
    for _ in range(2):
        ends[0]()  # counted once, however often it is called
    assert limit.open == 2
    limit.begin("eve")
    with pytest.raises(ProblemError):
        limit.begin("eve")


async def test_a_message_whose_stream_is_refused_is_not_taken_in() -> None:
    agent, provider = make_agent([says("hi")])
    app = create_app(agent, token=TOKEN, settings=ServerSettings(streams=1))
    async with agent:
        async with agent.session() as session:
            path = f"/api/v1/sessions/{session.session_id}"
        end = app.hub.streams.begin("ana")
        stream, body = ("accept", "text/event-stream"), b'{"content": "hello"}'
        for _ in range(2):
            status, _, told = await ask(
                app, f"{path}/messages", "POST", headers=[*OWN, stream], body=body
            )
            assert (status, json.loads(told)["code"]) == (429, "TOO_MANY_STREAMS")
        assert json.loads((await ask(app, f"{path}/messages", headers=OWN))[2])["data"] == []
        end()
        unknown = f"/api/v1/sessions/{new_session_id()}"
        for place, expected in ((unknown, 404), (path, 200)):
            asked = {"headers": [*OWN, stream], "body": body}
            assert (await ask(app, f"{place}/messages", "POST", **asked))[0] == expected
            assert app.hub.streams.open == 0
        await app.close()
    provider.check()


def test_what_is_kept_of_callers_and_browsers_is_bounded() -> None:
    clock = FakeClock()
    rate = RateLimit(1, clock=clock)
    for number in range(20_000):
        rate.take(f"caller-{number}")
    access = Access(TOKEN, clock=clock)
    logins = [made for _ in range(1_100) if (made := access.log_in(TOKEN)) is not None]
    known = [access.principal_of_login(each.cookie, each.secret) for each in logins]
    assert all(known[-1000:])
    assert not any(known[:100])
    assert len(vars(rate)["_buckets"]) == 10_000


def test_a_cookie_ends_after_twelve_hours() -> None:
    clock = FakeClock()
    access = Access(TOKEN, clock=clock)
    made = access.log_in(TOKEN)
    assert made is not None
    for hours, is_valid in ((0, True), (11.99, True), (0.01, False), (88, False)):
        clock.advance(hours * 3600)
        assert (access.principal_of_login(made.cookie, made.secret) is not None) == is_valid, hours


async def test_content_of_the_store_and_names_of_sessions_are_not_reached_by_guessing() -> None:
    agent, provider = make_agent([])
    app = create_app(agent, token=TOKEN)
    async with agent:
        async with agent.session("ana") as session:
            session_id = str(session.session_id)
        parts = [TextPart(text="look"), MediaPart(mime="image/png", blob="a" * 64)]
        body = msgspec.json.encode({"content": parts})
        path = f"/api/v1/sessions/{session_id}/messages"
        status, _, told = await ask(app, path, "POST", headers=OWN, body=body)
        assert status == 400
        assert json.loads(told)["detail"] == "media is sent as `data` or `url`"
        for operation in OPERATIONS:
            if "{session_id}" in operation.path:
                bodies = {"send_message": b'{"content": "hi"}'}
                bodies["answer_approval"] = b'{"decision": "allow_once"}'
                path = _path(operation, "ana")
                status, _, told = await ask(
                    app,
                    path,
                    operation.method,
                    headers=OWN,
                    body=bodies.get(operation.name, b"{}"),
                )
                assert (status, json.loads(told)["code"]) == (404, "NOT_FOUND"), operation.name
    assert not provider.requests


def test_the_state_file_is_for_its_user_only_and_goes_with_its_server(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    first = ServerState(url="http://127.0.0.1:1", pid=1, token=TOKEN)
    second = ServerState(url="http://127.0.0.1:2", pid=2, token=TOKEN)
    with announced(folder, first) as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with announced(folder, second):
            assert "127.0.0.1:2" in path.read_text()
        assert not path.exists()
    with announced(folder, first) as path:
        later = announced(folder, second)
        later.__enter__()
    assert "127.0.0.1:2" in path.read_text()  # that of the later server stays
    assert later.__exit__(None, None, None) is False
    assert list(folder.iterdir()) == []


async def test_every_event_of_a_stream_is_as_the_document_says() -> None:
    @tool(approval="ask")
    def nap() -> str:
        """Sleep."""
        return "rested"

    agent, _ = make_agent([calls(("nap", {})), says("Hel", "lo")], tools=[nap])
    checker = jsonschema.Draft202012Validator(
        {"$ref": "#/components/schemas/Event", "components": DOCUMENT["components"]}
    )
    kinds: set[str] = set()
    async with serving(agent) as served:
        session_id = await served.new_session(title="Plans")
        path = f"/api/v1/sessions/{session_id}"
        async with served.events("/api/v1/events") as every, served.events(f"{path}/events") as own:
            wait = {"prefer": "wait=30"}
            await served.call("POST", f"{path}/messages", {"content": "go"}, headers=wait)
            _, pending = await served.call("GET", f"{path}/approvals")
            where = f"{path}/approvals/{pending['data'][0]['id']}"
            await served.call("POST", where, {"decision": "allow_once"})
            for events, is_wrapped in ((own, False), (every, True)):
                async for event in events:
                    data = event.data["event"] if is_wrapped else event.data
                    if event.kind in {"log.synced", "ping"}:
                        continue
                    checker.validate(data)
                    assert data["kind"] == event.kind
                    kinds.add(event.kind)
                    if event.kind == "query.ended" and data["stop_reason"] == "complete":
                        break
    assert {"input.queued", "text.delta", "approval.requested", "query.ended"} <= kinds
    with pytest.raises(jsonschema.ValidationError):
        checker.validate({"kind": "no.such.event"})


def test_the_document_says_how_each_operation_is_refused() -> None:
    for operation in OPERATIONS:
        told = DOCUMENT["paths"][operation.path][operation.method.lower()]
        problems = {code for code in told["responses"] if code != "default" and code >= "400"}
        assert {"401", "403", "429", "503"} <= problems or operation.scope is None
        assert ("404" in problems) == ("{" in operation.path)
        for code in problems:
            name = told["responses"][code]["$ref"].rpartition("/")[2]
            assert (
                "application/problem+json" in DOCUMENT["components"]["responses"][name]["content"]
            )


async def test_a_session_that_is_not_there_is_the_same_for_every_operation() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    missing = new_session_id()
    async with agent:
        for operation in READS:
            if "{session_id}" in operation.path:
                status, _, told = await ask(app, _path(operation, missing), headers=OWN)
                assert (status, json.loads(told)["code"]) == (404, "NOT_FOUND"), operation.name


async def test_queries_beyond_the_bound_wait_or_are_refused_and_are_counted() -> None:
    gate = Gate()
    agent, _ = make_agent([[gate, *says("first")], says("second")])
    settings = ServerSettings(queries=1, pending_queries=0, when_queries_full="dropping")
    async with serving(agent, settings=settings) as served:
        paths = [f"/api/v1/sessions/{await served.new_session()}/messages" for _ in range(2)]
        assert (await served.call("POST", paths[0], {"content": "go"}))[0] == 202
        await gate.reached.wait()
        status, problem = await served.call("POST", paths[1], {"content": "go"})
        assert (status, problem["code"]) == (503, "POOL_FULL")
        _, load = await served.call("GET", "/api/v1/load")
        assert (load["queries"]["running"], load["queries"]["refused"]) == (1, 1)
        gate.open()
        wait = {"prefer": "wait=30"}
        body = {"content": "go", "id": "m"}
        while (await served.call("POST", paths[1], body, headers=wait))[0] != 200:
            pass
        _, load = await served.call("GET", "/api/v1/load")
        assert load["queries"]["started"] == 2
