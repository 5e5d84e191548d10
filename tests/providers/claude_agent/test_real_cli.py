"""The Claude Code CLI that comes with claude-agent-sdk, against a server of the tests' own.

It gets a folder of its own as HOME and for its configuration, a made-up key, and a clean
environment: nothing that is set up on the machine is read or changed.
"""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentError, Approve, Deny, tool
from haptera.model.errors import ErrorCode
from haptera.model.events import TextDelta
from haptera.model.log.compactions import Compaction
from haptera.model.log.native import UsageReported
from haptera.model.log.tools import ToolEnded
from haptera.model.parts import ToolResultPart
from haptera.providers.claude_agent import callbacks, command_line
from haptera.stores.jsonl.store import JsonlStore
from tests.providers.claude_agent.loopback_server import LoopbackServer, serving

MODEL = "claude-agent/claude-sonnet-4-6"

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serving() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, server: LoopbackServer) -> dict[str, Any]:
    return options_for(tmp_path, server)


def options_for(folder: Path, server: LoopbackServer) -> dict[str, Any]:
    """Everything that an agent needs, in a folder of its own."""
    home, work = folder / "home", folder / "work"
    for each in (home, work):
        each.mkdir(parents=True)
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "ANTHROPIC_API_KEY": "made-up-key",
        "ANTHROPIC_BASE_URL": server.url,
    }
    return {"environment": environment, "cwd": work, "project": "p"}


def wipe_transcripts(place: dict[str, Any]) -> None:
    shutil.rmtree(Path(place["environment"]["CLAUDE_CONFIG_DIR"]) / "projects")


async def test_two_queries_a_new_process_and_resume_with_and_without_the_local_transcript(
    tmp_path: Path, place: dict[str, Any], server: LoopbackServer
) -> None:
    place["store"] = f"sqlite:{tmp_path / 'sessions.db'}"
    async with Agent(MODEL, **place) as agent, agent.session("ana") as session:
        first = await session.chat("I am Ana: say Hello Ana.")
        second = await session.chat("again: say Still here.")
        events = [event async for event in session.stream("more: say More.")]
    assert (first.text, second.text) == ("Hello Ana.", "Still here.")
    assert first.native_session_id == second.native_session_id
    assert second.resume == "native"
    usage = next(event for event in events if isinstance(event, UsageReported))
    assert usage.usage is not None
    assert usage.usage.output == 5
    assert usage.model_usage
    async with Agent(MODEL, **place) as agent, agent.session("ana") as session:
        third = await session.chat("and now: say Resumed.")
    assert (third.text, third.resume, third.resumed) == ("Resumed.", "native", True)
    assert third.native_session_id == first.native_session_id
    assert "I am Ana" in server.last
    wipe_transcripts(place)
    other = options_for(tmp_path / "another machine", server)
    other["store"] = place["store"]
    async with Agent(MODEL, **other) as agent, agent.session("ana") as session:
        fourth = await session.chat("elsewhere: say Moved.")
        branch = await session.fork()
        fifth = await branch.chat("in a copy: say Forked.")
        await branch.close()
    assert (fourth.text, fourth.resume) == ("Moved.", "native")
    assert fourth.native_session_id == first.native_session_id
    assert (fifth.text, fifth.resume) == ("Forked.", "native")
    assert fifth.native_session_id != first.native_session_id
    sent = server.last
    assert all(said in sent for said in ("I am Ana", "elsewhere", "in a copy"))
    assert "This conversation began elsewhere" not in sent


async def test_a_restored_conversation_is_handed_over(
    place: dict[str, Any], server: LoopbackServer
) -> None:
    async with Agent(MODEL, **place) as agent, agent.session() as session:
        await session.chat("I am Ana: say Hello Ana.")
        state = await session.export()
    async with Agent(MODEL, **place) as agent, agent.session(restore=state) as session:
        answer = await session.chat("and now: say Handed over.")
    assert (answer.text, answer.resume) == ("Handed over.", "replay")
    assert "I am Ana" in server.last


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_transcript_that_the_cli_cannot_read_comes_from_the_store_or_is_handed_over(
    tmp_path: Path, place: dict[str, Any], server: LoopbackServer, *, is_stored: bool
) -> None:
    store = JsonlStore(tmp_path / "sessions")
    place["store"] = store
    async with Agent(MODEL, **place) as agent, agent.session("ana") as session:
        first = await session.chat("I am Ana: say Hello Ana.")
    projects = Path(place["environment"]["CLAUDE_CONFIG_DIR"]) / "projects"
    for path in projects.glob("*/*.jsonl"):
        path.write_text("")
    if not is_stored:
        for record in await store.index.browse("local", "claude-agent:sessions"):
            await store.log.delete(record.id)
    async with Agent(MODEL, **place) as agent, agent.session("ana") as session:
        answer = await session.chat("and now: say Here.")
    await store.close()
    assert answer.text == "Here."
    assert answer.resume == ("native" if is_stored else "replay")
    assert (answer.native_session_id == first.native_session_id) == is_stored
    assert "I am Ana" in server.last


