"""Promises of the log: order, atomic and idempotent appends, reading, following, deleting."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator

import msgspec

from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.errors import ErrorCode
from haptera.model.ids import new_session_id
from haptera.model.log.entry import Entry
from haptera.testing.promises import (
    require,
    require_error,
    require_same,
    within_time_limit,
)
from haptera.testing.store_conformance.samples import (
    OWNER,
    PROJECT,
    OpenStore,
    command,
    ids_of,
    new_session,
    note,
    notes,
    opened,
    opening,
    seqs_of,
)


async def check_entries_come_back_in_order_as_they_were(open_store: OpenStore) -> None:
    """What was appended is read back equal, in the order of `seq`."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        written = notes(2, 40)
        for start in range(0, len(written), 7):
            await store.log.append(lease, written[start : start + 7])
        entries = await store.log.read(lease.session_id)
        require_same(entries[1:], written, "entries come back as they were")


async def check_reading_starts_and_stops_where_asked(open_store: OpenStore) -> None:
    """`after` is exclusive, `limit` counts, and zero is a limit, too."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        await store.log.append(lease, notes(2, 600))
        read = store.log.read
        page = await read(lease.session_id, after=297, limit=5)
        require_same([entry.seq for entry in page], [298, 299, 300, 301, 302], "a page")
        require_same(await read(lease.session_id, limit=0), [], "a limit of zero gives nothing")
        require_same(await read(lease.session_id, after=600), [], "nothing comes after the head")
        require_same(len(await read(lease.session_id, after=0)), 600, "after=0 gives everything")


async def check_an_unknown_session_has_no_entries(open_store: OpenStore) -> None:
    """Reading what does not exist is no error."""
    async with opened(open_store) as store:
        unknown = new_session_id()
        require_same(await store.log.read(unknown), [], "an unknown session has no entries")
        require_same(await store.log.inspect(unknown), (), "an unknown session has no damage")
        await store.log.delete(unknown)


async def check_append_is_idempotent_by_entry_id(open_store: OpenStore) -> None:
    """An append whose outcome was not heard can be repeated, also together with more."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        first = notes(2, 4)
        await store.log.append(lease, first)
        await store.log.append(lease, first)
        await store.log.append(lease, [*first[1:], note(5)])
        require_same(await seqs_of(store, lease.session_id), [1, 2, 3, 4, 5], "repeated appends")
        again = await store.log.read(lease.session_id, after=1, limit=3)
        require_same(ids_of(again), ids_of(first), "the first version of an entry stays")


async def check_a_gap_is_a_conflict(open_store: OpenStore) -> None:
    """Each `seq` follows the one before; nothing of a refused append is stored."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        for wrong in ([note(3)], [note(0)], [note(2), note(4)], [note(2), note(2)]):
            await require_error(
                ErrorCode.CONFLICT, store.log.append(lease, wrong), "a `seq` that does not follow"
            )
            require_same(await seqs_of(store, lease.session_id), [1], "nothing of it is stored")


async def check_a_foreign_entry_is_a_conflict(open_store: OpenStore) -> None:
    """Neither another entry in a taken place nor the same entry in another place is accepted."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        stored = note(2)
        await store.log.append(lease, [stored])
        elsewhere = note(3, entry_id=stored.id)
        foreign = opening(new_session_id())
        for wrong in ([note(2)], [elsewhere], [msgspec.structs.replace(foreign, seq=3)]):
            await require_error(
                ErrorCode.CONFLICT, store.log.append(lease, wrong), "an entry out of place"
            )
        require_same(await seqs_of(store, lease.session_id), [1, 2], "the log is as it was")


async def check_ids_that_begin_alike_are_different(open_store: OpenStore) -> None:
    """`evt_1` is not `evt_10`; neither are sessions mixed up whose entries have the same ids."""
    async with opened(open_store) as store:
        one, other = await new_session(store), await new_session(store)
        alike = [note(seq, entry_id=f"evt_{seq - 1}") for seq in range(2, 13)]
        await store.log.append(one, alike)
        await store.log.append(other, alike[:1])
        require_same(len(await store.log.read(one.session_id)), 12, "ids that begin alike")
        require_same(len(await store.log.read(other.session_id)), 2, "equal ids in two sessions")


async def check_falsy_values_come_back(open_store: OpenStore) -> None:
    """An empty text is not a missing one, and zero is a number."""
    async with opened(open_store) as store:
        lease = await new_session(store, name="", owner="", project="")
        await store.log.append(lease, [note(2, "", time=0)])
        (entry,) = await store.log.read(lease.session_id, after=1)
        require_same((entry.time, getattr(entry, "text", None)), (0, ""), "falsy values")
        record = await store.index.find("", "", name="")
        require(record is not None and record.name == "", "a session may be named ''")


async def check_unknown_entries_come_back_byte_for_byte(open_store: OpenStore) -> None:
    """An entry of a newer version, or with newer fields, is kept as it was written."""
    newer = (
        b'{"kind":"future.thing", "id":"evt_new","time":7,"seq":2,"deep":{"b":[1,2.50,"\\u00e9"]}}'
    )
    wider = (
        b'{"kind":"hook.message","id":"evt_wide","time":8,"seq":3,"hook":"h","text":"t","later":0}'
    )
    async with opened(open_store) as store:
        lease = await new_session(store)
        await store.log.append(lease, [decode_entry(newer), decode_entry(wider)])
    async with opened(open_store) as store:
        entries = await store.log.read(lease.session_id, after=1)
        require_same([encode_entry(entry) for entry in entries], [newer, wider], "unknown entries")


