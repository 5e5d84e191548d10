"""The floor as a subject of the query benchmarks, on each of its HTTP clients."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.floor import Client, aiohttp_client, open_floor, stream_client
from benchmarks.subjects import PROMPT, Ask, Outcome, Setup


@asynccontextmanager
async def on_asyncio(setup: Setup) -> AsyncIterator[Ask]:
    """Ask through raw asyncio streams."""
    async with _open(setup, stream_client(setup.base_url)) as ask:
        yield ask


@asynccontextmanager
async def on_aiohttp(setup: Setup) -> AsyncIterator[Ask]:
    """Ask through aiohttp."""
    async with _open(setup, aiohttp_client(setup.base_url)) as ask:
        yield ask


@asynccontextmanager
async def _open(setup: Setup, client: AbstractAsyncContextManager[Client]) -> AsyncIterator[Ask]:
    async with open_floor(setup.api, setup.script, client) as floor:

        async def ask() -> Outcome:
            characters = 0

            def on_text(text: str) -> None:
                nonlocal characters
                characters += len(text)

            calls = await floor.query(PROMPT, on_text)
            return Outcome(characters, calls)

        yield ask
