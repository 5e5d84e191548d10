"""Transport protocol: the interface to HTTP, which another client library could implement."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from haptera.model.secrets import scrub
from haptera.model.settings import Timeouts


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Its headers may contain a credential, so it must not be printed."""

    url: str
    headers: dict[str, str]
    body: bytes = b""
    """Sent with POST; a request without a body is sent with GET."""
    timeouts: Timeouts = Timeouts()

    def __repr__(self) -> str:
        return f"HttpRequest(url={scrub(self.url)!r})"


class Reply(Protocol):
    """The reply to one request; its body is read as it arrives.

    - Header names are in lower case, and `date` is present unless the reply is a success.
    - `read` returns all bytes that have arrived, and `b""` at the end of the body. It raises
      STREAM_INTERRUPTED if the body breaks off, after returning everything that came before, and
      TIMEOUT if the peer is silent for too long.
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
        """Wait a moment for the end of a body that is not needed any more; never raises."""
        ...

    def close(self) -> None:
        """Close the connection, or return it to the pool if the body was read to its end."""
        ...


class Transport(Protocol):
    """Sends requests.

    - A redirect is returned like any other reply; it is never followed.
    - It raises NETWORK if the peer cannot be reached and TIMEOUT if it does not answer in time.
    - What it raises has no cause and no context: exceptions of an HTTP client hold the request's
      headers, and their tracebacks hold frames with them.
    - A request is sent twice only if it was not received: on a kept connection that the peer had
      closed.
    """

    async def send(self, request: HttpRequest) -> Reply:
        """Send `request` and wait for the head of the reply."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
