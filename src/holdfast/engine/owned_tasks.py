"""OwnedTasks: the one place where tasks are started, so that each has an owner who waits for it."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

ValueT = TypeVar("ValueT")


class OwnedTasks:
    """Starts tasks and can wait for all of them, or cancel them.

    Unlike a task group it may be opened in one task and closed in another, because a session lives
    as long as its user wants, not as long as one block of code.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[object, object, ValueT], *, name: str) -> asyncio.Task[ValueT]:
        """Start a task that belongs to this owner."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        """Wait until every task has ended, however it did."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def cancel(self) -> None:
        """Cancel every task and wait until they have ended."""
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait()
