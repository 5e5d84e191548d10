"""A SQLite store finds what a session started by an index: not one step more with more sessions."""

from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from haptera.model.ids import SessionId, new_session_id
from haptera.ports.session_store import SessionFilter, SessionRecord
from haptera.stores.sqlite import migrations
from haptera.stores.sqlite.rows import decode_record
from haptera.stores.sqlite.store import SqliteStore
from haptera.testing.store_conformance.samples import (
    OWNER,
    PROJECT,
    change,
    new_session,
    note,
    opening,
)


class Steps:
    """Counts the steps that SQLite makes on all connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(apsw, "connection_hooks", [self._watch])

    def _watch(self, connection: apsw.Connection) -> None:
        connection.set_progress_handler(self._step, 1)

    def _step(self) -> bool:
        self.count += 1
        return False


async def add_child(store: SqliteStore, starter: SessionId) -> SessionId:
    """Make a session that another one started."""
    child = new_session_id()
    lease = await store.leases.acquire(child, "holder")
    await store.log.append(lease, [replace(opening(child), spawned_by=starter)])
    return child


async def test_what_a_session_started_is_found_without_a_look_at_other_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)

    async def steps_with(sessions: int) -> int:
        store = SqliteStore(tmp_path / f"{sessions}.db")
        starter = (await new_session(store)).session_id
        child = await add_child(store, starter)
        for _ in range(sessions):
            await new_session(store)
        matching = SessionFilter(spawned_by=starter)
        await store.index.browse(OWNER, None, matching=matching)
        before = steps.count
        (found,) = await store.index.browse(OWNER, None, matching=matching)
        counted = steps.count - before
        assert found.id == child
        await store.close()
        return counted

    assert await steps_with(2) == await steps_with(60)


async def test_sessions_of_a_time_are_found_and_others_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    leases = [await new_session(store) for _ in range(5)]
    await store.log.append(leases[2], [note(2, time=50)])
    decoded: list[object] = []

    def counted(connection: apsw.Connection, row: tuple[Any, ...]) -> SessionRecord | None:
        decoded.append(row)
        return decode_record(connection, row)

    monkeypatch.setattr("haptera.stores.sqlite.index.decode_record", counted)
    for matching in (SessionFilter(updated_after=49), SessionFilter(updated_before=51)):
        decoded.clear()
        found = await store.index.browse(OWNER, None, matching=matching)
        assert len(found) == len(decoded) == (1 if matching.updated_after else 5)
    assert not await store.index.browse(OWNER, None, matching=SessionFilter(updated_after=50))
    await store.close()


async def test_children_of_earlier_versions_are_found(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    starter = (await new_session(store)).session_id
    child = await add_child(store, starter)
    damaged = await new_session(store)
    tagged = await new_session(store)
    changed = change(2, tags=["old"], metadata={"tenant": "x"}, archived=5)
    await store.log.append(tagged, [changed])
    await store.close()
    connection = apsw.Connection(str(path))
    connection.execute("DROP TABLE label")
    for column in ("phase", "status", "archived"):
        connection.execute(f"ALTER TABLE session DROP COLUMN {column}")
    # As the version before the column left it; the details of one session are damaged.
    connection.execute("DROP INDEX session_spawned_by")
    connection.execute("ALTER TABLE session DROP COLUMN spawned_by")
    connection.execute("UPDATE session SET details = x'7bff' WHERE id = ?", (damaged.session_id,))
    number = migrations.MIGRATIONS.index(migrations._add_spawned_by)
    connection.pragma("user_version", number)
    connection.close()
    store = SqliteStore(path)
    matching = SessionFilter(spawned_by=starter)
    (found,) = await store.index.browse(OWNER, PROJECT, matching=matching)
    assert found.id == child
    matching = SessionFilter(tags=("old",), metadata={"tenant": "x"}, archived=True)
    (found,) = await store.index.browse(OWNER, PROJECT, matching=matching)
    assert found.id == tagged.session_id
    assert await store.index.count(OWNER, PROJECT, matching=matching) == 1
    await store.close()


async def test_sessions_are_found_by_label_without_a_look_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)

    async def steps_with(sessions: int) -> int:
        store = SqliteStore(tmp_path / f"{sessions}.db")
        wanted = await new_session(store)
        await store.log.append(wanted, [change(2, tags=["t"], metadata={"tenant": "x"})])
        for _ in range(sessions):
            other = await new_session(store)
            await store.log.append(other, [change(2, tags=["o"], metadata={"tenant": "y"})])
        matching = SessionFilter(tags=("t",), metadata={"tenant": "x"})
        await store.index.browse(OWNER, None, matching=matching)
        before = steps.count
        (found,) = await store.index.browse(OWNER, None, matching=matching)
        assert await store.index.count(OWNER, None, matching=matching) == 1
        counted = steps.count - before
        assert found.id == wanted.session_id
        await store.close()
        return counted

    assert await steps_with(2) == await steps_with(60)


async def test_forks_are_found_without_decoding_the_other_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    parent = (await new_session(store)).session_id
    forks = []
    for origin in (parent, parent, *(new_session_id() for _ in range(50))):
        fork = new_session_id()
        lease = await store.leases.acquire(fork, "holder")
        await store.log.append(lease, [replace(opening(fork), parent=origin)])
        forks.append(fork)
    connection = apsw.Connection(str(tmp_path / "sessions.db"))
    # Its parent cannot be read: it is derived from the log.
    connection.execute("UPDATE session SET parent = CAST(x'ff' AS TEXT) WHERE id = ?", (forks[0],))
    connection.close()
    decoded: list[Any] = []

    def counted(connection: apsw.Connection, row: tuple[Any, ...]) -> SessionRecord | None:
        decoded.append(row)
        return decode_record(connection, row)

    monkeypatch.setattr("haptera.stores.sqlite.index.decode_record", counted)
    found = await store.index.browse(OWNER, None, matching=SessionFilter(parent=parent))
    assert {each.id for each in found} == set(forks[:2])
    assert len(decoded) == 2
    await store.close()
