"""The thread of a writer: what is asked of it is settled, also after the thread or work failed."""

import asyncio
import threading
from pathlib import Path

import pytest

from holdfast.stores.sqlite.database import Database, LockTimeouts
from holdfast.stores.sqlite.group_writer import GroupWriter
from holdfast.vocabulary.errors import ErrorCode, StoreError

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
