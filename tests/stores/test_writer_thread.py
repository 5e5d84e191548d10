"""The thread of a writer: what is asked of it is settled, also after the thread or work failed."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from haptera.model.errors import ErrorCode, StoreError
from haptera.stores.postgresql.connections import make_connections
from haptera.stores.sqlite.database import Database, LockTimeouts
from haptera.stores.sqlite.group_writer import GroupWriter
from tests.stores.postgresql.server import PostgresServer

MORE_THAN_THERE_IS = 2**45


async def test_a_writer_that_got_no_thread_writes_when_there_is_one(tmp_path: Path) -> None:
    writer = GroupWriter(Database(tmp_path / "sessions.db", timeouts=LockTimeouts()))
    usual = threading.stack_size(MORE_THAN_THERE_IS)
    try:
        with pytest.raises(StoreError, match="no thread") as caught:
            await writer.write(lambda _: 1)
    finally:
        threading.stack_size(usual)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    async with asyncio.timeout(20):
        assert await writer.write(lambda _: 2) == 2
    await writer.close()


async def test_work_that_fails_unforeseen_leaves_what_waits_behind_it_alone(
    postgres: PostgresServer, emptied_database: str
) -> None:
    connections = make_connections(postgres.url(emptied_database), owner=None)
    writer, all_wait = connections.writer, threading.Event()

    def fail(_: Any) -> None:
        raise LookupError("not foreseen")

    first = writer.submit(lambda _: all_wait.wait())
    failing, last = writer.submit(fail), writer.submit(lambda _: 3)
    all_wait.set()
    async with asyncio.timeout(20):
        assert await asyncio.wrap_future(first)
        with pytest.raises(LookupError):
            await asyncio.wrap_future(failing)
        assert await asyncio.wrap_future(last) == 3
    await connections.close()
