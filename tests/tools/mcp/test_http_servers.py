"""MCP servers over HTTP, against one on the raw protocol: tokens, headers, refusals and bounds."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from haptera import ErrorCode
from haptera.model.secrets import Secret
from haptera.system.token_sources import CallableTokenSource
from haptera.tools.mcp import McpServer, http
from tests.scripted_agents import failure_of, tasks_left
from tests.tools.mcp.mcp_agents import results_of

CAN = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "h", "version": "1"}}
ECHO = {"name": "echo", "inputSchema": {"type": "object", "properties": {}}}


class RawHttp:
    """Answers one JSON message a POST, and keeps the headers that it saw."""

    def __init__(self, *, token: str | None = None, size: int = 2, events: bool = False) -> None:
        self.token, self.size, self.events = token, size, events
        self.tools = [ECHO]
        self.seen: list[dict[str, str]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := (await reader.readline()).decode():
                headers: dict[str, str] = {}
                while (header := (await reader.readline()).decode().strip()) != "":
                    name, _, value = header.partition(": ")
                    headers[name.lower()] = value
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.seen.append(headers)
                status, answer = self._answer(line.split()[0], headers, body)
                kind = "application/json"
                if self.events and status.startswith("200"):
                    kind, answer = "text/event-stream", b"event: message\ndata: " + answer + b"\n\n"
                head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n"
                head += f"content-length: {len(answer)}\r\n\r\n"
                writer.write(head.encode() + answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _answer(self, method: str, headers: dict[str, str], body: bytes) -> tuple[str, bytes]:
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            return "401 Unauthorized", b"{}"
        if method != "POST":
            return "405 Method Not Allowed", b""
        message = json.loads(body)
        if "id" not in message:
            return "202 Accepted", b""
        results: dict[str, Any] = {
            "initialize": {**CAN, "capabilities": {"tools": {}}},
            "tools/list": {"tools": self.tools},
            "tools/call": {"content": [{"type": "text", "text": "x" * self.size}]},
            "ping": {},
        }
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in results:
            reply["result"] = results[message["method"]]
        else:
            reply["error"] = {"code": -32601, "message": "Method not found"}
        return "200 OK", json.dumps(reply).encode()


@pytest.mark.parametrize("events", [False, True])
async def test_a_schema_that_is_too_deep_costs_its_tool_only(
    caplog: pytest.LogCaptureFixture, *, events: bool
) -> None:
    schema: dict[str, Any] = {}
    for _ in range(300):
        schema = {"type": "object", "properties": {']}"inner': schema}}
    raw = RawHttp(events=events)
    raw.tools = [ECHO, {"name": "deep", "inputSchema": schema}, {**ECHO, "name": "after"}]
    async with serving(raw), McpServer("there", url=raw.url) as server:
        assert server.status.tools == ("there__echo", "there__after")
    assert "the schema of there__deep is not usable" in caplog.text


@asynccontextmanager
async def serving(raw: RawHttp) -> AsyncIterator[RawHttp]:
    listening = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    try:
        yield raw
    finally:
        listening.close()


@pytest.mark.parametrize("kind", ["text", "secret", "function", "source"])
async def test_a_token_is_asked_for_and_sent_with_each_request(kind: str) -> None:
    given: list[str] = []

    async def current() -> str:
        given.append("t")
        return "token-1234567"

    token: Any = {
        "text": "token-1234567",
        "secret": Secret("token-1234567"),
        "function": current,
        "source": CallableTokenSource(current, kind="oauth"),
    }[kind]
    async with serving(RawHttp(token="token-1234567")) as raw:
        server = McpServer(
            "web", url=raw.url, token=token, headers={"x-team": "blue"}, approval="never"
        )
        results, _ = await results_of(("web__echo", {}), server=server)
        assert results[0].text == "xx"
        assert {headers.get("x-team") for headers in raw.seen} == {"blue"}
        assert len(given) in ({0} if kind in {"text", "secret"} else {len(raw.seen)})
        assert "token-1234567" not in repr(server)


async def test_a_refused_token_is_an_error_that_says_so_without_the_token() -> None:
    async with serving(RawHttp(token="right-token")) as raw:
        server = McpServer("web", url=raw.url, token="wrong-token-1")
        error = await failure_of(server.check())
        assert "HTTP 401" in error.message
        assert "wrong-token-1" not in str(error)
        assert server.status.state == "failed"
    assert tasks_left() == []


async def test_a_reply_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_MESSAGE", 1 << 20)
    async with serving(RawHttp(size=2 << 20)) as raw:
        server = McpServer("web", url=raw.url, approval="never")
        results, _ = await results_of(("web__echo", {}), server=server)
    assert results[0].outcome == "error"


async def test_a_server_that_is_not_there_is_an_error() -> None:
    async with serving(RawHttp()) as raw:
        pass
    error = await failure_of(McpServer("web", url=raw.url).check())
    assert error.code is ErrorCode.TOOL_FAILED
    assert "did not start" in error.message
