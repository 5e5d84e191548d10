"""Whatever happens to the bytes of a log: what is lost is reported, what is not is still read."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.log.entry import Entry
from haptera.ports.session_store import Lease
from haptera.stores.jsonl.lines import encode_append
from haptera.stores.jsonl.scan import scan_bytes
from haptera.stores.jsonl.store import JsonlStore
from haptera.testing.store_conformance.samples import new_session, note

pytestmark = pytest.mark.slow

APPENDS = ((2,), (3, 4, 5), (6,), (7, 8))
"""The `seq` of the entries of each append after the first."""


class Written:
    """A small log, and the means to write it down again with other bytes."""

    def __init__(self, root: Path, lease: Lease, entries: list[Entry]) -> None:
        self.root = root
        self.session_id = lease.session_id
        self.entries = entries
        self.path = root / "sessions" / f"{lease.session_id}.jsonl"
        self.whole = self.path.read_bytes()
        self.ends = [0]
        for line in self.whole.splitlines(keepends=True):
            self.ends.append(self.ends[-1] + len(line))

    def put(self, content: bytes) -> None:
        """Replace the log, as a new file."""
        self.path.unlink()
        self.path.write_bytes(content)

    def append_start(self, offset: int) -> int:
        """Return how many entries are in the appends that end before the byte at `offset`."""
        whole = 1 if offset >= self.ends[1] else 0
        for seqs in APPENDS:
            whole = seqs[-1] if offset >= self.ends[seqs[-1]] else whole
        return whole


@pytest.fixture
async def written(tmp_path: Path) -> Written:
    store = JsonlStore(tmp_path)
    lease = await new_session(store, name="damaged")
    for seqs in APPENDS:
        await store.log.append(lease, [note(seq, f"text {seq}") for seq in seqs])
    entries = await store.log.read(lease.session_id)
    await store.close()
    return Written(tmp_path, lease, entries)


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[JsonlStore]:
    store = JsonlStore(tmp_path)
    yield store
    await store.close()


def flipped(whole: bytes, offset: int) -> bytes:
    return whole[:offset] + bytes([whole[offset] ^ 0x55]) + whole[offset + 1 :]


def zeroed(whole: bytes, offset: int) -> bytes:
    return whole[:offset] + b"\0" + whole[offset + 1 :]


def truncated(whole: bytes, offset: int) -> bytes:
    return whole[:offset]


def zeroed_run(whole: bytes, offset: int) -> bytes:
    return whole[:offset] + b"\0" * len(whole[offset : offset + 64]) + whole[offset + 64 :]


DAMAGES = [flipped, zeroed, truncated, zeroed_run]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_damage_to_any_byte_is_reported_and_everything_before_it_is_read(
    written: Written, reader: JsonlStore, damage: Callable[[bytes, int], bytes]
) -> None:
    for offset in range(len(written.whole)):
        written.put(damage(written.whole, offset))
        found = await reader.log.read(written.session_id)
        assert [entry for entry in written.entries if entry in found] == found, offset
        assert (
            found[: written.append_start(offset)] == written.entries[: written.append_start(offset)]
        )
        if len(found) < len(written.entries):
            reports = await reader.log.inspect(written.session_id)
            assert reports, f"a silent loss at byte {offset}"
            assert all("byte " in report.place for report in reports)


@pytest.mark.parametrize("damage", [flipped, zeroed], ids=lambda damage: damage.__name__)
async def test_lines_after_a_damaged_one_are_still_read(
    written: Written, reader: JsonlStore, damage: Callable[[bytes, int], bytes]
) -> None:
    last_append = written.ends[APPENDS[-1][0] - 1]
    for offset in range(last_append):
        written.put(damage(written.whole, offset))
        found = await reader.log.read(written.session_id)
        # A line end that is gone takes nothing but the line before it along.
        assert len(found) >= len(written.entries) - 1, offset


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_damaged_log_can_be_appended_to_and_keeps_what_it_had(
    written: Written, tmp_path: Path, damage: Callable[[bytes, int], bytes]
) -> None:
    for offset in range(0, len(written.whole), 61):
        content = damage(written.whole, offset)
        written.put(content)
        (tmp_path / "quarantine" / written.path.name).unlink(missing_ok=True)
        store = JsonlStore(tmp_path)
        before = await store.log.read(written.session_id)
        lease = await store.leases.acquire(written.session_id, "next")
        following = note(before[-1].seq + 1 if before else 1)
        await store.log.append(lease, [following])
        assert await store.log.read(written.session_id) == [*before, following]
        assert len(before) == len(written.entries) or await store.log.inspect(written.session_id)
        kept = written.path.read_bytes()
        aside = tmp_path / "quarantine" / written.path.name
        assert kept.startswith((content, content + b"\n")) or aside.exists()
        await store.log.delete(written.session_id)
        await store.close()
        written.path.touch()


async def test_reading_a_torn_tail_changes_no_byte(written: Written, reader: JsonlStore) -> None:
    torn = written.whole[:-7]
    written.put(torn)
    await reader.log.read(written.session_id)
    torn_off, lost = await reader.log.inspect(written.session_id)
    assert "cut off" in torn_off.reason
    assert "had reached 8" in lost.reason
    await reader.index.browse("ana", "/work/house")
    assert written.path.read_bytes() == torn


async def test_an_append_that_was_cut_off_is_no_part_of_the_log(
    written: Written, reader: JsonlStore
) -> None:
    written.put(written.whole[: written.ends[7] + 5])
    found = await reader.log.read(written.session_id)
    assert [entry.seq for entry in found] == [1, 2, 3, 4, 5, 6]


async def test_a_torn_tail_followed_by_a_good_line_hides_nothing(
    written: Written, reader: JsonlStore
) -> None:
    torn = written.whole[: written.ends[5]] + written.whole[written.ends[5] : written.ends[5] + 40]
    written.put(torn + written.whole[written.ends[6] :])
    found = await reader.log.read(written.session_id)
    assert [entry.seq for entry in found] == [1, 2, 3, 4, 5, 7, 8]
    (report,) = await reader.log.inspect(written.session_id)
    assert str(written.ends[5]) in report.place


async def test_a_run_of_zeros_between_lines_hides_nothing(
    written: Written, reader: JsonlStore
) -> None:
    middle = written.ends[2]
    written.put(written.whole[:middle] + b"\0" * 4096 + written.whole[middle:])
    assert await reader.log.read(written.session_id) == written.entries
    (report,) = await reader.log.inspect(written.session_id)
    assert "4096 zero bytes" in report.reason


async def test_a_line_that_is_nested_too_deeply_is_damage_and_hides_nothing(
    written: Written, reader: JsonlStore
) -> None:
    deep = encode_append([(5, b"[" * 10_000 + b"]" * 10_000)], epoch=1)
    written.put(written.whole[: written.ends[4]] + deep + written.whole[written.ends[5] :])
    found = await reader.log.read(written.session_id)
    assert found == [entry for entry in written.entries if entry.seq != 5]
    assert await reader.log.inspect(written.session_id)
    assert await reader.index.rebuild() == 1
    lease = await reader.leases.acquire(written.session_id, "next")
    await reader.log.append(lease, [note(9)])


async def test_a_line_that_was_removed_is_reported(written: Written, reader: JsonlStore) -> None:
    written.put(written.whole[: written.ends[1]] + written.whole[written.ends[2] :])
    found = await reader.log.read(written.session_id)
    assert [entry.seq for entry in found] == [1, 3, 4, 5, 6, 7, 8]
    (report,) = await reader.log.inspect(written.session_id)
    assert "2 to 2 are missing" in report.reason


async def test_a_log_that_lost_its_end_behind_a_line_end_is_reported(
    written: Written, reader: JsonlStore
) -> None:
    written.put(written.whole[: written.ends[6]])
    (report,) = await reader.log.inspect(written.session_id)
    assert "had reached 8" in report.reason


async def test_a_log_that_another_program_wrote_to_is_not_appended_to(written: Written) -> None:
    store = JsonlStore(written.root)
    lease = await store.leases.acquire(written.session_id, "writer")
    with written.path.open("ab") as file:
        file.write(b"hello\n")
    with pytest.raises(StoreError) as caught:
        await store.log.append(lease, [note(9)])
    assert caught.value.code is ErrorCode.CONFLICT
    await store.close()


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\n\n", b"{}", b"\xff\xfe", b'{"crc":"'])
def test_bytes_that_are_no_log_are_reported_or_nothing(content: bytes) -> None:
    scan = scan_bytes(content)
    assert scan.lines == []
    assert scan.end <= len(content)


@pytest.mark.parametrize("content", [b"", b"garbage", b'{"epoch":3,"head":8}'])
async def test_a_damaged_lock_file_changes_nothing(
    written: Written, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "leases" / f"{written.session_id}.lock").write_bytes(content)
    store = JsonlStore(tmp_path)
    (record,) = await store.index.browse("ana", "/work/house")
    assert (record.name, record.head) == ("damaged", 8)
    lease = await store.leases.acquire(written.session_id, "next")
    await store.log.append(lease, [note(9)])
    assert await store.log.inspect(written.session_id) == ()
    await store.close()


async def test_a_record_that_became_another_is_made_again_by_a_rebuild(written: Written) -> None:
    path = written.root / "leases" / f"{written.session_id}.lock"
    path.write_bytes(path.read_bytes().replace(b'"name":"damaged"', b'"name":"another"'))
    for name in ("another", "damaged", "damaged"):
        store = JsonlStore(written.root)
        (record,) = await store.index.browse("ana", "/work/house")
        assert (record.name, record.head) == (name, 8)
        assert await store.index.rebuild() == 1
        await store.close()


async def test_a_damaged_blob_is_corrupt_and_is_healed_by_putting_it_again(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    lease = await new_session(store)
    name = await store.blobs.put(lease.session_id, b"content")
    (tmp_path / "blobs" / lease.session_id / name).write_bytes(b"c0ntent")
    with pytest.raises(StoreError) as caught:
        await store.blobs.get(lease.session_id, name)
    assert caught.value.code is ErrorCode.CORRUPT
    await store.blobs.put(lease.session_id, b"content")
    assert await store.blobs.get(lease.session_id, name) == b"content"
    await store.close()
