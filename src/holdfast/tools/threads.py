"""Blocking work of a tool in a thread, so that the event loop goes on."""

from collections.abc import Callable
from typing import TypeVar, cast

from holdfast.ports.threads import run_in_thread

ValueT = TypeVar("ValueT")


async def in_thread(call: Callable[[], ValueT]) -> ValueT:
    """Run a blocking call and return what it returns."""
    return cast("ValueT", await run_in_thread(call))
