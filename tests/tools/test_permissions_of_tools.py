"""Built-in tools under rules: what an approval shows, what no rule lets through, what is kept."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import ApprovalRequest, Approve, Deny
from holdfast.testing import calls, says
from holdfast.tools import Sandbox, coding_tools
from holdfast.vocabulary.approvals import CallFacts, Decision
from tests.scripted_agents import live_of, make_agent, outcomes_in, playing, run_script

NO_SANDBOX = Sandbox(layers=("seccomp",))
"""Wants a sandbox, on a machine that has none that is enough."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "secrets").mkdir()
    (folder / "src/a.py").write_text("one\n")
    (folder / "secrets/key").write_text("canary one\n")
    (folder / "alias").symlink_to("src")
    (folder / "hidden").symlink_to("secrets")
    return folder


def deciding(
    decide: Callable[[ApprovalRequest], Decision], asked: list[ApprovalRequest]
) -> Callable[[ApprovalRequest], Decision]:
    def approve(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return decide(request)

    return approve


# What an approval shows, and what it is bound to.


async def test_an_approval_shows_the_resolved_path_the_argv_and_the_diff(project: Path) -> None:
    asked: list[ApprovalRequest] = []
    edits = [{"old": "one", "new": "two"}]
    script = [
        calls(
            ("edit", {"path": "alias/a.py", "edits": edits}),
            ("shell", {"command": ["ls", "-l"], "folder": "alias"}),
        ),
        says("done"),
    ]
    approver = deciding(lambda _: Deny("no"), asked)
    await run_script(script, workspace=project, approver=approver)
    root = str(project)
    difference = "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-one\n+two\n"
    assert [request.facts for request in asked] == [
        CallFacts(root=root, path="src/a.py", difference=difference),
        CallFacts(root=root, argv=("ls", "-l"), folder="src", is_confined=True),
    ]
    assert [request.folder for request in asked] == [root, f"{root}/src"]


async def test_what_an_approval_shows_is_there_after_a_restart(project: Path) -> None:
    store = f"jsonl:{project.parent}/log"
    call = calls(("write", {"path": "new/file", "content": "x\n"}))
    agent, _ = make_agent([call], workspace=project, store=store)
    async with agent, agent.session("one") as session:
        shown = (await session.chat("go")).pending
    later, _ = make_agent([], workspace=project, store=store)
    async with later, later.session("one") as session:
        assert session.unfinished.approvals == shown
    assert shown[0].facts.path == "new/file"
    assert shown[0].facts.difference == "--- a/new/file\n+++ b/new/file\n@@ -0,0 +1 @@\n+x\n"


async def test_a_link_that_is_turned_after_the_question_does_not_turn_the_approval(
    project: Path,
) -> None:
    def turn(request: ApprovalRequest) -> Decision:
        (project / "alias").unlink()
        (project / "alias").symlink_to("secrets")
        return Approve(by="ana")

    script = [calls(("write", {"path": "alias/new", "content": "x"})), says("done")]
    _, provider = await run_script(script, workspace=project, approver=turn)
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert (outcome, "not what was approved any more" in text) == ("denied", True)
    assert not (project / "secrets/new").exists()
    assert not (project / "src/new").exists()


async def test_an_approval_for_the_session_is_one_for_the_folder_it_was_given_in(
    project: Path,
) -> None:
    asked: list[ApprovalRequest] = []
    script = [
        calls(("shell", {"command": "pwd"})),
        calls(("shell", {"command": "pwd", "folder": "src"})),
        calls(("shell", {"command": "pwd"})),
        says("done"),
    ]
    approver = deciding(lambda _: Approve(scope="session"), asked)
    await run_script(script, workspace=project, approver=approver)
    assert [request.facts.folder for request in asked] == [".", "src"]


# Rules hold at the descriptor, too.


async def test_a_denied_file_is_reached_by_no_tool_and_no_name(project: Path) -> None:
    ways: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": "secrets/key"}),
        ("read", {"path": "hidden/key"}),
        ("read", {"path": str(project / "src/../secrets/key")}),
        ("grep", {"pattern": "canary"}),
        ("grep", {"pattern": "canary", "path": "hidden"}),
        ("glob", {"pattern": "**/key"}),
        ("list", {"path": "secrets"}),
    ]
    rules = {"deny": ["read(secrets/**)"], "allow": ["read"]}
    script = [calls(*ways), says("done")]
    _, provider = await run_script(script, workspace=project, permissions=rules)
    told = outcomes_in(provider.requests[1])
    assert len(told) == len(ways)
    for _, _, text in told:
        assert "canary one" not in text
        assert "secrets/key" not in text or "refused" in text
    assert [outcome for _, outcome, _ in told] == [
        "denied", "denied", "denied", "ok", "denied", "ok", "denied",
    ]  # fmt: skip


async def test_tools_that_two_agents_share_obey_the_rules_of_each(project: Path) -> None:
    tools = coding_tools(project)
    script = [calls(("grep", {"pattern": "canary"})), says("done")]
    rules = {"deny": ["read(secrets/**)"]}
    _, strict = await run_script(script, tools=tools, permissions=rules)
    _, free = await run_script(script, tools=tools)
    assert outcomes_in(strict.requests[1])[0][2] == "[no line fits]"
    assert "canary one" in outcomes_in(free.requests[1])[0][2]


async def test_files_are_changed_without_a_question_in_the_mode_for_that(project: Path) -> None:
    asked: list[ApprovalRequest] = []
    script = [
        calls(("write", {"path": "new", "content": "x"}), ("shell", {"command": "touch y"})),
        calls(("write", {"path": ".git/hooks/x", "content": "x"})),
        says("done"),
    ]
    options: dict[str, Any] = {"workspace": project, "permission_mode": "accept_edits"}
    approver = deciding(lambda _: Deny("no"), asked)
    _, provider = await run_script(script, approver=approver, **options)
    assert [request.tool for request in asked] == ["shell"]
    assert (project / "new").read_text() == "x"
    assert not (project / "y").exists()
    assert not (project / ".git").exists()
    assert outcomes_in(provider.requests[-1])[-1][1] == "error"


async def test_in_the_mode_plan_nothing_is_changed_or_run(project: Path) -> None:
    script = [
        calls(
            ("write", {"path": "new", "content": "x"}),
            ("shell", {"command": "ls"}),
            ("read", {"path": "src/a.py"}),
            ("todo", {"items": [{"text": "write"}]}),
        ),
        says("done"),
    ]
    options: dict[str, Any] = {"permission_mode": "plan", "permissions": {"allow": ["shell"]}}
    _, provider = await run_script(script, workspace=project, **options)
    told = outcomes_in(provider.requests[1])
    assert [outcome for _, outcome, _ in told] == ["denied", "denied", "ok", "ok"]
    assert not (project / "new").exists()


# Without a sandbox.


async def test_without_a_sandbox_a_rule_allows_no_command_and_a_person_can(project: Path) -> None:
    asked: list[ApprovalRequest] = []
    options: dict[str, Any] = {
        "tools": coding_tools(project, sandbox=NO_SANDBOX),
        "permissions": {"allow": ["shell(touch *)"]},
    }
    script = [calls(("shell", {"command": "touch made"})), says("done")]
    approver = deciding(lambda _: Approve(by="ana"), asked)
    _, provider = await run_script(script, approver=approver, **options)
    (request,) = asked
    assert request.facts.is_confined is False
    assert request.reason == "a rule allows it, but there is no sandbox"
    assert outcomes_in(provider.requests[1]) == [("shell", "ok", "[exit status 0]")]
    assert (project / "made").exists()


@pytest.mark.parametrize("how", ["no approver", "dont_ask"])
async def test_without_a_sandbox_and_a_person_no_command_is_run(how: str, project: Path) -> None:
    options: dict[str, Any] = {
        "tools": coding_tools(project, sandbox=NO_SANDBOX),
        "permissions": {"allow": ["shell"]},
        **({"unanswered": "deny"} if how == "no approver" else {"permission_mode": "dont_ask"}),
    }
    script = [calls(("shell", {"command": "touch made"})), says("done")]
    _, provider = await run_script(script, **options)
    assert outcomes_in(provider.requests[1])[0][1] == "denied"
    assert not (project / "made").exists()


async def test_an_approval_in_the_sandbox_is_none_without_it(project: Path) -> None:
    store = f"sqlite:{project.parent}/log.db"
    options: dict[str, Any] = {"store": store, "cwd": project, "project": "one"}
    call = calls(("shell", {"command": "touch made"}))
    agent, _ = make_agent([call], workspace=project, **options)
    async with agent, agent.session("one") as session:
        (request,) = (await session.chat("go")).pending
        assert request.facts.is_confined is True
        await session.approve(request.id)
    tools = coding_tools(project, sandbox=NO_SANDBOX)
    later, provider = make_agent([says("ok")], tools=tools, **options)
    async with later, later.session("one") as session:
        await session.resume()
    assert outcomes_in(provider.requests[0])[0][1] == "denied"
    assert not (project / "made").exists()


# What an agent gives to its tools.


@pytest.mark.parametrize("store", ["memory", "jsonl:log", "sqlite:log.db"])
async def test_long_output_is_kept_with_the_session(
    store: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.parent)
    (project / "long").write_text("".join(f"line {number:040}\n" for number in range(2_000)))
    script = [calls(("read", {"path": "long"})), says("read")]
    async with playing(script, workspace=project, store=store) as (session, provider):
        await session.chat("go")
        live = await live_of(session)
        ((_, _, text),) = outcomes_in(provider.requests[1])
        name = text.partition('read_output(name="')[2].partition('"')[0]
        kept = await live.store.blobs.get(live.session_id, name)
    assert f"line {1000:040}" not in text
    assert f"line {1000:040}" in kept.decode()


async def test_commands_get_the_listed_variables_of_the_agent(project: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C", "TOKEN": "canary", "HOME": "/nowhere"}
    script = [calls(("shell", {"command": ["env"]})), says("done")]
    approver = deciding(lambda _: Approve(), [])
    options: dict[str, Any] = {"environment": environment, "approver": approver}
    _, provider = await run_script(script, workspace=project, **options)
    lines = outcomes_in(provider.requests[1])[0][2].splitlines()
    assert {"PATH=/usr/bin:/bin", "LANG=C", "HOME=/nowhere"} <= set(lines)
    assert "canary" not in "".join(lines)
    assert os.environ.get("HOME") != "/nowhere"  # noqa: TID251 - that it is not the process's own
