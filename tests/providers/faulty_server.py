"""An HTTP server that misbehaves on demand, byte by byte, and counts its connections."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import msgspec

Answer: TypeAlias = Callable[["Connection"], Awaitable[None]]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a client sent."""

    path: str
    headers: dict[str, str]
    body: bytes


class Connection:
    """One connection, while one request on it is answered."""

    def __init__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self._writer = writer
        self.is_reusable = False

    async def write(self, raw: bytes) -> None:
        self._writer.write(raw)
        await self._writer.drain()

    async def head(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send the head of a streamed reply."""
        lines = {
            "content-type": "text/event-stream",
            "transfer-encoding": "chunked",
            "request-id": "req_of_the_header",
            **(headers or {}),
        }
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await self.write(f"HTTP/1.1 {status} X\r\n{text}\r\n".encode())

    async def piece(self, raw: bytes) -> None:
        """Send one piece of a streamed body."""
        if raw:
            await self.write(b"%x\r\n%b\r\n" % (len(raw), raw))

    async def end(self) -> None:
        """Send the end of a streamed body."""
        await self.write(b"0\r\n\r\n")
        self.is_reusable = True

    def reset(self) -> None:
        """Break the connection off, so that the client sees a reset."""
        self._writer.transport.abort()


class FaultyServer:
    """Answers every request with `answer`; `requests` holds what came."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.connections = 0
        self.connections_ever = 0
        self.port = 0
        self._none_left = asyncio.Event()
        self._none_left.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def until_no_connection_is_left(self) -> None:
        async with asyncio.timeout(5):
            await self._none_left.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.connections_ever += 1
        self._none_left.clear()
        try:
            early = b""
            while (request := await _read(reader, early)) is not None:
                self.requests.append(request)
                connection = Connection(request, writer)
                early = await _until_done_or_gone(self.answer(connection), reader)
                if not connection.is_reusable:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self.connections -= 1
            if not self.connections:
                self._none_left.set()


@contextlib.asynccontextmanager
async def faulty_server(answer: Answer) -> AsyncIterator[FaultyServer]:
    """Start a server on a free port of the loopback."""
    faulty = FaultyServer(answer)
    listening = await asyncio.start_server(faulty.serve, "127.0.0.1", 0)
    faulty.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield faulty
        await faulty.until_no_connection_is_left()


async def _until_done_or_gone(answer: Awaitable[None], reader: asyncio.StreamReader) -> bytes:
    """Wait for an answer, but stop it when the client leaves; returns what came meanwhile."""
    answering = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(reader.read(1))
    await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
    for task in (answering, gone):
        task.cancel()
    early = await asyncio.gather(gone, answering, return_exceptions=True)
    return early[0] if isinstance(early[0], bytes) else b""


async def _read(reader: asyncio.StreamReader, early: bytes) -> Request | None:
    try:
        raw = early + await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = raw.decode().strip().split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(path=first.split(" ")[1], headers=headers, body=body)


def replies(
    body: bytes, *, size: int | None = None, headers: dict[str, str] | None = None
) -> Answer:
    """Answer with a whole streamed body, in pieces of `size` bytes."""

    async def answer(connection: Connection) -> None:
        await connection.head(headers=headers)
        step = size or len(body) or 1
        for start in range(0, len(body), step):
            await connection.piece(body[start : start + step])
        await connection.end()

    return answer


def refuses(status: int, body: bytes, **headers: str) -> Answer:
    """Answer with an error."""

    async def answer(connection: Connection) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await connection.head(status, {"content-type": "application/json", **named})
        await connection.piece(body)
        await connection.end()

    return answer


def zipped(body: bytes) -> Answer:
    """Answer with a compressed body."""
    return replies(gzip.compress(body), size=40, headers={"content-encoding": "gzip"})


def cut_after(body: bytes, *, by_reset: bool) -> Answer:
    """Answer with the beginning of a body, then break off."""

    async def answer(connection: Connection) -> None:
        await connection.head()
        await connection.piece(body)
        if by_reset:
            connection.reset()

    return answer


def stalls_after(body: bytes) -> Answer:
    """Answer with the beginning of a body, then say nothing more until the client leaves."""

    async def answer(connection: Connection) -> None:
        if body:
            await connection.head()
            await connection.piece(body)
        await asyncio.Event().wait()

    return answer
