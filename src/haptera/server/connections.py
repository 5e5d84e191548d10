"""Connections of HTTP clients: what one may send before a request is complete, and for how long.

uvicorn bounds neither the head of a request nor the time that it takes. Headers that never end
would fill the memory, and connections without a request would use up the files of the process. It
forgets to close a connection on which anything comes between two requests, or after the answer to a
request whose body is not complete.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from uvicorn._types import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGISendCallable,
    ASGISendEvent,
    Scope,
)
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from haptera.model.late_names import late_module

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
LINGER_SECONDS = 2.0
"""How long the rest of a body that is not read is taken in, so that its client gets the answer."""
_MOST_PIPELINED = 16
AHEAD_SECONDS = 0.01
"""How long a request waits that was sent before the answer to the one before it.

The answers would otherwise follow each other without any wait for the client, and those that need
no credential have no quota.
"""
_MOST_CONNECTIONS = 16_384
_TOO_LARGE = (431, b"Request Header Fields Too Large")
_TOO_LATE = (408, b"Request Timeout")


def _most_connections() -> int:
    """Return how many clients may be connected: a quarter of the files is for everything else."""
    try:
        resource = late_module("resource")
    except ImportError:  # a system without such limits
        return _MOST_CONNECTIONS
    limit: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_CONNECTIONS if limit < 0 else min(limit * 3 // 4, _MOST_CONNECTIONS)


class HttpConnection(HttpToolsProtocol):
    """The connection of one client, closed when its request does not come."""

    head_seconds = HEAD_SECONDS
    linger_seconds = LINGER_SECONDS
    ahead_seconds = AHEAD_SECONDS
    most_connections = _most_connections()
    _is_in_head = False
    _is_lingering = False
    _is_ahead = False
    """Whether the request that is begun was sent before the one before it was answered."""
    _head_bytes = 0
    """What came after the read in which a head began, or the last piece of a body came."""
    _late: asyncio.TimerHandle | None = None
    began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Wait for a request, not for ever; when there are too many, another one makes way."""
        super().connection_made(transport)
        self.began = self.loop.time()
        self._expect_head()
        if len(self.connections) > self.most_connections:
            self._close_oldest()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on what came, unless it is a head that does not end, or is not read."""
        if self._is_lingering or self.transport.is_closing():
            return
        # How much of a read belongs to the head that begins in it is not known, and is bounded.
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # the latter: it is a WebSocket from now on
        # What surrounds the pieces of a body, and headers that follow it, are bounded like a head.
        if self._head_bytes > HEAD_BYTES:
            self._refuse(*_TOO_LARGE)
        # uvicorn has stopped its own timer, also when what came does not begin a request.
        elif self._late is None and (self._is_in_head or not self.is_answering):
            self._expect_head()

    def on_message_begin(self) -> None:
        """Begin with the head of a request."""
        if len(self.pipeline) >= _MOST_PIPELINED:
            # The parser stops at an error, and uvicorn then closes the connection.
            raise ConnectionError("too many requests are sent ahead")
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that follows the body is left out: it was not checked."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the head of a request."""
        self._is_in_head = False
        self._forget_head()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or end after one whose body is not complete."""
        self._is_ahead = bool(self.pipeline)
        super().on_response_complete()
        if self._is_lingering:
            self._unset_keepalive_if_required()
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self._late = self.loop.call_later(self.linger_seconds, self.transport.close)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if self._is_ahead:
            self._is_ahead = False
            self.loop.call_later(self.ahead_seconds, self._start_ahead, cycle, app)
            return

        async def answered(
            scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
        ) -> None:
            async def send_and_end(message: ASGISendEvent) -> None:
                self._before(message, cycle)
                await send(message)

            await app(scope, receive, send_and_end)

        super()._start_asgi_task(cycle, answered)

    def _start_ahead(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not self.transport.is_closing():
            self._start_asgi_task(cycle, app)

    def _before(self, message: ASGISendEvent, cycle: RequestResponseCycle) -> None:
        """Say that the connection ends when the body of its request is not complete.

        It does not end at once: what is on its way would reset it before the client has read the
        answer.
        """
        if message["type"] == "http.response.start":
            cycle.keep_alive = cycle.keep_alive and not cycle.more_body
        elif cycle.more_body and message["type"] == "http.response.body":
            if message.get("more_body", False):
                return
            cycle.keep_alive = True
            self._is_lingering = True

    @property
    def waits_for_body(self) -> bool:
        """Whether a request has begun whose body is not complete."""
        return self.is_answering and self.cycle.more_body

    @property
    def is_answering(self) -> bool:
        """Whether a request is in progress."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _close_oldest(self) -> None:
        """Close the oldest connection that has no request in progress; this one has none yet."""
        connections = [each for each in self.connections if isinstance(each, HttpConnection)]
        idle = [
            each for each in connections if not (each.is_answering or each.transport.is_closing())
        ]
        min(idle, key=lambda each: each.began).transport.abort()

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(self.head_seconds, self._refuse, *_TOO_LATE)

    def _forget_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: int, reason: bytes) -> None:
        """Close the connection; a client that has begun a request is told why."""
        self._forget_head()
        if self._is_in_head and not self.is_answering:
            head = b"HTTP/1.1 %d %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, reason))
        self.transport.close()


def stalled_in(connections: Iterable[Any]) -> dict[Any, int]:
    """Return the connections that wait for their client, with how much it has not taken."""
    stalled: dict[Any, int] = {}
    for each in connections:
        unsent = each.transport.get_write_buffer_size()
        if unsent or getattr(each, "waits_for_body", False):
            stalled[each] = unsent
    return stalled


def abort_stalled(connections: Iterable[Any], before: Mapping[Any, int]) -> dict[Any, int]:
    """Abort connections whose client has taken nothing since `before`; returns those that wait."""
    stalled = stalled_in(connections)
    for each in [each for each, unsent in stalled.items() if before.get(each) == unsent]:
        each.transport.abort()
        del stalled[each]
    return stalled
