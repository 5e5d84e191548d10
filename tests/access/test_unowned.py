"""What a worker carries on where the store cannot name it: left by others, held here, or both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from haptera import tool
from haptera.access.unowned import HeldQueries, HeldQuery, JoinedQueries, LeftQueries
from haptera.access.worker import SessionWorker, SharedStore, can_go_on
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import InputId, MessageId, QueryId, SessionId, new_entry_id
from haptera.model.log.queries import InputQueued, QueryEnded
from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart
from haptera.ports.session_store import Store, UnownedQueries, UnownedQuery
from haptera.testing import FakeClock, calls, says
from haptera.testing.store_conformance.samples import command, new_session, prompt
from tests.scripted_agents import failure_of, make_agent
from tests.stores.store_factories import STORE_FACTORIES, open_store

OFTEN: dict[str, Any] = {"most_attempts": 3, "first_pause": 10.0, "longest_pause": 15.0}


async def _session(store: Store, *entries: object) -> SessionId:
    lease = await new_session(store, owner="local", project="p")
    if entries:
        await store.log.append(lease, list(entries))  # type: ignore[arg-type]
    await store.leases.release(lease)
    return lease.session_id


def _ended(seq: int, reason: str = "complete") -> QueryEnded:
    return QueryEnded(id=new_entry_id(), time=seq, seq=seq, stop_reason=reason)  # type: ignore[arg-type]


def _queued(seq: int) -> InputQueued:
    message = UserMessage(id=MessageId("msg_queued"), parts=(TextPart(text="go"),))
    input_id = InputId("inp_1")
    return InputQueued(
        id=new_entry_id(), time=seq, seq=seq, input_id=input_id, message=message, delivery="queue"
    )


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_what_processes_left_is_found_once_in_every_store_of_one_machine(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    left = {
        await _session(store, prompt(2, "cut off")),
        await _session(store, _queued(2)),
        await _session(store, prompt(2, "before"), _ended(3), _queued(4)),
    }
    commanded = await _session(store, prompt(2, "asked"), _ended(3, "approval"))
    await store.inbox.put(commanded, command("answer"))
    await _session(store)
    await _session(store, prompt(2, "over"), _ended(3))
    await _session(store, prompt(2, "asked"), _ended(3, "approval"), _queued(4))
    queries = LeftQueries(store, owner="local", project="p", clock=FakeClock(start_ms=1000))
    first = await queries.claim(limit=3, **OFTEN)
    rest = await queries.claim(limit=3, **OFTEN)
    assert len(first) == 3
    assert {query.session_id for query in (*first, *rest)} == {*left, commanded}
    assert list(await queries.claim(limit=3, **OFTEN)) == []
    await store.close()


async def test_a_session_that_another_process_holds_is_left_to_it(tmp_path: Path) -> None:
    store, other = open_store("sqlite", tmp_path), open_store("sqlite", tmp_path)
    agent, _ = make_agent([], store=store, project="p", clock=FakeClock(start_ms=1000))
    session_id = await _session(store, prompt(2, "cut off"))
    lease = await other.leases.acquire(session_id, "other")
    worker = SessionWorker(
        agent.sessions, lambda query: agent.session(query.session_id, must_exist=True)
    )
    assert await worker.look() == 1
    await worker.wait()
    assert worker.stats.passed_on == 1
    await other.leases.release(lease)
    await agent.close()
    for each in (store, other):
        await each.close()


async def test_a_worker_carries_on_what_was_left_in_a_file(tmp_path: Path) -> None:
    store = open_store("sqlite", tmp_path)
    agent, provider = make_agent(
        [says("on")], store=store, project="p", clock=FakeClock(start_ms=1000)
    )
    session_id = await _session(store, replace(prompt(2, "cut off"), query_id=QueryId("qry_1")))
    async with agent:
        worker = SessionWorker(
            agent.sessions, lambda query: agent.session(query.session_id, must_exist=True)
        )
        assert await worker.look() == 1
        await worker.wait()
        assert (await store.log.read(session_id))[-1].kind == "query.ended"
    provider.check()
    await store.close()


async def test_what_is_held_here_is_tried_so_often_until_its_log_goes_on() -> None:
    clock, head = FakeClock(), 5

    def held() -> list[HeldQuery]:
        return [HeldQuery(session_id=SessionId("s"), owner="ana", head=head)]

    queries = HeldQueries(held, clock=clock)

    async def attempts() -> list[int]:
        return [query.attempt for query in await queries.claim(limit=9, **OFTEN)]

    assert await attempts() == [1]
    assert await attempts() == []
    clock.advance(10)
    assert await attempts() == [2]
    clock.advance(14)
    assert await attempts() == []
    clock.advance(1)
    assert await attempts() == [3]
    clock.advance(1000)
    assert await attempts() == []
    head = 6
    assert await attempts() == [1]
    assert list(await queries.claim(limit=0, **OFTEN)) == []


class Source:
    """Has so many queries of one owner, or fails."""

    def __init__(self, owner: str, count: int) -> None:
        self._owner = owner
        self.count = count

    @property
    def unowned(self) -> UnownedQueries:
        return self

    async def claim(
        self, *, limit: int, most_attempts: int, first_pause: float, longest_pause: float
    ) -> Sequence[UnownedQuery]:
        del most_attempts, first_pause, longest_pause
        if self.count < 0:
            raise StoreError(ErrorCode.UNAVAILABLE, "it is away")
        taken = min(limit, self.count)
        self.count -= taken
        query = UnownedQuery(session_id=SessionId("s"), owner=self._owner, project="p", attempt=1)
        return [query] * taken


async def test_several_sources_take_turns_and_one_that_fails_stops_no_other() -> None:
    ana, bob, away = Source("ana", 3), Source("bob", 3), Source("away", -1)
    sources: list[SharedStore] = [ana, away, bob]
    joined = JoinedQueries(lambda: sources)

    async def owners(limit: int) -> list[str]:
        return [query.owner for query in await joined.claim(limit=limit, **OFTEN)]

    assert await owners(2) == ["ana", "ana"]
    assert await owners(2) == ["bob", "bob"]
    assert await owners(9) == ["bob", "ana"]
    assert (await failure_of(owners(9))).code is ErrorCode.UNAVAILABLE


async def test_a_query_that_rests_goes_on_only_when_its_last_approval_is_answered() -> None:
    @tool(approval="ask")
    def nap() -> str:
        """Sleep."""
        return "rested"

    script = [calls(("nap", {}), ("nap", {})), says("done")]
    agent, provider = make_agent(script, tools=[nap])
    async with agent, agent.session() as session:
        assert not can_go_on(session.unfinished)
        result = await session.chat("go")
        assert (result.stop_reason, len(result.pending)) == ("approval", 2)
        for request in result.pending:
            assert not can_go_on(session.unfinished)
            await session.approve(request.id)
        assert can_go_on(session.unfinished)
        await session.resume()
        assert not can_go_on(session.unfinished)
    provider.check()
