"""Connections that send too much, too slowly or nothing, and clients that a server waits for."""

import asyncio
import json
import socket

import pytest

from haptera.model.secrets import token_digest
from haptera.server import Access, ApiKey, ServerSettings, new_token
from haptera.server import serving as serving_module
from haptera.server.connections import HEAD_BYTES, HttpConnection, stalled_in
from haptera.testing import Gate, says
from tests.scripted_agents import make_agent
from tests.server.rpc_client import websocket
from tests.server.serving import TOKEN, Served, serving
from tests.server.test_clients_that_vanish_or_stall import Connection

pytestmark = pytest.mark.slow

SETTINGS = ServerSettings(requests_per_second=1e6, failures_per_second=1e6)
JSON = "content-type: application/json"


def _narrow() -> socket.socket:
    """Return a socket that listens, and on which the system takes little in for the server."""
    sock = serving_module.listen("127.0.0.1", 0, is_protected=False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return sock


async def _told(served: Served, content: bytes) -> bytes:
    """Send bytes on a connection of their own, and return all that comes before it is closed."""
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    told = b""
    try:
        writer.write(content)
        told = await reader.read()
    except ConnectionError:
        pass  # it was closed while more was on its way
    finally:
        writer.close()
    return told


def _head(served: Served, line: str, *lines: str) -> bytes:
    known = (f"host: {served.url.removeprefix('http://')}", "connection: close")
    return "\r\n".join([line, *known, *lines, "", ""]).encode()


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /" + b"a" * (8 * HEAD_BYTES),
        b"GET /healthz HTTP/1.1\r\nx: " + b"a" * (8 * HEAD_BYTES),
        b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * (8 * HEAD_BYTES // 6),
        b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nx: " + b"a" * (8 * HEAD_BYTES),
    ],
    ids=["path", "header", "headers", "pipelined"],
)
async def test_a_head_without_an_end_is_refused(endless: bytes) -> None:
    agent, _ = make_agent([])
    async with serving(agent, settings=SETTINGS) as served:
        told = await _told(served, endless)
        assert b"200 OK" not in told
        assert (await served.call("GET", "/healthz"))[0] == 200


@pytest.mark.parametrize(
    "begun", [b"", b"GET /he", b"GET /healthz HTTP/1.1\r\nho"], ids=["nothing", "path", "header"]
)
async def test_a_connection_whose_request_does_not_come_is_closed(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpConnection, "head_seconds", 0.05)
    agent, _ = make_agent([])
    async with serving(agent) as served:
        told = await _told(served, begun)
        assert told.startswith(b"HTTP/1.1 408 ") if begun else not told
        assert (await served.call("GET", "/healthz"))[0] == 200


async def test_a_body_that_does_not_come_is_given_up() -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(body_seconds=0.05, import_seconds=0.05)
    async with serving(agent, settings=settings) as served:
        for path, kind in (("sessions", "json"), ("sessions:import", "octet-stream")):
            head = _head(
                served,
                f"POST /api/v1/{path} HTTP/1.1",
                f"authorization: Bearer {TOKEN}",
                f"content-type: application/{kind}",
                "content-length: 100",
            )
            told = await _told(served, head + b"{")
            assert told.startswith(b"HTTP/1.1 408 ")
            assert b'"code":"BODY_TIMEOUT"' in told


async def test_what_follows_a_body_is_no_header() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        body = b'{"title":"one"}'
        chunks = b"%x\r\n%s\r\n0\r\n" % (len(body), body)
        line, more = "POST /api/v1/sessions HTTP/1.1", (JSON, "transfer-encoding: chunked")
        credential = f"authorization: Bearer {TOKEN}"
        told = await _told(
            served, _head(served, line, *more) + chunks + f"{credential}\r\n\r\n".encode()
        )
        assert told.startswith(b"HTTP/1.1 401 ")
        told = await _told(
            served, _head(served, line, *more, credential) + chunks + b"host: evil\r\n\r\n"
        )
        assert told.startswith(b"HTTP/1.1 201 ")


