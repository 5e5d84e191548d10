"""The process of an MCP server: one message a line on its standard input and output.

A transport for the `mcp` package in place of its own, which reads lines without a bound, hands
variables of this process on and needs a file for standard error.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from haptera.system.owned_tasks import OwnedTasks
from haptera.tools.mcp.offered_tools import clean
from haptera.tools.mcp.server_settings import ResolvedServer

MOST_MESSAGE = 32 << 20
"""Bytes of one message; a server that sends a longer one is ended."""
_DEEPEST = 150
"""Levels of a message; the package reads none that has more than 200."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_MOST_GARBAGE = 100
"""Lines in a row that are no messages, after which a server is ended."""
_MOST_KEPT = 16_000
"""Characters of standard error that are kept, the last ones."""
_PIECE = 1 << 16
_GRACE_SECONDS = 2.0

ToClient: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
Received: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
ToSend: TypeAlias = MemoryObjectSendStream[SessionMessage]
FromClient: TypeAlias = MemoryObjectReceiveStream[SessionMessage]


def flattened(message: bytes) -> bytes:
    """Return a message in which null stands for what is nested too deep.

    One such value, as in the schema of a tool, would make all of the message unreadable.
    """
    if message.count(b"{") + message.count(b"[") <= _DEEPEST:
        return message
    pieces, begin, depth = list[bytes](), 0, 0
    for token in _TOKEN.finditer(message):
        if token[0] in {b"{", b"["}:
            depth += 1
            if depth == _DEEPEST + 1:
                pieces += [message[begin : token.start()], b"null"]
        elif token[0] in {b"}", b"]"}:
            if depth == _DEEPEST + 1:
                begin = token.end()
            depth -= 1
    return b"".join([*pieces, message[begin:]]) if depth <= _DEEPEST else message


def _message_in(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        return None


class KeptText:
    """The end of what a server wrote to its standard error."""

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._length = 0

    def add(self, text: str) -> None:
        """Keep a text, and forget the oldest beyond the bound."""
        self._pieces.append(text[-_MOST_KEPT:])
        self._length += len(self._pieces[-1])
        while self._length > _MOST_KEPT and len(self._pieces) > 1:
            self._length -= len(self._pieces.popleft())

    def __str__(self) -> str:
        return clean("".join(self._pieces)[-_MOST_KEPT:]).strip()


class ServerProcess:
    """Starts a program and carries messages; an async context manager of the two streams.

    Owns the process with all its children: they are ended when the block is left. `on_end` is
    called when the program ends by itself.
    """

    def __init__(
        self, settings: ResolvedServer, kept: KeptText, on_end: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._kept = kept
        self._on_end = on_end
        self._tasks = OwnedTasks()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._errors: asyncio.Task[None] | None = None
        self.fault: str | None = None
        """What the server did that ended it, if it was not its own end."""
        self._streams: tuple[ToClient, Received, ToSend, FromClient] | None = None

    @property
    def exit_status(self) -> int | None:
        """How the program ended; None while it runs."""
        return None if self._process is None else self._process.returncode

    async def __aenter__(self) -> tuple[Received, ToSend]:
        settings = self._settings
        self._process = process = await asyncio.create_subprocess_exec(
            settings.command or "",
            *settings.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=settings.variables(),
            cwd=settings.cwd,
            # A process group of its own, so that `_end` reaches its children, too.
            start_new_session=True,
        )
        # Without buffers: a client that is behind slows the server down through its pipe.
        to_client, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_send, from_client = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = to_client, received, to_send, from_client
        self._reading = self._tasks.start(self._read(process, to_client), name="haptera-mcp-read")
        self._tasks.start(self._write(process, from_client), name="haptera-mcp-write")
        self._errors = self._tasks.start(self._keep_errors(process), name="haptera-mcp-stderr")
        return received, to_send

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._end()
            if self._errors is not None:
                await asyncio.wait({self._errors}, timeout=_GRACE_SECONDS)
        finally:
            await self._tasks.cancel(within=_GRACE_SECONDS)
            for stream in self._streams or ():
                stream.close()

    async def _read(self, process: asyncio.subprocess.Process, to_client: ToClient) -> None:
        try:
            await self._read_lines(process, to_client)
        except anyio.BrokenResourceError:
            return  # the client has gone
        finally:
            to_client.close()  # what waits for an answer hears that none will come
            self._on_end()

    async def _read_lines(self, process: asyncio.subprocess.Process, to_client: ToClient) -> None:
        pieces: list[bytes] = []
        held = garbage = 0
        while process.stdout is not None and (piece := await process.stdout.read(_PIECE)):
            *lines, rest = piece.split(b"\n")
            for line in lines:
                message = self._parse(b"".join([*pieces, line]))
                pieces, held = [], 0
                garbage = 0 if message is not None else garbage + 1
                if message is not None:
                    await to_client.send(message)
                elif garbage > _MOST_GARBAGE:
                    self.fault = "it writes what is no MCP to its standard output"
                    return
            # Joined once: adding to one text would copy a long message again for each read.
            pieces.append(rest)
            held += len(rest)
            if held > MOST_MESSAGE:
                self.fault = f"it sent a message of more than {MOST_MESSAGE >> 20} MiB"
                return

    def _parse(self, line: bytes) -> SessionMessage | None:
        """Return a message; what is none is kept beside standard error, for people."""
        message = _message_in(line) or _message_in(flattened(line))
        if message is None and line.strip():
            self._kept.add(f"[not a message: {line[:200].decode('utf-8', 'replace')}]\n")
        return message

    async def _write(self, process: asyncio.subprocess.Process, from_client: FromClient) -> None:
        stdin = process.stdin
        async for item in from_client:
            if stdin is None:
                return
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            with contextlib.suppress(ConnectionError):  # the reader sees that it has ended
                stdin.write(text.encode("utf-8", "replace") + b"\n")
                await stdin.drain()

    async def _keep_errors(self, process: asyncio.subprocess.Process) -> None:
        while process.stderr is not None and (piece := await process.stderr.read(_PIECE)):
            self._kept.add(piece.decode("utf-8", "replace"))

    async def _end(self) -> None:
        """Close its input, which asks a server to end; then end it with all its children."""
        process = self._process
        if process is None or process.stdin is None:
            return
        if self._reading is not None:
            self._reading.cancel()
        # A process counts as ended when its output was read to the end, too.
        self._tasks.start(self._drain(process), name="haptera-mcp-drain")
        with contextlib.suppress(ConnectionError):
            process.stdin.close()
        gently = (None, signal.SIGTERM, signal.SIGKILL)
        for demand in gently if self.fault is None else (signal.SIGKILL,):
            if demand is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, demand)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await process.wait()
                return

    async def _drain(self, process: asyncio.subprocess.Process) -> None:
        if self._reading is not None:
            await asyncio.wait({self._reading})
        while process.stdout is not None and await process.stdout.read(_PIECE):
            pass
