"""What stores leave on the disk: modes, names, no second copy of any text."""

import asyncio
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from haptera.access.assembly.store_strings import make_store
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import SessionId
from haptera.stores.jsonl.store import JsonlStore
from haptera.stores.sqlite.store import SqliteStore
from haptera.testing.store_conformance.samples import command, new_session, note
from tests.stores.store_factories import DURABLE, open_store, store_string


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let everything be readable to all that does not take care of itself."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("kind", DURABLE)
async def test_files_are_for_their_owner_only(kind: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    store = open_store(kind, tmp_path)
    lease = await new_session(store, name="private")
    await store.inbox.put(lease.session_id, command("c1"))
    await store.blobs.put(lease.session_id, b"content")
    for path in tmp_path.rglob("*"):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
    await store.close()


@pytest.mark.parametrize("session_id", ["../../etc/passwd", "a/b", "", "x\0y", "CON", "a" * 4096])
async def test_an_id_that_is_no_session_id_never_becomes_a_file_name(
    session_id: str, tmp_path: Path
) -> None:
    store = JsonlStore(tmp_path / "here")
    wrong = SessionId(session_id)
    for attempt in (
        store.leases.acquire(wrong, "me"),
        store.log.read(wrong),
        store.log.delete(wrong),
        store.inbox.put(wrong, command("c1")),
        store.blobs.put(wrong, b""),
    ):
        with pytest.raises(ConfigError) as caught:
            await attempt
        assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert await store.index.find("ana", "p", session_id=wrong) is None
    await store.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "store")
    lease = await new_session(store)
    await store.leases.release(lease)
    log = tmp_path / "store" / "sessions" / f"{lease.session_id}.jsonl"
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="cannot be used"):
        await store.log.read(lease.session_id)
    await store.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_text_is_stored_once(kind: str, tmp_path: Path) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    text = 0
    for seq in range(2, 202):
        words = f"entry {seq} has something to say " * 60
        text += len(words)
        await store.log.append(lease, [note(seq, words)])
    await store.index.browse("ana", "/work/house")
    await store.close()
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert stored < 1.5 * text


async def test_a_session_without_entries_leaves_no_log(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    lease = await store.leases.acquire((await new_session(store)).session_id, "conformance")
    empty = await store.leases.acquire(SessionId("01a1e130-a634-7000-8274-93bdcf3e76a9"), "me")
    await store.leases.release(empty)
    await store.close()
    logs = [path.stem for path in (tmp_path / "sessions").iterdir()]
    assert logs == [lease.session_id]


async def test_sqlite_leaves_one_file_when_it_is_closed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    await new_session(store)
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["sessions.db"]


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_store_string_names_a_place(kind: str, tmp_path: Path) -> None:
    for expected in ([], ["named"]):
        store = make_store(store_string(kind, tmp_path), owner="ana")
        records = await store.index.browse("ana", "/work/house")
        assert [record.name for record in records] == expected
        if not expected:
            await new_session(store, name="named")
        await store.close()


@pytest.mark.parametrize("location", ["jsonl", "jsonl:", "sqlite:", "files:x", ""])
def test_a_string_that_names_no_store_is_refused(location: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_store(location, owner="ana")
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("sqlit:chat.db", "did you mean 'sqlite'? Use one of memory, "),
        ("postgres://db/chats", "did you mean 'postgresql'?"),
        ("chat.db", "did you mean 'sqlite:chat.db'?"),
        ("files:x", "'files' is not a store; use one of memory, "),
        ("sqlite:", "write sqlite:FILE"),
        ("memory:", "'memory' takes no location: write 'memory', not 'memory:'"),
        ("memory:x", "'memory' takes no location: write 'memory', not 'memory:x'"),
    ],
)
def test_a_string_that_names_no_store_is_told_the_one_that_may_be_meant(
    location: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make_store(location, owner="ana")
    assert told in caught.value.message


@pytest.mark.parametrize("location", ["sqlite:///chat.db", "jsonl://chat.db", "sqlite://"])
def test_a_url_is_no_place_of_a_file(location: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_store(location, owner="ana")
    assert f"{location!r} looks like a URL" in caught.value.message


async def test_a_process_that_only_reads_a_lock_file_blocks_no_acquire(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    lease = await new_session(store)
    await store.leases.release(lease)
    with (tmp_path / "leases" / f"{lease.session_id}.lock").open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_EX)
        asyncio.get_running_loop().call_later(0.02, fcntl.flock, looked_at, fcntl.LOCK_UN)
        again = await store.leases.acquire(lease.session_id, "conformance")
    assert again.epoch > lease.epoch
    await store.close()
