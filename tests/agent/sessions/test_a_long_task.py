"""A coding task from beginning to end, with everything that a long one meets, and a kill -9."""

import subprocess
import sys
from pathlib import Path

import pytest

from haptera import QueryEnded, ToolEnded, ToolStarted
from haptera.model.log.approvals import ApprovalSettled
from haptera.model.log.compactions import Compaction
from haptera.model.log.history import Rewound
from haptera.model.log.workspace import Snapshot
from tests.agent.sessions.task_worker import SUMMARY, make_agent
from tests.scripted_agents import live_of
from tests.stores.workers import worker_environment

pytestmark = pytest.mark.slow


def _start(part: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.agent.sessions.task_worker", part, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=worker_environment(),
    )


async def test_edits_a_denial_a_compaction_a_rewind_of_files_a_kill_and_a_resume(
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src/shop.py").write_text("def total(prices):\n    return sum(prices) + 1\n")
    (tmp_path / "home").mkdir()

    with _start("begin", tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "publishing\n"
        first.kill()
    with _start("finish", tmp_path) as second:
        assert second.stdout is not None
        told = second.stdout.read()
    assert second.returncode == 0
    assert told == "Whether 1.0 is published has to be looked up.\nAll is well.\n"

    files = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert files == {"src/shop.py", "out.txt", "notes.md"}
    assert (project / "src/shop.py").read_text() == "def total(prices):\n    return sum(prices)\n"
    assert (project / "out.txt").read_text() == "built"
    assert (tmp_path / "published").read_text() == "1.0\n"

    async with make_agent(tmp_path, []) as agent, agent.session("task") as session:
        live = await live_of(session)
        entries = await live.store.log.read(live.session_id)
        whole = (await session.export()).messages
        assert (await agent.sessions.verify("task")).ok
    compactions = [entry for entry in entries if isinstance(entry, Compaction)]
    assert [entry.summary for entry in compactions] == [SUMMARY]
    assert [e.decision for e in entries if isinstance(e, ApprovalSettled)].count("denied") == 1
    started = [entry.tool for entry in entries if isinstance(entry, ToolStarted)]
    assert started.count("publish") == 1
    assert not [
        e for e in entries if isinstance(e, ToolEnded) and e.tool == "publish" and e.outcome == "ok"
    ]
    assert [entry for entry in entries if isinstance(entry, Rewound)]
    assert [entry for entry in entries if isinstance(entry, Snapshot) and entry.tree]
    ends = [entry.stop_reason for entry in entries if isinstance(entry, QueryEnded)]
    assert ends.count("complete") == len(ends)
    said = [message.text for message in whole]
    assert not any("It is shorter now" in text for text in said)
    assert said[-1] == "All is well."
