"""Stands between a store and the server, and cuts connections where a test says so."""

import asyncio
import contextlib
from pathlib import Path
from typing import Self


class CuttingProxy:
    """Forwards connections. Once `lose_replies_after` was set, the reply to a message that holds
    those bytes is swallowed, and its connection cut: the statement was done, the client cannot
    know."""

    def __init__(self, server: Path, folder: Path) -> None:
        self._server = server / ".s.PGSQL.5432"
        self.folder = folder
        self.lose_replies_after: bytes | None = None
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

    def url(self, database: str) -> str:
        """Return the URL of a database behind the proxy."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._open.add(asyncio.ensure_future(self._serve(client, to_client)))

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        async with contextlib.AsyncExitStack() as left:
            left.push_async_callback(_close, to_client)
            server, to_server = await asyncio.open_unix_connection(str(self._server))
            left.push_async_callback(_close, to_server)
            cut = asyncio.Event()

            async def requests() -> None:
                while data := await client.read(65_536):
                    if self.lose_replies_after is not None and self.lose_replies_after in data:
                        self.lose_replies_after = None
                        cut.set()
                    to_server.write(data)

            async def replies() -> None:
                while data := await server.read(65_536):
                    if cut.is_set():
                        self.cuts += 1
                        return
                    to_client.write(data)

            ways = [asyncio.ensure_future(requests()), asyncio.ensure_future(replies())]
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
