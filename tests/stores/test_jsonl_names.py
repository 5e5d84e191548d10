"""A jsonl store finds names and notes without reading the files of all sessions."""

import asyncio
import errno
import fcntl
import gc
import json
import subprocess
from pathlib import Path

import pytest

from haptera.model.errors import StoreError
from haptera.model.ids import SessionId, new_entry_id
from haptera.model.log.notes import ContextNoted
from haptera.ports.session_store import Lease, SessionFilter
from haptera.stores.jsonl import lookup
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
@pytest.mark.slow
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


@pytest.mark.slow
async def test_another_process_opens_only_the_log_that_has_the_name(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    leases = [await new_session(store, name=f"s{number}") for number in range(5)]
    await rename(store, leases[1], "renamed", seq=2)
    ids = [lease.session_id for lease in leases]
    for lock_file in (tmp_path / "leases").iterdir():
        lock_file.write_bytes(b"")  # as a power cut may leave it
    for name, bearer in (("s3", ids[3]), ("renamed", ids[1])):
        read = [f"{bearer}.jsonl"]
        assert await asyncio.to_thread(found_elsewhere, tmp_path, name) == (bearer, read)
    assert (await asyncio.to_thread(found_elsewhere, tmp_path, "s1"))[0] is None
    assert await asyncio.to_thread(found_elsewhere, tmp_path, "unheard-of") == (None, [])
    await store.close()


async def test_a_second_listing_reads_only_what_was_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlStore(tmp_path)
    leases = [await new_session(store, name=f"name {number}") for number in range(9)]
    read: list[Path] = []

    def counted(path: Path) -> LeaseState:
        read.append(path)
        return read_lease_state(path)

    monkeypatch.setattr("haptera.stores.jsonl.summaries.read_lease_state", counted)
    first = await store.index.browse(*OWNED)
    read.clear()
    assert await store.index.browse(*OWNED) == first
    assert read == []
    await rename(store, leases[4], "another", seq=2)
    await store.log.delete(leases[5].session_id)
    names = {record.name for record in await store.index.browse(*OWNED)}
    assert names == {"another", *(f"name {number}" for number in range(9) if number not in {4, 5})}
    assert [path.stem for path in read] == [leases[4].session_id]
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


async def test_names_of_a_folder_from_before_are_found_and_stay_taken(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    old = await new_session(store, name="old")
    await store.close()
    (tmp_path / "lookup.jsonl").unlink()
    store = JsonlStore(tmp_path)
    assert await found(store, "old") == old.session_id
    assert not (tmp_path / "lookup.jsonl").exists()
    with pytest.raises(StoreError, match="taken"):
        await new_session(store, name="old")
    new = await new_session(store, name="new")
    assert await found(store, "old") == old.session_id
    assert await found(store, "new") == new.session_id
    assert (await asyncio.to_thread(found_elsewhere, tmp_path, "old"))[0] == old.session_id
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 1, 20])
async def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path, left: int) -> None:
    store = JsonlStore(tmp_path)
    first = await new_session(store, name="first")
    await store.close()
    with (tmp_path / "lookup.jsonl").open("ab") as file:
        file.write(b'00000000 ["ana","","name torn","x"]\n'[:left])
    store = JsonlStore(tmp_path)
    second = await new_session(store, name="second")
    for name, lease in (("first", first), ("second", second)):
        assert (await asyncio.to_thread(found_elsewhere, tmp_path, name))[0] == lease.session_id
    await store.close()


