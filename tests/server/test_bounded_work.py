"""What a client sends costs no more than its size, and takes no longer than it may.

Every route has a bound on its body; a body, a batch, a wait and a connection each have a deadline
as a whole, a size before anything is read, and a place in the quota of their caller.
"""

import asyncio
import contextlib
import io
import json
import time
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from starlette.routing import Route

from haptera.server import ServerSettings, create_app
from haptera.server.bodies import largest_body
from haptera.server.connections import HEAD_BYTES, HttpConnection
from haptera.server.decoding import MOST_VALUES, decode_body
from haptera.server.endpoint import Endpoint
from haptera.server.operations import ServedOperation
from haptera.server.problems import ProblemError
from haptera.system.clock import SystemClock
from haptera.testing import Gate, says
from tests.attacks.slow_store import HeldStore
from tests.scripted_agents import make_agent
from tests.server.deep_json import BODIES
from tests.server.rpc_client import CallError, websocket
from tests.server.serving import TOKEN, Served, serving
from tests.server.test_access_to_the_server import BEARER, _path, ask

pytestmark = pytest.mark.slow

WIDE = ServerSettings(requests_per_second=1e6, failures_per_second=1e6)
HOST = ("host", "localhost:4000")
JSON = ("content-type", "application/json")
OWN = [HOST, *BEARER.items(), JSON]
MEBIBYTE = 1024 * 1024
CLOCK = SystemClock()
_SLICE_SECONDS = 0.05
"""The most CPU time that one message may take of the event loop in one go."""


class Feed:
    """The body of a request, in pieces; counts how many were taken."""

    def __init__(self, piece: bytes, *, seconds: float = 0.0, most: int | None = None) -> None:
        self.taken = 0
        self._piece = piece
        self._seconds = seconds
        self._most = most

    async def receive(self) -> Any:
        """Give the next piece; there is no end unless there is a most."""
        await CLOCK.sleep(self._seconds)
        if self._most is not None and self.taken >= self._most:
            await asyncio.Event().wait()
        self.taken += 1
        return {"type": "http.request", "body": self._piece, "more_body": True}


async def _answer(
    app: Any, method: str, path: str, feed: Feed, *more: tuple[str, str]
) -> tuple[int, Any]:
    """Send a request whose body comes in pieces; returns status and what the answer says."""
    headers = [*OWN, *more]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "server": ("127.0.0.1", 4000),
        "client": ("127.0.0.1", 5000),
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await asyncio.wait_for(app(scope, feed.receive, send), 20)
    content = b"".join(each.get("body", b"") for each in sent[1:])
    return sent[0]["status"], json.loads(content) if content else None


def _routes(app: Any) -> list[tuple[str, str, int | None, ServedOperation | None]]:
    """Return every route of an application: method, path, bound and operation; from its table."""
    found: list[tuple[str, str, int | None, ServedOperation | None]] = []
    settings = app.hub.settings
    for route in app.inner.routes:
        if not isinstance(route, Route):
            continue  # a WebSocket: its messages are bounded by the ASGI server
        if isinstance(route.endpoint, Endpoint):
            for method, each in route.endpoint.operations.items():
                found.append((method, each.path, largest_body(each, settings), each))
        else:
            found.append(("POST", route.path, settings.body_bytes, None))
    return found


async def test_every_route_has_a_bound_on_its_body() -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(body_bytes=100_000, import_bytes=200_000)
    app = create_app(agent, token=TOKEN, settings=settings)
    routes = _routes(app)
    assert len(routes) > 30
    piece = b" " * 10_000
    async with agent, agent.session() as session:
        for method, path, bound, operation in routes:
            where = path
            if operation is not None:
                where = _path(operation, str(session.session_id))
                assert bound is not None
                assert bound <= (200_000 if operation.body is bytes else 100_000), operation.name
                assert operation.scope is not None or bound <= 8192, operation.name
            if operation is not None and operation.body is None:
                continue  # nothing of it is read, as the next test shows
            assert bound is not None
            told = Feed(piece)
            status, answer = await _answer(
                app, method, where, told, ("content-length", str(bound + 1))
            )
            assert (status, answer["code"], told.taken) == (413, "TOO_LARGE", 0), path
            streamed = Feed(piece)
            status, answer = await _answer(app, method, where, streamed)
            assert (status, answer["code"]) == (413, "TOO_LARGE"), path
            assert streamed.taken == bound // len(piece) + 1, path
        await app.close()