async def test_several_credentials_are_none() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        credentials = (f"authorization: Bearer {TOKEN}", "authorization: Bearer other")
        for given in (credentials, credentials[::-1]):
            told = await _told(served, _head(served, "GET /api/v1/info HTTP/1.1", *given))
            assert told.startswith(b"HTTP/1.1 401 ")


async def test_an_owner_imports_one_file_at_a_time_and_others_do_not_wait() -> None:
    key = new_token()
    access = Access(TOKEN, keys=[ApiKey(digest=token_digest(key), owner="ana")])
    agent, _ = make_agent([])
    other, _ = make_agent([], owner="ana")
    file = b'[{"role": "user", "content": "hello"}]'
    line, kind = "POST /api/v1/sessions:import HTTP/1.1", "content-type: application/octet-stream"
    own, hers = f"authorization: Bearer {TOKEN}", f"authorization: Bearer {key}"
    size = f"content-length: {len(file)}"
    async with other, serving(agent, access=access, agents={"ana": other}.get) as served:
        sessions = served.app.hub.owner("local")
        host, port = served.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(_head(served, line, kind, own, size) + file[:-1])
        while not sessions.importing.locked():
            await served.call("GET", "/healthz")
        next_one = asyncio.ensure_future(_told(served, _head(served, line, kind, own, size) + file))
        told = await _told(served, _head(served, line, kind, hers, size) + file)
        assert told.startswith(b"HTTP/1.1 201 ")
        assert not next_one.done()
        writer.write(file[-1:])
        assert (await reader.read()).startswith(b"HTTP/1.1 201 ")
        writer.close()
        assert (await next_one).startswith(b"HTTP/1.1 201 ")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["body", "response", "events"])
async def test_a_client_that_stalls_does_not_delay_the_end_of_the_server(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "_DRAIN_SECONDS", 3600)  # otherwise the test would not end
    monkeypatch.setattr(serving_module, "_STREAM_SECONDS", 0.05)
    monkeypatch.setattr(serving_module, "_LOOK_SECONDS", 0.05)
    agent, _ = make_agent([says("hi")])
    async with serving(agent, settings=SETTINGS, sock=_narrow()) as served:
        path = f"/api/v1/sessions/{await served.new_session()}"
        large = {"content": "x" * 900_000}
        wait = {"prefer": "wait=30"}
        assert (await served.call("POST", f"{path}/messages", large, headers=wait))[0] == 200
        client = await Connection.to(served, receives=4096)
        client.pause()
        if kind == "body":
            client.send("POST", f"{path}/messages", content_length="10")
        else:
            client.send("GET", f"{path}/{'events' if kind == 'events' else 'messages'}")
        while not stalled_in(served.server.server_state.connections):
            await served.call("GET", "/healthz")
    client.reset()


@pytest.mark.parametrize("way", ["http", "websocket", "post"])
async def test_a_call_that_waits_for_a_query_ends_with_its_client(way: str) -> None:
    gate = Gate()
    agent, _ = make_agent([[gate, *says("hi")]])
    async with serving(agent, settings=SETTINGS) as served:
        session_id = await served.new_session()
        message = {"content": "go"}
        params = {"session_id": session_id, "wait": 600, **message}
        if way == "websocket":
            async with websocket(served) as client:
                calling = client.begin("message/send", **params)
                await gate.reached.wait()
            calling.cancel()
        else:
            route = f"/api/v1/sessions/{session_id}/messages" if way == "http" else "/rpc"
            request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
            body = json.dumps(message if way == "http" else request).encode()
            connection = await Connection.to(served)
            more = {"content_type": "application/json", "prefer": "wait=600"}
            connection.send("POST", route, body=body, **more)
            await gate.reached.wait()
            connection.reset()
        hub = served.app.hub
        while hub.streams.open or hub._feeds:
            await served.call("GET", "/healthz")
        session = hub.open_here("local", session_id)
        assert session is not None
        gate.open()
        await session.wait_idle()
        assert (await served.log(session_id))[-1].data["stop_reason"] == "complete"
