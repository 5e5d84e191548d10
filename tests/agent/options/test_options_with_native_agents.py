"""What each option of a query does with a native agent: it acts, or it is refused.

A new option fails here until its row in `EFFECTS` says which of the two it is.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haptera import AgentError, AgentResult, ErrorCode, ToolContext, tool
from tests.agent.options.option_scenes import BOT, PROBES, Scene
from tests.agent.options.test_fates_of_options import ELSEWHERE, FATES
from tests.attacks.moments import others_run
from tests.providers.claude_agent.children import (
    USER,
    Child,
    agent_of,
    call,
    hook,
    init,
    mcp_call,
    result,
    text,
    tool_result,
)
from tests.scripted_agents import failure_of

pytestmark = pytest.mark.slow

ANSWER = '{"name":"Paris"}'
IMAGE = b"\x89PNG\r\n\x1a\n"
OURS = "mcp__haptera__look"
CUT: Any = result(subtype="error_during_execution", is_error=True)["emit"]
REFUSED = {"require_tool", "compact"}
"""Options that are CONFIG_INVALID with a native agent, as docs/claude-agent.md says."""
SESSIONS = {"delivery"}
"""Options that are over before a native agent is asked."""


class Native:
    """A query with a native agent that calls our tool `look`, and what was seen of it."""

    def __init__(self, folder: Path, name: str) -> None:
        told = [USER, init(), *call(OURS, {}), hook(OURS, {}), *mcp_call("look", {})]
        ending = [tool_result("seen"), *text(ANSWER, "msg_2"), result(ANSWER)]
        steps = [USER, init(), {"gate": "x"}] if name == "timeout" else [*told, *ending]
        self.child = Child(folder, steps, on_interrupt=[CUT])
        self.scene, self.meanwhile = Scene(name), PROBES[name].meanwhile
        self.result: AgentResult[Any] | None = None
        self.error: AgentError | None = None

    async def _look(self, context: ToolContext[Any]) -> str:
        """Look."""
        self.scene.callers.append(context)
        self.meanwhile(self.scene)
        for _ in range(9):  # what that sets off goes first
            await others_run()
        return "seen"

    async def chat(self, **options: Any) -> None:
        """Send a prompt."""
        look = tool(name="look")(self._look)
        agent = agent_of(self.child, tools=[look], clock=self.scene.clock)
        async with agent, agent.session("x") as self.scene.session:
            try:
                self.result = await self.scene.session.chat("go", **options)
            except AgentError as error:
                self.error = error

    @property
    def prompts(self) -> str:
        """What the agent was sent."""
        return str(self.child.of("user"))

    @property
    def told(self) -> str:
        """What our tool told the agent."""
        told: str = str(self.child.of("answer")[-1])
        return told


Effect = Callable[[Native], bool]


def is_stopped_with(code: ErrorCode) -> Effect:
    return lambda native: native.error is not None and native.error.code is code


@tool
async def look() -> str:
    """Look elsewhere."""
    return "seen elsewhere"


EFFECTS: dict[str, tuple[dict[str, Any], Effect]] = {
    "settings": (
        {"system_prompt": "Be brief."},
        lambda native: "--system-prompt=Be brief." in native.child.argv,
    ),
    "tools": ({"tools": [look]}, lambda native: "seen elsewhere" in native.told),
    "deps": (
        {"deps": "a database"},
        lambda native: native.scene.callers[-1].deps == "a database",
    ),
    "sender": ({"sender": BOT}, lambda native: native.scene.callers[-1].sender == BOT),
    "attachments": ({"attachments": [IMAGE]}, lambda native: "iVBORw0KGgo=" in native.prompts),
    "signal": ({}, is_stopped_with(ErrorCode.ABORTED)),
    "on_abort": (
        {"on_abort": "return"},
        lambda native: native.result is not None and native.result.stop_reason == "aborted",
    ),
    "timeout": ({"timeout": 0.01}, is_stopped_with(ErrorCode.TIMEOUT)),
    "total_timeout": ({"total_timeout": 30}, is_stopped_with(ErrorCode.TIMEOUT)),
    "output_type": (
        PROBES["output_type"].said(Scene()),
        lambda native: native.result is not None and native.result.output is not None,
    ),
    "output_schema": (
        PROBES["output_schema"].said(Scene()),
        lambda native: native.result is not None and native.result.output is not None,
    ),
    "output_validator": (
        PROBES["output_validator"].said(Scene()),
        lambda native: native.result is not None and native.result.output == "another",
    ),
    "output_attempts": (
        {"output_attempts": 1, "output_type": int},
        is_stopped_with(ErrorCode.OUTPUT_INVALID),
    ),
    "reminders": (
        {"reminders": ["Mind the gap."]},
        lambda native: native.prompts.count("Mind the gap.") == 1,
    ),
    "transform": (
        {"transform": lambda _name, value: str(value).upper()},
        lambda native: "SEEN" in native.told,
    ),
}


def test_what_every_option_does_with_a_native_agent_is_decided() -> None:
    decided = EFFECTS.keys() | REFUSED | SESSIONS
    assert FATES.keys() | ELSEWHERE == decided, "add a row to EFFECTS, or refuse the option"


@pytest.mark.parametrize("name", EFFECTS)
async def test_an_option_acts_with_a_native_agent(name: str, tmp_path: Path) -> None:
    said, acts = EFFECTS[name]
    native = Native(tmp_path / "told", name)
    await native.chat(**(native.scene.said(name) if name == "signal" else said))
    assert acts(native)
    if name != "timeout":  # the agent is silent there
        plain = Native(tmp_path / "plain", name)
        await plain.chat()
        assert not acts(plain)


async def test_a_tool_cannot_be_required_of_a_native_agent(tmp_path: Path) -> None:
    native = Native(tmp_path, "require_tool")
    await native.chat(require_tool="look")
    assert native.error is not None
    assert native.error.code is ErrorCode.CONFIG_INVALID
    assert native.child.of("user") == []


async def test_a_compaction_that_was_cut_off_is_not_resumed_by_a_native_agent(
    tmp_path: Path,
) -> None:
    native, scene = Native(tmp_path, "settings"), Scene(project="p")
    await scene.chat()
    await scene.die_in(lambda session: session.compact())
    agent = agent_of(native.child, store=scene.store, project="p")
    async with agent, agent.session("x") as session:
        error = await failure_of(session.resume(model=agent.settings.model))
    assert error.code is ErrorCode.CONFIG_INVALID
    assert native.child.of("user") == []
