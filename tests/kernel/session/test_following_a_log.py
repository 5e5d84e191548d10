"""Following a log reads each entry once, and shows every ended part whole, wherever one begins."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.kernel.blocks.control_channel import ControlChannel, Subscription
from haptera.kernel.session.observers import follow_entries, observe
from haptera.model.events import Event, SessionDeleted
from haptera.model.ids import SessionId, new_session_id
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.turns import PartEnded
from haptera.model.parts import TextPart
from haptera.ports.session_store import Store
from haptera.stores.memory import MemoryStore
from haptera.testing import says
from haptera.testing.store_conformance.samples import answer, new_session, notes
from tests.scripted_agents import make_agent
from tests.stores.store_factories import STORE_FACTORIES, open_store
from tests.strategies_logs import logs

PIECES = [f"piece {number} " for number in range(600)]
EARLIER = 1000
"""How many entries come before the turn that streams its text in so many pieces."""


class Reads:
    """Counts the entries that a store's log hands out."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = 0
        self.most = 0
        """The most that were handed out at once."""
        read, follow = store.log.read, store.log.follow

        async def counting_read(
            session_id: SessionId, *, after: int = 0, limit: int | None = None
        ) -> list[Entry]:
            page = await read(session_id, after=after, limit=limit)
            self.entries += len(page)
            self.most = max(self.most, len(page))
            return page

        async def counting_follow(
            session_id: SessionId, *, after: int = 0
        ) -> AsyncGenerator[list[Entry], None]:
            async with contextlib.aclosing(follow(session_id, after=after)) as pages:
                async for page in pages:
                    self.entries += len(page)
                    yield page

        monkeypatch.setattr(store.log, "read", counting_read)
        if isinstance(store, MemoryStore):
            # The logs of other stores follow by reading.
            monkeypatch.setattr(store.log, "follow", counting_follow)


async def _long_log(store: Store) -> tuple[SessionId, list[Entry]]:
    lease = await new_session(store)
    turn = answer(EARLIER + 1, *PIECES)
    await store.log.append(lease, notes(2, EARLIER))
    await store.log.append(lease, turn)
    return lease.session_id, turn


async def _followed(store: Store, session_id: SessionId, *, after: int, last: int) -> list[Entry]:
    seen: list[Entry] = []
    async with contextlib.aclosing(follow_entries(store.log, session_id, after=after)) as entries:
        async for entry in entries:
            assert isinstance(entry, Entry)
            seen.append(entry)
            if entry.seq >= last:
                return seen
    raise AssertionError("the log ended before its last entry")


async def _observed(store: Store, session_id: SessionId, *, after: int, head: int) -> list[Event]:
    """Return what an observer beside the writer sees of a session that has ended."""
    subscription: Subscription[Event] = Subscription(when_full="lag")
    subscription.end()
    events = observe(
        ControlChannel(),
        store.log,
        session_id,
        subscription=subscription,
        after=after,
        head=lambda: head,
    )
    return [event async for event in events]


