"""The seam to HTTP: what a transport does, so that another one could replace it."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from holdfast.vocabulary.secrets import scrub
from holdfast.vocabulary.settings import Timeouts


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, ready to go. Its headers may hold a credential: never print it."""

    url: str
    headers: dict[str, str]
    body: bytes = b""
    """What is posted; nothing asks with GET."""
    timeouts: Timeouts = Timeouts()

    def __repr__(self) -> str:
        return f"HttpRequest(url={scrub(self.url)!r})"


class Reply(Protocol):
    """The answer to one request; its body is read as it arrives.

    - Header names are in lower case, and `date` is always there.
    - `read` gives all bytes that have arrived, and `b""` at the end of the body. It raises
      STREAM_INTERRUPTED when the body breaks off, after it gave everything that came before, and
      TIMEOUT when the peer is silent for too long.
    """

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The reply's headers."""
        ...

    async def read(self) -> bytes:
        """Wait for more of the body."""
        ...

    async def drain(self) -> None:
        """Wait a moment for the end of a body of no further interest; never raises."""
        ...

    def close(self) -> None:
        """Close the connection, or give it back to the pool when the body was read to its end."""
        ...


class Transport(Protocol):
    """Sends requests.

    - A redirect is a reply like any other; it is never followed.
    - It raises NETWORK when the peer cannot be reached and TIMEOUT when it does not answer in time.
    - What it raises has no cause and no context: exceptions of an HTTP client hold the request's
      headers, and their tracebacks hold frames with them.
    - Nothing is sent twice, unless it never reached anybody: on a kept connection that the peer
      had closed.
    """

    async def send(self, request: HttpRequest) -> Reply:
        """Send `request` and wait for the head of the reply."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
