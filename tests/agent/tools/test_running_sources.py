"""Sources of tools with something that runs behind them, and tools that ask while they run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haptera import Approve, Deny, ToolContext, tool
from haptera.model.canonical import arguments_hash
from haptera.ports.tools import OfferedTool, RunningToolSource
from haptera.sync import Agent as SyncAgent
from haptera.testing import ScriptedProvider, calls, says
from tests.scripted_agents import make_agent, outcomes_in, run_script
from tests.tools.mcp.mcp_agents import raw_server


@tool
def ping() -> str:
    """Answer."""
    return "pong"


class Slow:
    """A source whose list is there once it is ready."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.offered: tuple[OfferedTool, ...] = ()

    def tools(self) -> Sequence[OfferedTool]:
        return self.offered

    async def ready(self) -> None:
        self.happened.append("ready")
        self.offered = self.offered or (ping,)

    async def close(self) -> None:
        self.happened.append("close")


async def test_a_source_is_ready_before_the_first_turn_and_closed_with_its_agent() -> None:
    source = Slow()
    assert isinstance(source, RunningToolSource)
    steps = [calls(("ping", {})), says("a"), says("b")]
    agent, provider = make_agent(steps, tools=[source])
    async with agent, agent.session() as session:
        assert source.happened == []
        await session.chat("go")
        assert source.happened == ["ready"]
        await session.chat("again")
    assert source.happened == ["ready", "ready", "close"]
    assert outcomes_in(provider.requests[1]) == [("ping", "ok", "pong")]


async def test_a_source_that_fails_to_close_leaves_nothing_else_open(tmp_path: Path) -> None:
    class Stuck(Slow):
        async def close(self) -> None:
            raise OSError("it does not end")

    store = f"sqlite:{tmp_path / 'sessions.db'}"
    agent, _ = make_agent([calls(("ping", {})), says("a")], tools=[Stuck()], store=store)
    await agent.session("kept").chat("go")
    with pytest.raises(OSError, match="it does not end"):
        await agent.close()
    # An open database would have files beside it.
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["sessions.db"]


async def test_a_source_of_a_query_is_ready_too_and_is_left_to_its_owner() -> None:
    source = Slow()
    agent, provider = make_agent([calls(("ping", {})), says("a")])
    async with agent:
        await agent.run("go", tools=[source])
    assert source.happened == ["ready"]
    assert outcomes_in(provider.requests[1]) == [("ping", "ok", "pong")]


@pytest.mark.parametrize(
    ("approver", "heard"),
    [
        (lambda _: Approve({"answer": 7}), "Approve {'answer': 7}"),
        (lambda _: Deny("not now"), "Deny not now"),
        (lambda _: "yes", "Deny the approver returned str; it must return Approve or Deny"),
        (None, "Deny there is no approver"),
        (
            lambda asked: Deny(asked.arguments_hash),
            f"Deny {arguments_hash('wonder__question', {'what': '?'})}",
        ),
    ],
)
async def test_a_running_tool_can_ask_the_approver(approver: Any, heard: str) -> None:
    @tool
    async def wonder(context: ToolContext) -> str:
        """Ask a person."""
        decision = await context.ask("wonder__question", {"what": "?"}, reason="it is unclear")
        said = decision.arguments if isinstance(decision, Approve) else decision.reason
        return f"{type(decision).__name__} {said}"

    _, provider = await run_script(
        [calls(("wonder", {})), says("a")], tools=[wonder], approver=approver
    )
    assert outcomes_in(provider.requests[1]) == [("wonder", "ok", heard)]


def test_a_blocking_agent_uses_a_server() -> None:
    provider = ScriptedProvider([calls(("raw__echo", {"n": 1})), says("done")])
    with SyncAgent(
        "scripted/one", providers=[provider], environment={}, tools=[raw_server()]
    ) as agent:
        assert agent.run("go").text == "done"
    assert outcomes_in(provider.requests[1]) == [("raw__echo", "ok", '{"n": 1}')]
