"""OwnedTasks: the one place where tasks are started, so that each has an owner who waits for it."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import TypeVar

from holdfast.ports.logs import scrubbed_logger

ValueT = TypeVar("ValueT")

_logger = scrubbed_logger(__name__)


class OwnedTasks:
    """Starts tasks, and cancels those that are left in the end.

    Unlike a task group it may be opened in one task and closed in another, because a session lives
    as long as its user wants, not as long as one block of code.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    def start(
        self,
        work: Coroutine[object, object, ValueT],
        *,
        name: str,
        context: Context | None = None,
    ) -> asyncio.Task[ValueT]:
        """Start a task that belongs to this owner; without a context, in a copy of the caller's."""
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel(self, *, within: float) -> None:
        """Cancel every task and wait until they have ended, for so many seconds at most.

        What runs in a task may be the user's and refuse to end; the caller goes on then.
        """
        tasks = [task for task in self._tasks if task.cancel()]  # False if it has ended already
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=within)
            for task in left:
                _logger.warning("%s does not let itself be cancelled", task.get_name())
