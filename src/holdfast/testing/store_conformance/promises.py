"""How a check opens stores and states what it expects."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias, TypeVar

from holdfast.ports.session_store import Store
from holdfast.vocabulary.errors import AgentError, ErrorCode

OpenStore: TypeAlias = Callable[[], Store]
"""Opens one more handle on the same content."""

T = TypeVar("T")

_PATIENCE_SECONDS = 10.0


class PromiseBrokenError(AssertionError):
    """A store did not keep a promise of its ports."""


def require(condition: object, promise: str) -> None:
    """Raise unless the promise was kept."""
    if not condition:
        raise PromiseBrokenError(promise)


def require_same(found: object, expected: object, promise: str) -> None:
    """Raise, showing both, unless they are equal."""
    if found != expected:
        raise PromiseBrokenError(f"{promise}: expected {expected!r}, found {found!r}")


async def require_error(code: ErrorCode, attempt: Awaitable[object], promise: str) -> AgentError:
    """Raise unless the attempt fails with this code; returns the error."""
    try:
        outcome = await attempt
    except AgentError as error:
        require_same(error.code, code, promise)
        return error
    raise PromiseBrokenError(f"{promise}: expected {code}, but it returned {outcome!r}")


async def within_patience(attempt: Awaitable[T], promise: str) -> T:
    """Raise when something does not end in time."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await attempt
    except TimeoutError:
        raise PromiseBrokenError(f"{promise}: nothing happened") from None


@contextlib.asynccontextmanager
async def opened(open_store: OpenStore) -> AsyncIterator[Store]:
    """Open a handle and close it again."""
    store = open_store()
    try:
        yield store
    finally:
        await store.close()
