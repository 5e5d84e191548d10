"""JSON-RPC over standard input and output: one message per line, and nothing else in the output.

Files are read and written in threads of their own: that works for pipes, files and terminals, and
it does not change how other processes see them. The threads do not keep the process alive.
"""

import asyncio
import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from haptera import Agent
from haptera.access.credentials import write_all
from haptera.access.pool import PoolLimits
from haptera.server.access import Access, Principal
from haptera.server.limits import ServerSettings
from haptera.server.operations import ServedOperation, Server
from haptera.server.rpc_connection import RpcConnection
from haptera.server.rpc_messages import too_large_message
from haptera.server.rpc_methods import RpcMethods
from haptera.server.sessions import Hub
from haptera.system.owned_tasks import OwnedTasks

_DRAIN_SECONDS = 15.0
_UNLIMITED = 1e9
ResultT = TypeVar("ResultT")


async def serve_stdio(
    agent: Agent, operations: Sequence[ServedOperation], *, limits: PoolLimits
) -> None:
    """Answer the owner of an agent until standard input ends, or SIGINT or SIGTERM comes.

    Then calls in flight and running queries may end.
    """
    # It is started for one client: it carries on nothing that the client did not ask for.
    settings = ServerSettings(
        requests_per_second=_UNLIMITED,
        resume=False,
        sessions=limits.sessions,
        idle_seconds=limits.idle_seconds,
    )
    hub = Hub({agent.owner: agent}.get, settings, owners=lambda: (agent.owner,))
    server = Server(hub, Access(None, owner=agent.owner, clock=agent.clock), operations)
    principal = Principal(owner=agent.owner)
    stopped = asyncio.Event()
    with _own_streams() as (source, target), _signals(stopped):
        output = _Worker("rpc-output")

        async def send(messages: Sequence[bytes]) -> None:
            content = b"".join([message + b"\n" for message in messages])
            try:
                await output.run(lambda: write_all(target, content))
            except OSError as error:
                stopped.set()
                raise ConnectionResetError from error

        connection = RpcConnection(RpcMethods(server), caller=lambda: principal, send=send)
        try:
            await _until(stopped, _read(source, connection, limit=settings.import_bytes))
            async with asyncio.timeout(_DRAIN_SECONDS):
                await _until(stopped, connection.drain())
        except TimeoutError:
            pass  # what is left is told to end now
        finally:
            await hub.close()
            with contextlib.suppress(TimeoutError):  # the client does not read what is left
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await connection.subscriptions_ended()
                    await connection.close()


async def _read(source: int, connection: RpcConnection, *, limit: int) -> None:
    """Pass lines on until the input ends."""
    lines, worker = LineReader(source, limit=limit), _Worker("rpc-input")
    with contextlib.suppress(ConnectionError):
        while (lines_read := await worker.run(lines.read)) is not None:
            for line in lines_read:
                if line is None:
                    await connection.take(too_large_message(limit))
                elif line.strip():
                    await connection.take(await connection.read(line))


async def _until(stopped: asyncio.Event, work: Coroutine[object, object, None]) -> None:
    """Wait for work, or give it up when the process is told to stop."""
    async with OwnedTasks() as tasks:
        task = tasks.start(work, name="haptera-rpc-work")
        stopping = tasks.start(stopped.wait(), name="haptera-rpc-stopped")
        both: set[asyncio.Task[Any]] = {task, stopping}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not task.cancelled():
        task.result()


class LineReader:
    """Splits a file into lines; a line that is too long is left out, not kept."""

    def __init__(self, source: int, *, limit: int, chunk: int = 64 * 1024) -> None:
        self._source = source
        self._chunk = chunk
        self._limit = limit
        self._kept: list[bytes] = []
        self._size = 0
        self._is_skipping = False

    def read(self) -> list[bytes | None] | None:
        """Return the lines of one read, None for one that was too long; None at the end."""
        content = os.read(self._source, self._chunk)
        if not content:
            rest = self._line()
            return [rest] if rest else None
        complete: list[bytes | None] = []
        *lines, last = content.split(b"\n")
        for line in lines:
            self._keep(line, complete)
            if not self._is_skipping:
                complete.append(self._line())
            self._is_skipping = False
        self._keep(last, complete)
        return complete

    def _keep(self, piece: bytes, lines: list[bytes | None]) -> None:
        """Keep a piece of a line, unless the line has become too long: that is told once."""
        if self._is_skipping:
            return
        self._kept.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            self._line()
            self._is_skipping = True
            lines.append(None)

    def _line(self) -> bytes:
        line = b"".join(self._kept)
        self._kept, self._size = [], 0
        return line


class _Worker:
    """Runs blocking calls in one thread, in their order."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, function: Callable[[], ResultT]) -> ResultT:
        """Wait for the result of a function, which may fail with OSError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultT] = loop.create_future()

        def work() -> None:
            try:
                settle = partial(future.set_result, function())
            except OSError as error:
                settle = partial(future.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for it
                # The caller may have been cancelled while the thread was still reading.
                loop.call_soon_threadsafe(lambda: None if future.done() else settle())

        self._jobs.put(work)
        return await future

    def _work(self) -> None:
        while True:
            self._jobs.get()()


@contextlib.contextmanager
def _own_streams() -> Generator[tuple[int, int], None, None]:
    """Take standard input and output away from everything else in the process.

    What a tool prints goes to standard error, and no child process reads the client's messages.
    """
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        # By descriptor and not `sys.stdout` alone: child processes inherit it.
        os.dup2(2, 1)
        yield source, target
    finally:
        sys.stdout.flush()
        os.dup2(target, 1)
        os.close(nothing)


@contextlib.contextmanager
def _signals(stopped: asyncio.Event) -> Generator[None, None, None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
