"""Processes, tasks and descriptors of native sessions: none is left, whatever ends them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from haptera import Agent, AgentError
from haptera.model.events import TextDelta
from tests.providers.claude_agent.children import (
    USER,
    Child,
    agent_of,
    init,
    open_session,
    received,
    result,
    text,
    until,
    words,
)
from tests.providers.claude_agent.loopback_server import serving
from tests.providers.claude_agent.test_real_cli import MODEL, options_for
from tests.samples import sampled

HALF = [USER, init(), *text("Half an answer")[:3]]
CUT = result(subtype="error_during_execution", is_error=True)["emit"]


def descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


@pytest.fixture
def others() -> set[int]:
    """The processes that other tests keep."""
    return set(descendants(os.getpid()))


def left_of(others: set[int]) -> set[int]:
    """The processes that this test has left."""
    return set(descendants(os.getpid())) - others


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def cycle(agent: Agent, number: int, prompt: str) -> None:
    """Open a session and end it in one of three ways."""
    async with agent.session(f"s{number}") as session:
        if number % 3 == 0:
            return  # nothing was said
        async with session.stream(prompt, on_abort="return") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    if number % 3 == 1:
                        session.abort()
                    else:
                        await session.close(force=True)


@pytest.mark.slow
@sampled(50, 200)
async def test_many_cycles_leave_nothing(sample: int, tmp_path: Path, others: set[int]) -> None:
    child = Child(tmp_path, HALF, on_interrupt=[CUT])
    async with agent_of(child) as agent:
        await cycle(agent, 1, "warm up")
    before, tasks = descriptors(), len(asyncio.all_tasks())
    async with agent_of(child) as agent:
        for start in range(0, sample, 10):
            numbers = range(start, start + 10)
            await asyncio.gather(*(cycle(agent, number, "Hi") for number in numbers))
    assert left_of(others) == set()
    assert descriptors() <= before
    assert len(asyncio.all_tasks()) == tasks


@pytest.mark.slow
@sampled(5, 10)
async def test_cycles_of_the_real_cli_leave_nothing(
    sample: int, tmp_path: Path, others: set[int]
) -> None:
    with serving() as server:
        server.go_on.set()
        options = options_for(tmp_path, server)
        async with Agent(MODEL, **options) as agent:
            await cycle(agent, 1, "slow warm up")
        before = descriptors()
        async with Agent(MODEL, **options) as agent:
            for start in range(1, sample, 5):
                numbers = range(start, start + 5)
                await asyncio.gather(*(cycle(agent, number, "slow Hi") for number in numbers))
    assert left_of(others) == set()
    assert descriptors() <= before


async def test_a_process_that_ignores_everything_is_killed_with_what_it_started(
    tmp_path: Path, others: set[int]
) -> None:
    steps = [{"spawn": True}, USER, init(), {"gate": "x"}]
    child = Child(tmp_path, steps, ignore_eof=True, ignore_term=True)
    session = await open_session(child)
    await session.send(words("Hi"))
    await child.reached("x")
    (stray,) = child.of("spawned")
    assert is_running(stray)
    await session.close(within=0)
    assert not is_running(stray)
    assert left_of(others) == set()


async def test_an_opening_that_is_cancelled_leaves_no_process(
    tmp_path: Path, others: set[int]
) -> None:
    child = Child(tmp_path, [], silent=["initialize"])
    opening = asyncio.ensure_future(open_session(child))
    await until(lambda: "initialize" in child.of("control"))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert left_of(others) == set()


async def test_a_session_that_is_closed_while_its_agent_starts_leaves_no_process(
    tmp_path: Path, others: set[int]
) -> None:
    child = Child(tmp_path, [], silent=["initialize"])
    async with agent_of(child) as agent:
        session = await agent.session("ana").open()
        running = asyncio.ensure_future(session.chat("Hi"))
        await until(lambda: "initialize" in child.of("control"))
        await session.close(force=True)
        with pytest.raises(AgentError):
            await running
    await until(lambda: not left_of(others))


PARENT = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.providers.claude_agent.children import Child, agent_of
from tests.providers.claude_agent.test_nothing_is_left import HALF

async def main():
    child = Child(Path({folder!r}), [{{"spawn": True}}, *HALF, {{"gate": "x"}}])
    async with agent_of(child) as agent, agent.session("ana") as session:
        async with session.stream("Hi") as stream:
            async for _event in stream:
                if child.of("user"):
                    print("ready", flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_parent_that_is_killed_takes_everything_with_it(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[3])
    code = PARENT.format(root=root, folder=str(tmp_path / "child"))
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"ready\n"
        left = list(descendants(parent.pid))
        left += [value for kind, value in received(tmp_path / "child") if kind == "spawned"]
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert len(left) >= 3  # the supervisor, the agent, and what it had started
    asyncio.run(until(lambda: not any(is_running(pid) for pid in left)))
