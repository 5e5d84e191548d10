"""A process that dies right after it acknowledged a prompt or an answer: both are in the log."""

import asyncio
import signal
from pathlib import Path

import pytest

from haptera import ApprovalRequest, Deny
from haptera.model.approvals import Decision
from haptera.model.log.approvals import ApprovalSettled
from haptera.testing import says
from tests.architecture.source_tree import ROOT
from tests.forked_processes import ForkedProcess
from tests.kernel.session.answer_worker import NAME, MortalStore, make_agent
from tests.scripted_agents import live_of
from tests.stores.store_factories import DURABLE
from tests.stores.workers import worker_environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.parametrize("kind", DURABLE),
]


async def _kill_in(scenario: str, kind: str, folder: Path) -> None:
    """Let a process come to the end of a scenario."""
    command = ("tests.kernel.session.answer_worker", kind, str(folder), scenario)
    process = ForkedProcess(*command, cwd=ROOT, env=worker_environment())
    assert await asyncio.to_thread(process.wait) == -signal.SIGKILL


async def _deny(_request: ApprovalRequest) -> Decision:
    return Deny("asked again")


def _effects(folder: Path) -> list[str]:
    file = folder / "effects"
    return file.read_text().split() if file.exists() else []


async def test_a_steering_prompt_is_kept_once_steer_has_returned(kind: str, tmp_path: Path) -> None:
    await _kill_in("steer", kind, tmp_path)
    agent = make_agent(tmp_path, MortalStore(kind, tmp_path), [says("hi")])
    async with agent, agent.session(NAME) as session:
        assert [item.message.text for item in session.unfinished.inputs] == ["hello"]
        assert (await session.resume()).text == "hi"


async def test_a_prompt_sent_to_a_resting_session_outlives_what_it_cancels(
    kind: str, tmp_path: Path
) -> None:
    await _kill_in("send_to_resting", kind, tmp_path)
    agent = make_agent(tmp_path, MortalStore(kind, tmp_path), [says("hi"), says("hi")])
    async with agent, agent.session(NAME) as session:
        await session.resume()
        await session.wait_idle()
        assert "and this" in [message.text for message in session.messages]
    assert _effects(tmp_path) == []


@pytest.mark.parametrize(
    ("scenario", "decision"),
    [
        ("approve", "approved"),
        ("approve_first", "approved"),
        ("deny", "denied"),
        ("remote_approve", "approved"),
    ],
)
async def test_the_first_answer_to_a_live_question_holds(
    kind: str, scenario: str, decision: str, tmp_path: Path
) -> None:
    await _kill_in(scenario, kind, tmp_path)
    agent = make_agent(tmp_path, MortalStore(kind, tmp_path), [says("ok")], approver=_deny)
    async with agent, agent.session(NAME) as session:
        await session.resume()
        live = await live_of(session)
        entries = await live.store.log.read(live.session_id)
    settled = [entry.decision for entry in entries if isinstance(entry, ApprovalSettled)]
    assert settled == [decision]
    assert _effects(tmp_path) == (["7"] if decision == "approved" else [])
