"""HTTP with aiohttp: one pool per event loop, loaded when the first request is made.

This is the only module that imports aiohttp, and the only border where its errors become ours.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Mapping
from email.utils import formatdate
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.providers.transport.network_settings import certificate_context, proxy_for
from holdfast.providers.transport.protocol import HttpRequest
from holdfast.vocabulary.errors import (
    AgentError,
    ErrorCode,
    RequestError,
    SessionError,
    error_of,
)
from holdfast.vocabulary.settings import Timeouts

if TYPE_CHECKING:
    import aiohttp

_KEEP_ALIVE_SECONDS = 30.0
_DRAIN_SECONDS = 0.1
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


class AiohttpTransport:
    """Sends requests with aiohttp.

    Owns one pool of connections per event loop. Does not own retries, credentials or framing.
    """

    def __init__(self, *, environment: Mapping[str, str] = _NO_ENVIRONMENT) -> None:
        self._environment = environment
        self._pools: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        self._certificates: ssl.SSLContext | None = None
        self._closed = False

    async def send(self, request: HttpRequest) -> "AiohttpReply":
        """Send `request`; see `Transport`."""
        if self._closed:
            raise SessionError(ErrorCode.CLOSED, "the client is closed")
        pool = self._pool()
        limits = request.timeouts
        host = _host(request.url)
        try:
            async with asyncio.timeout(limits.connect + limits.first_byte) as deadline:
                response = await self._exchange(
                    pool, request, _Attempt(deadline, limits.first_byte)
                )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is translated
            failure = _before_reply(error, host=host, limits=limits)
        else:
            return AiohttpReply(response, limits)
        # Raised out here: aiohttp's exceptions lead to the headers, and so to the credential.
        raise failure

    async def close(self) -> None:
        """Close the pools of all loops."""
        self._closed = True
        here = asyncio.get_running_loop()
        pools = list(self._pools.items())
        self._pools.clear()
        for loop, pool in pools:
            if loop is here:
                await pool.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(pool.close(), loop))
            else:
                _abandon(pool)

    def _pool(self) -> "aiohttp.ClientSession":
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.closed:
            import aiohttp  # noqa: PLC0415 - a tenth of a second that only requests should pay

            self._forget_ended_loops()
            pool = self._pools[loop] = aiohttp.ClientSession(
                # Sessions wait for their provider, never for each other.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                trace_configs=[_connection_trace()],
            )
        return pool

    def _forget_ended_loops(self) -> None:
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            _abandon(self._pools.pop(loop))

    async def _exchange(
        self, pool: "aiohttp.ClientSession", request: HttpRequest, attempt: "_Attempt"
    ) -> "aiohttp.ClientResponse":
        import aiohttp  # noqa: PLC0415 - see _pool
        from yarl import URL  # noqa: PLC0415 - comes with aiohttp

        url = URL(request.url, encoded=True)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=request.timeouts.connect)
        method = "POST" if request.body else "GET"
        while True:
            try:
                return await pool.request(
                    method,
                    url,
                    data=request.body or None,
                    headers=request.headers,
                    # A redirect would carry the credential to whoever the reply names.
                    allow_redirects=False,
                    proxy=proxy_for(request.url, self._environment),
                    ssl=self._trust(request.url),
                    timeout=limits,
                    trace_request_ctx=attempt,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # The peer had closed a kept connection and never saw the request; a new one will
                # do. On a new connection the same would be a failure.
                if not attempt.take_kept_connection():
                    raise

    def _trust(self, url: str) -> ssl.SSLContext | bool:
        if not url.startswith("https:"):
            return True
        if self._certificates is None:
            self._certificates = certificate_context(self._environment)
        return self._certificates


class AiohttpReply:
    """A reply whose body is still arriving; see `Reply`."""

    def __init__(self, response: "aiohttp.ClientResponse", limits: Timeouts) -> None:
        self._response = response
        self._limits = limits
        # Silence is no content, either: the shorter of the two bounds holds.
        self._wait = min(limits.first_byte, limits.content)
        self._failure: AgentError | None = None
        self.status = response.status
        headers = {name.lower(): value for name, value in response.headers.items()}
        headers.setdefault("date", formatdate(usegmt=True))
        self.headers: Mapping[str, str] = headers

    async def read(self) -> bytes:
        """Return all bytes that have arrived, waiting for the first."""
        if self._failure is not None:
            raise self._failure
        try:
            async with asyncio.timeout(self._wait):
                data = await self._response.content.readany()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is translated
            self._failure = _inside_body(error, seconds=self._wait)
            data = self._rescue()
        if self._failure is not None and not data:
            raise self._failure
        self._wait = min(self._limits.between_bytes, self._limits.content)
        return data

    async def drain(self) -> None:
        """Wait a moment for the end, so that the connection can be used again."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while await self._response.content.readany():
                    pass

    def close(self) -> None:
        """Close the connection, or give it back."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()

    def _rescue(self) -> bytes:
        """Return bytes that arrived before the failure; aiohttp puts its error before them."""
        content = self._response.content
        if content.exception() is None:
            return b""
        content.set_exception(None)  # type: ignore[arg-type]  # the way to reach the buffer
        return content.read_nowait()


class _Attempt:
    """One request on its way: when it is too late for a reply, and what it travels on."""

    def __init__(self, deadline: asyncio.Timeout, first_byte: float) -> None:
        self._is_on_kept_connection = False
        self._deadline = deadline
        self._first_byte = first_byte

    def connected(self, *, is_kept: bool) -> None:
        """Start the wait for the first byte: there is a connection."""
        self._is_on_kept_connection = is_kept
        self._deadline.reschedule(asyncio.get_running_loop().time() + self._first_byte)

    def take_kept_connection(self) -> bool:
        """Whether it travelled on a kept connection, which is gone now."""
        was_kept, self._is_on_kept_connection = self._is_on_kept_connection, False
        return was_kept


def _connection_trace() -> "aiohttp.TraceConfig":
    """Make a trace that tells an attempt of its connection."""
    import aiohttp  # noqa: PLC0415 - loaded already

    async def made(_pool: object, context: SimpleNamespace, _parameters: object) -> None:
        context.trace_request_ctx.connected(is_kept=False)

    async def kept(_pool: object, context: SimpleNamespace, _parameters: object) -> None:
        context.trace_request_ctx.connected(is_kept=True)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(made)
    trace.on_connection_reuseconn.append(kept)
    return trace


def _abandon(pool: "aiohttp.ClientSession") -> None:
    """Let go of a pool whose loop has ended; its sockets ended with it."""
    connector = pool.connector
    pool.detach()
    if connector is not None:
        with contextlib.suppress(RuntimeError):
            connector._close()  # noqa: SLF001 - `close` would need the loop that is gone


def _before_reply(error: Exception, *, host: str, limits: Timeouts) -> AgentError:
    """Translate what went wrong before a reply began."""
    import aiohttp  # noqa: PLC0415 - loaded already

    if isinstance(error, AgentError):
        return error
    # What no network raises is a mistake, and asking again does not mend it.
    is_network = isinstance(error, aiohttp.ClientError | OSError | EOFError)
    code = ErrorCode.NETWORK if is_network else ErrorCode.PROTOCOL
    match error:
        case aiohttp.ConnectionTimeoutError():
            code = ErrorCode.TIMEOUT
            message = f"{host} could not be connected to within {limits.connect:g} s"
        case TimeoutError():
            code = ErrorCode.TIMEOUT
            message = f"{host} did not answer within {limits.first_byte:g} s"
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            code = ErrorCode.CONFIG_INVALID
            message = f"the certificate of {host} is not trusted; set SSL_CERT_FILE to its issuer"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            code = ErrorCode.CONFIG_INVALID
            message = f"the base URL of {host} is not valid"
        case ValueError():
            code = ErrorCode.CONFIG_INVALID
            message = f"a header for {host} holds a line break; look at the key and the headers"
        case aiohttp.ClientConnectorSSLError():
            message = f"{host} could not be reached by TLS; is its base URL http:// perhaps?"
        case aiohttp.ClientConnectorError():
            message = (
                f"{host} could not be reached ({_reason(error.os_error)}); "
                "check the base URL, the network and that the server runs"
            )
        case aiohttp.ClientResponseError():
            code = ErrorCode.PROTOCOL
            message = f"{host} answered with something that is not HTTP"
        case _:
            message = f"the connection to {host} failed before a reply: {type(error).__name__}"
    return error_of(code, message, basis="type")


def _host(url: str) -> str:
    """Return host and port of a URL for a message; a password in it stays out."""
    parts = urlsplit(url)
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.hostname}{port}" if parts.hostname else url


def _reason(error: OSError) -> str:
    """Say in the system's words why there is no connection."""
    # The event loop puts the address into `strerror`, and the number stays what it was.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return error.strerror or "no connection"


def _inside_body(error: Exception, *, seconds: float) -> AgentError:
    """Translate what went wrong after the head of a reply."""
    if isinstance(error, TimeoutError):
        message = f"the provider sent nothing for {seconds:g} s"
        return RequestError(ErrorCode.TIMEOUT, message, basis="type")
    message = f"the answer broke off: {type(error).__name__}"
    return RequestError(ErrorCode.STREAM_INTERRUPTED, message, basis="type")
