"""Trials of many sessions in a SQLite file: a page of them by metadata, tag and status.

The floor is a table with an index on what is asked for, and decodes the rows of the page.
"""

import contextlib
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import msgspec

from benchmarks.subjects import Setup, Trial
from haptera.model.ids import new_entry_id, new_session_id
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.ports.session_store import SessionFilter
from haptera.stores import SqliteStore

_PAGE = 50
_TENANTS = 100
_REPEATS = 20
_OWNER, _PROJECT = "ana", "bench"


async def floor(_setup: Setup, size: int) -> Trial:
    """Find a page of rows by an indexed column."""
    with contextlib.closing(apsw.Connection("")) as database:
        database.execute("CREATE TABLE session (key INTEGER PRIMARY KEY, tenant TEXT, body BLOB)")
        rows = [(f"t{number % _TENANTS}", b'{"name":"n"}') for number in range(size)]
        database.executemany("INSERT INTO session (tenant, body) VALUES (?, ?)", rows)
        database.execute("CREATE INDEX tenants ON session (tenant)")
        wanted = "SELECT body FROM session WHERE tenant = 't7' ORDER BY key DESC LIMIT 50"

        async def find() -> int:
            return len([msgspec.json.decode(body) for (body,) in database.execute(wanted)])

        return await _timed(find)


async def by_metadata(_setup: Setup, size: int) -> Trial:
    """Find a page of sessions by a field of their metadata."""
    return await _in_a_store(size, SessionFilter(metadata={"tenant": "t7"}))


async def by_tag(_setup: Setup, size: int) -> Trial:
    """Find a page of sessions by a tag that every tenth has."""
    return await _in_a_store(size, SessionFilter(tags=("x3",)))


async def last_updated(_setup: Setup, size: int) -> Trial:
    """List the last updated sessions of all."""
    return await _in_a_store(size, SessionFilter())


async def _in_a_store(size: int, matching: SessionFilter) -> Trial:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "sessions.db")
        try:
            return await _in_store(store, size, matching)
        finally:
            await store.close()


async def _in_store(store: SqliteStore, size: int, matching: SessionFilter) -> Trial:
    for number in range(size):
        session_id = new_session_id()
        lease = await store.leases.acquire(session_id, "bench")
        opened = SessionOpened(
            id=new_entry_id(),
            time=number,
            seq=1,
            session_id=session_id,
            owner=_OWNER,
            project=_PROJECT,
        )
        metadata = {"tenant": f"t{number % _TENANTS}"}
        changes = {"tags": [f"x{number % 10}"], "metadata": metadata}
        changed = SessionChanged(id=new_entry_id(), time=number, seq=2, changes=changes)
        await store.log.append(lease, [opened, changed])
        await store.leases.release(lease)

    async def find() -> int:
        return len(await store.index.browse(_OWNER, _PROJECT, matching=matching, limit=_PAGE))

    return await _timed(find)


async def _timed(find: Callable[[], Awaitable[int]]) -> Trial:
    await find()  # whatever is loaded late is loaded now
    start = time.process_time()
    counts = {await find() for _ in range(_REPEATS)}
    spent = (time.process_time() - start) / _REPEATS * 1000
    if not counts <= set(range(1, _PAGE + 1)):
        raise AssertionError(f"pages of {counts} sessions")
    return Trial(spent)