async def test_a_line_whose_append_never_came_takes_no_name(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    keeper = await new_session(store, name="kept")
    lookup = tmp_path / "lookup.jsonl"
    before = lookup.read_bytes()
    gone = await new_session(store, name="wanted")
    await store.log.delete(gone.session_id)
    assert lookup.read_bytes() != before
    assert await found(store, "wanted") is None
    again = await new_session(store, name="wanted")
    assert await found(store, "wanted") == again.session_id
    assert await found(store, "kept") == keeper.session_id
    await store.close()


async def test_a_log_that_was_copied_into_the_folder_is_found_by_its_name(tmp_path: Path) -> None:
    other = JsonlStore(tmp_path / "backup")
    lease = await new_session(other, name="saved")
    await other.close()
    store = JsonlStore(tmp_path / "live")
    await new_session(store, name="own")
    name = f"{lease.session_id}.jsonl"
    (tmp_path / "backup/sessions" / name).rename(tmp_path / "live/sessions" / name)
    assert await found(store, "saved") == lease.session_id
    with pytest.raises(StoreError, match="taken"):
        await new_session(store, name="saved")
    await store.close()


async def test_a_damaged_file_of_names_is_made_again_by_a_rebuild(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    lease = await new_session(store, name="named")
    await store.log.append(lease, [noted(2)])
    await store.close()
    (tmp_path / "index.json").unlink()
    (tmp_path / "lookup.jsonl").write_bytes(b"\xff\x00 damaged\n" * 3)
    store = JsonlStore(tmp_path)
    assert await found(store, "named") == lease.session_id
    assert await sessions_with_notes(store) == []
    await store.index.rebuild()
    assert await sessions_with_notes(store) == [lease.session_id]
    assert (await asyncio.to_thread(found_elsewhere, tmp_path, "named"))[0] == lease.session_id
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
        "open sessions/*": 3,
        "fsync sessions": 1,
        "fsync sessions/*": 1,
        "open lookup.jsonl": 1,
    }
    assert counts == [of_each] * 11


async def test_a_folder_without_the_file_of_names_gets_all_of_it_when_a_session_begins(
    tmp_path: Path,
) -> None:
    store = JsonlStore(tmp_path)
    named, with_note = await new_session(store, name="old"), await new_session(store)
    await store.log.append(with_note, [noted(2)])
    await store.close()
    (tmp_path / "lookup.jsonl").unlink()
    store = JsonlStore(tmp_path)
    assert await sessions_with_notes(store) == [with_note.session_id]
    assert not (tmp_path / "lookup.jsonl").exists()
    await new_session(store)
    assert (tmp_path / "lookup.jsonl").exists()
    assert await sessions_with_notes(store) == [with_note.session_id]
    assert await asyncio.to_thread(found_elsewhere, tmp_path, "old") == (named.session_id, [])
    await store.close()


async def test_a_session_without_a_name_begins_while_another_process_holds_the_lock_of_names(
    tmp_path: Path,
) -> None:
    store = JsonlStore(tmp_path)
    with (tmp_path / "index.lock").open("w") as taking:
        fcntl.flock(taking, fcntl.LOCK_EX)
        await new_session(store)
        assert not (tmp_path / "lookup.jsonl").exists()
    await new_session(store)
    assert (tmp_path / "lookup.jsonl").exists()
    await store.close()


async def test_a_session_begins_also_where_the_file_of_names_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(lookup, "replace_file", refuse)
    store = JsonlStore(tmp_path)
    lease = await new_session(store)
    await store.log.append(lease, notes(2, 3))
    assert not (tmp_path / "lookup.jsonl").exists()
    assert await sessions_with_notes(store) == []
    await store.close()


async def test_names_are_looked_up_while_other_threads_read_new_logs(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    session_id = (await new_session(store, name="a")).session_id
    summaries = store.index._resources.summaries
    summaries.of(session_id)
    known = summaries._load()
    known |= {SessionId(f"other-{number}"): known[session_id] for number in range(5_000)}

    def read_another(phase: str, _: object) -> None:
        # As another thread does that runs while the garbage collector does.
        known[SessionId(f"{phase}-{len(known)}")] = known[session_id]

    thresholds = gc.get_threshold()
    gc.callbacks.append(read_another)
    gc.set_threshold(10)
    try:
        assert session_id in summaries.named("a")
        assert await found(store, "a") == session_id
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(read_another)
        await store.close()
