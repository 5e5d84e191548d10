"""A server on a loopback port in the test's own event loop, with a client that has its token."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from haptera import Agent
from haptera.server import Access, HapteraApp, create_app
from haptera.server.serving import HttpServer, listen, url_of
from haptera.system.owned_tasks import OwnedTasks

TOKEN = "test-token-0123456789"


@dataclass
class Sent:
    """One server-sent event as a client got it."""

    kind: str
    data: Any
    seq: int | None = None


class RefusedError(AssertionError):
    """A stream was refused."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


@dataclass
class Served:
    """A running server and a client of it."""

    url: str
    client: aiohttp.ClientSession
    app: HapteraApp
    server: HttpServer = field(repr=False)

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """Call a route; returns the status and the body, from JSON where it is."""
        async with self.client.request(method, self.url + path, json=body, **more) as answer:
            content = await answer.read()
            if "json" in answer.content_type and answer.content_type != "application/x-ndjson":
                return answer.status, json.loads(content)
            return answer.status, content

    async def new_session(self, **fields: Any) -> str:
        """Make a session and return its id."""
        status, made = await self.call("POST", "/api/v1/sessions", fields)
        assert status == 201, made
        return str(made["id"])

    @contextlib.asynccontextmanager
    async def events(
        self, path: str, *, method: str = "GET", body: Any = None, **headers: str
    ) -> AsyncIterator[AsyncIterator[Sent]]:
        """Follow a stream until the block is left."""
        headers = {"accept": "text/event-stream"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        async with self.client.request(
            method, self.url + path, json=body, headers=headers
        ) as answer:
            if answer.status != 200:
                raise RefusedError(answer.status, await answer.text())
            assert answer.content_type == "text/event-stream"
            yield read_events(answer.content)

    async def log(self, session_id: str) -> list[Sent]:
        """Read the whole log of a session, as a client that is never cut gets it."""
        path = f"/api/v1/sessions/{session_id}/events?follow=false"
        async with self.events(path) as events:
            return [event async for event in events if event.seq is not None]


async def read_events(
    content: aiohttp.StreamReader | asyncio.StreamReader,
) -> AsyncIterator[Sent]:
    """Parse server-sent events; `retry` is left out."""
    fields: dict[str, str] = {}
    async for line in _lines(content):
        if line:
            name, _, value = line.decode().partition(": ")
            fields[name] = value
            continue
        if "event" in fields:
            seq = int(fields["id"]) if "id" in fields else None
            yield Sent(fields["event"], json.loads(fields["data"]), seq)
        fields = {}


async def _lines(content: aiohttp.StreamReader | asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length; the readers' own have a limit."""
    rest = b""
    while piece := await content.read(2**18):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line


@contextlib.asynccontextmanager
async def serving(
    agent: Agent, *, sock: socket.socket | None = None, **options: Any
) -> AsyncIterator[Served]:
    """Serve an agent, which is closed afterwards."""
    options.setdefault("access", Access(TOKEN))
    sock = sock or listen("127.0.0.1", 0, is_protected=False)
    async with agent, running_app(create_app(agent, **options), sock) as served:
        yield served


@contextlib.asynccontextmanager
async def running_app(app: HapteraApp, sock: socket.socket) -> AsyncIterator[Served]:
    """Serve an application on a socket, which is closed afterwards."""
    server = HttpServer(app)
    headers = {"authorization": f"Bearer {TOKEN}"}
    timeout = aiohttp.ClientTimeout(total=60)
    url = url_of(sock, has_tls=False)
    running = OwnedTasks().start(server.serve(sockets=[sock]), name="test-server")
    await server.ready.wait()
    try:
        async with aiohttp.ClientSession(
            headers=headers, timeout=timeout, connector=aiohttp.TCPConnector(limit=0)
        ) as client:
            yield Served(url, client, app, server)
    finally:
        server.should_exit = True
        await running
