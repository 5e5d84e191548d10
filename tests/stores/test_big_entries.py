"""Entries that are too big for a log: kept beside it, and whole again when they are read."""

import json
from pathlib import Path

import apsw
import msgspec
import pytest

from haptera.model.ids import SessionId, new_session_id
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Store
from haptera.stores.stored_records import LARGEST_ENTRY
from haptera.testing.store_conformance.samples import change, command, note, opening
from tests.stores.durable_kinds import durable_kind
from tests.stores.store_factories import DURABLE, STORE_FACTORIES, open_store

_BIG = LARGEST_ENTRY + 1


async def _write(store: Store, entries: list[Entry], session_id: SessionId) -> None:
    lease = await store.leases.acquire(session_id, "writer")
    await store.log.append(lease, entries)
    await store.leases.release(lease)


def _entries(session_id: SessionId) -> list[Entry]:
    return [opening(session_id, name="big"), note(2, "é" * _BIG), note(3), note(4, "y" * _BIG)]


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_a_big_entry_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    place, session_id = STORE_FACTORIES[kind](tmp_path), new_session_id()
    store = place()
    entries = _entries(session_id)
    await _write(store, entries, session_id)
    await store.close()
    again = place()
    assert await again.log.read(session_id) == entries
    assert await again.log.read(session_id, after=3) == entries[3:]
    assert await again.log.inspect(session_id) == ()
    await again.close()


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_a_log_with_big_entries_goes_on(kind: str, tmp_path: Path) -> None:
    place, session_id = STORE_FACTORIES[kind](tmp_path), new_session_id()
    entries = _entries(session_id)
    store = place()
    await _write(store, entries, session_id)
    await store.close()
    again = place()
    await _write(again, [*entries, note(5, "z" * _BIG)], session_id)
    assert [entry.seq for entry in await again.log.read(session_id)] == [1, 2, 3, 4, 5]
    await again.close()


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_a_session_whose_first_entry_is_big_is_found(kind: str, tmp_path: Path) -> None:
    place, session_id = STORE_FACTORIES[kind](tmp_path), new_session_id()
    store = place()
    first = msgspec.structs.replace(opening(session_id, name="big"), title="x" * _BIG)
    await _write(store, [first, change(2, title="small again")], session_id)
    await store.close()
    again = place()
    found = await again.index.find(first.owner, first.project, name="big")
    assert found is not None
    assert (found.id, found.title) == (session_id, "small again")
    assert await again.index.rebuild() == 1
    found = await again.index.find(first.owner, first.project, name="big")
    assert found is not None
    assert found.head == 2
    await again.close()


async def test_the_lines_of_a_file_stay_small(tmp_path: Path) -> None:
    session_id = new_session_id()
    store = open_store("jsonl", tmp_path)
    await _write(store, _entries(session_id), session_id)
    await store.close()
    log = tmp_path / "sessions" / "sessions" / f"{session_id}.jsonl"
    lines = log.read_bytes().splitlines()
    assert max(map(len, lines)) < 1000
    pointer = json.loads(lines[1])["entry"]
    content = tmp_path / "sessions" / "blobs" / session_id / pointer["blob"]
    assert content.stat().st_size == pointer["bytes"] > LARGEST_ENTRY
    assert content.stat().st_mode & 0o777 == 0o600


async def test_the_rows_of_a_database_stay_small(tmp_path: Path) -> None:
    session_id = new_session_id()
    store = open_store("sqlite", tmp_path)
    await _write(store, _entries(session_id), session_id)
    await store.close()
    connection = apsw.Connection(str(tmp_path / "store" / "sessions.db"))
    longest = connection.execute("SELECT max(length(body)) FROM entry").get
    assert longest < 1000
    assert connection.execute("SELECT count(*) FROM blob").get == 2
    connection.close()


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("kind", DURABLE)
async def test_a_lost_payload_is_reported_and_hides_nothing_else(
    kind: str, gone: bool, tmp_path: Path
) -> None:
    session_id = new_session_id()
    store = open_store(kind, tmp_path)
    await _write(store, _entries(session_id), session_id)
    await store.close()
    durable_kind(kind).damage_payloads(tmp_path, session_id, gone=gone)
    again = open_store(kind, tmp_path)
    assert [entry.seq for entry in await again.log.read(session_id)] == [1, 3]
    assert len(await again.log.inspect(session_id)) == 2
    await again.close()


@pytest.mark.slow
@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("kind", DURABLE)
async def test_a_log_whose_end_lost_its_payload_goes_on_and_keeps_what_follows(
    kind: str, gone: bool, tmp_path: Path
) -> None:
    session_id = new_session_id()
    store = open_store(kind, tmp_path)
    lease = await store.leases.acquire(session_id, "writer")
    await store.log.append(lease, [opening(session_id, name="big")])
    await store.inbox.put(session_id, command("c1"))
    await store.log.append(
        lease, [note(2), note(3, "y" * _BIG), note(4, "z" * _BIG)], consumed=[CommandId("c1")]
    )
    await store.close()
    durable_kind(kind).damage_payloads(tmp_path, session_id, gone=gone)
    for _ in range(2):
        again = open_store(kind, tmp_path)
        assert await again.inbox.pending(session_id) == ()
        before = await again.log.read(session_id)
        lease = await again.leases.acquire(session_id, "writer")
        assert await again.log.read(session_id) == before
        more = note(before[-1].seq + 1)
        await again.log.append(lease, [more])
        await again.close()
        again = open_store(kind, tmp_path)
        assert await again.log.read(session_id) == [*before, more]
        assert await again.log.inspect(session_id) != ()
        assert await again.inbox.pending(session_id) == ()
        await again.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_deleted_session_leaves_no_payload(kind: str, tmp_path: Path) -> None:
    session_id = new_session_id()
    store = open_store(kind, tmp_path)
    await _write(store, _entries(session_id), session_id)
    assert durable_kind(kind).count_payloads(tmp_path) == 2
    await store.log.delete(session_id)
    await store.close()
    assert durable_kind(kind).count_payloads(tmp_path) == 0
