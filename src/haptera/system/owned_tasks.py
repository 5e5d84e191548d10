"""OwnedTasks: starts the tasks that are in no task group; each has an owner that waits for it."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextvars import Context
from types import TracebackType
from typing import Any, Self, TypeVar

from haptera.system.logs import scrubbed_logger

ValueT = TypeVar("ValueT")

_logger = scrubbed_logger(__name__)


class OwnedTasks:
    """Starts tasks, and cancels those that are left in the end.

    Unlike a task group it may be opened in one task and closed in another, because a session lives
    as long as its user wants, not as long as one block of code. As a context manager it cancels
    what is left at the end of its block, and waits for it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    def __iter__(self) -> Iterator[asyncio.Task[object]]:
        # A copy, because a task that ends leaves the set.
        return iter(tuple(self._tasks))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.cancel(within=None)

    def start(
        self,
        work: Coroutine[object, object, ValueT],
        *,
        name: str,
        context: Context | None = None,
    ) -> asyncio.Task[ValueT]:
        """Start a task that belongs to this owner; without a context, in a copy of the caller's."""
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        # Also because the event loop has weak references only: a task that nothing else holds may
        # be collected before it ends.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel(self, *, within: float | None) -> None:
        """Cancel every task and wait until they have ended; with seconds, for no longer than those.

        What runs in a task may be the user's and refuse to end; the caller goes on then.
        """
        tasks = [task for task in self._tasks if task.cancel()]  # False if it has ended already
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=within)
            for task in left:
                _logger.warning("%s does not let itself be cancelled", task.get_name())


async def until_done(task: "asyncio.Task[object]") -> bool:
    """Wait for the end of a task, however often the caller is cancelled; whether it was.

    For what must be over before the caller continues. It raises the cancellation again itself.
    """
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
    return is_cancelled


LEAVING_SECONDS = 10.0
"""How long a caller that was cancelled waits until what it leaves is settled."""


async def to_its_end(work: Coroutine[Any, Any, None], *, name: str, within: float) -> None:
    """Wait for the end of something, also when the caller is cancelled again and again meanwhile.

    For what gives something back or settles it. A cancelled task is cancelled once by asyncio, and
    at every wait by the cancel scopes of `anyio`; either way it is over when this raises. A caller
    that was cancelled waits no longer than `within` seconds; the work goes on then.
    """
    task = OwnedTasks().start(work, name=name)
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    until = 0.0
    while not task.done() and (cancelled is None or loop.time() < until):
        try:
            await asyncio.wait({task}, timeout=None if cancelled is None else until - loop.time())
        except asyncio.CancelledError as error:
            if cancelled is None:
                until = loop.time() + within
            cancelled = error  # the last one: a scope knows its own by what it says
    if cancelled is not None:
        raise cancelled
    task.result()
