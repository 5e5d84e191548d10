"""Connections of HTTP clients: what one may send before a request is complete, and for how long.

uvicorn bounds neither the head of a request nor the time that it takes. Headers that never end
would fill the memory, and connections without a request would use up the files of the process.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
_TOO_LARGE = (431, b"Request Header Fields Too Large")
_TOO_LATE = (408, b"Request Timeout")


class HttpConnection(HttpToolsProtocol):
    """The connection of one client, closed when its request does not come."""

    head_seconds = HEAD_SECONDS
    _is_in_head = False
    _head_bytes = 0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Wait for a request, not for ever."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on what came, unless it is a head that does not end."""
        was_in_head = self._is_in_head
        super().data_received(data)
        if not self._is_in_head or self.transport.is_closing():
            return
        # How much of a read belongs to the head that begins in it is not known, and is bounded.
        self._head_bytes = self._head_bytes + len(data) if was_in_head else 0
        if self._head_bytes > HEAD_BYTES:
            self._refuse(*_TOO_LARGE)
        elif self._late is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        """Begin with the head of a request."""
        self._is_in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that follows the body is left out: it was not checked."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the head of a request."""
        self._is_in_head = False
        self._forget_head()
        super().on_headers_complete()

    @property
    def waits_for_body(self) -> bool:
        """Whether a request has begun whose body is not complete."""
        return self._is_answering and self.cycle.more_body

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(self.head_seconds, self._refuse, *_TOO_LATE)

    def _forget_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: int, reason: bytes) -> None:
        """Close the connection; a client that has begun a request is told why."""
        self._forget_head()
        if self._is_in_head and not self._is_answering:
            told = b"HTTP/1.1 %d %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(told % (status, reason))
        self.transport.close()


def stalled_in(connections: Iterable[Any]) -> dict[Any, int]:
    """Return the connections that wait for their client, with how much it has not taken."""
    found: dict[Any, int] = {}
    for each in connections:
        unsent = each.transport.get_write_buffer_size()
        if unsent or getattr(each, "waits_for_body", False):
            found[each] = unsent
    return found


def abort_stalled(connections: Iterable[Any], before: Mapping[Any, int]) -> dict[Any, int]:
    """Abort connections whose client has taken nothing since `before`; returns those that wait."""
    found = stalled_in(connections)
    for each in [each for each, unsent in found.items() if before.get(each) == unsent]:
        each.transport.abort()
        del found[each]
    return found
