"""The store in memory finds by look-ups: not one step more with more sessions."""

import sys
from types import FrameType
from typing import Any, Self

import pytest
from msgspec import convert
from msgspec.structs import replace

from haptera.kernel.session.notes import project_notes
from haptera.model.errors import StoreError
from haptera.model.ids import new_session_id
from haptera.ports.session_store import SessionFilter
from haptera.stores import memory
from haptera.testing.store_conformance.samples import OWNER, PROJECT, new_session, opening

_FILES = {memory.__file__}


class Lines:
    """Counts the lines of the store that are executed inside a block."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        self.count += event == "line"
        return self._trace if frame.f_code.co_filename in _FILES else None


async def _lines_with(sessions: int) -> tuple[int, int]:
    """Return how many lines it takes to find a name, and to refuse one that is taken."""
    store = memory.MemoryStore()
    for number in range(sessions):
        await new_session(store, name=f"name {number}")
    with Lines() as finding:
        found = await store.index.find(OWNER, PROJECT, name="name 0")
    assert found is not None
    with Lines() as refusing:
        try:
            await new_session(store, name="name 0")
        except StoreError:
            return finding.count, refusing.count
    raise AssertionError("the name was given twice")


async def test_a_name_is_found_and_refused_without_a_look_at_other_sessions() -> None:
    assert await _lines_with(2) == await _lines_with(200)


async def test_a_new_session_finds_the_notes_of_its_project_without_a_look_at_other_sessions() -> (
    None
):
    async def lines_with(sessions: int) -> int:
        store = memory.MemoryStore()
        for _ in range(sessions):
            await new_session(store)
        with Lines() as asking:
            await project_notes(store, owner=OWNER, project=PROJECT)
        return asking.count

    assert await lines_with(2) == await lines_with(200)


@pytest.mark.parametrize("origin", ["parent", "spawned_by"])
async def test_what_came_of_a_session_is_found_without_a_look_at_other_sessions(
    origin: str,
) -> None:
    async def lines_with(sessions: int) -> int:
        store = memory.MemoryStore()
        came_of = (await new_session(store)).session_id
        for _ in range(sessions):
            await new_session(store)
        child = new_session_id()
        lease = await store.leases.acquire(child, "holder")
        await store.log.append(lease, [replace(opening(child), **{origin: came_of})])
        matching = convert({origin: came_of}, SessionFilter)
        with Lines() as asking:
            (found,) = await store.index.browse(OWNER, None, matching=matching)
        assert found.id == child
        await store.log.delete(child)
        assert not await store.index.browse(OWNER, None, matching=matching)
        return asking.count

    assert await lines_with(2) == await lines_with(200)
