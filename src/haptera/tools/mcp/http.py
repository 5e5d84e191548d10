"""Streamable HTTP to an MCP server: bearer tokens from token sources, and bounded replies.

A module of its own because it alone knows the HTTP client that the `mcp` package brings.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from haptera.system.child_processes import KeptTail
from haptera.system.token_source import TokenSource
from haptera.system.token_sources import origin_of
from haptera.tools.mcp.server_process import MOST_MESSAGE, flattened
from haptera.tools.mcp.server_settings import ResolvedServer

_FIRST_ERROR = 400
_CONNECT_SECONDS = 30.0


@contextlib.asynccontextmanager
async def http_transport(settings: ResolvedServer, kept: KeptTail) -> AsyncGenerator[Any]:
    """Carry messages over HTTP; what a server refuses is noted among its errors."""

    async def guard(response: httpx2.Response) -> None:
        if response.status_code >= _FIRST_ERROR:
            kept.add(f"[HTTP {response.status_code} for {response.request.method}]\n")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        is_plain = "content-encoding" not in response.headers
        if isinstance(response.stream, httpx2.AsyncByteStream):
            if not is_stream:
                response.stream = _Bounded(response.stream, is_plain=is_plain)
            elif is_plain:
                # The events of a stream are bounded one by one, by the package.
                response.stream = _FlatEvents(response.stream)

    async with (
        httpx2.AsyncClient(
            # Bytes are counted and looked at as they come, so they are not to be compressed.
            headers={"Accept-Encoding": "identity", **settings.plain_headers()},
            auth=None if settings.token is None else _BearerToken(settings.token),
            # Calls have a limit of their own, and a stream may be silent for long.
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
            event_hooks={"response": [guard]},
        ) as client,
        streamable_http_client(
            settings.url or "", http_client=client, max_sse_event_size=MOST_MESSAGE
        ) as streams,
    ):
        yield streams


class _BearerToken(httpx2.Auth):
    """Puts a token of its source on each request."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Ask for the token of this request; the source is bound to the server's origin."""
        token = await self._source.token(origin_of(str(request.url)))
        request.headers["Authorization"] = f"Bearer {token.reveal()}"
        yield request


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends with an error when it is too large; a plain one is one message."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, is_plain: bool) -> None:
        self._stream = stream
        self._is_plain = is_plain

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read, pieces = 0, list[bytes]()
        async for piece in self._stream:
            read += len(piece)
            if read > MOST_MESSAGE:
                raise httpx2.ReadError(f"a reply of more than {MOST_MESSAGE >> 20} MiB")
            if self._is_plain:
                pieces.append(piece)
            else:
                yield piece
        if pieces:
            yield flattened(b"".join(pieces))

    async def aclose(self) -> None:
        """Close the connection's stream."""
        await self._stream.aclose()


class _FlatEvents(httpx2.AsyncByteStream):
    """A stream of events, each line of which is handed on as a whole."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces, held = list[bytes](), 0
        async for piece in self._stream:
            *lines, rest = piece.split(b"\n")
            for line in lines:
                yield flattened(b"".join([*pieces, line])) + b"\n"
                pieces, held = [], 0
            pieces.append(rest)
            held += len(rest)
            if held > MOST_MESSAGE:  # the package refuses it
                yield b"".join(pieces)
                pieces, held = [], 0
        yield b"".join(pieces)

    async def aclose(self) -> None:
        """Close the connection's stream."""
        await self._stream.aclose()
