"""What survives what: the table of docs/durability.md, row by row."""

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent
from haptera.agent.remote import AgentRemote
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.log.tools import ToolStarted
from haptera.model.messages import AssistantMessage
from haptera.testing.store_conformance.crash_sweep import is_strace_here
from tests.agent.tools import deferred_orders
from tests.architecture.source_tree import ROOT
from tests.kernel.session.crash_worker import PROMPTS
from tests.kernel.session.echo_provider import EchoProvider
from tests.kernel.session.three_turns import durable_agent
from tests.scripted_agents import live_of
from tests.stores.durable_kinds import durable_kind
from tests.stores.store_factories import DURABLE, STORE_FACTORIES
from tests.stores.workers import (
    NEW_INTERPRETER,
    WorkerProcess,
    command_without_other_writes,
    worker,
)

NAME = "survivor"
on_durable_stores = pytest.mark.parametrize("kind", DURABLE)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

_ROWS: dict[str, str] = {}


def row(first_cell: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say which row of the table a test shows."""

    def note(test: Callable[..., Any]) -> Callable[..., Any]:
        _ROWS[first_cell] = test.__name__
        return test

    return note


def _process(
    kind: str, folder: Path, *, under: Sequence[str] = ()
) -> AbstractAsyncContextManager[WorkerProcess]:
    return worker(kind, folder, NAME, program="tests.kernel.session.session_worker", under=under)


def _agent(kind: str, folder: Path) -> Agent:
    return durable_agent(kind, folder, EchoProvider(), approval="ask")


async def _begin(process: WorkerProcess, *words: object) -> None:
    process.send("open")
    await process.until("open")
    if words:
        process.send("chat", *words)


def _effects(folder: Path) -> list[str]:
    file = folder / "effects"
    return file.read_text().split() if file.exists() else []


@row("a session is closed and opened again")
@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_a_session_that_is_opened_again_is_the_same(kind: str, tmp_path: Path) -> None:
    async with _agent(kind, tmp_path) as agent:
        async with agent.session(NAME) as session:
            await session.chat("hello")
            await session.configure(max_tokens=7)
            messages = session.messages
        async with agent.session(NAME, must_exist=True) as again:
            assert (again.messages, again.settings.max_tokens) == (messages, 7)


@row("the process ends or is killed between two queries")
@on_durable_stores
async def test_a_process_that_is_gone_leaves_its_session(kind: str, tmp_path: Path) -> None:
    async with _process(kind, tmp_path, under=NEW_INTERPRETER) as process:
        await _begin(process, "hello")
        await process.until("result")
        process.signal(signal.SIGKILL)
    async with _agent("memory", tmp_path) as forgetful:
        with pytest.raises(SessionError):
            await forgetful.session(NAME, must_exist=True).open()
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        assert [message.text for message in session.messages] == ["hello", "echo hello"]
        assert session.unfinished.query_id is None


@row("kill -9 while text is streaming")
@on_durable_stores
async def test_streamed_text_is_kept_and_marked(kind: str, tmp_path: Path) -> None:
    async with _process(kind, tmp_path) as process:
        await _begin(process, "stream", 100, 2)
        await process.until("event part.checkpoint")
        process.signal(signal.SIGKILL)
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        assert len(session.unfinished.interrupted_text) >= 4096
        await session.chat("and now?")
        answer = session.messages[1]
        assert isinstance(answer, AssistantMessage)
        assert answer.interrupted


async def _killed_while_a_tool_ran(kind: str, folder: Path) -> None:
    async with _process(kind, folder) as process:
        await _begin(process, "write linger")
        approval = await process.until("asked")
        await process.until("result approval")
        process.send("approve", approval)
        process.send("resume")
        await process.until("event tool.started")
        await _wait_for(lambda: _effects(folder) == ["linger"])
        process.signal(signal.SIGKILL)


@row("kill -9 while a call [waits for its answer](deferred-tools.md)")
@on_durable_stores
async def test_a_call_that_waits_for_its_answer_waits_on(kind: str, tmp_path: Path) -> None:
    program = "tests.agent.tools.deferred_orders"
    async with worker(kind, tmp_path, deferred_orders.NAME, program=program) as process:
        process.send("chat", "and", "die")
        assert await process.reply() == ""
    agent = deferred_orders.ordering_agent(kind, tmp_path, [])
    async with agent, agent.session(deferred_orders.NAME) as session:
        assert [call.fate for call in session.unfinished.calls] == ["waiting"]


@row("kill -9 while a tool is running")
@on_durable_stores
async def test_a_tool_that_was_running_is_unknown_and_not_run_again(
    kind: str, tmp_path: Path
) -> None:
    await _killed_while_a_tool_ran(kind, tmp_path)
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        assert [call.fate for call in session.unfinished.calls] == ["unknown"]
        result = await session.resume()
        assert result.text.startswith("tools: unknown This call was started")
        assert _effects(tmp_path) == ["linger"]


@on_durable_stores
async def test_a_tool_that_was_running_is_not_run_again_after_a_rewind_or_in_a_fork(
    kind: str, tmp_path: Path
) -> None:
    await _killed_while_a_tool_ran(kind, tmp_path)
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        _, answer, results = (message.id for message in session.messages)
        async with await session.fork(after=answer) as branch:
            told = (await branch.chat("what now?")).text
            assert told.startswith("tools: unknown This call was started")
        for to in (results, answer):
            await session.rewind(to=to)
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        assert [call.fate for call in session.unfinished.calls] == ["unknown"]
        assert (await session.resume()).text.startswith("tools: unknown This call was started")
    assert _effects(tmp_path) == ["linger"]


async def _wait_for(condition: Callable[[], bool]) -> None:
    """Poll another process; it has ten seconds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)  # noqa: TID251 - a real process is waited for