async def check_every_text_survives(open_store: OpenStore) -> None:
    """Line ends, zero characters, quotes and all of Unicode are just text."""
    texts = [
        "",
        "\n",
        "\r\n\0\x1f",
        '"};DROP TABLE entry;--',
        "\u2028\u2029\x85",
        "é𝄞👩‍🚀",
        "x" * 300_000,
    ]
    async with opened(open_store) as store:
        lease = await new_session(store)
        written: list[Entry] = [note(seq, text) for seq, text in enumerate(texts, start=2)]
        await store.log.append(lease, written)
    async with opened(open_store) as store:
        entries = await store.log.read(lease.session_id, after=1)
        require(entries == written, "any text comes back as it was")


async def check_followers_see_every_entry_once(open_store: OpenStore) -> None:
    """A follower gets what is there and what comes, through whichever handle it is appended."""
    async with opened(open_store) as store, opened(open_store) as watcher:
        lease = await new_session(store)
        seen: list[int] = []
        last = 30

        async def watch() -> None:
            async with contextlib.aclosing(watcher.log.follow(lease.session_id)) as pages:
                async for page in pages:
                    seen.extend(entry.seq for entry in page)
                    if seen[-1] >= last:
                        return

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(within_time_limit(watch(), "a follower sees what is new"))
            for seq in range(2, last + 1):
                await store.log.append(lease, [note(seq)])
            await watching
        require_same(seen, list(range(1, last + 1)), "a follower sees every entry once, in order")


async def check_a_follower_comes_to_its_end_with_the_session(open_store: OpenStore) -> None:
    """Following a session ends when it is deleted, through any handle."""
    async with opened(open_store) as store, opened(open_store) as watcher:
        lease = await new_session(store)
        head = len(await store.log.read(lease.session_id))
        follow = functools.partial(watcher.log.follow, lease.session_id)
        async with (
            contextlib.aclosing(follow()) as pages,
            contextlib.aclosing(follow(after=head)) as later,
            asyncio.TaskGroup() as group,
        ):
            await within_time_limit(anext(pages), "a follower sees what is there")
            waiting = [group.create_task(_last_page(each)) for each in (pages, later)]
            # Lets both begin to wait before the session is deleted.
            await asyncio.wait(waiting, timeout=0)
            await store.log.delete(lease.session_id)
            for each in (*waiting, group.create_task(_last_page(follow(after=head)))):
                require(await each is None, "nothing follows a deletion")


async def check_a_follower_of_an_empty_session_sees_it_made_again(open_store: OpenStore) -> None:
    """A session that never had entries has no end: deleted and made again, it is followed."""
    async with opened(open_store) as store, opened(open_store) as watcher:
        session_id = new_session_id()
        await store.leases.acquire(session_id, "conformance")
        async with (
            contextlib.aclosing(watcher.log.follow(session_id)) as pages,
            asyncio.TaskGroup() as group,
        ):
            following = group.create_task(
                within_time_limit(anext(pages), "a follower sees what is made again")
            )
            # Lets it begin to wait before the session is deleted.
            await asyncio.wait({following}, timeout=0.1)
            await store.log.delete(session_id)
            lease = await store.leases.acquire(session_id, "conformance")
            await store.log.append(lease, [opening(session_id)])
            require_same([entry.seq for entry in await following], [1], "the entries made again")


async def _last_page(pages: AsyncGenerator[list[Entry], None]) -> list[Entry] | None:
    async with contextlib.aclosing(pages):
        return await within_time_limit(anext(pages, None), "a follower hears of a deletion")


async def check_deleting_takes_everything_of_one_session(open_store: OpenStore) -> None:
    """Log, commands, blobs and name go; another session keeps all of its own."""
    async with opened(open_store) as store:
        doomed = await new_session(store, name="doomed")
        neighbour = await new_session(store, name="kept")
        names = {}
        for lease in (doomed, neighbour):
            await store.log.append(lease, notes(2, 3))
            await store.inbox.put(lease.session_id, command("c1"))
            names[lease.session_id] = await store.blobs.put(lease.session_id, b"big")
        await store.log.delete(doomed.session_id)
    async with opened(open_store) as store:
        require_same(await store.log.read(doomed.session_id), [], "the log is gone")
        require_same(tuple(await store.inbox.pending(doomed.session_id)), (), "the inbox is gone")
        blob = store.blobs.get(doomed.session_id, names[doomed.session_id])
        await require_error(ErrorCode.NOT_FOUND, blob, "the blobs are gone")
        require(await store.index.find(OWNER, PROJECT, name="doomed") is None, "the name is free")
        require_same(
            await seqs_of(store, neighbour.session_id), [1, 2, 3], "the other log is there"
        )
        require_same(len(await store.inbox.pending(neighbour.session_id)), 1, "its inbox, too")
        content = await store.blobs.get(neighbour.session_id, names[neighbour.session_id])
        require_same(content, b"big", "and its blobs")


async def check_what_was_appended_is_there_after_reopening(open_store: OpenStore) -> None:
    """Closing and opening changes nothing, and the next append follows."""
    async with opened(open_store) as store:
        lease = await new_session(store, name="again")
        await store.log.append(lease, notes(2, 300))
        before = await store.log.read(lease.session_id)
    async with opened(open_store) as store:
        after = await store.log.read(lease.session_id)
        require(after == before, "the log after reopening is the log before closing")
        again = await store.leases.acquire(lease.session_id, "conformance")
        await store.log.append(again, [note(301)])
        record = await store.index.find(OWNER, PROJECT, name="again")
        require_same(record and record.head, 301, "the index after reopening")
