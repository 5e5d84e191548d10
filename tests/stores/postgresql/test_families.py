"""Sub-agents on a shared database: answered from another node, and left alone by workers."""

from haptera import Agent, tool
from haptera.model.ids import new_query_id, new_session_id
from haptera.model.log.queries import QueryStarted
from haptera.model.log.sessions import SessionOpened
from haptera.stores.postgresql.store import PostgresStore
from haptera.system.clock import Stamp
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

OWNER = "ana"


async def test_what_a_sub_agent_asks_is_answered_from_another_node(
    postgres: PostgresServer, database: str
) -> None:
    effects: list[str] = []

    @tool(approval="ask")
    def write(text: str) -> str:
        """Write."""
        effects.append(text)
        return "written"

    stores = [PostgresStore(postgres.url(database, role=APP_ROLE), owner=OWNER) for _ in range(2)]

    def family(node: int, parent: list[Step], child: list[Step]) -> Agent:
        inner = Agent(
            "scripted/a", providers=[ScriptedProvider(child)], environment={}, tools=[write]
        )
        return Agent(
            "scripted/a",
            providers=[ScriptedProvider(parent)],
            environment={},
            tools=[inner.as_tool(name="child", description=".")],
            store=stores[node],
            owner=OWNER,
            project="p",
        )

    asks: list[Step] = [calls(("child", {"prompt": "write a"}))]
    agent = family(0, asks, [calls(("write", {"text": "a"}))])
    async with agent, agent.session("main") as session:
        assert (await session.chat("go")).stop_reason == "approval"
    agent = family(1, [says("end")], [says("wrote it")])
    async with agent:
        remote = await agent.remote("main")
        (pending,) = await remote.pending()
        await remote.approve(pending.id)
        async with agent.session("main") as session:
            assert (await session.resume()).text == "end"
        assert [each.name for each in await agent.sessions.list()] == ["main"]
        (child,) = (await agent.sessions.tree("main")).children
        assert (child.session.owner, child.session.phase) == (OWNER, "idle")
        await agent.sessions.delete("main")
        assert await agent.sessions.list(children=True) == ()
    assert effects == ["a"]
    for store in stores:
        await store.close()


async def test_a_worker_leaves_unfinished_sub_agents_to_their_callers(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database, role=APP_ROLE), owner=OWNER)
    parent, clock = new_session_id(), FakeClock()
    for session_id, spawned_by in ((parent, None), (new_session_id(), parent)):
        lease = await store.leases.acquire(session_id, "gone")
        stamp = Stamp(clock, query_id=new_query_id())
        opened = SessionOpened(
            **Stamp(clock)(), seq=1, session_id=session_id, owner=OWNER, spawned_by=spawned_by
        )
        await store.log.append(lease, [opened, QueryStarted(**stamp(), seq=2)])
        await store.leases.release(lease)
    claimed = await store.unowned.claim(limit=5, most_attempts=3, first_pause=0, longest_pause=0)
    assert [query.session_id for query in claimed] == [parent]
    await store.close()
