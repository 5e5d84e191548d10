"""A file that is deleted or replaced while a store has it open: no write to it is called stored."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from haptera import Agent
from haptera.model.errors import AgentError, ErrorCode
from haptera.ports.session_store import Store
from haptera.stores.jsonl.store import JsonlStore
from haptera.testing import ScriptedProvider, says
from haptera.testing.promises import within_time_limit
from haptera.testing.store_conformance.samples import new_session, note, seqs_of
from tests.stores.durable_kinds import durable_kind
from tests.stores.store_factories import DURABLE, open_store


def deleted(path: Path) -> None:
    """Delete the file alone."""
    path.unlink()


def moved(path: Path) -> None:
    """Give the file another name."""
    path.rename(path.with_suffix(".old"))


def replaced(path: Path) -> None:
    """Put a copy in its place, as a backup that is restored."""
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.rename(path)


def folder_deleted(path: Path) -> None:
    """Delete the folder with everything in it."""
    shutil.rmtree(path.parent)


def folder_moved(path: Path) -> None:
    """Give the folder another name."""
    path.parent.rename(path.parent.with_name("elsewhere"))


LOSSES = [deleted, moved, replaced, folder_deleted, folder_moved]


async def _code_of(attempt: object) -> ErrorCode | None:
    try:
        await attempt  # type: ignore[misc]
    except AgentError as error:
        return error.code
    return None


@pytest.mark.parametrize("kind", DURABLE)
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
async def test_an_append_to_a_file_that_is_not_in_its_place_is_unavailable(
    kind: str, lose: Callable[[Path], None], tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    await store.log.append(lease, [note(2)])
    lose(durable_kind(kind).log(tmp_path, lease.session_id))
    assert await _code_of(store.log.append(lease, [note(3)])) is ErrorCode.UNAVAILABLE
    # What is at the place of the store is the store: nothing of the lost append is in it.
    if lose is not replaced or not durable_kind(kind).copy_serves_lost_append:
        assert 3 not in await seqs_of(store, lease.session_id)
    again = await _code_of(store.log.append(lease, [note(3)]))
    assert again in {ErrorCode.UNAVAILABLE, ErrorCode.FENCED, ErrorCode.CONFLICT}
    # A new session is kept as ever.
    other = await new_session(store)
    await store.close()
    store = open_store(kind, tmp_path)
    assert await seqs_of(store, other.session_id) == [1]
    await store.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_file_that_is_deleted_while_it_is_written_is_noticed(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    log = durable_kind(kind).log(tmp_path, lease.session_id)
    attempt = durable_kind(kind).append_while_deleted(store, lease, [note(2)], log=log)
    assert await _code_of(attempt) is ErrorCode.UNAVAILABLE
    await store.close()


async def test_a_write_ahead_log_that_is_deleted_is_noticed(tmp_path: Path) -> None:
    store = open_store("sqlite", tmp_path)
    lease = await new_session(store)
    (tmp_path / "store" / "sessions.db-wal").unlink()
    assert await _code_of(store.log.append(lease, [note(2)])) is ErrorCode.UNAVAILABLE
    await store.close()


async def test_a_lease_whose_file_is_deleted_is_lost(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    lease = await new_session(store)
    (tmp_path / "leases" / f"{lease.session_id}.lock").unlink()
    assert await _code_of(store.log.append(lease, [note(2)])) is ErrorCode.FENCED
    await store.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_who_follows_a_session_sees_what_is_written_after_the_file_was_replaced(
    kind: str, tmp_path: Path
) -> None:
    store, other = open_store(kind, tmp_path), open_store(kind, tmp_path)
    lease = await new_session(store)
    log = durable_kind(kind).log(tmp_path, lease.session_id)
    async with contextlib.aclosing(other.log.follow(lease.session_id)) as pages:
        assert [entry.seq for entry in await anext(pages)] == [1]
        following = asyncio.ensure_future(anext(pages))
        await store.leases.release(lease)
        await store.close()
        replaced(log)
        store = open_store(kind, tmp_path)
        again = await store.leases.acquire(lease.session_id, "next")
        await store.log.append(again, [note(2)])
        page = await within_time_limit(following, "what is in the new file is followed")
        assert [entry.seq for entry in page] == [2]
    await store.close()
    await other.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_query_whose_store_was_deleted_does_not_end_as_complete(
    kind: str, tmp_path: Path
) -> None:
    store: Store = open_store(kind, tmp_path)
    provider = ScriptedProvider([says("One."), says("Two.")])
    async with Agent("scripted/m", store=store, providers=[provider]) as agent:
        session = agent.session("chat")
        await session.chat("Hello")
        shutil.rmtree(durable_kind(kind).root(tmp_path))
        with pytest.raises(AgentError) as caught:
            await session.chat("And now?")
        assert caught.value.code is durable_kind(kind).code_when_deleted
    await store.close()
