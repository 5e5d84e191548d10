"""Promises of leases: one writer, a newer lease fences an older one, waiters come in order."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import SessionId, new_session_id
from haptera.ports.session_store import Lease, Store
from haptera.testing.promises import (
    require,
    require_error,
    require_same,
    within_time_limit,
)
from haptera.testing.store_conformance.samples import (
    OpenStore,
    new_session,
    note,
    opened,
    opening,
    seqs_of,
)

MOST_OVERTAKES = 2
"""A caller that releases may ask again before the next one has asked at all: that counts once."""
_WAYS: tuple[Literal["wait", "reject"], ...] = ("reject", "wait")


async def check_a_held_session_is_busy_for_others(open_store: OpenStore) -> None:
    """The error names the holder, on any handle, and nothing changes for the holder."""
    async with opened(open_store) as store, opened(open_store) as other:
        lease = await store.leases.acquire(new_session_id(), "the first")
        for handle in (store, other):
            attempt = handle.leases.acquire(lease.session_id, "the second")
            error = await require_error(ErrorCode.BUSY, attempt, "a session that is held")
            require("the first" in error.message, "the error names the holder")
        await store.log.append(lease, [opening(lease.session_id)])
        require_same(await seqs_of(other, lease.session_id), [1], "the holder goes on")


async def check_a_released_session_can_be_acquired(open_store: OpenStore) -> None:
    """With a higher epoch; releasing twice is fine; a released lease appends nothing."""
    async with opened(open_store) as store, opened(open_store) as other:
        first = await new_session(store)
        await store.leases.release(first)
        await store.leases.release(first)
        late = store.log.append(first, [note(2)])
        await require_error(ErrorCode.FENCED, late, "an append after the release")
        second = await other.leases.acquire(first.session_id, "next")
        require(second.epoch > first.epoch, "a new lease has a higher epoch")
        await store.leases.release(first)
        await other.log.append(second, [note(2)])
        require_same(await seqs_of(store, first.session_id), [1, 2], "the new holder appends")


async def check_waiting_ends_with_the_release(open_store: OpenStore) -> None:
    """A caller that waits gets the session with the release, on the same handle or another."""
    async with opened(open_store) as store, opened(open_store) as other:
        for handle in (store, other):
            lease = await store.leases.acquire(new_session_id(), "holder")
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(
                    within_time_limit(
                        handle.leases.acquire(lease.session_id, "waiter", busy="wait"),
                        "waiting ends with the release",
                    )
                )
                attempt = handle.leases.acquire(lease.session_id, "reject")
                await require_error(ErrorCode.BUSY, attempt, "waiting does not take it")
                await store.leases.release(lease)
                gained = await waiting
            require(gained.epoch > lease.epoch, "the waiter has a higher epoch")
            require_same(gained.holder, "waiter", "the waiter is the holder")


async def check_an_old_lease_is_fenced(open_store: OpenStore) -> None:
    """Acquiring again makes the lease before it worthless, for appends and renewals."""
    async with opened(open_store) as store:
        old = await new_session(store)
        new = await store.leases.acquire(old.session_id, old.holder)
        require(new.epoch > old.epoch, "a new lease has a higher epoch")
        await require_error(ErrorCode.FENCED, store.log.append(old, [note(2)]), "an old append")
        await require_error(ErrorCode.FENCED, store.leases.renew(old), "an old renewal")
        await store.leases.release(old)
        await store.leases.renew(new)
        await store.log.append(new, [note(2)])
        require_same(await seqs_of(store, old.session_id), [1, 2], "only the newest lease appends")


async def check_a_made_up_lease_is_fenced(open_store: OpenStore) -> None:
    """Neither a guessed epoch nor a session without a holder can be appended to."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        guesses = [
            Lease(session_id=lease.session_id, holder=lease.holder, epoch=lease.epoch + 1),
            Lease(session_id=lease.session_id, holder=lease.holder, epoch=0),
            Lease(session_id=new_session_id(), holder=lease.holder, epoch=lease.epoch),
        ]
        for guess in guesses:
            await require_error(ErrorCode.FENCED, store.log.append(guess, [note(2)]), "a guess")


async def check_deleting_fences_the_holder(open_store: OpenStore) -> None:
    """Also after the session was made again under the same id and holder."""
    async with opened(open_store) as store:
        old = await new_session(store)
        await store.log.delete(old.session_id)
        await require_error(ErrorCode.FENCED, store.log.append(old, [note(2)]), "after deleting")
        new = await store.leases.acquire(old.session_id, old.holder)
        late = store.log.append(old, [opening(old.session_id)])
        await require_error(ErrorCode.FENCED, late, "the lease of a deleted session")
        await store.log.append(new, [opening(new.session_id)])
        require_same(await seqs_of(store, new.session_id), [1], "the new session stands")


async def check_only_one_of_many_acquires(open_store: OpenStore) -> None:
    """Of many callers that ask at once, exactly one becomes the writer."""
    async with opened(open_store) as store, opened(open_store) as other:
        session_id = new_session_id()
        outcomes = await asyncio.gather(
            *(
                handle.leases.acquire(session_id, f"asker {number}")
                for number, handle in enumerate([store, other] * 8)
            ),
            return_exceptions=True,
        )
        gained = [outcome for outcome in outcomes if isinstance(outcome, Lease)]
        require_same(len(gained), 1, "how many became the writer")
        codes = {outcome.code for outcome in outcomes if isinstance(outcome, AgentError)}
        require_same(codes, {ErrorCode.BUSY}, "what the others were told")


