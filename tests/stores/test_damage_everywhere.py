"""One bad byte anywhere in a store: no operation fails untyped, and everything else is read."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from haptera.model.errors import AgentError
from haptera.model.ids import SessionId, new_entry_id, new_message_id, new_query_id
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryStarted
from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart
from haptera.ports.session_store import Lease, Store
from haptera.stores.jsonl.store import JsonlStore
from haptera.stores.sqlite.store import SqliteStore
from haptera.stores.stored_records import LARGEST_ENTRY
from haptera.testing.promises import within_time_limit
from haptera.testing.store_conformance.samples import (
    OWNER,
    PROJECT,
    change,
    command,
    new_session,
    note,
    notes,
)
from tests.stores.durable_kinds import durable_kind
from tests.stores.store_factories import DURABLE, open_store

pytestmark = pytest.mark.slow

STRANGER = "bob"
DEEP = b"[" * 10_000 + b"]" * 10_000
BAD_NUMBERS = (-1, 1 << 40, 1 << 62)


class Kept(NamedTuple):
    """What a store held before it was damaged: three sessions, the first of which is damaged."""

    victim: SessionId
    neighbour: SessionId
    strange: SessionId
    entries: dict[SessionId, list[Entry]]


def _prompt(seq: int, text: str) -> QueryStarted:
    message = UserMessage(id=new_message_id(), parts=(TextPart(text=text),))
    query = new_query_id()
    return QueryStarted(id=new_entry_id(), time=seq, seq=seq, query_id=query, message=message)


async def _filled(store: Store, *, name: str, owner: str = OWNER) -> Lease:
    lease = await new_session(store, name=name, owner=owner)
    await store.log.append(lease, [_prompt(2, "some words"), change(3, title=f"on {name}")])
    await store.log.append(lease, [note(4), note(5, "x" * (LARGEST_ENTRY + 1)), note(6)])
    await store.inbox.put(lease.session_id, command("left"))
    await store.inbox.put(lease.session_id, command("done"))
    await store.log.append(lease, [], consumed=[command("done").id])
    return lease


async def fill(store: Store) -> Kept:
    """Write sessions that have something in every table or folder."""
    victim = await _filled(store, name="victim")
    neighbour = await _filled(store, name="neighbour")
    strange = await _filled(store, name="victim", owner=STRANGER)
    ids = (victim.session_id, neighbour.session_id, strange.session_id)
    await store.search.find("words", owner=OWNER, project=PROJECT)
    return Kept(*ids, {item: await store.log.read(item) for item in ids})


async def _follow_once(store: Store, session_id: SessionId) -> list[Entry]:
    async with contextlib.aclosing(store.log.follow(session_id)) as pages:
        return await within_time_limit(anext(pages), "what is there is followed")


async def use_the_damaged(store: Store, kept: Kept) -> list[Entry]:
    """Do everything with the damaged session: each may fail, but only with an error of ours."""
    victim = kept.victim
    found: list[Entry] = []
    with contextlib.suppress(AgentError):
        found = await store.log.read(victim)
        if found:
            await _follow_once(store, victim)
    for attempt in (
        store.log.inspect(victim),
        store.index.find(OWNER, PROJECT, session_id=victim),
        store.index.find(OWNER, PROJECT, name="victim"),
        store.index.browse(OWNER, PROJECT, after=victim),
        store.inbox.pending(victim),
        store.leases.acquire(victim, "next"),
    ):
        with contextlib.suppress(AgentError):
            await attempt
    with contextlib.suppress(AgentError):
        lease = await store.leases.acquire(victim, "next")
        head = (await store.log.read(victim) or [note(0)])[-1].seq
        await store.log.append(lease, [change(head + 1, title="later")])
        await store.leases.release(lease)
    return found


async def check_the_others(store: Store, kept: Kept) -> None:
    """Do everything with the sessions that are whole: it all works."""
    for session_id, owner in ((kept.neighbour, OWNER), (kept.strange, STRANGER)):
        assert await store.log.read(session_id) == kept.entries[session_id]
        assert await _follow_once(store, session_id) == kept.entries[session_id]
        assert await store.log.inspect(session_id) == ()
        assert [item.id for item in await store.inbox.pending(session_id)] == ["left"]
        record = await store.index.find(owner, PROJECT, session_id=session_id)
        assert record is not None
        assert record in await store.index.browse(owner, PROJECT)
        assert record == await store.index.find(owner, PROJECT, name=record.name)
        hits = await store.search.find("words", owner=owner, project=PROJECT)
        assert (session_id, 2) in {(hit.session_id, hit.seq) for hit in hits}


async def check_damage(store: Store, kept: Kept) -> list[Entry]:
    """Use a damaged store, make its index anew, and use it again."""
    await check_the_others(store, kept)
    found = await use_the_damaged(store, kept)
    assert await store.index.rebuild() >= 2
    await check_the_others(store, kept)
    await use_the_damaged(store, kept)
    lease = await store.leases.acquire(kept.neighbour, "next")
    await store.leases.release(lease)
    return found


def _columns(connection: apsw.Connection) -> Iterator[tuple[str, str, str]]:
    tables = connection.execute(
        "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
        " AND strict ORDER BY name"
    ).fetchall()
    for (table,) in tables:
        for column, kind in connection.execute(
            "SELECT name, type FROM pragma_table_xinfo(?) WHERE NOT hidden",
            (table,),
        ).fetchall():
            yield str(table), str(column), str(kind)


def _damages(value: object) -> Iterator[tuple[str, object]]:
    """Give bad values, each with the SQL that stores it."""
    if isinstance(value, int | float):
        yield from (("?", number) for number in BAD_NUMBERS)
        return
    text = value.encode() if isinstance(value, str) else value
    assert isinstance(text, bytes)
    stored = "CAST(? AS TEXT)" if isinstance(value, str) else "?"
    for place in sorted({0, len(text) // 2}):
        yield stored, text[:place] + b"\xff" + text[place + 1 :]
    yield stored, DEEP
    yield stored, b'{"blob":"x","more":%s}' % DEEP


OWN_ROWS = {
    "session": "key = 1",
    "entry": "place = (1 << 32 | 3)",
    "command": "session = 1",
    "blob": "session = 1",
    "quarantine": "session = 1",
}


def _each_damage(whole: Path, damaged: Path) -> Iterator[str]:
    """Damage one value of one row in a copy of the database, one after the other."""
    with contextlib.closing(apsw.Connection(str(whole))) as reading:
        todo = [
            (table, column, row, stored, bad)
            for table, column, _ in _columns(reading)
            for row, value in reading.execute(
                f"SELECT rowid, {column} FROM {table}"  # noqa: S608 - names from the schema
                f" WHERE {column} IS NOT NULL AND {OWN_ROWS.get(table, '1')} LIMIT 1"
            ).fetchall()
            for stored, bad in _damages(value)
        ]
    for table, column, row, stored, bad in todo:
        for companion in ("", "-wal", "-shm"):
            Path(f"{damaged}{companion}").unlink(missing_ok=True)
        shutil.copy(whole, damaged)
        with contextlib.closing(apsw.Connection(str(damaged))) as writing:
            writing.execute("PRAGMA foreign_keys = 0")
            with contextlib.suppress(apsw.ConstraintError):
                writing.execute(
                    f"UPDATE {table} SET {column} = {stored} WHERE rowid = ?",  # noqa: S608 - names from the schema
                    (bad, row),
                )
        yield f"{table}.{column} of row {row}: {bad!r:.60}"


async def _sqlite_sample(path: Path) -> Kept:
    store = SqliteStore(path)
    kept = await fill(store)
    await store.close()
    # One entry at the end is damaged and set aside, so that the quarantine has something to say.
    with contextlib.closing(apsw.Connection(str(path))) as writing:
        writing.execute("UPDATE entry SET body = x'ff' WHERE place = (1 << 32 | 6)")
    store = SqliteStore(path)
    await store.leases.release(await store.leases.acquire(kept.victim, "next"))
    # A holder that is gone leaves its name in the lease.
    await store.leases.acquire(kept.victim, "gone")
    kept.entries[kept.victim].pop()
    await store.close()
    with contextlib.closing(apsw.Connection(str(path))) as writing:
        writing.execute(
            "UPDATE session SET lease_holder = 'gone', lease_process = '1:2:3:4' WHERE key = 1"
        )
        writing.pragma("journal_mode", "delete")
    return kept


async def test_a_bad_value_in_any_column_of_a_database_harms_its_own_row_only(
    tmp_path: Path,
) -> None:
    kept = await _sqlite_sample(tmp_path / "whole.db")
    damaged = tmp_path / "damaged.db"
    tables = set()
    for damage in _each_damage(tmp_path / "whole.db", damaged):
        tables.add(damage.partition(".")[0])
        store = SqliteStore(damaged)
        try:
            found = await check_damage(store, kept)
        except Exception as error:
            raise AssertionError(damage) from error
        finally:
            await store.close()
        whole = kept.entries[kept.victim]
        assert [entry for entry in whole if entry in found] == found, damage
        if damage.startswith(("entry.", "blob.")):
            assert len(found) >= len(whole) - 1, damage
    assert {"session", "entry", "command", "blob", "quarantine", "last_epoch"} <= tables


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE session SET name = CAST(x'ff' AS TEXT)",
        "UPDATE session SET title = CAST(x'ff' AS TEXT)",
        "UPDATE session SET model = CAST(x'ff' AS TEXT)",
        "UPDATE session SET id = CAST(x'ff' AS TEXT)",
    ],
)
async def test_a_session_whose_row_is_damaged_is_listed_as_its_log_says(
    tmp_path: Path, damage: str
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    lease = await new_session(store, name="victim")
    await store.log.append(lease, [change(2, title="a title", settings={"model": "some/model"})])
    before = await store.index.browse(OWNER, PROJECT)
    with contextlib.closing(apsw.Connection(str(tmp_path / "store.db"))) as writing:
        writing.execute(damage)
    assert await store.index.browse(OWNER, PROJECT) == before
    assert await store.index.rebuild() == 1
    assert await store.index.find(OWNER, PROJECT, name="victim") == before[0]
    assert await store.index.find(OWNER, PROJECT, session_id=lease.session_id) == before[0]
    await store.close()


@pytest.mark.parametrize("number", [-1, 1 << 40, 1 << 62])
async def test_a_session_whose_row_has_an_impossible_number_is_found_again(
    tmp_path: Path, number: int
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    lease = await new_session(store, name="lost")
    before = await store.index.browse(OWNER, PROJECT)
    with contextlib.closing(apsw.Connection(str(tmp_path / "store.db"))) as writing:
        writing.execute("UPDATE session SET key = ?", (number,))
    assert await store.index.rebuild() == 1
    assert await store.index.browse(OWNER, PROJECT) == before
    assert len(await store.log.read(lease.session_id)) == 1
    other = await new_session(store, name="new")
    assert len(await store.log.read(other.session_id)) == 1
    await store.close()


async def test_a_damaged_name_that_was_given_again_does_not_keep_the_index_from_being_rebuilt(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    first = await new_session(store, name="same")
    with contextlib.closing(apsw.Connection(str(tmp_path / "store.db"))) as writing:
        writing.execute("UPDATE session SET name = CAST(x'ff' AS TEXT)")
    second = await new_session(store, name="same")
    assert await store.index.rebuild() == 2
    found = await store.index.find(OWNER, PROJECT, name="same")
    assert found is not None
    assert found.id in {first.session_id, second.session_id}
    for lease in (first, second):
        assert await store.index.find(OWNER, PROJECT, session_id=lease.session_id)
    await store.close()


async def test_a_command_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    for kind in DURABLE:
        store = open_store(kind, tmp_path)
        lease = await new_session(store)
        await store.inbox.put(lease.session_id, command("first"))
        await store.inbox.put(lease.session_id, command("second"))
        durable_kind(kind).damage_command(tmp_path, lease.session_id, b"first")
        (report,) = await store.log.inspect(lease.session_id)
        assert "command" in report.reason
        assert [item.id for item in await store.inbox.pending(lease.session_id)] == ["second"]
        await store.close()


@pytest.fixture
async def folder(tmp_path: Path) -> tuple[Path, Kept]:
    root = tmp_path / "whole"
    store = JsonlStore(root)
    kept = await fill(store)
    await store.close()
    # A tail that is cut off is set aside, so that the quarantine has something to say.
    log = root / "sessions" / f"{kept.victim}.jsonl"
    log.write_bytes(log.read_bytes()[:-3])
    store = JsonlStore(root)
    await store.leases.release(await store.leases.acquire(kept.victim, "next"))
    kept.entries[kept.victim][:] = await store.log.read(kept.victim)
    await store.close()
    return root, kept


def _own_files(root: Path, kept: Kept) -> list[Path]:
    shared = [path for path in root.iterdir() if path.is_file()]
    return [*shared, *(path for path in sorted(root.glob(f"*/{kept.victim}*")) if path.is_file())]


async def test_a_bad_byte_in_any_file_of_a_folder_harms_its_own_session_only(
    tmp_path: Path, folder: tuple[Path, Kept]
) -> None:
    root, kept = folder
    blobs = sorted((root / "blobs" / kept.victim).iterdir())
    seen = set()
    for path in (*_own_files(root, kept), *blobs):
        content = path.read_bytes()
        for offset in range(0, len(content), max(1, len(content) // 10)):
            damaged = tmp_path / "damaged"
            shutil.rmtree(damaged, ignore_errors=True)
            shutil.copytree(root, damaged)
            (damaged / path.relative_to(root)).write_bytes(
                content[:offset] + b"\xff" + content[offset + 1 :]
            )
            store = JsonlStore(damaged)
            try:
                found = await check_damage(store, kept)
            except Exception as error:
                raise AssertionError(f"{path.relative_to(root)}, byte {offset}") from error
            finally:
                await store.close()
            seen.add(path.relative_to(root).parts[0])
            if path.parent.name != "sessions":
                assert len(found) >= len(kept.entries[kept.victim]) - 1
    assert {"sessions", "leases", "inbox", "blobs", "quarantine"} <= seen


@pytest.mark.parametrize("kind", DURABLE)
async def test_damage_longer_than_a_page_ends_neither_a_limited_read_nor_a_follower(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    for first in range(2, 1002, 100):
        await store.log.append(lease, notes(first, first + 99))
    await store.close()
    durable_kind(kind).damage_entries(tmp_path, lease.session_id, range(10, 901))
    good = [*range(1, 10), *range(901, 1002)]
    store = open_store(kind, tmp_path)
    page = await store.log.read(lease.session_id, after=4, limit=10)
    assert [entry.seq for entry in page] == [*range(5, 10), *range(901, 906)]
    seen: list[int] = []
    async with contextlib.aclosing(store.log.follow(lease.session_id)) as pages:
        while len(seen) < len(good):
            seen += [
                entry.seq for entry in await within_time_limit(anext(pages), "what is after damage")
            ]
    assert seen == good
    await store.close()
