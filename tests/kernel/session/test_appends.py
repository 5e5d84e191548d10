"""How many appends a query takes: as few as "durable before visible and before effect" allows."""

from haptera import TextDelta, TurnEnded, tool
from haptera.testing import Gate, calls, says
from tests.kernel.session.failing_store import FailingStore
from tests.scripted_agents import make_agent


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def test_a_query_that_is_answered_in_one_read_takes_two_appends() -> None:
    store = FailingStore()
    agent, _ = make_agent([[says("a", "b")]], store=store)
    async with agent, agent.session() as session:
        await session.chat("go")
        assert store.log.appends[1:] == [
            ["query.started", "turn.started"],
            ["part.started", "part.ended", "turn.ended", "query.ended"],
        ]


async def test_a_call_is_in_the_log_before_its_tool_starts_and_its_result_before_the_next() -> None:
    store = FailingStore()
    agent, _ = make_agent([[calls(("look", {}))], [says("done")]], store=store, tools=[look])
    async with agent, agent.session() as session:
        await session.chat("go")
        kinds = [kind for batch in store.log.appends for kind in batch]
        first_end = next(batch for batch in store.log.appends if "turn.ended" in batch)
        assert "tool.started" not in first_end
        assert kinds.index("turn.ended") < kinds.index("tool.started")
        assert kinds.index("tool.ended") < len(kinds) - 1 - kinds[::-1].index("turn.started")


async def test_an_answer_is_shown_although_its_connection_stays_open_after_the_end() -> None:
    gate = Gate()
    agent, _ = make_agent([[says("all of it"), gate]])
    async with agent, agent.session() as session:
        seen = []
        async for event in session.stream("go"):
            seen.append(event)
            if isinstance(event, TurnEnded):
                assert gate.reached.is_set()
                gate.open()
        assert any(isinstance(event, TextDelta) for event in seen)