async def test_an_import_has_a_deadline_as_a_whole() -> None:
    store = HeldStore()
    agent, _ = make_agent([], store=store)
    settings = msgspec.structs.replace(WIDE, import_seconds=0.3)
    async with serving(agent, settings=settings) as served:
        path, file = "/api/v1/sessions:import", [{"role": "user", "content": "go"}]
        store.log.hold = lambda _: True
        status, answer = await served.call("POST", path, file)
        assert (status, answer["code"]) == (503, "IMPORT_TIMEOUT")
        assert store.log.held.is_set()
        assert (await served.call("GET", "/api/v1/sessions"))[1]["data"] == []
        store.log.hold = lambda _: False
        assert (await served.call("POST", path, file))[0] == 201


async def test_nothing_is_read_of_a_body_that_is_not_wanted() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN)
    for method, path in (("GET", "/api/v1/info"), ("POST", "/api/v1/logout"), ("GET", "/healthz")):
        feed = Feed(b"x" * 1000)
        status, _ = await _answer(app, method, path, feed, ("content-length", "999999999"))
        assert (status < 300, feed.taken) == (True, 0)
    feed = Feed(b"x" * 1000)
    refused = await _answer(app, "POST", "/api/v1/sessions", feed, ("authorization", "Bearer no"))
    assert (refused[0], feed.taken) == (401, 0)
    await agent.close()


@pytest.mark.parametrize("path", ["/api/v1/sessions", "/api/v1/sessions:import", "/rpc"])
async def test_a_body_has_a_deadline_as_a_whole(path: str) -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(body_seconds=0.3, import_seconds=0.3)
    app = create_app(agent, token=TOKEN, settings=settings)
    feed = Feed(b" ", seconds=0.02)
    begun = CLOCK.now()
    status, answer = await _answer(app, "POST", path, feed)
    assert (status, answer["code"]) == (408, "BODY_TIMEOUT")
    assert CLOCK.now() - begun < 5
    assert 0 < feed.taken < 30
    await app.close()
    await agent.close()


@pytest.mark.parametrize("kind", BODIES)
def test_no_json_takes_long_or_much_memory_to_read(kind: str) -> None:
    content = BODIES[kind](4 * MEBIBYTE - 100)
    taken: list[float] = []
    told = ""
    for _ in range(3):
        begun = time.thread_time()
        try:
            decode_body(content, dict[str, Any] | list[Any])  # type: ignore[arg-type]  # as msgspec
        except ProblemError as problem:
            told = msgspec.json.encode(problem.body).decode()
        taken.append(time.thread_time() - begun)
    assert min(taken) < _SLICE_SECONDS
    assert len(told) < 1000
    tracemalloc.start()
    try:
        with contextlib.suppress(ProblemError):
            decode_body(content, dict[str, Any] | list[Any])  # type: ignore[arg-type]  # as msgspec
        assert tracemalloc.get_traced_memory()[1] < 6 * len(content)
    finally:
        tracemalloc.stop()


def test_a_name_that_is_refused_is_not_repeated_at_its_length() -> None:
    class Empty(msgspec.Struct, forbid_unknown_fields=True):
        pass

    with pytest.raises(ProblemError) as caught:
        decode_body(b'{"' + b"k" * MEBIBYTE + b'":1}', Empty)
    assert caught.value.body.status == 400
    assert len(caught.value.body.detail) < 1000


