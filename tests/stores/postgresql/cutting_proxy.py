"""Stands between a store and the server: cuts connections, and delays what they carry."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Literal, Self

Way = Literal["to server", "to client"]
_MOMENT = 0.02
WAYS: tuple[Way, ...] = ("to server", "to client")


class CuttingProxy:
    """Forwards connections. Once `lose_replies_after` was set, the reply to a message that holds
    those bytes is swallowed, and its connection cut: the statement was done, the client cannot
    know."""

    def __init__(self, server: Path, folder: Path) -> None:
        self.server = server
        """The folder of the server that connections lead to; another one counts for new ones."""
        self.folder = folder
        self.carried: Counter[Way] = Counter()
        """How many bytes went through so far, each way."""
        self.left: dict[Way, int] = {}
        """How many more bytes go through, each way; then the connection is cut inside a message."""
        self.resumes = False
        """Whether a connection goes on, the rest a moment later, instead of being cut."""
        self.lose_replies_after: bytes | None = None
        self.deliver_late: bytes | None = None
        """The next message with these bytes is kept until `late` is set, and its client cut off."""
        self.late = asyncio.Event()
        self.delivered = asyncio.Event()
        """Set when the server has answered what was delivered late."""
        self.flowing = asyncio.Event()
        """While it is clear nothing goes through, in either direction."""
        self.flowing.set()
        self.cuts = 0
        self._listening: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_unix_server(
            self._accept, str(self.folder / ".s.PGSQL.5432")
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._listening is not None
        self._listening.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def url(self, database: str, *, role: str = "postgres") -> str:
        """Return the URL of a database behind the proxy."""
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def cut_all(self) -> None:
        """Cut every connection."""
        for task in self._open:
            task.cancel()

    def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(client, to_client))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    def _loses_reply(self, data: bytes) -> bool:
        if self.lose_replies_after is None or self.lose_replies_after not in data:
            return False
        self.lose_replies_after = None
        return True

    def _is_late(self, data: bytes) -> bool:
        if self.deliver_late is None or self.deliver_late not in data:
            return False
        self.deliver_late = None
        self.cuts += 1
        return True

    async def _carry(self, data: bytes, writer: asyncio.StreamWriter, way: Way) -> bool:
        """Hand data on; whether the connection goes on."""
        self.carried[way] += len(data)
        left = self.left.get(way)
        if left is None or left > len(data):
            if left is not None:
                self.left[way] = left - len(data)
            writer.write(data)
            return True
        del self.left[way]
        self.cuts += 1
        writer.write(data[:left])
        if self.resumes:
            await writer.drain()
            await asyncio.sleep(_MOMENT)  # noqa: TID251 - what is on its way stands still
            writer.write(data[left:])
        return self.resumes

    async def _forward(
        self,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        to_server: asyncio.StreamWriter,
        cut: asyncio.Event,
    ) -> None:
        while data := await client.read(65_536):
            if self._loses_reply(data):
                cut.set()
            if self._is_late(data):
                to_client.close()
                await self.late.wait()
            await self.flowing.wait()
            if not await self._carry(data, to_server, "to server"):
                return
            if to_client.is_closing():
                await self.delivered.wait()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        async with contextlib.AsyncExitStack() as left:
            left.push_async_callback(_close, to_client)
            try:
                path = str(self.server / ".s.PGSQL.5432")
                server, to_server = await asyncio.open_unix_connection(path)
            except OSError:  # there is no server at the moment
                return
            left.push_async_callback(_close, to_server)
            cut = asyncio.Event()

            async def replies() -> None:
                while data := await server.read(65_536):
                    if to_client.is_closing():
                        self.delivered.set()
                    if cut.is_set():
                        self.cuts += 1
                        return
                    await self.flowing.wait()
                    if to_client.is_closing():
                        continue
                    if not await self._carry(data, to_client, "to client"):
                        return

            ways = [
                asyncio.ensure_future(self._forward(client, to_client, to_server, cut)),
                asyncio.ensure_future(replies()),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
