"""Moments: letting other tasks run, without any clock."""

import asyncio
from collections.abc import Callable


async def others_run() -> None:
    """Let every task that is ready take one step."""
    await asyncio.sleep(0)  # noqa: TID251 - not a wait: nothing but a turn for the others


async def until(happened: Callable[[], object]) -> None:
    """Let others run until something has happened."""
    while not happened():
        await others_run()
