"""Whatever happens to the bytes of a database: a typed error or a report, never a silent loss."""

import shutil
from pathlib import Path

import pytest

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.log.entry import Entry
from haptera.ports.session_store import Lease
from haptera.stores.sqlite.store import SqliteStore
from haptera.testing.store_conformance.samples import new_session, note, notes

pytestmark = pytest.mark.slow

SAMPLES = 150


async def small_database(path: Path) -> tuple[Lease, list[Entry]]:
    """Write a database whose entries fill several pages."""
    store = SqliteStore(path)
    lease = await new_session(store, name="damaged")
    for first in range(2, 62, 3):
        await store.log.append(lease, notes(first, first + 2))
    entries = await store.log.read(lease.session_id)
    await store.close()
    return lease, entries


async def after_rebuilding(store: SqliteStore, lease: Lease, entries: list[Entry]) -> str:
    """Find a session again whose way was lost: the row or the index that leads to its entries."""
    assert await store.index.rebuild() == 1
    assert await store.log.read(lease.session_id) == entries
    return "found again"


async def outcome(path: Path, lease: Lease, entries: list[Entry]) -> str:
    """Open a damaged database, use it, and say how that went."""
    store = SqliteStore(path)
    try:
        found = await store.log.read(lease.session_id)
        reports = await store.log.inspect(lease.session_id)
        assert all(entry in entries for entry in found)
        if found != entries and not reports:
            return await after_rebuilding(store, lease, entries)
        again = await store.leases.acquire(lease.session_id, "next")
        await store.log.append(again, [note(found[-1].seq + 1 if found else 1)])
    except StoreError as error:
        return str(error.code)
    finally:
        await store.close()
    return "read whole" if found == entries else "reported"


async def test_a_flipped_byte_is_an_error_or_a_report_or_harmless(tmp_path: Path) -> None:
    lease, entries = await small_database(tmp_path / "whole.db")
    whole = (tmp_path / "whole.db").read_bytes()
    damaged = tmp_path / "damaged.db"
    seen = set()
    for offset in range(0, len(whole), len(whole) // SAMPLES):
        # Every other one makes a byte that is no text.
        bits = 0x80 if offset % 2 else 0x55
        flipped = whole[:offset] + bytes([whole[offset] ^ bits]) + whole[offset + 1 :]
        for companion in ("-wal", "-shm"):
            Path(f"{damaged}{companion}").unlink(missing_ok=True)
        damaged.write_bytes(flipped)
        seen.add(await outcome(damaged, lease, entries))
    assert {"read whole", "reported"} <= seen
    errors = {ErrorCode.CORRUPT, ErrorCode.VERSION_UNSUPPORTED, ErrorCode.UNAVAILABLE}
    # Where a row's number is damaged, reading ends before rows that are still in the way.
    errors.add(ErrorCode.CONFLICT)
    assert seen <= {"read whole", "reported", "found again", *map(str, errors)}


async def test_a_changed_word_inside_an_entry_is_reported_and_the_rest_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "changed.db"
    lease, entries = await small_database(path)
    path.write_bytes(path.read_bytes().replace(b'"text":"note 30"', b'"text":"nope 30"'))
    store = SqliteStore(path)
    found = await store.log.read(lease.session_id)
    assert found == [entry for entry in entries if entry.seq != 30]
    (report,) = await store.log.inspect(lease.session_id)
    assert "checksum" in report.reason
    assert str(path) in report.place
    await store.close()


async def test_a_log_whose_last_entry_is_damaged_goes_on_after_the_one_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "changed.db"
    lease, entries = await small_database(path)
    path.write_bytes(path.read_bytes().replace(b'"text":"note 61"', b'"text":"nope 61"'))
    store = SqliteStore(path)
    again = await store.leases.acquire(lease.session_id, "next")
    following = note(61)
    await store.log.append(again, [following])
    assert await store.log.read(lease.session_id) == [*entries[:-1], following]
    (report,) = await store.log.inspect(lease.session_id)
    assert "checksum" in report.reason
    await store.close()


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"x" * 5000]
)
async def test_a_file_that_is_no_database_is_corrupt_and_is_not_touched(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "other.txt"
    path.write_bytes(content)
    store = SqliteStore(path)
    with pytest.raises(StoreError) as caught:
        await store.index.browse("ana", "p")
    assert caught.value.code is ErrorCode.CORRUPT
    assert str(path) in caught.value.message
    await store.close()
    assert path.read_bytes() == content


async def test_a_database_cut_in_half_is_corrupt_or_reported(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    lease, entries = await small_database(whole)
    size = whole.stat().st_size
    for cut in range(4096, size, 4096):
        path = tmp_path / f"cut-{cut}.db"
        shutil.copy(whole, path)
        with path.open("r+b") as file:
            file.truncate(cut)
        assert await outcome(path, lease, entries) != "read whole"
