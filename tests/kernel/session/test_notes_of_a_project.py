"""A new session begins with the newest notes of its project, and reads no more than those."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from haptera.kernel.session import notes
from haptera.kernel.session.notes import inherited_notes, project_notes
from haptera.model.ids import new_entry_id
from haptera.model.log.entry import Entry
from haptera.model.log.notes import ContextNoted
from haptera.ports.session_store import Lease
from haptera.stores.memory import MemoryLog, MemoryStore
from haptera.system.clock import Stamp
from haptera.testing import FakeClock
from haptera.testing.store_conformance.samples import OWNER, PROJECT, new_session


async def add_notes(store: MemoryStore, lease: Lease, *texts: str, times: Sequence[int]) -> None:
    made = [
        ContextNoted(id=new_entry_id(), time=time, seq=seq, text=text)
        for seq, (text, time) in enumerate(zip(texts, times, strict=True), 2)
    ]
    await store.log.append(lease, made)


async def inherited(store: MemoryStore) -> list[str]:
    stamp = Stamp(FakeClock())
    entries = await inherited_notes(store, owner=OWNER, project=PROJECT, stamp=stamp)
    return [entry.text for entry in entries]


@pytest.mark.parametrize("seed", range(20))
async def test_the_newest_notes_of_all_sessions_are_told_each_text_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_MOST_NOTES", 9)
    chosen, store = random.Random(seed), MemoryStore()
    for _ in range(chosen.randrange(1, 6)):
        count = chosen.randrange(12)
        texts = [f"note {chosen.randrange(20)}{' ' * chosen.randrange(2)}" for _ in range(count)]
        times = sorted(chosen.randrange(30) for _ in range(count))
        await add_notes(store, await new_session(store), *texts, times=times)
    every = await project_notes(store, owner=OWNER, project=PROJECT)
    assert await inherited(store) == [note.text for note in every[-9:]]


async def test_notes_that_are_too_long_together_are_left_out_with_all_older_ones() -> None:
    store = MemoryStore()
    texts = ["short", "x" * 12_000, "y" * 12_000, "z"]
    await add_notes(store, await new_session(store), *texts, times=range(4))
    assert await inherited(store) == ["y" * 12_000, "z"]


async def test_a_new_session_reads_no_more_notes_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, count = MemoryLog.read, 0

    async def counted(log: MemoryLog, *given: Any, **named: Any) -> Sequence[Entry]:
        nonlocal count
        count += 1
        return await read(log, *given, **named)

    monkeypatch.setattr(MemoryLog, "read", counted)

    async def reads_with(each: int) -> int:
        nonlocal count
        store = MemoryStore()
        for number in range(3):
            texts = [f"{number} {place}" for place in range(each)]
            await add_notes(store, await new_session(store), *texts, times=range(each))
        count = 0
        assert len(await inherited(store)) == 100
        return count

    assert await reads_with(100) == await reads_with(1_000) <= 104


async def test_a_note_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await add_notes(store, await new_session(store), "one", "two", "three", times=range(3))
    read = MemoryLog.read

    async def damaged(log: MemoryLog, *given: Any, **named: Any) -> Sequence[Entry]:
        entries = await read(log, *given, **named)
        return [replace(entry, seq=9) if entry.seq == 4 else entry for entry in entries]

    monkeypatch.setattr(MemoryLog, "read", damaged)
    assert await inherited(store) == ["one", "two"]
