"""A database takes each migration once, also when an older version made it."""

import asyncio
from pathlib import Path

import apsw
import pytest

from haptera.model.errors import ErrorCode, StoreError
from haptera.stores.sqlite import migrations
from haptera.stores.sqlite.database import is_safe_version
from haptera.stores.sqlite.migrations import MIGRATIONS, migrate
from haptera.stores.sqlite.store import SqliteStore
from haptera.testing.store_conformance.samples import OWNER, PROJECT, change, new_session


def first_schema_without_the_native_session_id(path: Path) -> None:
    """Make a database as a version would have that did not know the column."""
    connection = apsw.Connection(str(path))
    old = migrations._TABLES.replace("  native_session_id TEXT,\n", "")
    assert old != migrations._TABLES
    connection.execute(old)
    connection.pragma("user_version", 1)
    connection.close()


def steps_of(path: Path) -> list[int]:
    connection = apsw.Connection(str(path))
    steps = [int(str(row[0])) for row in connection.execute("SELECT number FROM migration")]
    connection.close()
    return steps


async def test_a_database_without_the_native_session_id_gets_it_and_can_clear_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "old.db"
    first_schema_without_the_native_session_id(path)
    store = SqliteStore(path)
    lease = await new_session(store, name="native")
    session_id = lease.session_id

    async def native() -> str | None:
        record = await store.index.find(OWNER, PROJECT, session_id=session_id)
        assert record is not None
        assert record.name == "native"
        return record.native_session_id

    assert await native() is None
    await store.log.append(lease, [change(2, native_session_id="cli-1")])
    assert await native() == "cli-1"
    await store.log.append(lease, [change(3, title="another field")])
    assert await native() == "cli-1"
    await store.log.append(lease, [change(4, native_session_id=None)])
    assert await native() is None
    await store.close()
    assert steps_of(path) == list(range(2, len(MIGRATIONS) + 1))


async def test_every_step_is_taken_once_however_often_the_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    for _ in range(3):
        store = SqliteStore(path)
        await store.index.browse(OWNER, PROJECT)
        await store.close()
    assert steps_of(path) == list(range(1, len(MIGRATIONS) + 1))


async def test_a_connection_to_an_up_to_date_file_asks_for_its_schema_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    await new_session(store, name="first")
    await store.close()
    asked: list[int] = []

    def note_identities(connection: apsw.Connection) -> None:
        asked.append(0)
        place = len(asked) - 1

        def note(_: object, statement: str, __: object) -> bool:
            asked[place] += statement == migrations._IDENTITY
            return True

        connection.set_exec_trace(note)

    monkeypatch.setattr(apsw, "connection_hooks", [note_identities])
    store = SqliteStore(path)
    assert await store.index.find(OWNER, PROJECT, name="first") is not None
    await new_session(store, name="second")
    await store.close()
    assert asked == [1, 1]


async def test_many_who_open_a_new_file_at_once_take_each_step_once(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    stores = [SqliteStore(path) for _ in range(8)]
    await asyncio.gather(*(store.index.browse(OWNER, PROJECT) for store in stores))
    await asyncio.gather(*(store.close() for store in stores))
    assert steps_of(path) == list(range(1, len(MIGRATIONS) + 1))


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    connection = apsw.Connection(str(path))
    migrate(connection, path)
    connection.pragma("user_version", len(MIGRATIONS) + 1)
    connection.close()
    store = SqliteStore(path)
    for attempt in (store.index.browse(OWNER, PROJECT), new_session(store)):
        with pytest.raises(StoreError) as caught:
            await attempt
        assert caught.value.code is ErrorCode.VERSION_UNSUPPORTED
        assert str(len(MIGRATIONS) + 1) in caught.value.message
    await store.close()


@pytest.mark.parametrize("application", [7, 0])
async def test_a_database_of_another_application_is_refused_and_left_alone(
    application: int, tmp_path: Path
) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", application)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    store = SqliteStore(path)
    for attempt in (store.index.browse(OWNER, PROJECT), new_session(store)):
        with pytest.raises(StoreError) as caught:
            await attempt
        assert caught.value.code is ErrorCode.VERSION_UNSUPPORTED
    await store.close()
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["other.db"]


def test_a_step_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    first_schema_without_the_native_session_id(path)
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE text_index (in_the_way)")
    with pytest.raises(apsw.SQLError):
        migrate(connection, path)
    columns = {row[1] for row in connection.execute("PRAGMA table_info(session)")}
    assert "native_session_id" not in columns
    assert connection.pragma("user_version") == 1
    connection.close()


@pytest.mark.parametrize(
    ("version", "is_safe"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 9), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 0), False),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_only_sqlite_versions_that_keep_commits_are_accepted(
    version: tuple[int, int, int], is_safe: bool
) -> None:
    assert is_safe_version(version) is is_safe


async def test_an_unsafe_sqlite_is_refused_before_a_file_is_made(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db", sqlite_version="3.51.2")
    with pytest.raises(StoreError) as caught:
        await new_session(store)
    assert caught.value.code is ErrorCode.VERSION_UNSUPPORTED
    assert "3.51.2" in caught.value.message
    await store.close()
    assert list(tmp_path.iterdir()) == []
