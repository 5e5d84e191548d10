"""Promises of the inbox and the blobs."""

import asyncio

from haptera.model.errors import ErrorCode
from haptera.model.ids import new_session_id
from haptera.model.operations.operation import CommandId
from haptera.testing.promises import (
    require,
    require_error,
    require_same,
    within_time_limit,
)
from haptera.testing.store_conformance.samples import (
    OpenStore,
    command,
    new_session,
    note,
    opened,
    opening,
)


async def check_commands_wait_in_the_order_they_came(open_store: OpenStore) -> None:
    """From any handle, for any handle, also after reopening."""
    async with opened(open_store) as store, opened(open_store) as other:
        lease = await new_session(store)
        # In the order of neither their text nor their numbers.
        names = ["c9", "c1", "c10", "c0"]
        for name, handle in zip(names, [store, other] * 2, strict=True):
            await handle.inbox.put(lease.session_id, command(name))
    async with opened(open_store) as store:
        pending = await store.inbox.pending(lease.session_id)
        require_same([item.id for item in pending], names, "commands in the order they came")
        require_same(pending[0], command("c9"), "a command comes back as it was")


async def check_the_same_command_counts_once(open_store: OpenStore) -> None:
    """Putting a command id again has no effect, not even after it was consumed."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        await store.inbox.put(lease.session_id, command("c1"))
        await store.inbox.put(lease.session_id, command("c1"))
        require_same(len(await store.inbox.pending(lease.session_id)), 1, "a command counts once")
        await store.log.append(lease, [note(2)], consumed=[CommandId("c1")])
        await store.inbox.put(lease.session_id, command("c1"))
        pending = tuple(await store.inbox.pending(lease.session_id))
        require_same(pending, (), "a consumed command does not come again")


async def check_an_append_consumes_commands_in_one_step(open_store: OpenStore) -> None:
    """They leave with the append, and stay when it is refused; an append may only consume."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        for name in ("c1", "c2", "c3"):
            await store.inbox.put(lease.session_id, command(name))
        refused = store.log.append(lease, [note(9)], consumed=[CommandId("c1")])
        await require_error(ErrorCode.CONFLICT, refused, "a gap")
        require_same(len(await store.inbox.pending(lease.session_id)), 3, "a refused append")
        await store.log.append(lease, [note(2), note(3)], consumed=[CommandId("c2")])
        await store.log.append(lease, [], consumed=[CommandId("c3")])
    async with opened(open_store) as store:
        pending = await store.inbox.pending(lease.session_id)
        require_same([item.id for item in pending], ["c1"], "what is left after reopening")
        require_same(len(await store.log.read(lease.session_id)), 3, "consuming adds no entry")


async def check_waiting_ends_when_an_unseen_command_is_there(open_store: OpenStore) -> None:
    """Whether it was there before or comes later, from any handle; seen ones end nothing."""
    async with opened(open_store) as store, opened(open_store) as other:
        session_id = (await new_session(store)).session_id
        await store.inbox.put(session_id, command("there"))
        await within_time_limit(store.inbox.wait(session_id), "a command that is there")
        seen = [CommandId("there")]
        for name, handle in (("mine", store), ("theirs", other)):
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(
                    within_time_limit(store.inbox.wait(session_id, seen=seen), "waiting")
                )
                # Long enough for a wait that ends by mistake to do so.
                await asyncio.wait({waiting}, timeout=0.1)
                require(not waiting.done(), "seen commands end nothing")
                await handle.inbox.put(session_id, command(name))
                await waiting
            seen.append(CommandId(name))


async def check_waiting_goes_on_when_the_session_is_made_again(open_store: OpenStore) -> None:
    """A session that is deleted while its commands are waited for can be sent one afterwards."""
    async with opened(open_store) as store:
        session_id = (await new_session(store)).session_id
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(
                within_time_limit(store.inbox.wait(session_id), "a command for what is made again")
            )
            await asyncio.wait({waiting}, timeout=0.1)
            await store.log.delete(session_id)
            lease = await store.leases.acquire(session_id, "conformance")
            await store.log.append(lease, [opening(session_id)])
            await asyncio.wait({waiting}, timeout=0.1)
            require(not waiting.done(), "a deletion is no command")
            await store.inbox.put(session_id, command("again"))
            await waiting


async def check_a_command_for_no_session_is_refused(open_store: OpenStore) -> None:
    """One that was never there, or was deleted, also while others send to it: nothing is left."""
    async with opened(open_store) as store, opened(open_store) as other:
        unknown = store.inbox.put(new_session_id(), command("unknown"))
        await require_error(ErrorCode.NOT_FOUND, unknown, "a command for no session")
        for _ in range(5):
            session_id = (await new_session(store)).session_id
            sending = [other.inbox.put(session_id, command(f"c{n}")) for n in range(5)]
            await asyncio.gather(*sending, store.log.delete(session_id), return_exceptions=True)
            late = other.inbox.put(session_id, command("late"))
            await require_error(ErrorCode.NOT_FOUND, late, "a command after a deletion")
            require_same(await store.inbox.pending(session_id), (), "what is left of commands")


async def check_blobs_come_back_by_their_name(open_store: OpenStore) -> None:
    """Empty and big ones, twice the same, after reopening; never those of another session."""
    big = bytes(range(256)) * 4096
    async with opened(open_store) as store:
        lease, other = await new_session(store), await new_session(store)
        names = {}
        for content in (b"", b"\0", big):
            names[content] = await store.blobs.put(lease.session_id, content)
            again = await store.blobs.put(lease.session_id, content)
            require_same(again, names[content], "equal content has one name")
    async with opened(open_store) as store:
        for content, name in names.items():
            content_read = await store.blobs.get(lease.session_id, name)
            require(content_read == content, "content comes back as it was")
            missing = store.blobs.get(other.session_id, name)
            await require_error(ErrorCode.NOT_FOUND, missing, "a blob of another session")
        for wrong in ("", "../../etc/passwd", "0" * 64, names[big].upper()):
            missing = store.blobs.get(lease.session_id, wrong)
            await require_error(ErrorCode.NOT_FOUND, missing, "a name that nothing has")


async def check_a_closed_store_says_so(open_store: OpenStore) -> None:
    """Closing twice is fine; using a store that let go of its files is an error, not a hang."""
    store = open_store()
    lease = await new_session(store)
    await store.close()
    await store.close()
    await require_error(ErrorCode.CLOSED, store.log.read(lease.session_id), "reading")
    await require_error(ErrorCode.CLOSED, store.log.append(lease, [note(2)]), "appending")
