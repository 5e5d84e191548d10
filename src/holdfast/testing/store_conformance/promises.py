"""How a check opens stores."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from holdfast.ports.session_store import Store

OpenStore: TypeAlias = Callable[[], Store]
"""Opens one more handle on the same content."""


@contextlib.asynccontextmanager
async def opened(open_store: OpenStore) -> AsyncIterator[Store]:
    """Open a handle and close it again."""
    store = open_store()
    try:
        yield store
    finally:
        await store.close()