async def check_writers_of_many_sessions_do_not_disturb_each_other(open_store: OpenStore) -> None:
    """Appends to different sessions through several handles all arrive, each log in order."""
    async with opened(open_store) as store, opened(open_store) as other:

        async def fill(handle: Store) -> SessionId:
            lease = await new_session(handle)
            for seq in range(2, 12):
                await handle.log.append(lease, [note(seq)])
            return lease.session_id

        sessions = await asyncio.gather(*(fill(handle) for handle in [store, other] * 4))
        for session_id in sessions:
            require_same(await seqs_of(store, session_id), list(range(1, 12)), "each log")


async def check_one_session_handed_from_writer_to_writer(open_store: OpenStore) -> None:
    """Several waiters hold it one after the other; the log has every entry of each, in sequence."""
    async with opened(open_store) as store, opened(open_store) as other:
        session_id = (first := await new_session(store)).session_id
        await store.leases.release(first)

        async def hold_repeatedly(handle: Store, name: str) -> None:
            for _ in range(3):
                lease = await handle.leases.acquire(session_id, name, busy="wait")
                head = (await handle.log.read(session_id))[-1].seq
                await handle.log.append(lease, [note(head + 1, name)])
                await handle.leases.release(lease)

        holders = [hold_repeatedly(handle, f"w{n}") for n, handle in enumerate([store, other] * 2)]
        await within_time_limit(asyncio.gather(*holders), "every caller gets the session")
        require_same(await seqs_of(store, session_id), list(range(1, 14)), "no entry is lost")


async def check_waiting_callers_are_served_in_order(open_store: OpenStore) -> None:
    """A caller that asks again stands behind all that asked before it, on every handle."""
    async with opened(open_store) as store, opened(open_store) as other:
        first = await new_session(store)
        granted: list[str] = []

        async def let_others_ask() -> None:
            # A store does its work in order. So what callers asked for before is done after these,
            # which have no effect: asking takes two steps, and a stalled thread may be behind.
            for each in (store, other):
                for _ in range(3):
                    await each.leases.release(first)

        async def hold_repeatedly(handle: Store, name: str) -> None:
            for _ in range(5):
                lease = await handle.leases.acquire(first.session_id, name, busy="wait")
                granted.append(name)
                await let_others_ask()
                await handle.leases.release(lease)

        names = [f"w{number}" for number in range(4)]
        async with asyncio.TaskGroup() as group:
            for name, handle in zip(names, [store, other] * 2, strict=True):
                holding = hold_repeatedly(handle, name)
                group.create_task(within_time_limit(holding, "every caller gets the session"))
            await store.leases.release(first)
        require(most_overtaken(granted) <= MOST_OVERTAKES, f"the order of asking: {granted}")


async def check_a_cancelled_waiter_blocks_no_other_caller(open_store: OpenStore) -> None:
    """The next one in line gets the session; later, a caller that does not wait is not refused."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        waiters = [
            asyncio.ensure_future(store.leases.acquire(lease.session_id, name, busy="wait"))
            for name in ("cancelled", "patient")
        ]
        busy = store.leases.acquire(lease.session_id, "impatient")
        await require_error(ErrorCode.BUSY, busy, "waiting does not take it")
        waiters[0].cancel()
        await asyncio.wait(waiters[:1])
        await store.leases.release(lease)
        gained = await within_time_limit(waiters[1], "the caller that still waits gets it")
        require_same(gained.holder, "patient", "the holder")
        await store.leases.release(gained)
        last = await store.leases.acquire(lease.session_id, "impatient")
        require(last.epoch > gained.epoch, "a session without waiters is free")


def most_overtaken(granted: Sequence[str]) -> int:
    """Return how often a caller got the lease between two grants of another, at the most."""
    most = 0
    for name in set(granted):
        indexes = [index for index, other in enumerate(granted) if other == name]
        for start, end in itertools.pairwise(indexes):
            between = Counter(granted[start + 1 : end])
            most = max(most, *between.values(), 0)
    return most


async def check_a_cancelled_acquire_holds_nothing(open_store: OpenStore) -> None:
    """Wherever it was when it was cancelled; the session can be acquired at once, by any handle."""
    async with opened(open_store) as store, opened(open_store) as other:
        session_id = (first := await new_session(store)).session_id
        await store.leases.release(first)
        # Each of the first steps, then ever longer waits: a thread takes many steps.
        for steps in (*range(12), *(1 << power for power in range(4, 13))):
            for busy in _WAYS:
                asking = asyncio.ensure_future(
                    store.leases.acquire(session_id, "gives up", busy=busy)
                )
                await _take_steps(steps)
                asking.cancel()
                await asyncio.wait({asking})
                if not asking.cancelled():
                    await store.leases.release(asking.result())
                for handle in (other, store):
                    lease = await handle.leases.acquire(session_id, "next")
                    await handle.leases.release(lease)


async def check_a_cancelled_release_releases(open_store: OpenStore) -> None:
    """Wherever it was when it was cancelled: a caller that waits gets the session."""
    async with opened(open_store) as store, opened(open_store) as other:
        session_id = new_session_id()
        for steps in (1, 2, 3, 4, 16, 64, 256):
            lease = await store.leases.acquire(session_id, "lets go")
            releasing = asyncio.ensure_future(store.leases.release(lease))
            await _take_steps(steps)
            releasing.cancel()
            await asyncio.wait({releasing})
            waiting = other.leases.acquire(session_id, "next", busy="wait")
            await other.leases.release(await within_time_limit(waiting, "a cancelled release"))


async def _take_steps(count: int) -> None:
    for _ in range(count):
        await asyncio.wait({asyncio.ensure_future(_no_work())})


async def _no_work() -> None:
    """Take one step of the loop."""
