"""Two processes and one session: one holds it, the other waits, is refused, or sends commands."""

import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from haptera import Agent
from haptera.agent.remote import AgentRemote
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.events import Event
from haptera.model.log.approvals import ApprovalSettled
from haptera.model.log.queries import InputQueued, QueryEnded
from haptera.model.messages import AssistantMessage
from tests.kernel.session.echo_provider import EchoProvider
from tests.kernel.session.three_turns import durable_agent
from tests.scripted_agents import live_of
from tests.stores.store_factories import DURABLE
from tests.stores.workers import WorkerProcess, worker

NAME = "shared"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.parametrize("kind", DURABLE),
]


def _process(kind: str, folder: Path) -> AbstractAsyncContextManager[WorkerProcess]:
    return worker(kind, folder, NAME, program="tests.kernel.session.session_worker")


@asynccontextmanager
async def _held(kind: str, folder: Path) -> AsyncIterator[tuple[WorkerProcess, Agent, AgentRemote]]:
    """Let a process hold the session, and reach it from this one."""
    async with _process(kind, folder) as holder:
        holder.send("open")
        await holder.until("open")
        async with durable_agent(kind, folder, EchoProvider(), approval="ask") as agent:
            yield holder, agent, await agent.remote(NAME)


async def _until_ended(remote: AgentRemote, count: int = 1) -> list[Event]:
    """Read the log until so many queries have ended."""
    found: list[Event] = []
    async for entry in remote.events():
        found.append(entry)
        count -= isinstance(entry, QueryEnded)
        if not count:
            break
    return found


def _effects(folder: Path) -> list[str]:
    file = folder / "effects"
    return file.read_text().split() if file.exists() else []


async def test_a_session_that_is_held_elsewhere_is_refused_before_a_model_is_asked(
    kind: str, tmp_path: Path
) -> None:
    provider = EchoProvider()
    async with _held(kind, tmp_path), durable_agent(kind, tmp_path, provider) as agent:
        with pytest.raises(SessionError) as raised:
            await agent.session(NAME).chat("hello")
        assert raised.value.code is ErrorCode.BUSY
    assert provider.requests == []


async def test_a_process_that_waits_gets_the_session_when_its_holder_closes_it(
    kind: str, tmp_path: Path
) -> None:
    async with _held(kind, tmp_path) as (holder, _, _), _process(kind, tmp_path) as waiting:
        waiting.send("open", "wait")
        await waiting.until("waiting")
        # The other process waits from here on: the holder can still use the session.
        holder.send("chat", "mine")
        assert await holder.until("result") == "complete echo mine"
        holder.send("close")
        await waiting.until("open")
        waiting.send("chat", "yours")
        assert await waiting.until("result") == "complete echo yours"


async def test_a_process_that_waits_gets_the_session_when_its_holder_is_killed(
    kind: str, tmp_path: Path
) -> None:
    async with _held(kind, tmp_path) as (holder, _, _), _process(kind, tmp_path) as waiting:
        waiting.send("open", "wait")
        await waiting.until("waiting")
        holder.send("chat", "hold")
        await holder.until("shown")
        holder.signal(signal.SIGKILL)
        await waiting.until("open")
        waiting.send("chat", "go on")
        assert await waiting.until("result") == "complete echo go on"


async def test_an_abort_from_another_process_stops_the_query(kind: str, tmp_path: Path) -> None:
    async with _held(kind, tmp_path) as (holder, _, remote):
        holder.send("chat", "hold")
        await holder.until("shown")
        await remote.abort("enough")
        assert await holder.until("result") == "aborted so far"
        holder.send("chat", "again")
        assert await holder.until("result") == "complete echo again"


async def test_a_prompt_from_another_process_is_answered_once(kind: str, tmp_path: Path) -> None:
    async with _held(kind, tmp_path) as (holder, _, remote):
        await remote.send("hello")
        entries = await _until_ended(remote)
        holder.send("chat", "mine")
        assert await holder.until("result") == "complete echo mine"
    assert [entry.message.text for entry in entries if isinstance(entry, InputQueued)] == ["hello"]
    async with durable_agent(kind, tmp_path, EchoProvider()) as agent, agent.session(NAME) as after:
        await after.wait_idle()
        texts = [message.text for message in after.messages]
        assert texts == ["hello", "echo hello", "mine", "echo mine"]


async def test_a_prompt_waits_for_the_query_that_runs(kind: str, tmp_path: Path) -> None:
    async with _held(kind, tmp_path) as (holder, _, remote):
        holder.send("chat", "hold")
        await holder.until("shown")
        await remote.send("later")
        await holder.until("event input.queued")
        await remote.abort()
        entries = await _until_ended(remote, 2)
        ended = [entry.stop_reason for entry in entries if isinstance(entry, QueryEnded)]
        assert ended == ["aborted", "complete"]


