"""What one process does to a session that another holds, on any store: two agents, two stores."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from haptera import AbortController, Agent, AgentSession
from haptera.agent.remote import AgentRemote
from haptera.hooks import Block, Hooks, Proceed
from haptera.model.errors import ErrorCode
from haptera.model.ids import SessionId
from haptera.model.log.history import Rewound
from haptera.model.log.sessions import CommandEnded, SessionChanged
from haptera.model.parts import CompactionPart
from haptera.ports.session_store import Store
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Gate, Step
from tests.scripted_agents import HeldWork, failure_of, live_of

OpenStore = Callable[[], Store]
LONG = "word " * 340
NAME = "shared"


def new_agent(store: Store, steps: Sequence[Step], **options: Any) -> Agent:
    """Make an agent on a store, with a script."""
    return Agent(
        "scripted/one",
        providers=[ScriptedProvider(steps)],
        store=store,
        environment={},
        snapshots=False,
        **{"owner": "ana", "project": "p", **options},
    )


@asynccontextmanager
async def held(
    open_store: OpenStore, steps: Sequence[Step], **options: Any
) -> AsyncIterator[tuple[AgentSession, AgentRemote]]:
    """Hold a session in one agent, and reach it from another one on a store of its own."""
    mine, theirs = open_store(), open_store()
    holder = new_agent(mine, steps, **options)
    other = new_agent(theirs, [])
    async with holder, other, holder.session(NAME) as session:
        yield session, await other.remote(NAME)
    await mine.close()
    await theirs.close()


async def check_moves(open_store: OpenStore) -> None:
    """A rewind and its undo are in the log when they return, and the holder goes on from there."""
    async with held(open_store, [says("one"), says("two"), says("three")]) as (session, remote):
        await session.chat("a")
        await session.chat("b")
        first = session.messages[1].id
        preview = await remote.rewind(to=first, dry_run=True)
        assert preview.messages == tuple(item.id for item in session.messages[2:])
        assert not preview.is_done
        assert len(session.messages) == 4
        assert (await remote.rewind(to=first)).is_done
        assert [item.text for item in await remote.messages()] == ["a", "one"]
        await session.wait_idle()  # the holder reads its log again
        assert [item.text for item in session.messages] == ["a", "one"]
        await remote.undo_rewind()
        await session.wait_idle()
        assert [item.text for item in session.messages] == ["a", "one", "b", "two"]
        await remote.rewind(to=first)
        assert (await session.chat("c")).text == "three"
        assert [item.text for item in await remote.messages()] == ["a", "one", "c", "three"]
        await check_ends(session, refused=0)


async def check_ends(session: AgentSession, *, refused: int) -> None:
    """Every command has one end and is consumed."""
    live = await live_of(session)
    log = await live.store.log.read(live.session_id)
    ends = [entry for entry in log if isinstance(entry, CommandEnded)]
    assert len({entry.command_id for entry in ends}) == len(ends)
    assert sum(entry.error is not None for entry in ends) == refused
    assert list(await live.store.inbox.pending(live.session_id)) == []


async def check_refusals(open_store: OpenStore) -> None:
    """What cannot be done is refused with the error of the local call, and changes nothing."""
    async with held(open_store, [says("one")]) as (session, remote):
        empty = await failure_of(remote.compact())
        assert (type(empty).__name__, empty.code) == ("SessionError", ErrorCode.NOTHING_TO_SEND)
        await session.chat("a")
        missing = await failure_of(remote.rewind(to="msg_nowhere"))
        assert missing.code is ErrorCode.MESSAGE_NOT_FOUND
        assert missing.message == (await failure_of(session.rewind(to="msg_nowhere"))).message
        assert (await failure_of(remote.undo_rewind())).code is ErrorCode.NOT_FOUND
        files = await failure_of(remote.rewind(to=session.messages[0].id, files=True))
        assert files.code is ErrorCode.CONFIG_MISSING
        assert len(session.messages) == 2
        await check_ends(session, refused=4)


async def check_while_a_query_runs(open_store: OpenStore) -> None:
    """Moves and compactions are BUSY, settings change, and a fork needs nothing of the holder."""
    work = HeldWork()
    steps = [says("one"), calls(("work", {})), says("done")]
    async with held(open_store, steps, tools=[work.tool]) as (session, remote):
        await session.chat("a")
        running = asyncio.ensure_future(session.chat("work"))
        await work.started.wait()
        target = session.messages[1].id
        for asked in (remote.rewind(to=target), remote.undo_rewind(), remote.compact()):
            assert (await failure_of(asked)).code is ErrorCode.BUSY
        await remote.configure(temperature=0.25)
        async with await remote.fork(after=target, name="branch") as branch:
            assert [item.text for item in branch.messages] == ["a", "one"]
        taken = await failure_of(remote.fork(name="branch"))
        assert taken.code is ErrorCode.CONFLICT
        work.release.set()
        assert (await running).text == "done"
        assert session.settings.temperature == 0.25
        live = await live_of(session)
        log = await live.store.log.read(live.session_id)
        assert not any(isinstance(entry, Rewound) for entry in log)
        changed = [entry for entry in log if isinstance(entry, SessionChanged)]
        assert [entry.origin for entry in changed] == ["configure"]


async def check_compaction(open_store: OpenStore) -> None:
    """The holder asks its model; the caller gets the entry, and the next request the summary."""
    steps = [says("one"), says("two"), says("the summary"), says("three")]
    async with held(open_store, steps) as (session, remote):
        await session.chat(f"a {LONG}")
        await session.chat(f"b {LONG}")
        compaction = await remote.compact("the numbers")
        assert "the summary" in compaction.summary
        live = await live_of(session)
        log = await live.store.log.read(live.session_id)
        assert [entry.id for entry in log if entry.kind == "compaction"] == [compaction.id]
        await session.chat("c")
        sent = live.fold.sent_view()
        assert any(isinstance(part, CompactionPart) for item in sent for part in item.parts)
        await check_ends(session, refused=0)


async def check_a_blocked_compaction(open_store: OpenStore) -> None:
    """A hook of the holder blocks a second compaction: the caller does not get the first one."""
    gate: list[Proceed | Block] = [Proceed(), Proceed(), Block("never")]
    hooks = Hooks(before_query=lambda _given: gate.pop(0))
    async with held(open_store, [says("one"), says("gist")], hooks=hooks) as (session, remote):
        await session.chat(f"a {LONG}")
        await remote.compact()
        blocked = await failure_of(remote.compact())
        assert blocked.code is ErrorCode.HOOK_FAILED
        assert "never" in blocked.message
        await check_ends(session, refused=1)


async def check_an_aborted_compaction(open_store: OpenStore) -> None:
    """A signal of the caller stops the holder's compaction, and the conversation is as it was."""
    gate, stop = Gate(), AbortController()
    async with held(open_store, [says("one"), [gate], says("two")]) as (session, remote):
        await session.chat(f"a {LONG}")
        asking = asyncio.ensure_future(failure_of(remote.compact(signal=stop.signal)))
        await gate.reached.wait()
        stop.abort("not now")
        stopped = await asking
        assert (stopped.code, stopped.message) == (ErrorCode.ABORTED, "aborted: not now")
        assert stop.signal.listener_count == 0
        await session.wait_idle()
        assert len(session.messages) == 2
        again = await failure_of(remote.compact(signal=stop.signal))
        assert again.code is ErrorCode.ABORTED
        await check_ends(session, refused=1)