def _text_in(entries: Sequence[Event]) -> str:
    (part,) = [
        entry.part
        for entry in entries
        if isinstance(entry, PartEnded) and isinstance(entry.part, TextPart) and not entry.offset
    ]
    return part.text


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_a_follower_reads_each_entry_of_a_long_part_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    turn = answer(2, *PIECES)
    reads, seen = Reads(store, monkeypatch), 0
    async with contextlib.aclosing(follow_entries(store.log, lease.session_id)) as entries:
        shown = [await anext(entries)]
        for start in range(0, len(turn), 7):
            await store.log.append(lease, turn[start : start + 7])
            for _ in turn[start : start + 7]:
                shown.append(await anext(entries))
                seen += 1
    assert seen == len(turn)
    assert reads.entries == 1 + len(turn)
    assert _text_in(shown) == "".join(PIECES)
    await store.close()


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_a_follower_that_begins_inside_a_part_reads_back_to_its_turn_only(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(kind, tmp_path)
    session_id, turn = await _long_log(store)
    last, after = turn[-1].seq, turn[-1].seq - 20
    reads = Reads(store, monkeypatch)
    shown = await _followed(store, session_id, after=after, last=last)
    assert [entry.seq for entry in shown] == list(range(after + 1, last + 1))
    assert _text_in(shown) == "".join(PIECES)
    # Twenty entries and the pages that hold the rest of the turn, none twice.
    assert 0 < reads.entries <= 20 + len(turn) + 256
    reads.entries = 0
    assert await _observed(store, session_id, after=after, head=last) == shown
    assert 0 < reads.entries <= 20 + len(turn) + 256
    await store.close()


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_a_follower_that_begins_after_a_part_reads_nothing_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(kind, tmp_path)
    session_id, turn = await _long_log(store)
    reads = Reads(store, monkeypatch)
    shown = await _followed(store, session_id, after=turn[-1].seq - 1, last=turn[-1].seq)
    assert len(shown) == reads.entries == 1
    await store.close()


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_an_observer_of_a_long_log_reads_it_by_pages_and_each_entry_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(kind, tmp_path)
    session_id, turn = await _long_log(store)
    last = turn[-1].seq
    reads = Reads(store, monkeypatch)
    shown = await _observed(store, session_id, after=0, head=last)
    assert [event.seq for event in shown if isinstance(event, Entry)] == list(range(1, last + 1))
    assert _text_in(shown) == "".join(PIECES)
    assert reads.entries == last
    assert reads.most <= 256
    await store.close()


async def test_an_observer_that_still_reads_a_long_log_does_not_lag_behind_what_is_appended() -> (
    None
):
    store, channel = MemoryStore(), ControlChannel()
    lease = await new_session(store)
    await store.log.append(lease, notes(2, EARLIER))
    head = EARLIER
    events = observe(
        channel,
        store.log,
        lease.session_id,
        subscription=Subscription(limit=10, when_full="lag"),
        after=0,
        head=lambda: head,
    )
    async with contextlib.aclosing(events):
        shown = [await anext(events) for _ in range(5)]
        for entry in notes(EARLIER + 1, EARLIER + 50):
            await store.log.append(lease, [entry])
            channel.publish([entry])
            head = entry.seq
        while len(shown) < head:
            shown.append(await anext(events))
    assert [event.seq for event in shown if isinstance(event, Entry)] == list(range(1, head + 1))


@pytest.mark.slow
async def test_a_follower_of_a_file_reads_what_is_new_and_not_what_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("jsonl", tmp_path)
    lease = await new_session(store)
    turn = answer(2, *PIECES)
    read_bytes, pread = 0, os.pread

    def counting_pread(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal read_bytes
        piece = pread(descriptor, length, offset)
        if Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".jsonl":
            read_bytes += len(piece)
        return piece

    async with contextlib.aclosing(follow_entries(store.log, lease.session_id)) as entries:
        await anext(entries)
        monkeypatch.setattr(os, "pread", counting_pread)
        for entry in turn:
            await store.log.append(lease, [entry])
            await anext(entries)
    (log,) = (tmp_path / "sessions" / "sessions").iterdir()
    # Once for the summary of the log and once for the follower.
    assert read_bytes <= 2 * log.stat().st_size
    await store.close()


@given(log=logs(), data=st.data())
def test_every_part_is_whole_wherever_reading_begins_and_as_it_was_live(
    log: list[Entry], data: st.DataObject
) -> None:
    after = data.draw(st.integers(0, len(log)))

    async def check() -> None:
        store = MemoryStore()
        session_id = new_session_id()
        first = log[0]
        assert isinstance(first, SessionOpened)
        entries = [msgspec.structs.replace(first, session_id=session_id), *log[1:]]
        lease = await store.leases.acquire(session_id, "writer")
        await store.log.append(lease, entries)
        fold, live = SessionFold(), []
        for entry in entries:
            live.append(fold.compose(entry))
            fold.apply(entry)
        head = len(log)
        # What is for the log alone is not shown.
        shown = [entry for entry in live if entry.is_public]
        later = [entry for entry in live[after:] if entry.is_public]
        assert await _observed(store, session_id, after=0, head=head) == shown
        assert await _observed(store, session_id, after=after, head=head) == later
        if later:
            followed = await _followed(store, session_id, after=after, last=later[-1].seq)
            assert followed == later

    asyncio.run(check())


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_who_follows_a_session_from_afar_hears_that_it_was_deleted(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    agent, _ = make_agent([says("Hello.")], store=store)
    async with agent:
        async with agent.session("doomed") as session:
            await session.chat("Hi")
        remote = await agent.remote("doomed")
        async with contextlib.aclosing(remote.events()) as events:
            while not isinstance(await anext(events), QueryEnded):
                pass
            await store.log.delete(remote.session_id)
            last = [event async for event in events]
    assert last == [SessionDeleted(session_id=remote.session_id)]
    assert last[0].alias == "session.deleted"
    await store.close()


async def test_a_store_that_is_closed_has_not_deleted_what_is_followed(tmp_path: Path) -> None:
    store = open_store("jsonl", tmp_path)
    lease = await new_session(store)
    async with contextlib.aclosing(follow_entries(store.log, lease.session_id)) as events:
        assert (await anext(events)).kind == "session.opened"
        await store.leases.release(lease)
        await store.close()
        assert [event.kind async for event in events] == []
