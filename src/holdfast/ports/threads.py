"""Runs blocking calls of the user's (tools, approvers, hooks) in daemon threads."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable


async def run_in_thread(call: Callable[[], object]) -> object:
    """Run a blocking call in a daemon thread, so that one that hangs cannot hold up the exit."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[object] = loop.create_future()
    run_in_context = contextvars.copy_context().run

    def settle(value: object, error: Exception | None) -> None:
        if outcome.done():
            return  # the query was aborted meanwhile
        if error is None:
            outcome.set_result(value)
        else:
            outcome.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = run_in_context(call)
        except BaseException as raised:  # noqa: BLE001 - handed on to the task that waits
            error = as_exception(raised)
        with contextlib.suppress(RuntimeError):  # the loop may be gone by now
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="holdfast-call", daemon=True).start()
    return await outcome


def as_exception(raised: BaseException) -> Exception:
    """Return what a future can carry: code that exits, or runs out, must not end the loop."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    return RuntimeError(f"{type(raised).__name__}: {raised}")
