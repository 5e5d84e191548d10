"""Sessions that version 0.1 wrote still open: the archive beside this file was made by its code.

It holds one folder per store, the states that were exported and `expected.json`: what that version
itself read back, session by session.
"""

import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import Agent, AgentSession, SessionState, tool
from haptera.model.messages import Message
from haptera.model.parts import Part, ToolCallPart, ToolResultPart
from haptera.testing import ScriptedProvider, says

pytestmark = pytest.mark.slow

ARCHIVE = Path(__file__).with_name("written-by-0.1.tar.gz")
# The stores that version had, and their places in the archive; it gets no more of them.
STORES = {"jsonl": "logs", "sqlite": "chats.db"}
NAMES = (
    "talk",
    "tools",
    "resting",
    "denied",
    "aborted",
    "rewound",
    "branch",
    "undone",
    "big",
    "killed",
)


@tool(approval="ask")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def agent_on(unpacked: Path, kind: str, *answers: str) -> tuple[Agent, ScriptedProvider]:
    store = f"{kind}:{unpacked / kind / STORES[kind]}"
    provider = ScriptedProvider([says(answer) for answer in answers])
    agent = Agent(
        "scripted/one",
        providers=[provider],
        tools=[pay],
        store=store,
        owner="ana",
        project="fjord",
        environment={},
    )
    return agent, provider


def seen(message: Message) -> list[Any]:
    return [type(message).__name__, [seen_part(part) for part in message.parts]]


def seen_part(part: Part) -> list[Any]:
    if isinstance(part, ToolCallPart):
        return ["call", part.call_id, part.name, part.arguments]
    if isinstance(part, ToolResultPart):
        return ["result", part.call_id, part.outcome, part.text]
    return [type(part).__name__, getattr(part, "text", "")[:40]]


def facts_of(session: AgentSession) -> dict[str, Any]:
    unfinished = session.unfinished
    return {
        "model": session.settings.model,
        "messages": [seen(message) for message in session.messages],
        "calls": [[call.call_id, call.tool, call.fate] for call in unfinished.calls],
        "pending": [approval.tool for approval in unfinished.approvals],
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", STORES)
async def test_an_old_session_reads_as_it_did(unpacked: Path, kind: str, name: str) -> None:
    expected = msgspec.json.decode((unpacked / "expected.json").read_bytes())
    agent, _ = agent_on(unpacked, kind)
    async with agent, agent.session(name, must_exist=True) as session:
        assert facts_of(session) == expected[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", STORES)
async def test_an_old_session_goes_on(unpacked: Path, kind: str, name: str) -> None:
    agent, provider = agent_on(unpacked, kind, "Yes, still.")
    async with agent, agent.session(name, must_exist=True) as session:
        before = len(session.messages)
        result = await session.chat("Are you there?")
        assert result.text == "Yes, still."
        assert len(session.messages) > before
    provider.check()


@pytest.mark.parametrize("kind", STORES)
async def test_an_old_prompt_in_the_inbox_is_not_lost(unpacked: Path, kind: str) -> None:
    agent, _ = agent_on(unpacked, kind, "It was.")
    async with agent, agent.session("waiting", must_exist=True) as session:
        waiting = [item.message.text for item in session.unfinished.inputs]
        await session.wait_idle()
        assert "Left in the inbox" in waiting + [message.text for message in session.messages]


@pytest.mark.parametrize("kind", STORES)
async def test_an_old_state_is_restored(unpacked: Path, kind: str) -> None:
    expected = msgspec.json.decode((unpacked / "expected.json").read_bytes())
    state = msgspec.json.decode((unpacked / kind / "state.json").read_bytes(), type=SessionState)
    agent, _ = agent_on(unpacked, kind)
    async with agent, agent.session(restore=state) as session:
        assert [seen(message) for message in session.messages] == expected["talk"]["messages"]


@pytest.mark.parametrize("kind", STORES)
async def test_an_old_session_can_be_shared(unpacked: Path, kind: str) -> None:
    agent, _ = agent_on(unpacked, kind)
    async with agent:
        assert await agent.sessions.shares("talk") == ()
        share = await agent.sessions.share("talk", redact=False)
        shown = await agent.sessions.shared(share.token or "")
        described = await agent.sessions.messages("talk")
    assert [seen(each) for each in shown.messages] == [seen(each.message) for each in described]
