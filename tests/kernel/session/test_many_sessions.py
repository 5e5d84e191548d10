"""A thousand live sessions in one process: what each of them costs in threads, files and tasks."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from haptera import Agent, AgentSession
from tests.fixtures_report import Report
from tests.kernel.session.echo_provider import EchoProvider
from tests.kernel.session.three_turns import durable_agent
from tests.stores.durable_kinds import durable_kind
from tests.stores.store_factories import DURABLE

pytestmark = pytest.mark.slow

FEW, MANY = 20, 1000


class Cost(msgspec.Struct, frozen=True):
    """What a process holds at a moment."""

    threads: int
    files: int
    tasks: int


_POOLED = 8


def _cost() -> Cost:
    return Cost(
        threads=threading.active_count(),
        files=len(list(Path("/proc/self/fd").iterdir())),
        tasks=len(asyncio.all_tasks()),
    )


@asynccontextmanager
async def _sessions(agent: Agent, count: int) -> AsyncIterator[list[AgentSession]]:
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(agent.session(f"s{n}")) for n in range(count)]
        yield opened


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", DURABLE)
async def test_a_thousand_sessions_have_a_task_each_and_no_thread(
    kind: str, tmp_path: Path, report: Report
) -> None:
    files_each = durable_kind(kind).open_files
    # Fewer where each has files of its own.
    many = MANY // 5 if files_each else MANY
    async with durable_agent(kind, tmp_path, EchoProvider()) as agent:
        async with _sessions(agent, FEW) as few:
            await asyncio.gather(*(session.chat("hello") for session in few))
            before = _cost()
        async with _sessions(agent, many) as sessions:
            answers = await asyncio.gather(*(session.chat("hello") for session in sessions))
            after = _cost()
        assert {answer.text for answer in answers} == {"echo hello"}
        more = many - FEW
        # Pools of threads grow when they are first busy, up to a size that no session changes.
        assert after.threads <= before.threads + _POOLED
        assert after.files - before.files <= files_each * more + 2
        assert after.tasks - before.tasks <= more + 2
        report(
            f"{kind}: {many} live sessions, {after.threads} threads, {after.files} files, "
            f"{after.tasks} tasks"
        )
