"""The hand-written floor: what the least code that streams an answer costs, on two HTTP clients.

Each reads what the socket has, splits it into SSE frames, decodes them with msgspec and calls
back with the text. No retries, no events, no log: everything that a ratio is measured against.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp

from benchmarks.floor_wire import Answer, Message, OnText, Wire, wire_for
from benchmarks.script import Api, Script

TOOL_RESULT = "blue"
_READ_SIZE = 65_536
_HEADERS = {"content-type": "application/json", "x-api-key": "x", "authorization": "Bearer x"}


class FloorError(Exception):
    """The floor did not get a whole answer."""


class Client(Protocol):
    """Sends a request body and gives the answer's bytes, as much as each read has."""

    def post(self, path: str, body: bytes) -> AsyncGenerator[bytes]:
        """Stream the answer.

        Raises:
            FloorError: the status is not 200, or the answer was cut.

        """
        ...


class AiohttpClient:
    """The floor's client on aiohttp."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self._session = session
        self._base_url = base_url

    async def post(self, path: str, body: bytes) -> AsyncGenerator[bytes]:
        """Stream the answer of one request."""
        url = self._base_url + path
        async with self._session.post(url, data=body, headers=_HEADERS) as response:
            if response.status != 200:
                raise FloorError(f"status {response.status}: {await response.text()}")
            try:
                async for data in response.content.iter_any():
                    yield data
            except aiohttp.ClientPayloadError as error:
                raise FloorError("cut") from error


class StreamClient:
    """The floor's client on raw asyncio streams: one connection, kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def post(self, path: str, body: bytes) -> AsyncGenerator[bytes]:
        """Stream the answer of one request."""
        headers = "".join(f"{name}: {value}\r\n" for name, value in _HEADERS.items())
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len(body)}"
        self._writer.write(head.encode() + b"\r\n\r\n" + body)
        received = await self._reader.readuntil(b"\r\n\r\n")
        if not received.startswith(b"HTTP/1.1 200 "):
            raise FloorError(f"status {received[9:12].decode()}")
        chunks = ChunkedBody()
        while not chunks.is_complete:
            data = await self._reader.read(_READ_SIZE)
            if not data:
                raise FloorError("cut")
            yield chunks.feed(data)


class ChunkedBody:
    """Takes HTTP's chunks apart."""

    def __init__(self) -> None:
        self.is_complete = False
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Give the payload of all whole chunks; an incomplete one waits for the next read."""
        data = self._rest + data
        payload = []
        position = 0
        while (line_end := data.find(b"\r\n", position)) >= 0:
            start = line_end + 2
            end = start + int(data[position:line_end], 16)
            if end + 2 > len(data):
                break
            payload.append(data[start:end])
            position = end + 2
            self.is_complete = start == end
        self._rest = data[position:]
        return b"".join(payload)


class Floor:
    """Asks one API through one client, runs the tool by hand and asks again."""

    def __init__(self, wire: Wire, client: Client, script: Script) -> None:
        self._wire = wire
        self._client = client
        self._script = script

    async def ask(self, messages: Sequence[Message], on_text: OnText) -> Answer:
        """Make one request and read its answer.

        Raises:
            FloorError: there was no whole answer.

        """
        has_tools = self._script.tools > 0
        body = self._wire.encode(self._script.model, messages, has_tools=has_tools)
        answer = Answer()
        rest = b""
        async with aclosing(self._client.post(self._wire.path, body)) as reads:
            async for data in reads:
                *frames, rest = (rest + data).split(b"\n\n")
                self._wire.decode(frames, answer, on_text)
        if not answer.is_complete:
            raise FloorError("no terminal event")
        return answer

    async def query(self, prompt: str, on_text: OnText) -> int:
        """Answer one prompt to rest; gives the number of tool calls made."""
        messages: list[Message] = [{"role": "user", "content": prompt}]
        calls = 0
        while (answer := await self.ask(messages, on_text)).calls:
            calls += len(answer.calls)
            messages += self._wire.reply_to(answer, TOOL_RESULT)
        return calls

    def said(self, text: str) -> Message:
        """Give the message that holds a text answer."""
        return self._wire.said(text)


@asynccontextmanager
async def aiohttp_client(base_url: str) -> AsyncIterator[Client]:
    """Open the aiohttp client and close it."""
    async with aiohttp.ClientSession() as session:
        yield AiohttpClient(session, base_url)


@asynccontextmanager
async def stream_client(base_url: str) -> AsyncIterator[Client]:
    """Open the connection of the raw client and close it."""
    address = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield StreamClient(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def open_floor(
    api: Api, script: Script, client: AbstractAsyncContextManager[Client]
) -> AsyncIterator[Floor]:
    """Construct the floor of one API over a client."""
    async with client as opened:
        yield Floor(wire_for(api), opened, script)
