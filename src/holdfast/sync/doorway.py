"""Doorway: one agent's way into the background loop, which it cannot take through a fork."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from holdfast.sync.portal import portal
from holdfast.vocabulary.errors import ErrorCode, SessionError

ValueT = TypeVar("ValueT")


class Doorway:
    """Shared by an agent, its sessions and its streams.

    It belongs to the process in which it is used first: connections, stores and tasks that were
    made through it stay there. In a child that was forked later every call raises, and closing
    does nothing, because it is the parent's to close. An agent that nobody has used yet can be
    used in the child.
    """

    def __init__(self) -> None:
        self._generation: int | None = None

    def call(self, work: Coroutine[Any, Any, ValueT]) -> ValueT:
        """Run a coroutine to its end.

        Raises:
            SessionError: CLOSED in a child that was forked since the first call.

        """
        if not self._is_here():
            work.close()
            raise SessionError(
                ErrorCode.CLOSED,
                "this was in use before the process forked; make an agent in the child",
            )
        return portal.call(work)

    def iterate(self, values: AsyncGenerator[ValueT, None]) -> Iterator[ValueT]:
        """Iterate over an async generator from here; leaving early closes it."""
        try:
            while True:
                try:
                    yield self.call(_next(values))
                except StopAsyncIteration:
                    return
        finally:
            self.close(values.aclose)

    def close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close something, unless it is the parent's."""
        if self._is_here():
            portal.call(close())

    def _is_here(self) -> bool:
        if self._generation is None:
            self._generation = portal.generation
        return self._generation == portal.generation


async def _next(values: AsyncGenerator[ValueT, None]) -> ValueT:
    return await anext(values)