async def check_without_a_holder(open_store: OpenStore) -> None:
    """The caller opens the session for as long as a call takes; it is free afterwards."""
    store = open_store()
    steps = [says("one"), says(LONG), says("the summary")]
    async with new_agent(store, steps) as agent:
        async with agent.session(NAME) as session:
            await session.chat("a")
            await session.chat(f"b {LONG}")
            first = session.messages[1].id
        remote = await agent.remote(NAME)
        await remote.configure(temperature=0.5)
        assert "the summary" in (await remote.compact()).summary
        await remote.rewind(to=first)
        missing = await failure_of(remote.rewind(to="msg_nowhere"))
        assert missing.code is ErrorCode.MESSAGE_NOT_FOUND
        async with await agent.sessions.fork(NAME, after=first) as branch:
            assert [item.text for item in branch.messages] == ["a", "one"]
        assert (await remote.unfinished()).approvals == ()
        assert (await remote.view()).head == (await agent.sessions.get(NAME)).head
        assert (await remote.count_tokens()).tokens > 0
        async with agent.session(NAME) as session:
            assert session.settings.temperature == 0.5
            assert [item.text for item in session.messages] == ["a", "one"]
    await store.close()


async def check_a_holder_that_is_gone(open_store: OpenStore) -> None:
    """A command that its holder never took is carried out once its lease is free."""
    store = open_store()
    async with new_agent(store, [says("one"), says("two")]) as agent:
        async with agent.session(NAME) as session:
            await session.chat("a")
            await session.chat("b")
            first, session_id = session.messages[1].id, SessionId(str(session.session_id))
        lease = await store.leases.acquire(session_id, "silent")
        remote = await agent.remote(NAME)
        moving = asyncio.ensure_future(remote.rewind(to=first))
        await store.inbox.wait(session_id)
        await store.leases.release(lease)
        assert (await moving).is_done
        assert [item.text for item in await remote.messages()] == ["a", "one"]
        assert list(await store.inbox.pending(session_id)) == []
    await store.close()


SCENARIOS = (
    check_moves,
    check_refusals,
    check_while_a_query_runs,
    check_compaction,
    check_a_blocked_compaction,
    check_an_aborted_compaction,
    check_without_a_holder,
    check_a_holder_that_is_gone,
)