async def test_a_steering_prompt_from_another_process_joins_the_query(
    kind: str, tmp_path: Path
) -> None:
    async with _held(kind, tmp_path) as (holder, _, remote):
        holder.send("chat", "write one")
        approval = await holder.until("asked")
        await holder.until("result approval")
        await remote.approve(approval)
        await holder.until("event approval.settled")
        holder.send("resume")
        assert await holder.until("result") == "complete tools: ok one is written"
        holder.send("chat", "hold")
        await holder.until("shown")
        await remote.steer("shorter please")
        await holder.until("event input.queued")
        await remote.abort()
        await holder.until("result aborted")
        entries = await _until_ended(remote, 4)
    assert [item.delivery for item in entries if isinstance(item, InputQueued)] == ["steer"]


@pytest.mark.parametrize("answer", ["approve", "deny"])
async def test_an_approval_is_answered_from_another_process(
    kind: str, answer: str, tmp_path: Path
) -> None:
    async with _held(kind, tmp_path) as (holder, _, remote):
        holder.send("chat", "write word")
        approval = await holder.until("asked")
        await holder.until("result approval")
        await (remote.approve(approval) if answer == "approve" else remote.deny(approval, "no"))
        await holder.until("event approval.settled")
        holder.send("resume")
        said = await holder.until("result")
    expected = "ok word is written" if answer == "approve" else "denied no"
    assert said == f"complete tools: {expected}"
    assert _effects(tmp_path) == (["word"] if answer == "approve" else [])


async def test_an_approval_is_answered_while_no_process_holds_the_session(
    kind: str, tmp_path: Path
) -> None:
    async with _held(kind, tmp_path) as (holder, _, _):
        holder.send("chat", "write word")
        approval = await holder.until("asked")
        await holder.until("result approval")
        holder.signal(signal.SIGKILL)
    async with durable_agent(kind, tmp_path, EchoProvider(), approval="ask") as second:
        remote = await second.remote(NAME)
        await remote.approve(approval)
        await remote.approve(approval)
    async with _process(kind, tmp_path) as third:
        third.send("open")
        await third.until("open")
        third.send("resume")
        assert await third.until("result") == "complete tools: ok word is written"
        third.send("close")
        await third.until("closed")
    assert _effects(tmp_path) == ["word"]
    async with durable_agent(kind, tmp_path, EchoProvider()) as agent, agent.session(NAME) as after:
        live = await live_of(after)
        entries = await live.store.log.read(live.session_id)
        assert len([item for item in entries if isinstance(item, ApprovalSettled)]) == 1
        assert await live.store.inbox.pending(live.session_id) == ()


async def test_prompts_left_while_no_process_holds_the_session_are_answered_by_the_next_holder(
    kind: str, tmp_path: Path
) -> None:
    async with _held(kind, tmp_path) as (holder, agent, remote):
        holder.send("chat", "hold")
        await holder.until("shown")
        holder.signal(signal.SIGKILL)
        await remote.send("first")
        await remote.send("second")
        async with agent.session(NAME, busy="wait") as session:
            assert [item.message.text for item in session.unfinished.inputs] == ["first", "second"]
            await session.chat("third")
            answers = [item.text for item in session.messages if isinstance(item, AssistantMessage)]
        assert answers[-3:] == ["echo first", "echo second", "echo third"]


async def test_an_abort_that_no_holder_received_does_not_stop_a_later_query(
    kind: str, tmp_path: Path
) -> None:
    async with _held(kind, tmp_path) as (holder, agent, remote):
        holder.signal(signal.SIGKILL)
        await remote.abort()
        async with agent.session(NAME, busy="wait") as session:
            assert (await session.chat("hello")).text == "echo hello"


async def test_a_holder_that_was_taken_over_ends_its_query_as_fenced(
    kind: str, tmp_path: Path
) -> None:
    async with _held(kind, tmp_path) as (holder, agent, _):
        holder.send("chat", "hold")
        await holder.until("shown")
        holder.signal(signal.SIGSTOP)
        async with agent.session(NAME, busy="wait") as session:
            assert (await session.chat("mine now")).text == "echo mine now"
            holder.signal(signal.SIGCONT)
            assert await holder.until("error") == "FENCED"
            holder.send("chat", "hello")
            assert await holder.until("error") == "FENCED"
            assert session.messages[-1].text == "echo mine now"


async def test_a_session_that_another_process_holds_is_shared_by_it(
    kind: str, tmp_path: Path
) -> None:
    async with _held(kind, tmp_path) as (holder, agent, _):
        share = await agent.sessions.share(NAME)
        assert share.token is not None
        assert (await agent.sessions.shared(share.token)).messages == ()
        await holder.until("event session.changed")
        await agent.sessions.unshare(NAME, share.id)
        await holder.until("event session.changed")
        with pytest.raises(SessionError) as caught:
            await agent.sessions.shared(share.token)
        assert caught.value.code is ErrorCode.NOT_FOUND
