"""The client of the load benchmarks: starts a server process, follows its streams, reads its costs.

Streams are followed on bare sockets and searched for time stamps only, so that the client is not
what is measured.
"""

import asyncio
import contextlib
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import aiohttp
import msgspec

from benchmarks.load_server import TOKEN
from benchmarks.script import Script

_ROOT = Path(__file__).parent.parent
_DELTA = re.compile(rb"event: text\.delta\ndata: [^\n]*?~(\d+)~")
_SEQ = re.compile(rb"^id: (\d+)\n", re.MULTILINE)
_END = b"event: query.ended\n"
_LAGGED = b"event: observer.lagged\n"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_AT_ONCE = 20
_RECEIVE_BYTES = 1024 * 1024
_TIME_LIMIT = 90.0


class WrongReplyError(Exception):
    """The server did not answer as it should."""


class _Reply(msgspec.Struct):
    """What is read of a reply."""

    id: str = ""
    text: str = ""


class Follower(asyncio.Protocol):
    """Reads one stream of server-sent events: time stamps, `seq` numbers and the end."""

    def __init__(self, request: bytes, *, ends: int, until: int) -> None:
        self._request = request
        self._ends = ends
        self._until = until
        self._rest = bytearray()
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.lags: list[int] = []
        """How late each delta was, in nanoseconds."""
        self.seqs: list[int] = []
        self.has_lagged = False
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done after so many ends of queries or the entry `until`, or when the server ends it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Search the frames that are whole."""
        now = time.monotonic_ns()
        start = max(0, len(self._rest) - 1)
        self._rest += data
        cut = self._rest.rfind(b"\n\n", start) + 2
        if cut < 2:
            return
        frames = bytes(self._rest[:cut])
        del self._rest[:cut]
        if not self.begun.done():
            self._begin(frames)
        self.lags += [now - int(stamp) for stamp in _DELTA.findall(frames)]
        self.seqs += [int(seq) for seq in _SEQ.findall(frames)]
        self.has_lagged |= _LAGGED in frames
        self._ends -= frames.count(_END)
        is_over = self.seqs[-1:] >= [self._until] if self._until else self._ends <= 0
        if (is_over or self.has_lagged) and not self.ended.done():
            self.ended.set_result(None)

    def stall(self) -> None:
        """Read nothing more."""
        self.transport.pause_reading()

    def read_on(self) -> None:
        """Read again, with a buffer of the usual size."""
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        self.transport.resume_reading()

    @property
    def is_gapless(self) -> bool:
        """Whether the entries came in order, none missing and none twice."""
        return self.seqs == list(range(1, len(self.seqs) + 1))

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that it is over."""
        if not self.begun.done():
            self.begun.set_exception(exc or WrongReplyError("the stream was not begun"))
        if not self.ended.done():
            self.ended.set_result(None)

    def _begin(self, frames: bytes) -> None:
        if frames.startswith(b"HTTP/1.1 200"):
            self.begun.set_result(None)
        else:
            self.begun.set_exception(WrongReplyError(frames[:200].decode(errors="replace")))


class Target:
    """A server process, and a client of it."""

    def __init__(
        self, process: asyncio.subprocess.Process, url: str, client: aiohttp.ClientSession
    ) -> None:
        self._process = process
        self._url = url
        self._client = client
        self._followers: list[Follower] = []

    def close(self) -> None:
        """Leave the streams that are still followed."""
        for follower in self._followers:
            follower.transport.abort()

    def begin(self) -> None:
        """Let the scripts that wait go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"begin\n")

    def cpu(self) -> float:
        """Return the CPU seconds that the process has used."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e9

    def resident(self) -> int:
        """Return the bytes of memory that the process has."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * _PAGE

    async def new_session(self) -> str:
        """Make a session, and return its URL path."""
        made = await self._post("/api/v1/sessions", {}, status=201)
        return f"/api/v1/sessions/{made.id}"

    async def ask(self, session: str, script: Script, *, status: int = 202) -> str:
        """Send a prompt that is answered by a script; with status 200, wait for the answer."""
        headers = {"prefer": "wait=60"} if status == 200 else {}
        body = {"content": script.model}
        return (await self._post(f"{session}/messages", body, status=status, **headers)).text

    async def _post(
        self, path: str, body: dict[str, str], *, status: int, **headers: str
    ) -> "_Reply":
        async with self._client.post(self._url + path, json=body, headers=headers) as answer:
            content = await answer.read()
        if answer.status != status:
            raise WrongReplyError(f"{answer.status} {content[:200].decode(errors='replace')}")
        return msgspec.json.decode(content, type=_Reply)

    async def follow(
        self,
        session: str,
        *,
        ends: int = 1,
        after: int = 0,
        until: int = 0,
        receive_bytes: int = 0,
    ) -> Follower:
        """Follow a session on a connection of its own, for `ends` queries or to a `seq`."""
        at = urlsplit(self._url)
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.settimeout(0)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (at.hostname, at.port))
        request = (
            f"GET {session}/events HTTP/1.1\r\nhost: {at.netloc}\r\nlast-event-id: {after}\r\n"
            f"authorization: Bearer {TOKEN}\r\naccept: text/event-stream\r\n\r\n"
        )
        _, follower = await loop.create_connection(
            lambda: Follower(request.encode(), ends=ends, until=until), sock=sock
        )
        async with asyncio.timeout(_TIME_LIMIT):
            await follower.begun
        self._followers.append(follower)
        return follower

    async def follow_many(self, sessions: list[str], *, ends: int = 1) -> list[Follower]:
        """Follow one session after the other, some at once."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def follow(session: str) -> Follower:
            async with slots:
                return await self.follow(session, ends=ends)

        return list(await asyncio.gather(*(follow(session) for session in sessions)))


async def all_ended(followers: list[Follower], *, within: float) -> None:
    """Wait until every stream is over."""
    async with asyncio.timeout(within + _TIME_LIMIT):
        await asyncio.gather(*(follower.ended for follower in followers))


@contextlib.asynccontextmanager
async def running(kind: str) -> AsyncIterator[Target]:
    """Run a server process, as `haptera serve` does."""
    with tempfile.TemporaryDirectory(prefix="haptera-bench-") as folder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.load_server", kind, folder),
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        connector = aiohttp.TCPConnector(limit=0)
        headers = {"authorization": f"Bearer {TOKEN}"}
        try:
            url = (await process.stdout.readline()).decode().strip()
            if not url:
                raise WrongReplyError("the server did not start")
            async with aiohttp.ClientSession(connector=connector, headers=headers) as client:
                target = Target(process, url, client)
                with contextlib.closing(target):
                    yield target
        finally:
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
