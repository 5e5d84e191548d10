"""The process of an MCP server: one message a line on its standard input and output.

A transport for the `mcp` package in place of its own, which reads lines without a bound, hands
variables of this process on and needs a file for standard error.
"""

import contextlib
import re
from collections.abc import Callable
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from haptera.system.child_processes import ChildProcess, KeptTail, LineTooLongError
from haptera.system.owned_tasks import OwnedTasks
from haptera.tools.mcp.server_settings import ResolvedServer

MOST_MESSAGE = 32 << 20
"""Bytes of one message; a server that sends a longer one is ended."""
_DEEPEST = 150
"""Levels of a message; the package reads none that has more than 200."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_MOST_GARBAGE = 100
"""Lines in a row that are no messages, after which a server is ended."""
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


class ServerProcess:
    """Starts a program and carries messages; an async context manager of the two streams.

    Owns the process with all its children: they are ended when the block is left. `on_end` is
    called when the program ends by itself.
    """

    def __init__(
        self, settings: ResolvedServer, kept: KeptTail, on_end: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._kept = kept
        self._on_end = on_end
        self._tasks = OwnedTasks()
        self._process: ChildProcess | None = None
        self.fault: str | None = None
        """What the server did that ended it, if it was not its own end."""
        self._streams: tuple[ToClient, Received, ToSend, FromClient] | None = None

    @property
    def exit_status(self) -> int | None:
        """How the program ended; None while it runs."""
        return None if self._process is None else self._process.exit_status

    async def __aenter__(self) -> tuple[Received, ToSend]:
        settings = self._settings
        self._process = process = await ChildProcess.start(
            [settings.command or "", *settings.args],
            environment=settings.variables(),
            cwd=settings.cwd,
            tail=self._kept,
        )
        # Without buffers: a client that is behind slows the server down through its pipe.
        to_client, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_send, from_client = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = to_client, received, to_send, from_client
        self._tasks.start(self._read(process, to_client), name="haptera-mcp-read")
        self._tasks.start(self._write(process, from_client), name="haptera-mcp-write")
        return received, to_send

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._tasks.cancel(within=_GRACE_SECONDS)
            if self._process is None:
                return
            if self.fault is None:
                await self._process.stop(grace=_GRACE_SECONDS, drains=True)
            else:
                await self._process.kill()
        finally:
            for stream in self._streams or ():
                stream.close()

    async def _read(self, process: ChildProcess, to_client: ToClient) -> None:
        try:
            await self._read_messages(process, to_client)
        except LineTooLongError:
            self.fault = f"it sent a message of more than {MOST_MESSAGE >> 20} MiB"
        except anyio.BrokenResourceError:
            return  # the client has gone
        finally:
            to_client.close()  # what waits for an answer hears that none will come
            self._on_end()

    async def _read_messages(self, process: ChildProcess, to_client: ToClient) -> None:
        garbage = 0
        while (line := await process.read_line(longest=MOST_MESSAGE)) is not None:
            message = self._parse(line)
            garbage = 0 if message is not None else garbage + 1
            if message is not None:
                await to_client.send(message)
            elif garbage > _MOST_GARBAGE:
                self.fault = "it writes what is no MCP to its standard output"
                return

    def _parse(self, line: bytes) -> SessionMessage | None:
        """Return a message; what is none is kept beside standard error, for people."""
        message = _message_in(line) or _message_in(flattened(line))
        if message is None and line.strip():
            self._kept.add(f"[not a message: {line[:200].decode('utf-8', 'replace')}]\n")
        return message

    async def _write(self, process: ChildProcess, from_client: FromClient) -> None:
        async for item in from_client:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            with contextlib.suppress(ConnectionError):  # the reader sees that it has ended
                await process.write(text.encode("utf-8", "replace") + b"\n")
