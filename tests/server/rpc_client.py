"""A client of JSON-RPC for tests: over a WebSocket, or over the pipes of `haptera rpc`."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp

from haptera.system.owned_tasks import OwnedTasks
from tests.cli.commands import Place
from tests.server.serving import Served


class CallError(Exception):
    """The error that a call was answered with."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.data: dict[str, Any] = error["data"]


class RpcClient:
    """Sends calls, and gives each its own answer; what else comes is kept in its order."""

    def __init__(self, send: Callable[[bytes], Awaitable[object]]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self.others: asyncio.Queue[Any] = asyncio.Queue()
        """Notifications, batches and errors without an id; None at the end."""

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method and return its result."""
        return await self.begin(method, **params)

    def begin(self, method: str, **params: Any) -> "asyncio.Task[Any]":
        """Call a method without waiting for it."""
        return OwnedTasks().start(self._call(method, params), name=method)

    async def send(self, value: Any) -> None:
        """Send something; bytes as they are."""
        await self._send(value if isinstance(value, bytes) else json.dumps(value).encode())

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        number = self._number
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        told = await waiting
        assert told["jsonrpc"] == "2.0"
        if "error" in told:
            raise CallError(told["error"])
        return told["result"]

    async def read(self, messages: AsyncIterator[bytes]) -> None:
        """Sort what comes until the connection ends."""
        async for message in messages:
            told = json.loads(message)
            number = told.get("id") if isinstance(told, dict) else None
            if isinstance(number, int) and number in self._waiting:
                self._waiting.pop(number).set_result(told)
            else:
                self.others.put_nowait(told)
        self.others.put_nowait(None)
        for waiting in self._waiting.values():
            waiting.cancel()


@contextlib.asynccontextmanager
async def websocket(served: Served, **headers: str) -> AsyncIterator[RpcClient]:
    """Connect to a server over a WebSocket until the block is left."""
    async with served.client.ws_connect(served.url + "/rpc", headers=headers) as socket:

        async def messages() -> AsyncIterator[bytes]:
            async for message in socket:
                assert message.type is aiohttp.WSMsgType.TEXT
                yield message.data.encode()

        client = RpcClient(lambda content: socket.send_str(content.decode()))
        reading = OwnedTasks().start(client.read(messages()), name="rpc-client")
        try:
            yield client
        finally:
            await socket.close()
            await reading


@contextlib.asynccontextmanager
async def pipes(
    place: Place, *arguments: str
) -> AsyncIterator[tuple[RpcClient, asyncio.subprocess.Process]]:
    """Run `haptera rpc`; leaving the block ends its input and waits for it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "haptera.cli",
        "rpc",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=place.project,
        env=place.environment,
        limit=64 * 1024 * 1024,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def send(content: bytes) -> None:
        stdin.write(content + b"\n")
        await stdin.drain()

    client = RpcClient(send)
    reading = OwnedTasks().start(client.read(aiter(stdout)), name="rpc-client")
    try:
        yield client, process
        stdin.close()
        await asyncio.wait_for(process.wait(), 60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading
