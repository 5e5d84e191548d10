"""A whole task with the built-in tools: the tree and the log are right, also when it is aborted."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from haptera import ApprovalRequest, Approve, Deny, ToolEnded, ToolProgress
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.tools import ToolStarted
from haptera.testing import calls, says
from haptera.tools import coding_tools
from tests.scripted_agents import failure_of, live_of, make_agent, outcomes_in, playing
from tests.stores.store_factories import DURABLE
from tests.tools.processes import marked, new_mark, wait_until_none
from tests.tools.toolbox import PYTHON, names_beneath


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    files = {
        "src/shop.py": "def total(prices):\n    return sum(prices) + 1\n",
        "tests/test_shop.py": "from src.shop import total\nassert total([1, 2]) == 3\n",
        "README.md": "# Shop\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


TEST = f"{PYTHON} -B tests/test_shop.py"


def decide(request: ApprovalRequest) -> Approve | Deny:
    """Approve changes of the source, deny others, and put the right folder into commands."""
    if request.tool == "shell":
        return Approve(arguments={**request.arguments, "command": f"PYTHONPATH=. {TEST}"}, by="ana")
    if request.arguments["path"].startswith("src/"):
        return Approve(by="ana")
    return Deny("leave the readme alone", by="ana")


async def test_a_task_with_edits_a_denied_write_and_changed_arguments(project: Path) -> None:
    edits = [{"old": "sum(prices) + 1", "new": "sum(prices)"}]
    script = [
        calls(("grep", {"pattern": "def total"}), ("glob", {"pattern": "*.py"})),
        calls(("shell", {"command": TEST})),
        calls(("read", {"path": "src/shop.py"})),
        calls(("edit", {"path": "src/shop.py", "edits": edits})),
        calls(("write", {"path": "README.md", "content": "# Fixed\n"})),
        calls(("shell", {"command": TEST})),
        calls(("write", {"path": "tests/test_shop.py", "content": "pass\n"})),
        calls(("read", {"path": "../project/README.md"}), ("todo", {"items": []})),
        says("Done."),
    ]
    rules = {"deny": ["write(tests/**)"], "allow": ["shell(git status)"]}
    options: dict[str, Any] = {"workspace": project, "approver": decide, "permissions": rules}
    async with playing(script, **options) as (session, provider):
        result = await session.chat("The total is wrong.")
        live = await live_of(session)
        entries = await live.store.log.read(live.session_id)
    assert result.text == "Done."
    told = outcomes_in(provider.requests[-1])
    assert [(name, outcome) for name, outcome, _ in told] == [
        ("grep", "ok"), ("glob", "ok"), ("shell", "ok"), ("read", "ok"), ("edit", "ok"),
        ("write", "denied"), ("shell", "ok"), ("write", "denied"), ("read", "error"),
        ("todo", "ok"),
    ]  # fmt: skip
    texts = [text for _, _, text in told]
    assert texts[0] == "src/shop.py:1: def total(prices):"
    assert "AssertionError" in texts[2]
    assert "-    return sum(prices) + 1\n+    return sum(prices)\n" in texts[4]
    assert texts[5] == "leave the readme alone"
    assert texts[6] == "[exit status 0]"
    assert texts[7] == "a rule denies it"
    assert "out of the root" in texts[8]
    assert (project / "src/shop.py").read_text() == "def total(prices):\n    return sum(prices)\n"
    assert names_beneath(project) == {"src/shop.py", "tests/test_shop.py", "README.md"}
    assert (project / "README.md").read_text() == "# Shop\n"
    settled = [entry for entry in entries if isinstance(entry, ApprovalSettled)]
    assert [(entry.decision, entry.by) for entry in settled] == [
        ("approved", "ana"), ("approved", "ana"), ("denied", "ana"), ("approved", "ana"),
    ]  # fmt: skip
    assert settled[0].arguments == {"command": f"PYTHONPATH=. {TEST}"}
    shown = [entry.facts for entry in entries if isinstance(entry, ApprovalRequested)]
    assert [(facts.path, (facts.argv or ("",))[-1]) for facts in shown] == [
        (None, TEST), ("src/shop.py", ""), ("README.md", ""), (None, TEST),
    ]  # fmt: skip
    assert shown[1].difference == texts[4]
    assert {facts.root for facts in shown} == {str(project)}
    ruled = [
        (entry.tool, entry.ruling.source)
        for entry in entries
        if isinstance(entry, ToolStarted | ToolEnded) and entry.ruling is not None
    ]
    assert ruled == [
        ("grep", "tool"), ("glob", "tool"), ("shell", "ana"), ("read", "tool"), ("edit", "ana"),
        ("shell", "ana"), ("write", "program"), ("read", "tool"), ("todo", "tool"),
    ]  # fmt: skip


@pytest.mark.namespaces
async def test_an_abort_in_the_middle_of_a_command_ends_it(project: Path) -> None:
    mark = new_mark()
    command = f"touch started; trap '' TERM; (setsid sleep {mark} &); echo on; sleep {mark}"
    script = [calls(("shell", {"command": command})), says("It was aborted.")]
    agent, provider = make_agent(script, workspace=project, approver=lambda request: Approve())
    async with agent, agent.session() as session:
        shown = asyncio.Event()
        session.on(ToolProgress, lambda event: shown.set())
        running = asyncio.ensure_future(session.chat("go"))
        await shown.wait()
        assert marked(mark)
        session.abort()
        error = await failure_of(running)
        assert error.code == "ABORTED"
        await asyncio.to_thread(wait_until_none, mark)
        result = await session.chat("What happened?")
        live = await live_of(session)
        entries = await live.store.log.read(live.session_id)
    assert result.text == "It was aborted."
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[-1])] == ["cancelled"]
    assert sum(isinstance(entry, ToolStarted) for entry in entries) == 1
    assert (project / "started").exists()
    assert not (project / ".git").exists()


@pytest.mark.slow
@pytest.mark.parametrize("given", ["to the tools", "to the agent", "to the process"])
@pytest.mark.parametrize("store", [f"{kind}:log" for kind in DURABLE])
async def test_a_secret_in_our_environment_reaches_no_tool_log_error_or_store(
    store: str,
    given: str,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    canary = "canary-of-the-environment-4711"
    for name in ("ANTHROPIC_API_KEY", "DATABASE_URL", "GITHUB_TOKEN", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, f"{canary}")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    script = [
        calls(
            ("shell", {"command": "env; set; cat /proc/*/environ; exit 7"}),
            ("shell", {"command": ["env"]}),
            ("shell", {"command": ["no-such-program"], "folder": "src"}),
            ("read", {"path": "/proc/self/environ"}),
            ("grep", {"pattern": "canary"}),
            ("write", {"path": "new.txt", "content": "$DATABASE_URL"}),
        ),
        says("Done."),
    ]
    environment = dict(os.environ)  # noqa: TID251 - it is what must not get through
    options: dict[str, Any] = {"store": store, "approver": lambda request: Approve()}
    if given == "to the tools":
        options["tools"] = coding_tools(project, environment=environment)
    else:
        options["workspace"] = project
        options["environment"] = environment if given == "to the agent" else None
    agent, provider = make_agent(script, **options)
    seen: list[str] = []
    with caplog.at_level("DEBUG"):
        async with agent, agent.session() as session:
            session.on(ToolEnded, lambda event: seen.append(str(event)))
            session.on(ToolProgress, lambda event: seen.append(str(event)))
            await session.chat("go")
    assert "PATH=" in "".join(seen)
    # What may get through comes from where it was given.
    assert "LANG=de_DE.UTF-8" in "".join(seen)
    stored = b"".join(
        path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    assert b"PATH=" in stored
    for text in ("".join(seen), caplog.text, str(provider.requests), stored.decode("latin-1")):
        assert canary not in text