async def test_an_interrupt_in_the_middle_of_a_stream_keeps_what_was_said(
    place: dict[str, Any], server: LoopbackServer
) -> None:
    async with Agent(MODEL, **place) as agent, agent.session("ana") as session:
        async with session.stream("slow Half an answer", on_abort="return") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    session.abort("enough")
        cut = await stream.result()
        server.go_on.set()
        after = await session.chat("say After.")
    assert (cut.text, cut.stop_reason) == ("Half an answer", "aborted")
    assert (after.text, after.resume) == ("After.", "native")
    assert "Half an answer" in server.last


async def test_a_cli_that_is_killed_in_the_middle_of_a_stream_is_started_again(
    place: dict[str, Any], server: LoopbackServer
) -> None:
    async with Agent(MODEL, **place) as agent, agent.session("ana") as session:
        await session.chat("I am Ana: say Hello Ana.")
        with pytest.raises(AgentError):
            async with session.stream("slow Half an answer") as stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        for pid in running_clis():
                            os.kill(pid, signal.SIGKILL)
        server.go_on.set()
        after = await session.chat("say Back again.")
    assert (after.text, after.resume, after.resumed) == ("Back again.", "native", True)
    assert "I am Ana" in server.last


def running_clis() -> list[int]:
    """The processes of Claude Code that this process has started."""
    supervisors = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    clis = [Path(f"/proc/{pid}/task/{pid}/children").read_text().split() for pid in supervisors]
    return [
        int(pid)
        for each in clis
        for pid in each
        if b"stream-json" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


async def test_approvals_are_allowed_changed_and_denied(
    place: dict[str, Any], server: LoopbackServer
) -> None:
    answers: dict[str, Any] = {
        "touch a": Approve(),
        "touch b": Approve(arguments={"command": "touch changed", "description": "x"}),
        "touch c": Deny("not that one"),
    }

    async def decide(request: Any) -> Any:
        return answers[request.arguments["command"]]

    work = Path(place["cwd"])
    outcomes = []
    async with Agent(MODEL, approver=decide, **place) as agent, agent.session("ana") as session:
        for name in answers:
            call = json.dumps({"command": name, "description": "x"})
            events = [event async for event in session.stream(f"call Bash {call}")]
            outcomes += [event.outcome for event in events if isinstance(event, ToolEnded)]
    assert outcomes == ["ok", "ok", "denied"]
    assert sorted(path.name for path in work.iterdir()) == ["a", "changed"]
    assert "not that one" in server.last


async def test_one_of_our_tools_is_called(place: dict[str, Any], server: LoopbackServer) -> None:
    calls: list[tuple[int, int]] = []

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        calls.append((a, b))
        return a + b

    async with Agent(MODEL, tools=[add], **place) as agent, agent.session("ana") as session:
        answer = await session.chat('call mcp__haptera__add {"a": 20, "b": 22}')
    assert calls == [(20, 22)]
    assert answer.text == "Done."
    assert [call.name for call in answer.tool_calls] == ["add"]
    assert "42" in server.last


async def test_a_session_whose_tools_have_the_former_name_goes_on(
    place: dict[str, Any],
    server: LoopbackServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    place |= {"store": f"sqlite:{tmp_path / 'sessions.db'}", "tools": [add]}
    with monkeypatch.context() as before:
        for module in (callbacks, command_line):
            before.setattr(module, "OWN_SERVER", "holdfast")
        async with Agent(MODEL, **place) as agent, agent.session("ana") as session:
            first = await session.chat('call mcp__holdfast__add {"a": 20, "b": 22}')
    assert [call.name for call in first.tool_calls] == ["add"]
    async with Agent(MODEL, **place) as agent, agent.session("ana") as session:
        second = await session.chat('call mcp__haptera__add {"a": 2, "b": 3}')
        called = [part for message in session.messages for part in message.parts]
    assert (second.text, second.resume) == ("Done.", "native")
    assert second.native_session_id == first.native_session_id
    assert "mcp__holdfast__add" in server.last
    assert [part.text for part in called if isinstance(part, ToolResultPart)] == ["42", "5"]


async def test_compacting_gives_a_boundary(place: dict[str, Any]) -> None:
    async with Agent(MODEL, **place) as agent, agent.session("ana") as session:
        await session.chat("say " + "A long story. " * 50)
        await session.chat("say Another one.")
        events = [event async for event in session.stream("/compact")]
        after = await session.chat("say After it.")
    boundary = next(event for event in events if isinstance(event, Compaction))
    assert boundary.trigger == "manual"
    assert boundary.pre_tokens is not None
    assert boundary.alias == "compact_boundary"
    assert after.text == "After it."


async def test_a_401_fails_within_seconds(place: dict[str, Any], server: LoopbackServer) -> None:
    options = {**place, "claude_agent": {"max_retries": 1}}
    async with asyncio.timeout(30), Agent(MODEL, **options) as agent:
        with pytest.raises(AgentError) as caught:
            await agent.run("fail 401")
    assert caught.value.code is ErrorCode.AUTH
    assert server.count <= 3