@row("kill -9 while an approval is pending")
@on_durable_stores
async def test_a_question_is_still_there_and_is_answered_once(kind: str, tmp_path: Path) -> None:
    async with _process(kind, tmp_path) as process:
        await _begin(process, "write word")
        approval = await process.until("asked")
        await process.until("result approval")
        process.signal(signal.SIGKILL)
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        assert [item.id for item in session.unfinished.approvals] == [approval]
        await session.approve(approval)
        assert (await session.resume()).text == "tools: ok word is written"
    assert _effects(tmp_path) == ["word"]


@row("kill -9 while prompts are in the queue")
@on_durable_stores
async def test_queued_prompts_are_sent_after_a_restart(kind: str, tmp_path: Path) -> None:
    async with _process(kind, tmp_path) as process:
        await _begin(process, "hold")
        await process.until("shown")
        process.send("chat", "later")
        await process.until("event input.queued")
        process.signal(signal.SIGKILL)
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        assert [item.message.text for item in session.unfinished.inputs] == ["later"]
        assert (await session.chat("and this")).text == "echo and this"
        assert session.messages[-3].text == "echo later"


@row("a command is sent while no process holds the session")
@on_durable_stores
async def test_a_command_waits_for_the_next_holder(kind: str, tmp_path: Path) -> None:
    async with _process(kind, tmp_path) as process:
        await _begin(process, "hello")
        await process.until("result")
        process.signal(signal.SIGKILL)
    async with _agent(kind, tmp_path) as agent:
        remote: AgentRemote = await agent.remote(NAME)
        await remote.send("are you there?")
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        assert (await session.resume()).text == "echo are you there?"
        assert session.messages[-1].text == "echo are you there?"


@row("a power cut")
@on_durable_stores
@pytest.mark.skipif(not is_strace_here(), reason="strace is not installed")
async def test_an_end_is_synced_before_it_is_shown(kind: str, tmp_path: Path) -> None:
    trace, synced = tmp_path / "trace", durable_kind(kind).synced
    command = command_without_other_writes("tests.kernel.session.crash_worker")
    calls = "trace=write,pwrite64,fsync,fdatasync,writev"
    process = await asyncio.create_subprocess_exec(
        *["strace", "-f", "-y", "-qq", "-e", calls, "-o", str(trace), "--"],
        *[*command, kind, str(tmp_path / "place"), "chat"],
    )
    assert await process.wait() == 0
    shown, unsynced, written = 0, set(), set()
    for call, path in re.findall(r"^\d+ +(\w+)\(\d+<([^>]*)>", trace.read_text(), re.MULTILINE):
        if call in {"write", "pwrite64"} and synced.search(path):
            unsynced.add(path)
            written.add(path)
        elif call in {"fsync", "fdatasync"}:
            unsynced.discard(path)
        elif call == "writev":
            assert unsynced == set(), f"answer {shown} came before it was synced"
            shown += 1
    assert shown == PROMPTS
    assert written, f"{synced} matches no file that was written"


@row("a full disk")
@on_durable_stores
async def test_a_full_disk_ends_the_query_and_loses_nothing(kind: str, tmp_path: Path) -> None:
    async with _process(kind, tmp_path) as process:
        await _begin(process, "hello")
        await process.until("result")
        process.send("limit", 100)
        process.send("chat", "write word")
        assert await process.until("error") == ErrorCode.FULL
        process.send("limit", 0)
        process.send("chat", "again")
        assert await process.until("result") == "complete echo again"
    assert _effects(tmp_path) == []
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        texts = [message.text for message in session.messages]
        assert (texts[:2], texts[-1]) == (["hello", "echo hello"], "echo again")


@row("a damaged line or row")
@on_durable_stores
async def test_damage_hides_nothing_else_and_is_reported(kind: str, tmp_path: Path) -> None:
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        await session.chat("damage me")
        await session.chat("keep me")
        damaged = (await live_of(session)).session_id
    for file in durable_kind(kind).log(tmp_path, damaged).parent.iterdir():
        file.write_bytes(file.read_bytes().replace(b"echo damage me", b"echo d\0mage me"))
    async with _agent(kind, tmp_path) as agent, agent.session(NAME) as session:
        live = await live_of(session)
        assert len(await live.store.log.inspect(live.session_id)) == 1
        assert session.messages[-1].text == "echo keep me"
        assert (await session.chat("next")).text == "echo next"


@row("a second process opens the session")
@on_durable_stores
async def test_one_holds_the_session_and_the_other_is_refused(kind: str, tmp_path: Path) -> None:
    async with _process(kind, tmp_path) as process, _agent(kind, tmp_path) as agent:
        await _begin(process)
        with pytest.raises(SessionError) as raised:
            await agent.session(NAME).chat("hello")
        assert raised.value.code is ErrorCode.BUSY


@row("the holder was stopped and replaced")
@on_durable_stores
async def test_a_replaced_holder_writes_nothing_more(kind: str, tmp_path: Path) -> None:
    async with _process(kind, tmp_path) as process, _agent(kind, tmp_path) as agent:
        await _begin(process, "hold")
        await process.until("shown")
        process.signal(signal.SIGSTOP)
        async with agent.session(NAME, busy="wait") as session:
            await session.chat("mine now")
            process.signal(signal.SIGCONT)
            assert await process.until("error") == ErrorCode.FENCED
            live = await live_of(session)
            stored = await live.store.log.read(live.session_id)
            assert len(stored) == live.fold.head
            assert not any(isinstance(entry, ToolStarted) for entry in stored)


def test_every_row_of_the_table_has_a_test() -> None:
    page = (ROOT / "docs" / "durability.md").read_text()
    section = page.partition("## Crashes, full disks and other processes")[2]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    assert rows[2:] == list(_ROWS)
