"""HTTP transport: sends requests with aiohttp, over one connection pool per event loop.

Only this package imports aiohttp, and only here do its exceptions become ours. The module is
imported with the first request, because loading aiohttp takes a tenth of a second.
"""

import asyncio
import concurrent.futures
import contextlib
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType, TracebackType
from typing import Any, ParamSpec, Self, TypeAlias
from weakref import WeakSet

from yarl import URL

from haptera.model.errors import AgentError, ErrorCode, SessionError
from haptera.model.settings import Timeouts
from haptera.providers.transport.http_library import aiohttp
from haptera.providers.transport.network import (
    body_error,
    certificate_context,
    connection_error,
    host_of,
    proxy_for,
)
from haptera.providers.transport.protocol import HttpRequest
from haptera.system.owned_tasks import OwnedTasks

_P = ParamSpec("_P")
_KEEP_ALIVE_SECONDS = 30.0
_DRAIN_SECONDS = 0.1
_CLOSE_SECONDS = 1.0
"""How long a close waits for the event loop of another thread, which may be busy or stop."""
_NEVER = float("inf")
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


class AiohttpTransport:
    """Sends requests with aiohttp; implements `Transport`.

    Owns one connection pool per event loop; the loops may run in several threads. Does not own
    retries, credentials or framing.
    """

    def __init__(self, *, environment: Mapping[str, str] = _NO_ENVIRONMENT) -> None:
        self._environment = environment
        self._pools: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        self._certificates: ssl.SSLContext | None = None
        self._closed = False
        self._closing = threading.Lock()
        """Held while a pool is added, and while all are taken: none is added after that."""

    async def send(self, request: HttpRequest) -> "AiohttpReply":
        """Send `request` and wait for the head of the reply."""
        if self._closed:
            raise _closed()
        pool = self._pool()
        limits = request.timeouts
        with _Caught() as caught:
            # The sum holds until there is a connection; then the second limit begins anew
            # (`_Attempt`).
            async with asyncio.timeout(limits.connect + limits.first_byte) as deadline:
                attempt = _Attempt(deadline, limits.first_byte)
                token = _attempt_of_task.set(attempt)
                try:
                    response = await self._exchange(pool, request, attempt)
                finally:
                    _attempt_of_task.reset(token)
            return AiohttpReply(response, limits)
        raise connection_error(caught.error, host=host_of(request.url), limits=limits)

    async def close(self) -> None:
        """Close the pools of all event loops."""
        # Before the first wait: a request that comes meanwhile must not make a new pool, and a
        # second `close` finds none to close again.
        with self._closing:
            self._closed = True
            pools = list(self._pools.items())
            self._pools.clear()
        await asyncio.gather(*(_close_pool(pool, loop) for loop, pool in pools))

    def _pool(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is not None and not pool.closed:
            return pool
        # A copy: other threads add and remove pools of their loops meanwhile.
        for other in list(self._pools):
            if other.is_closed() and (ended := self._pools.pop(other, None)) is not None:
                _abandon(ended)
        pool = aiohttp.ClientSession(
            # No limit: one session must not wait for another one's connection.
            connector=_Connector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
            # A pool serves all sessions of a client, and a cookie would tie their requests
            # together.
            cookie_jar=aiohttp.DummyCookieJar(),
            # Proxies come from `proxy_for`. aiohttp would also take credentials from a
            # `.netrc`.
            trust_env=False,
        )
        with self._closing:
            if not self._closed:
                self._pools[loop] = pool
                return pool
        _abandon(pool)
        raise _closed()

    async def _exchange(
        self, pool: aiohttp.ClientSession, request: HttpRequest, attempt: "_Attempt"
    ) -> aiohttp.ClientResponse:
        # As it is: yarl would normalise what may be quoted on purpose.
        url = URL(request.url, encoded=True)
        limits = _connecting_within(request.timeouts.connect)
        method = "POST" if request.body else "GET"
        # It ends: each round takes a kept connection out of the pool, and a new one that fails
        # raises.
        while True:
            try:
                return await pool.request(
                    method,
                    url,
                    data=request.body or None,
                    headers=request.headers,
                    # A redirect would send the credential to the host that the reply names.
                    allow_redirects=False,
                    proxy=proxy_for(request.url, self._environment),
                    ssl=self._trust(request.url),
                    timeout=limits,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # The peer had closed a kept connection and never received the request, so it is
                # sent again. On a new connection the same is a failure.
                if not attempt.take_kept_connection():
                    raise

    def _trust(self, url: str) -> ssl.SSLContext | bool:
        if not url.startswith("https:"):
            return True
        if self._certificates is None:
            # Once for all requests: it reads every certificate of the machine.
            self._certificates = certificate_context(self._environment)
        return self._certificates


class AiohttpReply:
    """A reply whose body is still arriving; implements `Reply`.

    One timer serves all reads: a read moves the deadline, and the timer is started again only when
    it runs out too early, or would run out too late. A timer for each read would cost as much as
    everything else that is done for a delta.
    """

    def __init__(self, response: aiohttp.ClientResponse, limits: Timeouts) -> None:
        self._response = response
        self._content = response.content
        self._limits = limits
        # Silence is a lack of content, too: the shorter of the two limits applies.
        self._seconds = min(limits.first_byte, limits.content)
        self._failure: AgentError | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = _NEVER
        self._deadline = _NEVER
        self._overdue: TimeoutError | None = None
        """What the timer failed a read with."""
        self.status = response.status
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.status != HTTPStatus.OK:
            # What a refusal says of when to come again may be relative to when it was sent.
            headers.setdefault("date", formatdate(usegmt=True))
        self.headers: Mapping[str, str] = headers

    async def read(self) -> bytes:
        """Return all bytes that have arrived; waits for the first."""
        if self._failure is not None:
            raise self._failure
        self._deadline = self._loop.time() + self._seconds
        if self._deadline < self._timer_due:
            self._start_timer()
        try:
            data = await self._content.readany()
        except Exception as error:  # noqa: BLE001 - all of aiohttp's exceptions are translated
            self._failure = body_error(error, seconds=self._seconds)
            # `read` promises all bytes before the failure, which the next read raises then.
            data = self._rescue()
        finally:
            self._deadline = _NEVER
        if self._failure is not None and not data:
            raise self._failure
        if self._overdue is not None:
            self._forget_timeout()
        self._seconds = min(self._limits.between_bytes, self._limits.content)
        return data

    async def drain(self) -> None:
        """Wait a moment for the end, so that the connection can be used again."""
        if self._content.at_eof():
            return
        # The answer is complete. What fails now costs a connection and nothing else.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while await self._content.readany():
                    pass

    def close(self) -> None:
        """Close the connection, or return it to the pool if the body was read to its end."""
        if self._timer is not None:
            self._timer.cancel()
        if self._content.at_eof():
            self._response.release()
        else:
            self._response.close()

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        """Fail the waiting read if its deadline has passed; else wait for the deadline."""
        self._timer, self._timer_due = None, _NEVER
        if self._deadline == _NEVER:
            return
        if self._loop.time() < self._deadline:
            self._start_timer()
        else:
            # Not by cancelling the task, which could not be told from a cancellation by its owner.
            self._overdue = TimeoutError()
            self._content.set_exception(self._overdue)

    def _forget_timeout(self) -> None:
        """Undo a timeout that came in the same turn of the event loop as the bytes."""
        if self._content.exception() is self._overdue:
            self._content.set_exception(None)  # type: ignore[arg-type]  # None is no exception
        self._overdue = None

    def _rescue(self) -> bytes:
        """Return bytes that arrived before the failure; aiohttp raises before it returns them."""
        if self._content.exception() is None:
            return b""
        self._content.set_exception(None)  # type: ignore[arg-type]  # makes the buffer readable
        return self._content.read_nowait()


@lru_cache(maxsize=16)
def _connecting_within(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=seconds)


class _Attempt:
    """One request until its reply: the deadline of the reply, and the connection in use."""

    def __init__(self, deadline: asyncio.Timeout, first_byte: float) -> None:
        self._is_on_kept_connection = False
        self._deadline = deadline
        self._first_byte = first_byte

    def connected(self, *, is_kept: bool) -> None:
        """Start the wait for the first byte, now that there is a connection."""
        self._is_on_kept_connection = is_kept
        self._deadline.reschedule(asyncio.get_running_loop().time() + self._first_byte)

    def take_kept_connection(self) -> bool:
        """Return whether the request was sent on a kept connection, which is closed now."""
        was_kept, self._is_on_kept_connection = self._is_on_kept_connection, False
        return was_kept


# By the context, because aiohttp hands nothing of the caller's to `connect`.
_attempt_of_task: ContextVar[_Attempt | None] = ContextVar("haptera_attempt", default=None)
# aiohttp makes one protocol object for each connection and drops it with that.
_used_connections: WeakSet[object] = WeakSet()


_Connection: TypeAlias = aiohttp.connector.Connection
_Connecting: TypeAlias = Coroutine[Any, Any, _Connection]


def _noting(connect: Callable[_P, _Connecting]) -> Callable[_P, _Connecting]:
    """Tell the attempt that asks for a connection whether it is a new or a kept one."""

    async def connect_and_note(
        *arguments: _P.args, **options: _P.kwargs
    ) -> aiohttp.connector.Connection:
        connection = await connect(*arguments, **options)
        if (attempt := _attempt_of_task.get()) is not None:
            attempt.connected(is_kept=connection.protocol in _used_connections)
        _used_connections.add(connection.protocol)
        return connection

    return connect_and_note


class _Connector(aiohttp.TCPConnector):
    """A pool of connections. aiohttp's traces could tell the same at ten times the cost."""

    connect = _noting(aiohttp.TCPConnector.connect)


class _Caught:
    """Catches the exception of its block, to be translated after the block.

    An error that is raised outside of any handler has no context. The exceptions of aiohttp lead to
    the request's headers, and so to the credential.
    """

    def __init__(self) -> None:
        self.error = Exception()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        return True


def _closed() -> SessionError:
    return SessionError(ErrorCode.CLOSED, "the client is closed")


async def _close_pool(pool: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
    if loop is asyncio.get_running_loop():
        await pool.close()
        return
    if loop.is_running():
        await _close_elsewhere(pool, loop)
    # Checked again: the loop may have ended before it came to that.
    if not pool.closed and not loop.is_running():
        _abandon(pool)


async def _close_elsewhere(pool: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
    """Close a pool on the loop that it was made on, as is necessary, in another thread."""
    over: concurrent.futures.Future[None] = concurrent.futures.Future()
    tasks = OwnedTasks()

    def end(_: object) -> None:
        # The loop may have cancelled the task before it began.
        if not pool.closed:
            _abandon(pool)
        over.set_result(None)

    # Not a coroutine: a loop that stops first drops what it was handed, and says so of a coroutine.
    def begin() -> None:
        tasks.start(pool.close(), name="haptera-pool-close").add_done_callback(end)

    with contextlib.suppress(RuntimeError):  # the loop has been closed
        loop.call_soon_threadsafe(begin)
        # Not awaited itself: how it ends there must not look like a cancellation here.
        await asyncio.wait({asyncio.wrap_future(over)}, timeout=_CLOSE_SECONDS)


def _abandon(pool: aiohttp.ClientSession) -> None:
    """Drop a pool whose event loop has ended; its sockets were closed with the loop."""
    connector = pool.connector
    pool.detach()
    if connector is not None:
        with contextlib.suppress(RuntimeError):
            connector._close()  # noqa: SLF001 - `close` would need the event loop that has ended
