"""Serving: runs an application on a socket, and keeps the file by which clients find it."""

import asyncio
import contextlib
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import uvicorn

from haptera import ConfigError, ErrorCode
from haptera.model.late_names import late_module
from haptera.server.app import HapteraApp
from haptera.server.connections import HttpConnection, abort_stalled
from haptera.server.key_file import write_private

STATE_FILE = "server.json"
_DRAIN_SECONDS = 20
_STREAM_SECONDS = 2
_LOOK_SECONDS = 1
"""Between two looks at clients that a server which shuts down waits for."""
_BACKLOG = 2048
_COLLECT_AFTER = (10_000, 10, 8)
"""How many new objects, and how many collections of the younger ones, before the next."""
_SWITCH_SECONDS = 0.0005
"""How long a thread that computes keeps the event loop, or the thread of a store, waiting.

Python's own is ten times as long, and a request needs the interpreter about ten times.
"""
_STALLED_SECONDS = 30.0


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a TLS certificate."""

    certificate: str
    key: str


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server of this user listens, and its token."""

    url: str
    pid: int
    token: str


class HttpServer(uvicorn.Server):
    """Runs an application until it is told to exit; then streams end and queries may end.

    When it is told so again, queries are suspended at once, and nothing is waited for but their
    last entries.
    """

    def __init__(self, app: HapteraApp, *, tls: Certificate | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                # uvicorn's own log would write without what masks secrets.
                log_config=None,
                access_log=False,
                server_header=False,
                # Any client could send X-Forwarded-For, and wrong credentials are counted by
                # address.
                proxy_headers=False,
                lifespan="on",
                ws_max_size=app.hub.settings.body_bytes,
                ws_per_message_deflate=False,
                http=HttpConnection,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
                ssl_certfile=tls.certificate if tls else None,
                ssl_keyfile=tls.key if tls else None,
            )
        )
        self._app = app
        self._next_look: asyncio.TimerHandle | None = None
        self.ready = asyncio.Event()
        """Set when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Exit on SIGINT and SIGTERM; unlike uvicorn's own, the process does not die of them."""
        loop = asyncio.get_running_loop()
        taken: list[signal.Signals] = []
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):  # refused beside the main thread
                loop.add_signal_handler(number, self.handle_exit, number, None)
                taken.append(number)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Exit in order at the first signal, at once at the second, whichever it is."""
        del sig, frame
        if self.should_exit:
            self.force_exit = True
            self._app.suspend_queries()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams, then wait for requests and sessions."""
        self._app.end_streams()
        with contextlib.suppress(TimeoutError):  # clients that read are told where to go on
            async with asyncio.timeout(_STREAM_SECONDS):
                await self._app.hub.streams.all_ended()
        # uvicorn waits for every connection, also for one whose client has stopped reading.
        self._abort_stalled({})
        try:
            await super().shutdown(sockets)
        finally:
            if self._next_look is not None:
                self._next_look.cancel()
        if self.force_exit:  # uvicorn leaves the application as it is then; the log needs its end
            await self.lifespan.shutdown()

    def _abort_stalled(self, before: Mapping[Any, int]) -> None:
        """Wait for requests that work, but not for clients that neither read nor send."""
        stalled = abort_stalled(tuple(self.server_state.connections), before)
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(_LOOK_SECONDS, self._abort_stalled, stalled)


def run_process(work: Coroutine[None, None, None]) -> None:
    """Run what a server process does: on uvloop where it is installed, which is the faster loop.

    Open sessions are many objects that live long. With Python's own settings all of them are looked
    at every few seconds, for a tenth of a second or more, in which no stream gets anything: here
    that is rarer, and leaves out what was loaded at the start.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    sys.setswitchinterval(_SWITCH_SECONDS)
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        new_loop = late_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work)


def listen(
    host: str, port: int, *, is_protected: bool, stalled_seconds: float = _STALLED_SECONDS
) -> socket.socket:
    """Return a socket that listens; `is_protected`: with TLS, or behind a proxy that has it.

    On Linux, the system ends a connection whose client takes nothing for `stalled_seconds`.

    Raises:
        ConfigError: CONFIG_INVALID for a URL that other machines reach without protection, or a
            port that is taken.

    """
    address = _address_of(host)
    if not (address.is_loopback or is_protected):
        raise _refusal(
            f"--host {host} can be reached from other machines: give --tls-certificate and "
            "--tls-key, or say --behind-proxy when a proxy adds TLS"
        )
    family = socket.AF_INET6 if isinstance(address, ipaddress.IPv6Address) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Otherwise a restart could not bind while connections of the last server are in TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections that are accepted inherit it
            milliseconds = int(stalled_seconds * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        sock.bind((str(address), port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        message = (
            f"port {port} cannot be used: {error.strerror}; --port takes another, 0 a free one"
        )
        raise _refusal(message) from error
    return sock


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return _address_of(host).is_loopback


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError as error:
        raise _refusal(f"--host {host!r} is no IP address") from error


def url_of(sock: socket.socket, *, has_tls: bool) -> str:
    """Return the URL of a socket that listens."""
    host, port = sock.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if has_tls else 'http'}://{name}:{port}"


@contextlib.contextmanager
def announced(folder: Path, state: ServerState) -> Generator[Path, None, None]:
    """Keep the state file (0600) while the block runs; a file of a later server stays."""
    path = folder / STATE_FILE
    write_private(path, msgspec.json.encode(state))
    try:
        yield path
    finally:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            if read_state(folder) == state:
                path.unlink()


def read_state(folder: Path) -> ServerState:
    """Read the state file.

    Raises:
        OSError: when there is none.
        msgspec.DecodeError: when it is not one.

    """
    return msgspec.json.decode((folder / STATE_FILE).read_bytes(), type=ServerState)


def _refusal(message: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, message)