@pytest.mark.parametrize("way", ["post", "websocket"])
@pytest.mark.parametrize("values", [65, 30_000, MOST_VALUES - 10, 1_000_000])
async def test_a_batch_that_is_too_large_is_one_error(way: str, values: int) -> None:
    agent, _ = make_agent([])
    content = b"[" + b"1," * (values - 1) + b"1]"
    async with serving(agent, settings=WIDE) as served:
        if way == "post":
            headers = {"content-type": "application/json"}
            async with served.client.post(
                served.url + "/rpc", data=io.BytesIO(content), headers=headers
            ) as answer:
                told = json.loads(await answer.read())
        else:
            async with websocket(served) as client:
                await client.send(content)
                told = await client.others.get()
    assert isinstance(told, dict)
    assert (told["id"], told["error"]["code"]) == (None, -32600)
    expected = "BATCH_TOO_LARGE" if values < MOST_VALUES else "TOO_MANY_VALUES"
    assert told["error"]["data"]["code"] == expected


@pytest.mark.parametrize("way", ["post", "websocket"])
async def test_every_element_of_a_batch_counts_whatever_it_is(way: str) -> None:
    agent, _ = make_agent([])
    info = {"jsonrpc": "2.0", "id": 1, "method": "server/info"}
    settings = ServerSettings(requests_per_second=10)  # a burst of 20
    async with serving(agent, settings=settings) as served:
        sent = json.dumps([1] * 19).encode()
        if way == "post":
            headers = {"content-type": "application/json"}
            await served.call("POST", "/rpc", [1] * 20)
            status, told = await served.call("POST", "/rpc", info)
            assert (status, told["code"]) == (429, "RATE_LIMITED")
            async with served.client.post(served.url + "/rpc", data=b"{", headers=headers) as more:
                assert more.status == 429  # before anything of it is read
        else:
            async with websocket(served) as client:
                await client.send(sent)
                await client.others.get()
                await client.send(b"{")
                assert (await client.others.get())["error"]["code"] == -32700
                with pytest.raises(CallError) as caught:
                    await client.call("server/info")
                assert caught.value.data["code"] == "RATE_LIMITED"
                await client.send(b"{")
                assert (await client.others.get())["error"]["data"]["code"] == "RATE_LIMITED"


@contextlib.asynccontextmanager
async def _dialled(served: Served) -> AsyncIterator[tuple[asyncio.StreamReader, Any]]:
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def _is_closed(served: Served, writer: Any, drip: bytes, *, seconds: float) -> bool:
    """Send a little now and then; returns whether the server closes its connections in time."""
    end = CLOCK.now() + seconds
    while served.server.server_state.connections and CLOCK.now() < end:
        with contextlib.suppress(ConnectionError):
            writer.write(drip)
            await writer.drain()
        await CLOCK.sleep(0.05)
    return not served.server.server_state.connections


REFUSED = {
    "no credential": ("POST /api/v1/sessions HTTP/1.1", "content-length: 1000"),
    "too large": (
        "POST /api/v1/login HTTP/1.1",
        "content-length: 1000000",
        "content-type: application/json",
    ),
    "chunks": ("POST /api/v1/sessions HTTP/1.1", "transfer-encoding: chunked"),
    "no route": ("POST /nothing HTTP/1.1", "content-length: 1000"),
    "another host": ("POST / HTTP/1.1", "content-length: 1000", "host: evil"),
    "answered": ("GET /healthz HTTP/1.1", "content-length: 1000"),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_connection_with_an_unread_body_is_closed_whatever_comes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpConnection, "linger_seconds", 0.2, raising=False)
    agent, _ = make_agent([])
    async with serving(agent, settings=WIDE) as served:
        line, *lines = REFUSED[kind]
        if not any(each.startswith("host:") for each in lines):
            lines.append("host: " + served.url.removeprefix("http://"))
        async with _dialled(served) as (reader, writer):
            writer.write("\r\n".join([line, *lines, "", ""]).encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"connection: close" in head
            drip = b"1\r\nx\r\n" if kind == "chunks" else b"x"
            assert await _is_closed(served, writer, drip, seconds=5)


async def test_a_client_that_still_sends_gets_the_refusal_and_not_a_reset() -> None:
    agent, _ = make_agent([])
    async with serving(agent, settings=WIDE) as served:
        for _ in range(20):
            async with served.client.post(
                served.url + "/api/v1/login",
                data=io.BytesIO(b"x" * (8 * MEBIBYTE)),
                headers={"content-type": "application/json"},
            ) as answer:
                assert (answer.status, (await answer.json())["code"]) == (413, "TOO_LARGE")


async def test_what_comes_between_two_requests_keeps_no_connection_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HttpConnection, "head_seconds", 0.5)
    agent, _ = make_agent([])
    async with serving(agent, settings=WIDE) as served:
        host = served.url.removeprefix("http://")
        async with _dialled(served) as (reader, writer):
            writer.write(f"GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n".encode() + b"\r\n")
            await reader.readuntil(b'"ok"}')
            assert await _is_closed(served, writer, b"\r\n", seconds=7)


