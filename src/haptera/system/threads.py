"""Runs blocking calls (tools, approvers, hooks, work on files) in daemon threads."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

ValueT = TypeVar("ValueT")


async def run_in_thread(call: Callable[[], ValueT]) -> ValueT:
    """Run a blocking call in a daemon thread, so that one that hangs cannot hold up the exit."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[ValueT] = loop.create_future()
    # A new thread has an empty context, and a query is known by its context.
    run_in_context = contextvars.copy_context().run

    def settle(set_outcome: Callable[[], None]) -> None:
        if not outcome.done():  # it is when the query was aborted meanwhile
            set_outcome()

    def work() -> None:
        try:
            set_outcome = partial(outcome.set_result, run_in_context(call))
        except BaseException as raised:  # noqa: BLE001 - handed on to the task that waits
            set_outcome = partial(outcome.set_exception, as_exception(raised))
        with contextlib.suppress(RuntimeError):  # the loop may be gone by now
            loop.call_soon_threadsafe(settle, set_outcome)

    threading.Thread(target=work, name="haptera-call", daemon=True).start()
    return await outcome


def as_exception(raised: BaseException) -> Exception:
    """Return what a future can carry: code that exits, or runs out, must not end the loop."""
    # A future refuses StopIteration: it would end the coroutine that awaits it.
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    return RuntimeError(f"{type(raised).__name__}: {raised}")
