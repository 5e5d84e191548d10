"""A jsonl store finds names and notes without reading the files of all sessions."""

import asyncio
import fcntl
import json
import subprocess
from pathlib import Path

import pytest

from haptera.model.errors import StoreError
from haptera.model.ids import new_entry_id
from haptera.model.log.notes import ContextNoted
from haptera.ports.session_store import Lease, SessionFilter
from haptera.stores.jsonl.lock_file import LeaseState, read_lease_state
from haptera.stores.jsonl.store import JsonlStore
from haptera.testing.store_conformance.samples import OWNER, PROJECT, change, new_session, notes
from tests.architecture.source_tree import ROOT
from tests.forked_processes import ForkedProcess
from tests.stores.workers import worker_environment

OWNED = (OWNER, PROJECT)


async def rename(store: JsonlStore, lease: Lease, name: str | None, *, seq: int) -> None:
    await store.log.append(lease, [change(seq, name=name)])


async def found(store: JsonlStore, name: str) -> str | None:
    record = await store.index.find(*OWNED, name=name)
    return None if record is None else record.id


def noted(seq: int) -> ContextNoted:
    return ContextNoted(id=new_entry_id(), time=1, seq=seq, text="Use tabs.")


async def sessions_with_notes(store: JsonlStore) -> list[str]:
    records = await store.index.browse(*OWNED, matching=SessionFilter(noted=True))
    return [record.id for record in records]


def files_used_by_new_sessions(folder: Path, sessions: int) -> list[dict[str, int]]:
    """Answer one prompt in each of so many new sessions; return what each opened and synced."""
    command = ("tests.stores.beginning_process", str(folder), str(sessions))
    with ForkedProcess(
        *command, cwd=ROOT, env=worker_environment(), stdout=subprocess.PIPE
    ) as process:
        output, _ = process.communicate()
    counts: list[dict[str, int]] = json.loads(output)
    return counts


def found_elsewhere(folder: Path, name: str) -> tuple[str | None, list[str]]:
    """Look a name up in another process; return what it found and the logs that it opened."""
    command = ("tests.stores.finding_process", str(folder), name, *OWNED)
    with ForkedProcess(
        *command, cwd=ROOT, env=worker_environment(), stdout=subprocess.PIPE
    ) as process:
        output, _ = process.communicate()
    session_id, read = json.loads(output)
    return session_id, read