async def test_a_websocket_outlives_the_time_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpConnection, "head_seconds", 0.1)
    agent, _ = make_agent([])
    async with serving(agent, settings=WIDE) as served, websocket(served) as client:
        for _ in range(3):
            await CLOCK.sleep(0.1)
            assert (await client.call("server/info"))["owner"] == "local"


@pytest.mark.parametrize("kind", ["trailer", "extension"])
async def test_what_surrounds_a_body_is_bounded_like_a_head(kind: str) -> None:
    agent, _ = make_agent([])
    async with serving(agent, settings=WIDE) as served:
        lines = [
            "POST /api/v1/sessions HTTP/1.1",
            "host: " + served.url.removeprefix("http://"),
            f"authorization: Bearer {TOKEN}",
            "content-type: application/json",
            "transfer-encoding: chunked",
        ]
        begun = {"trailer": b"2\r\n{}\r\n0\r\nx: ", "extension": b"2;"}[kind]
        async with _dialled(served) as (reader, writer):
            writer.write("\r\n".join([*lines, "", ""]).encode() + begun)
            sent = 0
            with contextlib.suppress(ConnectionError):
                while sent < 100 * HEAD_BYTES and not reader.at_eof():
                    writer.write(b"a" * HEAD_BYTES)
                    await writer.drain()
                    sent += HEAD_BYTES
                    await CLOCK.sleep(0)
            assert sent < 100 * HEAD_BYTES


async def test_requests_that_are_sent_ahead_are_bounded() -> None:
    agent, _ = make_agent([])
    async with serving(agent, settings=WIDE) as served:
        host = served.url.removeprefix("http://")
        one = f"GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        async with _dialled(served) as (reader, writer):
            writer.write(one * 10)
            for _ in range(10):
                await reader.readuntil(b'"ok"}')
        stream = f"GET /api/v1/events HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {TOKEN}\r\n"
        async with _dialled(served) as (_, writer):
            writer.write(f"{stream}\r\n".encode() + one * 1000)
            await CLOCK.sleep(0.2)
            waiting = [
                len(each.pipeline)
                for each in served.server.server_state.connections
                if isinstance(each, HttpConnection)
            ]
            assert all(count <= 16 for count in waiting), waiting


async def test_requests_that_are_sent_ahead_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HttpConnection, "ahead_seconds", 3600.0, raising=False)
    agent, _ = make_agent([])
    async with serving(agent, settings=WIDE) as served:
        host = served.url.removeprefix("http://")
        one = f"GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        async with _dialled(served) as (reader, writer):
            writer.write(one * 10)
            await reader.readuntil(b'"ok"}')
            assert (await served.call("GET", "/healthz"))[0] == 200
            waiting = [
                len(each.pipeline)
                for each in served.server.server_state.connections
                if isinstance(each, HttpConnection)
            ]
            assert max(waiting) == 8
        assert (await served.call("GET", "/healthz"))[0] == 200


async def test_connections_without_a_request_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpConnection, "most_connections", 5, raising=False)
    agent, _ = make_agent([])
    async with serving(agent, settings=WIDE) as served, contextlib.AsyncExitStack() as stack:
        path = f"/api/v1/sessions/{await served.new_session()}/events"
        async with served.events(path) as events:
            for number in range(20):
                _, writer = await stack.enter_async_context(_dialled(served))
                writer.write(b"GET /hea" if number % 2 else b"")
                await writer.drain()
                assert (await served.call("GET", "/healthz"))[0] == 200
            assert len(served.server.server_state.connections) <= 5
            await served.call("POST", path.replace("events", "shares"), {})
            assert (await anext(events)).kind  # it goes on


