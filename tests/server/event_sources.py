"""What tests of real EventSources need: a proxy that drops connections, and a place for reports."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web
from starlette.responses import HTMLResponse
from starlette.types import Message, Receive, Scope, Send

from haptera.server import HapteraApp
from haptera.server.access import COOKIE

SCRIPT = (Path(__file__).parent / "event_source_client.js").read_text()
KINDS = (
    *("session.opened", "input.queued", "query.started", "input.promoted", "turn.started"),
    *("part.started", "part.checkpoint", "part.ended", "turn.ended", "query.ended"),
    *("text.delta", "log.synced", "ping"),
)
_LIVE = {"text.delta", "log.synced", "ping"}


class DroppingProxy:
    """Passes connections on to a port; `drop` ends them all in the middle, by a reset."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        """The port of the server behind it."""
        self._writers: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["DroppingProxy"]:
        """Listen while the block runs."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.drop()

    def drop(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        self._writers |= {writer, other}
        try:
            await asyncio.gather(_pass(reader, other), _pass(other_reader, writer))
        finally:
            self._writers -= {writer, other}


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(2**16):
            writer.write(piece)
            await writer.drain()
    writer.transport.close()


class Reports:
    """A server of another origin: takes the reports of a client, and has a page of its own."""

    def __init__(self) -> None:
        self.url = ""
        self.page = ""
        """What is at /page."""
        self.all: list[dict[str, Any]] = []
        self._new: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Reports"]:
        """Listen while the block runs."""
        app = web.Application()
        app.add_routes([web.post("/report", self._take), web.get("/page", self._show)])
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            self.url = f"http://127.0.0.1:{port}"
            yield self
        finally:
            await runner.cleanup()

    async def until(self, kind: str) -> dict[str, Any]:
        """Wait for the next report of a kind."""
        try:
            async with asyncio.timeout(60):
                while (told := await self._new.get())["kind"] != kind:
                    pass
        except TimeoutError:
            raise AssertionError(f"no {kind} after {self.all}") from None
        return told

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of the log that were reported, in order."""
        found = [told for told in self.all if "data" in told and told["kind"] not in _LIVE]
        assert all(int(told["id"]) == told["data"]["seq"] for told in found)
        return [told["data"] for told in found]

    async def _take(self, request: web.Request) -> web.Response:
        told = json.loads(await request.read())
        self.all.append(told)
        self._new.put_nowait(told)
        return web.Response()

    async def _show(self, request: web.Request) -> web.Response:
        del request
        return web.Response(text=self.page, content_type="text/html")


class AppWithPage(HapteraApp):
    """An application of a program that has a page at /about beside the server's routes."""

    def __init__(self, app: HapteraApp, page: str) -> None:
        super().__init__(app, app.hub, app.inner)
        self._page = HTMLResponse(page)
        self.refused: dict[str, tuple[int, str]] = {}
        """By path, the status and the code of the last problem that was answered."""
        self.with_cookie: set[str] = set()
        """The paths of requests that had the cookie of a login."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope.get("path") == "/about":
            await self._page(scope, receive, send)
            return
        status = 0
        headers = dict(scope.get("headers", ()))
        if COOKIE in headers.get(b"cookie", b"").decode():
            self.with_cookie.add(scope["path"])

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            if status >= 400 and message.get("body"):
                self.refused[scope["path"]] = status, json.loads(message["body"])["code"]
            await send(message)

        await super().__call__(scope, receive, noted)
