"""Native agents as sub-agents, and as agents that have sub-agents, over a scripted child."""

from pathlib import Path
from typing import Any

from haptera import Agent, ApprovalRequest, Approve
from haptera.testing import ScriptedProvider, calls, says
from tests.providers.claude_agent.children import (
    USER,
    Child,
    agent_of,
    call,
    hook,
    init,
    mcp_call,
    permission,
    result,
    text,
    tool_result,
)
from tests.scripted_agents import make_agent, outcomes_in

TOUCH = {"command": "touch x"}


def _bash_turn() -> list[dict[str, Any]]:
    steps = [USER, init(), *call("Bash", TOUCH), permission("Bash", TOUCH)]
    return [*steps, tool_result("made"), *text("Done.", "msg_2"), result("Done.")]


async def test_a_native_agent_answers_as_a_sub_agent_and_asks_the_callers_approver(
    tmp_path: Path,
) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Approve:
        asked.append(request)
        return Approve()

    coder = agent_of(Child(tmp_path, _bash_turn()))
    agent, provider = make_agent(
        [calls(("code", {"prompt": "make x"})), says("It is made.")],
        tools=[coder.as_tool(name="code", description="Writes code.")],
        approver=approve,
    )
    async with agent, agent.session("main") as session:
        answer = await session.chat("go")
        assert answer.text == "It is made."
        assert outcomes_in(provider.requests[1]) == [("code", "ok", "Done.")]
        assert [request.tool for request in asked] == ["Bash"]
        assert answer.children_cost is not None
        (child,) = (await agent.sessions.tree("main")).children
        assert child.session.native_session_id is not None
        assert asked[0].child is not None
        assert asked[0].child.session_id == child.session.id


async def test_a_native_agent_has_sub_agents(tmp_path: Path) -> None:
    provider = ScriptedProvider([says("42")])
    helper = Agent("scripted/a", providers=[provider], environment={})
    asks = {"prompt": "what is it?"}
    name = "mcp__haptera__help"
    steps = [USER, init(), *call(name, asks), hook(name, asks), *mcp_call("help", asks)]
    child = Child(tmp_path, [*steps, tool_result("42"), *text("Ok.", "msg_2"), result("Ok.")])
    agent = agent_of(child, tools=[helper.as_tool(name="help", description="Helps.")])
    async with agent, agent.session("main") as session:
        await session.chat("go")
        said = child.of("answer")[-1]["response"]["mcp_response"]["result"]
        assert said["content"] == [{"type": "text", "text": "42"}]
        (found,) = (await agent.sessions.tree("main")).children
        assert found.session.title == "help: what is it?"
