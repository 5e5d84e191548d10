"""A file that a store calls durable is synced, and so is every folder on the way to it."""

import os
from pathlib import Path

import pytest

from haptera.stores.jsonl.log_file import LogFile
from haptera.system.atomic_files import create_folder, replace_file
from haptera.system.private_files import open_or_create, remove_durably
from haptera.testing.store_conformance.samples import command, new_session, note, notes
from tests.stores.store_factories import open_store
from tests.synced_disk import SyncedDisk


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SyncedDisk:
    return SyncedDisk(tmp_path, monkeypatch)


def test_a_new_file_and_the_folders_above_it_keep_their_names(
    disk: SyncedDisk, tmp_path: Path
) -> None:
    path = tmp_path / "one" / "two" / "file"
    os.close(open_or_create(path, os.O_RDWR))
    assert disk.keeps_name(path)
    beside = path.with_name("beside")
    os.close(open_or_create(beside, os.O_RDWR))
    assert disk.keeps_name(beside)
    create_folder(tmp_path / "three" / "four")
    assert disk.keeps_name(tmp_path / "three" / "four")


def test_a_file_that_replaced_another_keeps_its_name_and_content(
    disk: SyncedDisk, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    for content in (b"one", b"two, and longer"):
        replace_file(path, content)
        assert disk.keeps(path)
    replace_file(path, b"three", is_durable=False)
    assert path.read_bytes() == b"three"
    assert not disk.keeps(path)
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_file_that_was_removed_does_not_come_back(disk: SyncedDisk, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    os.close(open_or_create(path, os.O_RDWR))
    assert not disk.has_forgotten(path)
    remove_durably(path)
    assert disk.has_forgotten(path)


def test_a_log_that_took_the_place_of_another_keeps_its_name(
    disk: SyncedDisk, tmp_path: Path
) -> None:
    """So is a session taken over whose holder stands still with the lock of the log."""
    path = tmp_path / "folder" / "session.jsonl"
    os.close(open_or_create(path, os.O_RDWR))
    path.write_bytes(b"before\n")
    with LogFile(path).copy(path.with_suffix(".new")) as descriptor:
        os.write(descriptor, b"after\n")
    assert path.read_bytes() == b"before\nafter\n"
    assert disk.keeps(path)


async def test_what_a_store_of_files_called_stored_survives_a_power_cut(
    disk: SyncedDisk, tmp_path: Path
) -> None:
    store, root = open_store("jsonl", tmp_path), tmp_path / "sessions"
    lease = await new_session(store, name="durable")
    log = root / "sessions" / f"{lease.session_id}.jsonl"
    assert disk.keeps(log)
    await store.log.append(lease, notes(2, 9))
    assert disk.keeps(log)
    await store.inbox.put(lease.session_id, command("c1"))
    assert disk.keeps(root / "inbox" / f"{lease.session_id}.jsonl")
    name = await store.blobs.put(lease.session_id, b"content")
    assert disk.keeps(root / "blobs" / lease.session_id / name)
    await store.log.append(lease, [note(10, "x" * 300_000)])
    blobs = list((root / "blobs" / lease.session_id).iterdir())
    assert len(blobs) == 2
    assert all(disk.keeps(blob) for blob in blobs)
    assert disk.keeps(log)
    await store.close()


async def test_what_is_cut_off_a_log_is_kept_aside_before_and_survives_a_power_cut(
    disk: SyncedDisk, tmp_path: Path
) -> None:
    store, root = open_store("jsonl", tmp_path), tmp_path / "sessions"
    lease = await new_session(store)
    await store.log.append(lease, notes(2, 3))
    await store.close()
    log = root / "sessions" / f"{lease.session_id}.jsonl"
    log.write_bytes(log.read_bytes()[:-5])
    store = open_store("jsonl", tmp_path)
    await store.leases.acquire(lease.session_id, "next")
    assert disk.keeps(root / "quarantine" / f"{lease.session_id}.jsonl")
    assert disk.keeps(log)
    await store.close()


async def test_a_deleted_session_does_not_come_back(disk: SyncedDisk, tmp_path: Path) -> None:
    store, root = open_store("jsonl", tmp_path), tmp_path / "sessions"
    lease = await new_session(store)
    await store.inbox.put(lease.session_id, command("c1"))
    await store.blobs.put(lease.session_id, b"content")
    await store.log.delete(lease.session_id)
    for folder, ending in (("sessions", ".jsonl"), ("inbox", ".jsonl"), ("leases", ".lock")):
        assert disk.has_forgotten(root / folder / f"{lease.session_id}{ending}")
    assert disk.has_forgotten(root / "blobs" / lease.session_id)
    await store.close()


async def test_a_new_database_keeps_its_name(disk: SyncedDisk, tmp_path: Path) -> None:
    store = open_store("sqlite", tmp_path)
    await new_session(store)
    # SQLite syncs the content of its files itself.
    assert disk.keeps_name(tmp_path / "store" / "sessions.db")
    await store.close()
