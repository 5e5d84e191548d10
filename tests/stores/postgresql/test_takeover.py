"""A session changes nodes: the old one stops and ends its tools, the new one goes on."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest

from haptera import Agent, AgentError, ErrorCode, tool
from haptera.access.worker import SessionWorker, WorkerSettings
from haptera.model.ids import SessionId
from haptera.model.log.queries import QueryEnded
from haptera.model.log.tools import ToolEnded
from haptera.ports.session_store import UnownedQuery
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import MODEL
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

OWNER = "ana"


class Node:
    """A store, an agent on it and a worker, as one process of many has them."""

    def __init__(
        self,
        url: str,
        steps: Sequence[Step],
        *,
        lease_seconds: float = 30.0,
        most_attempts: int = 3,
    ) -> None:
        self.store = PostgresStore(url, owner=OWNER, lease_seconds=lease_seconds)
        self.provider = ScriptedProvider(steps)
        self.tool_process: asyncio.subprocess.Process | None = None
        self.tool_started = asyncio.Event()
        self.agent = Agent(
            MODEL,
            providers=[self.provider],
            environment={},
            store=self.store,
            owner=OWNER,
            project="p",
            tools=[tool(name="work")(self._work)],
        )
        self.worker = SessionWorker(
            self.store,
            lambda query: self.agent.session(query.session_id, must_exist=True),
            settings=WorkerSettings(most_attempts=most_attempts, first_pause_seconds=0),
            clock=FakeClock(),
        )

    async def _work(self) -> str:
        """Run a process that does not end by itself."""
        sleeper = "import time; time.sleep(600)"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", sleeper)
        self.tool_process = process
        self.tool_started.set()
        try:
            await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return "worked"

    async def close(self) -> None:
        await self.worker.close()
        await self.agent.close()
        await self.store.close()
        # A query does not wait long for a tool that it stopped.
        if self.tool_process is not None:
            await self.tool_process.wait()


@contextlib.asynccontextmanager
async def _nodes(
    postgres: PostgresServer, database: str, *scripts: Sequence[Step], **options: Any
) -> AsyncIterator[list[Node]]:
    url = postgres.url(database, role=APP_ROLE)
    nodes = [Node(url, steps, **options) for steps in scripts]
    try:
        yield nodes
    finally:
        for node in nodes:
            await node.close()


async def _expire(postgres: PostgresServer, database: str) -> None:
    await asyncio.to_thread(
        postgres.execute,
        "UPDATE haptera.node SET until = '-infinity'",
        database=database,
    )


async def test_the_query_of_an_old_owner_stops_and_its_tool_process_is_ended(
    postgres: PostgresServer, database: str
) -> None:
    scripts = ([calls(("work", {}))], [says("carried on")])
    late = {"lease_seconds": 0.6, "most_attempts": 1_000}
    async with _nodes(postgres, database, *scripts, **late) as (old, new):
        session = await old.agent.session("moves").open()
        asking = asyncio.ensure_future(session.chat("go"))
        await old.tool_started.wait()
        # A worker finds it as soon as the old node is late. The old one may renew its lease between
        # the claim of the worker and its opening of the session, which it then leaves for later.
        while not (await asyncio.wait({asking}, timeout=0.05))[0]:
            await _expire(postgres, database)
            await new.worker.look()
            await new.worker.wait()
        with pytest.raises(AgentError) as caught:
            await asking
        assert caught.value.code is ErrorCode.FENCED
        assert old.tool_process is not None
        await asyncio.wait_for(old.tool_process.wait(), 20)
        await new.worker.wait()
        assert new.worker.stats.resumed == 1
        entries = await new.store.log.read(SessionId(str(session.session_id)))
        ended = [entry for entry in entries if isinstance(entry, QueryEnded)]
        assert [entry.stop_reason for entry in ended] == ["complete"]
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        with pytest.raises(AgentError) as caught:
            await session.chat("more")
        assert caught.value.code is ErrorCode.FENCED


async def _leave_unfinished(node: Node, postgres: PostgresServer, database: str) -> SessionId:
    """Let a node die in the middle of a query, as far as the others can tell."""
    session = await node.agent.session("left").open()
    asking = asyncio.ensure_future(session.chat("go"))
    await node.tool_started.wait()
    # Its lease is as one that a node held which no longer renews, and nothing more of this one
    # reaches the log.
    await asyncio.to_thread(
        postgres.execute,
        "UPDATE haptera.session SET lease_node = 'gone', epoch = epoch + 1",
        database=database,
    )
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError, AgentError):
        await asking
    assert session.session_id is not None
    return session.session_id


async def test_a_query_without_an_owner_is_carried_on_by_another_node(
    postgres: PostgresServer, database: str
) -> None:
    scripts = ([calls(("work", {}))], [says("carried on")])
    async with _nodes(postgres, database, *scripts) as (dead, alive):
        session_id = await _leave_unfinished(dead, postgres, database)
        assert await alive.worker.look() == 1
        await alive.worker.wait()
        entries = await alive.store.log.read(session_id)
        assert isinstance(entries[-1], QueryEnded)
        assert entries[-1].stop_reason == "complete"
        # The call that was running is not run again; the model was told that its fate is unknown.
        assert alive.tool_process is None
        assert not [
            entry for entry in entries if isinstance(entry, ToolEnded) and entry.outcome == "ok"
        ]
        assert "unknown" in str(alive.provider.requests[0].messages[-1])
        assert await alive.worker.look() == 0


async def test_a_query_whose_node_is_alive_or_was_released_is_left_alone(
    postgres: PostgresServer, database: str
) -> None:
    async with _nodes(postgres, database, [calls(("work", {})), says("end")], []) as (one, other):
        async with one.agent.session("mine") as session:
            await session.send("go")
            await one.tool_started.wait()
            assert await other.worker.look() == 0
            session.abort()
            await session.wait_idle()
        await _expire(postgres, database)
        assert await other.worker.look() == 0


async def test_a_session_that_cannot_be_carried_on_is_tried_so_often_and_ever_later(
    postgres: PostgresServer, database: str
) -> None:
    async with _nodes(postgres, database, [calls(("work", {}))], []) as (dead, alive):
        session_id = await _leave_unfinished(dead, postgres, database)
        attempts, pauses = [], []
        claimed: Sequence[UnownedQuery] = ()
        with psycopg.connect(postgres.url(database), autocommit=True) as connection:
            for _ in range(5):
                claimed = await alive.store.unowned.claim(
                    limit=10, most_attempts=3, first_pause=100, longest_pause=350
                )
                attempts += [query.attempt for query in claimed]
                row = connection.execute(
                    "SELECT extract(epoch FROM resume_after - clock_timestamp())"
                    " FROM haptera.session"
                ).fetchone()
                pauses.append(round(float(row[0]), -1) if row else None)
                again = await alive.store.unowned.claim(
                    limit=10, most_attempts=3, first_pause=100, longest_pause=350
                )
                assert list(again) == []
                connection.execute("UPDATE haptera.session SET resume_after = '-infinity'")
        assert attempts == [1, 2, 3]
        assert pauses[:3] == [100, 200, 350]
        assert list(claimed) == []
        assert (await alive.store.log.read(session_id))[-1].kind == "tool.started"


async def test_an_agent_claims_the_queries_of_its_own_project_only(
    postgres: PostgresServer, database: str
) -> None:
    async with _nodes(postgres, database, [calls(("work", {}))], []) as (dead, alive):
        session_id = await _leave_unfinished(dead, postgres, database)
        options: dict[str, Any] = {"environment": {}, "owner": OWNER, "store": alive.store}
        once: dict[str, Any] = {"limit": 5, "first_pause": 100, "longest_pause": 100}
        async with Agent(MODEL, providers=[alive.provider], project="another", **options) as other:
            claimed = await other.sessions.unowned.claim(most_attempts=1, **once)
        assert list(claimed) == []
        claimed = await alive.agent.sessions.unowned.claim(most_attempts=1, **once)
        assert [query.session_id for query in claimed] == [session_id]


async def test_one_of_many_workers_gets_a_query(postgres: PostgresServer, database: str) -> None:
    async with _nodes(postgres, database, [calls(("work", {}))]) as (dead,):
        session_id = await _leave_unfinished(dead, postgres, database)
        stores = [PostgresStore(postgres.url(database), owner=OWNER) for _ in range(4)]
        found = await asyncio.gather(
            *(
                store.unowned.claim(limit=5, most_attempts=3, first_pause=100, longest_pause=100)
                for store in stores
            )
        )
        expected = UnownedQuery(session_id=session_id, owner=OWNER, project="p", attempt=1)
        assert [query for claimed in found for query in claimed] == [expected]
        for store in stores:
            await store.close()


async def test_a_prompt_that_is_sent_to_a_session_without_a_holder_is_carried_out(
    postgres: PostgresServer, database: str
) -> None:
    async with _nodes(postgres, database, [], [says("hello")]) as (one, other):
        async with one.agent.session("left alone"):
            pass
        remote = await one.agent.remote("left alone")
        query_id = await remote.send("go")
        assert await other.worker.look() == 1
        await other.worker.wait()
        assert other.worker.stats.resumed == 1
        last = (await other.store.log.read(remote.session_id))[-1]
        assert isinstance(last, QueryEnded)
        assert (last.query_id, last.stop_reason) == (query_id, "complete")
        assert await other.worker.look() == 0


async def test_a_query_that_rests_on_an_approval_is_left_alone_until_it_is_answered(
    postgres: PostgresServer, database: str
) -> None:
    def asking(node: Node) -> Agent:
        @tool(name="pay", approval="ask")
        async def pay() -> str:
            """Pay."""
            return "paid"

        options: dict[str, Any] = {"environment": {}, "owner": OWNER, "project": "p"}
        return Agent(MODEL, providers=[node.provider], store=node.store, tools=[pay], **options)

    async with _nodes(postgres, database, [calls(("pay", {}))], [says("done")]) as (one, other):
        agent, second = asking(one), asking(other)
        async with agent.session("asks") as session:
            (request,) = (await session.chat("go")).pending
        worker = SessionWorker(
            other.store, lambda query: second.session(query.session_id, must_exist=True)
        )
        assert await worker.look() == 0
        remote = await agent.remote("asks")
        await remote.approve(request.id)
        assert await worker.look() == 1
        await worker.wait()
        ended = [
            entry
            for entry in await other.store.log.read(remote.session_id)
            if isinstance(entry, QueryEnded)
        ]
        assert [entry.stop_reason for entry in ended] == ["approval", "complete"]
        await worker.close()
        await agent.close()
        await second.close()


async def test_a_worker_looks_by_itself_and_stops_when_it_is_closed(
    postgres: PostgresServer, database: str
) -> None:
    scripts = ([calls(("work", {}))], [says("carried on")])
    async with _nodes(postgres, database, *scripts) as (dead, alive):
        session_id = await _leave_unfinished(dead, postgres, database)
        async with alive.worker:
            while alive.worker.stats.resumed == 0:
                await asyncio.sleep(0.01)  # noqa: TID251 - the worker is another task
        assert (await alive.store.log.read(session_id))[-1].kind == "query.ended"