@pytest.mark.slow
async def test_another_process_opens_no_log_whose_lock_file_tells_its_name(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    leases = [await new_session(store, name=f"s{number}") for number in range(5)]
    await rename(store, leases[1], "renamed", seq=2)
    ids = [lease.session_id for lease in leases]
    assert await asyncio.to_thread(found_elsewhere, tmp_path, "s3") == (ids[3], [])
    assert await asyncio.to_thread(found_elsewhere, tmp_path, "renamed") == (ids[1], [])
    assert await asyncio.to_thread(found_elsewhere, tmp_path, "s1") == (None, [])
    await store.close()


async def test_a_second_listing_reads_only_what_was_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlStore(tmp_path)
    leases = [await new_session(store, name=f"name {number}") for number in range(9)]
    read: list[str] = []

    def counted(path: Path | str) -> LeaseState:
        read.append(Path(path).stem)
        return read_lease_state(path)

    monkeypatch.setattr("haptera.stores.jsonl.reader.read_lease_state", counted)
    first = await store.index.browse(*OWNED)
    read.clear()
    assert await store.index.browse(*OWNED) == first
    assert read == []
    await rename(store, leases[4], "another", seq=2)
    await store.log.delete(leases[5].session_id)
    names = {record.name for record in await store.index.browse(*OWNED)}
    assert names == {"another", *(f"name {number}" for number in range(9) if number not in {4, 5})}
    assert read == [leases[4].session_id]
    await store.close()


async def test_a_name_is_taken_given_back_and_taken_again_between_two_stores(
    tmp_path: Path,
) -> None:
    one, two = JsonlStore(tmp_path), JsonlStore(tmp_path)
    first, second = await new_session(one, name="x"), await new_session(two)
    with pytest.raises(StoreError, match="taken"):
        await rename(two, second, "x", seq=2)
    await rename(one, first, None, seq=2)
    assert await found(two, "x") is None
    await rename(two, second, "x", seq=2)
    assert await found(one, "x") == second.session_id
    with pytest.raises(StoreError, match="taken"):
        await rename(one, first, "x", seq=3)
    await two.log.delete(second.session_id)
    assert await found(one, "x") is None
    await rename(one, first, "x", seq=3)
    assert await found(two, "x") == first.session_id
    await one.close()
    await two.close()


@pytest.mark.parametrize("name", ["index.json", "lookup.jsonl"])
async def test_what_an_earlier_version_kept_of_the_logs_is_not_believed_and_goes(
    name: str, tmp_path: Path
) -> None:
    """A process of that version that finds none looks at the logs, so no name is taken twice."""
    store = JsonlStore(tmp_path)
    lease = await new_session(store, name="old")
    for use in ("a name", "a note", "a deletion"):
        (tmp_path / name).write_bytes(b'1d2d75a5 ["ana","/work/house","name wrong","x"]\n')
        assert await found(store, "old") == lease.session_id
        assert await found(store, "wrong") is None
        assert (tmp_path / name).exists()
        if use == "a name":
            await new_session(store, name="new")
        elif use == "a note":
            await store.log.append(lease, [noted(2)])
        else:
            await store.log.delete((await new_session(store)).session_id)
        assert not (tmp_path / name).exists()
    with pytest.raises(StoreError, match="taken"):
        await new_session(store, name="old")
    await store.close()


@pytest.mark.slow
async def test_names_are_found_without_the_lock_files(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    leases = [await new_session(store, name=f"s{number}") for number in range(5)]
    await rename(store, leases[1], "renamed", seq=2)
    ids = [lease.session_id for lease in leases]
    await store.close()
    for number, lock_file in enumerate((tmp_path / "leases").iterdir()):
        # As a power cut may leave it, or a copy of the logs alone.
        lock_file.write_bytes(b"") if number % 2 else lock_file.unlink()
    logs = sorted(f"{each}.jsonl" for each in ids)
    assert await asyncio.to_thread(found_elsewhere, tmp_path, "s3") == (ids[3], logs)
    assert await JsonlStore(tmp_path).index.rebuild() == 5
    assert await asyncio.to_thread(found_elsewhere, tmp_path, "renamed") == (ids[1], [])
    assert await asyncio.to_thread(found_elsewhere, tmp_path, "s1") == (None, [])


async def test_a_session_that_was_deleted_leaves_its_name_to_another(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    keeper = await new_session(store, name="kept")
    gone = await new_session(store, name="wanted")
    await store.log.delete(gone.session_id)
    assert await found(store, "wanted") is None
    again = await new_session(store, name="wanted")
    assert await found(store, "wanted") == again.session_id
    assert await found(store, "kept") == keeper.session_id
    await store.close()


async def test_a_log_that_was_copied_into_the_folder_is_found_by_its_name(tmp_path: Path) -> None:
    other = JsonlStore(tmp_path / "backup")
    lease = await new_session(other, name="saved")
    await other.log.append(lease, [noted(2)])
    await other.close()
    store = JsonlStore(tmp_path / "live")
    await new_session(store, name="own")
    name = f"{lease.session_id}.jsonl"
    (tmp_path / "backup/sessions" / name).rename(tmp_path / "live/sessions" / name)
    assert await found(store, "saved") == lease.session_id
    assert await sessions_with_notes(store) == [lease.session_id]
    with pytest.raises(StoreError, match="taken"):
        await new_session(store, name="saved")
    await store.close()


@pytest.mark.slow
async def test_a_query_in_a_new_session_uses_the_same_few_files_however_many_sessions_there_are(
    tmp_path: Path,
) -> None:
    """It looks once for the notes of its project, and opens no file of another session."""
    counts = await asyncio.to_thread(files_used_by_new_sessions, tmp_path, 12)
    for of_one in counts:
        # An append opens the log once and syncs it once; how many there are is a matter of time.
        of_one["open sessions/*"] -= of_one.pop("fdatasync sessions/*")
    of_each = {
        "open leases": 1,
        "open leases/*": 3,
        "fsync leases": 1,
        "open sessions": 1,
        "open sessions/*": 0,
        "fsync sessions": 1,
    }
    assert counts == [of_each] * 11


async def test_a_session_without_a_name_begins_while_another_process_holds_the_lock_of_names(
    tmp_path: Path,
) -> None:
    store = JsonlStore(tmp_path)
    with (tmp_path / "index.lock").open("w") as taking:
        fcntl.flock(taking, fcntl.LOCK_EX)
        lease = await new_session(store)
        await store.log.append(lease, notes(2, 3))
    await store.close()
