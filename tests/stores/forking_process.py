"""A process that forks while it holds a session; started by tests. Says `ok` when all is as it was.

It runs on its own, because a test's process has threads, and those do not survive a fork.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

from haptera.model.errors import ErrorCode, SessionError
from haptera.testing.store_conformance.samples import new_session, note
from tests.stores.store_factories import open_store

_TIME_LIMIT_SECONDS = 20


def in_a_fork(work: Callable[[], Coroutine[None, None, None]]) -> int:
    """Fork, do something there in a new event loop, and return how that went: 0 is well."""
    child = os.fork()
    if child == 0:
        signal.alarm(_TIME_LIMIT_SECONDS)
        try:
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - the outermost frame of this process
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextlib.contextmanager
def a_fork_that_lives_on() -> Iterator[None]:
    """Have a fork that does nothing, with everything open that is open here."""
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


async def hold(kind: str, folder: Path) -> None:
    """Fork twice while a session is held: one fork uses the store, the other only lives on."""
    store = open_store(kind, folder)
    lease = await new_session(store)

    async def use() -> None:
        for attempt in (
            store.log.append(lease, [note(2)]),
            store.log.read(lease.session_id),
            store.leases.acquire(lease.session_id, "fork"),
            store.close(),
        ):
            try:
                await attempt
            except SessionError as error:
                assert error.code is ErrorCode.CLOSED, error
            else:
                raise AssertionError("a fork may not use its parent's store")

    assert in_a_fork(use) == 0
    await store.log.append(lease, [note(2)])
    with a_fork_that_lives_on():
        await store.leases.release(lease)
        other = open_store(kind, folder)
        await other.leases.acquire(lease.session_id, "another")
        await other.close()
    await store.close()
    sys.stdout.write("ok\n")


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], Path(sys.argv[2])))
