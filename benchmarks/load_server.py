"""The server process of the load benchmarks: Haptera's server, or a bare ASGI application.

python -m benchmarks.load_server haptera|bare|stepwise FOLDER

Both play the `Script` that is in a prompt (as a model name), in the process itself: no provider is
asked over HTTP. A script with a tag waits for the line `begin` on standard input, so that all its
streams are open by then. The text of a delta has the moment at which it was due (monotonic
nanoseconds between tildes), not when it was sent: a busy event loop counts as lag, too.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from benchmarks.script import Script, parse_model
from haptera import Agent
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.server import Access, ServerSettings, create_app
from haptera.server.serving import HttpServer, listen, run_process, url_of

TOKEN = "load-benchmark-token-0123456789"
PROVIDER = "paced"
LIMITS = ServerSettings(
    requests_per_second=10_000.0,
    streams_per_owner=2000,
    streams=2000,
    sessions=800,
    sessions_per_owner=800,
)
"""Beyond the defaults, which are for one user: 100 streams, 200 sessions, 100 requests a second."""

Send = Callable[[dict[str, Any]], Coroutine[None, None, None]]
Receive = Callable[[], Coroutine[None, None, dict[str, Any]]]
_GOLDEN = 0.618034


class _Body(msgspec.Struct):
    content: str = ""


class Schedule:
    """When each delta of each script is due.

    Streams that wait for the same `begin` are spread evenly over a second, as independent ones are:
    a session stores its text every second, and not all of them at the same moment.
    """

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._streams = 0

    async def texts(self, script: Script) -> AsyncIterator[str]:
        """Yield the deltas of one answer, each when it is due."""
        self._streams += 1
        delay = script.delay * 1000
        shift = int(self._streams * _GOLDEN % 1 * 1e9) if delay else 0
        if script.tag is not None:
            await self.begun.wait()
        due = time.monotonic_ns() + shift
        for _ in range(script.deltas):
            # Without a delay, one delta in each pass of the event loop.
            await asyncio.sleep(max(0.0, (due - time.monotonic_ns()) / 1e9) if delay else 0.0)
            yield f"~{due if delay else time.monotonic_ns()}~".ljust(script.size, "x")
            due += delay


class PacedProvider:
    """A model client that answers by the script in the last prompt."""

    provider = PROVIDER

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    async def stream(self, request: ModelRequest) -> AsyncGenerator[list[StreamPart], None]:
        """Play the script."""
        yield [StreamOpened(model=request.model), PartOpened(key="0", kind="text")]
        part = request.messages[-1].parts[0]
        script = parse_model(part.text) if isinstance(part, TextPart) else Script()
        async for text in self._schedule.texts(script):
            yield [PartDelta("0", text)]
        yield [PartClosed(key="0"), StreamFinished(kind="stop", reason="stop")]

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count nothing."""
        del request
        return TokenCount(tokens=1, exact=False)

    async def close(self) -> None:
        """Hold nothing."""


class BareApp:
    """The least that answers the same requests: it writes frames, and checks and stores nothing."""

    def __init__(self, schedule: Schedule, *, is_stepwise: bool) -> None:
        self._schedule = schedule
        self._is_stepwise = is_stepwise
        self._burst: list[bytes] = []
        self._written = 0
        """How many frames of the burst there are so far, for all clients."""
        self._step: asyncio.Future[None] = asyncio.Future()
        """Done when there is the next one."""
        self._asked: dict[str, asyncio.Future[Script]] = {}
        """By the path of a session: the script of its first prompt."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        session, _, last = scope["path"].rpartition("/")
        if last == "events":
            await self._stream(session, receive, send)
            return
        prompt = await _prompt(receive)
        if last == "sessions":
            number = str(len(self._asked))
            self._asked[f"{scope['path']}/{number}"] = asyncio.Future()
            await _answer(send, 201, {"id": number})
            return
        script = parse_model(prompt)
        self._asked[session].set_result(script)
        if script.tag is not None:
            await _answer(send, 202, {})
            return
        text = "".join([text async for text in self._schedule.texts(script)])
        await _answer(send, 200, {"text": text})

    async def _stream(self, session: str, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _write(send, b"retry: 1000\n\n")
        script = await self._asked[session]
        if script.delay:
            async for text in self._schedule.texts(script):
                await _write(send, _frame(text))
        else:
            await self._send_burst(script, send)
        await _write(send, b'event: query.ended\ndata: {"kind":"query.ended"}\n\n')
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _send_burst(self, script: Script, send: Send) -> None:
        """Write prepared frames: all as fast as it goes, or each when it is there."""
        frames = [_frame("~1~".ljust(script.size, "x"))] * script.deltas
        if script.tag is not None:
            await self._schedule.begun.wait()
        if not self._is_stepwise or script.tag is None:
            for frame in frames:
                await _write(send, frame)
            return
        if not self._burst:
            self._burst = frames
            self._publishing = asyncio.ensure_future(self._publish())
        sent = 0
        while sent < len(frames):
            if sent == self._written:
                await self._step
            there = self._written
            await _write(send, b"".join(frames[sent:there]))
            sent = there

    async def _publish(self) -> None:
        """Let one frame after the other be there, one in each pass of the event loop."""
        for _ in self._burst:
            self._written += 1
            done, self._step = self._step, asyncio.Future()
            done.set_result(None)
            await asyncio.sleep(0)


def _frame(text: str) -> bytes:
    """Return what Haptera sends for a delta."""
    part = b'"part_id":"prt_01HZXK5A4T8Y3M9Q2W6E0R7B1C","offset":0'
    return b'event: text.delta\ndata: {"kind":"text.delta",%s,"text":"%s"}\n\n' % (
        part,
        text.encode(),
    )


async def _write(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _prompt(receive: Receive) -> str:
    content, has_more = b"", True
    while has_more:
        message = await receive()
        content += message["body"]
        has_more = message.get("more_body", False)
    return msgspec.json.decode(content, type=_Body).content


async def _answer(send: Send, status: int, value: object) -> None:
    headers = [(b"content-type", b"application/json")]
    content = msgspec.json.encode(value)
    headers.append((b"content-length", b"%d" % len(content)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def serve(kind: str, folder: str) -> None:
    """Listen on a free loopback port, say the URL, and serve until standard input ends."""
    schedule = Schedule()
    sock = listen("127.0.0.1", 0, is_protected=False)
    async with contextlib.AsyncExitStack() as stack:
        server: uvicorn.Server
        if kind != "haptera":
            app = BareApp(schedule, is_stepwise=kind == "stepwise")
            server = uvicorn.Server(
                uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
            )
        else:
            agent = Agent(
                f"{PROVIDER}/one",
                providers=[PacedProvider(schedule)],
                store=f"sqlite:{Path(folder) / 'sessions.db'}",
                environment={},
            )
            await stack.enter_async_context(agent)
            server = HttpServer(create_app(agent, access=Access(TOKEN), settings=LIMITS))
        serving = asyncio.ensure_future(server.serve(sockets=[sock]))
        print(url_of(sock, has_tls=False), flush=True)
        await _obey(schedule)
        server.should_exit = True
        await serving


async def _obey(schedule: Schedule) -> None:
    """Follow what standard input says until its end."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if line.strip() == b"begin":
            schedule.begun.set()


if __name__ == "__main__":
    run_process(serve(*sys.argv[1:]))