async def test_a_wait_has_a_place_among_the_streams_of_its_owner() -> None:
    gate = Gate()
    agent, _ = make_agent([[gate, *says("hi")]])
    settings = ServerSettings(streams_per_owner=1)
    async with serving(agent, settings=settings) as served:
        path = f"/api/v1/sessions/{await served.new_session()}/messages"
        wait = {"prefer": "wait=600"}
        first = asyncio.ensure_future(
            served.call("POST", path, {"content": "go", "id": "one"}, headers=wait)
        )
        await gate.reached.wait()
        for body in ({"content": "go", "id": "one"}, {"content": "more"}):
            status, problem = await served.call("POST", path, body, headers=wait)
            assert (status, problem["code"]) == (429, "TOO_MANY_STREAMS")
        stored = (await served.call("GET", path))[1]["data"]
        assert len(stored) == 1  # a prompt whose wait is refused is not stored
        async with served.client.post(
            served.url + "/rpc",
            json={
                "jsonrpc": "2.0",
                "id": 1,
                "method": "message/send",
                "params": {
                    "session_id": path.split("/")[4],
                    "content": "go",
                    "id": "one",
                    "wait": 9,
                },
            },
        ) as answer:
            assert (await answer.json())["error"]["data"]["code"] == "TOO_MANY_STREAMS"
        gate.open()
        assert (await first)[0] == 200
        assert served.app.hub.streams.open == 0
        assert (await served.call("POST", path, {"content": "go", "id": "one"}, headers=wait))[
            0
        ] == 200


async def test_a_wait_has_a_maximum_whatever_is_asked() -> None:
    gate = Gate()
    agent, _ = make_agent([[gate, *says("hi")]])
    async with serving(agent, settings=ServerSettings(wait_seconds=1)) as served:
        session_id = await served.new_session()
        message = {"content": "go", "id": "one"}
        path = f"/api/v1/sessions/{session_id}/messages"
        begun = CLOCK.now()
        wait = {"prefer": "wait=999999999"}
        assert (await served.call("POST", path, message, headers=wait))[0] == 202
        async with websocket(served) as client:
            params = {"session_id": session_id, "wait": 10**9, **message}
            assert "end" not in await client.call("message/send", **params)
        assert CLOCK.now() - begun < 20
        gate.open()


async def test_requests_in_progress_are_bounded_for_each_owner() -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(requests_per_owner=2)
    app = create_app(agent, token=TOKEN, settings=settings)
    slow = [Feed(b" ", most=1) for _ in range(2)]
    begun = [asyncio.ensure_future(_answer(app, "POST", "/api/v1/sessions", each)) for each in slow]
    while not all(each.taken for each in slow):
        await CLOCK.sleep(0)
    status, _, body = await ask(app, headers=OWN)
    assert (status, json.loads(body)["code"]) == (429, "TOO_MANY_REQUESTS")
    assert (await ask(app, "/healthz", headers=[HOST]))[0] == 200
    for each in begun:
        each.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
    assert (await ask(app, headers=OWN))[0] == 200
    await app.close()
    await agent.close()


async def test_logins_in_progress_are_bounded_for_each_client() -> None:
    agent, _ = make_agent([])
    app = create_app(agent, token=TOKEN, settings=ServerSettings(requests_per_owner=1))
    slow = Feed(b" ", most=1)
    begun = asyncio.ensure_future(_answer(app, "POST", "/api/v1/login", slow))
    while not slow.taken:
        await CLOCK.sleep(0)
    status, answer = await _answer(app, "POST", "/api/v1/login", Feed(b" "))
    assert (status, answer["code"]) == (429, "TOO_MANY_REQUESTS")
    assert (await ask(app, headers=OWN))[0] == 200
    begun.cancel()
    await asyncio.gather(begun, return_exceptions=True)
    await agent.close()
