"""Built-in tools under rules: what an approval shows, what no rule lets through, what is kept."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haptera import ApprovalRequest, Approve, Deny
from haptera.model.approvals import CallFacts, Decision
from haptera.testing import calls, says
from haptera.tools import Sandbox, coding_tools
from tests.scripted_agents import live_of, make_agent, outcomes_in, playing, run_script
from tests.stores.store_factories import STORE_FACTORIES, store_string

NO_SANDBOX = Sandbox(layers=("seccomp",))
"""Wants a sandbox, on a machine that has none."""
NOT_ENOUGH = {"none": NO_SANDBOX, "Landlock alone": Sandbox(layers=("landlock", "seccomp"))}
"""Where every command is asked about."""


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


@pytest.mark.namespaces
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


@pytest.mark.parametrize("sandbox", NOT_ENOUGH)
async def test_without_a_sandbox_a_rule_allows_no_command_and_a_person_can(
    project: Path, sandbox: str
) -> None:
    asked: list[ApprovalRequest] = []
    options: dict[str, Any] = {
        "tools": coding_tools(project, sandbox=NOT_ENOUGH[sandbox]),
        "permissions": {"allow": ["shell(touch *)"]},
    }
    script = [calls(("shell", {"command": "touch src/made"})), says("done")]
    approver = deciding(lambda _: Approve(by="ana"), asked)
    _, provider = await run_script(script, approver=approver, **options)
    (request,) = asked
    assert request.facts.is_confined is False
    assert request.reason == "a rule allows it, but there is no sandbox that is enough"
    assert outcomes_in(provider.requests[1]) == [("shell", "ok", "[exit status 0]")]
    assert (project / "src/made").exists()


async def test_what_a_person_approves_is_confined_as_far_as_the_kernel_can(
    project: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    tools = coding_tools(project, sandbox=NOT_ENOUGH["Landlock alone"])
    script = [calls(("shell", {"command": f"touch src/made; touch {outside}"})), says("done")]
    _, provider = await run_script(script, tools=tools, approver=lambda _: Approve())
    assert "Permission denied" in outcomes_in(provider.requests[1])[0][2]
    assert (project / "src/made").exists()
    assert not outside.exists()


@pytest.mark.parametrize("sandbox", NOT_ENOUGH)
@pytest.mark.parametrize("how", ["no approver", "dont_ask"])
async def test_without_a_sandbox_and_a_person_no_command_is_run(
    how: str, sandbox: str, project: Path
) -> None:
    options: dict[str, Any] = {
        "tools": coding_tools(project, sandbox=NOT_ENOUGH[sandbox]),
        "permissions": {"allow": ["shell"]},
        **({"unanswered": "deny"} if how == "no approver" else {"permission_mode": "dont_ask"}),
    }
    script = [calls(("shell", {"command": "touch src/made"})), says("done")]
    _, provider = await run_script(script, **options)
    assert outcomes_in(provider.requests[1])[0][1] == "denied"
    assert not (project / "src/made").exists()


@pytest.mark.namespaces
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


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_long_output_is_kept_with_the_session(kind: str, project: Path) -> None:
    store = store_string(kind, project.parent)
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


# Files that a rule asks about are left out of what a call in a folder above shows.


ASKING = {"ask": ["read(secrets/**)"]}


async def told_by(
    ways: list[tuple[str, dict[str, Any]]], project: Path, **options: Any
) -> list[tuple[str, str]]:
    _, provider = await run_script([calls(*ways), says("done")], workspace=project, **options)
    return [(outcome, text) for _, outcome, text in outcomes_in(provider.requests[1])]


@pytest.mark.parametrize("mode", ["default", "plan", "accept_edits", "dont_ask"])
async def test_a_search_from_above_leaves_out_files_that_a_rule_asks_about(
    project: Path, mode: str
) -> None:
    (project / "src/secrets").mkdir()
    (project / "src/secrets/key").write_text("canary elsewhere\n")
    (project / "secrets/deep").mkdir()
    (project / "secrets/deep/key").write_text("canary two\n")
    asked: list[ApprovalRequest] = []
    found, named, listed = await told_by(
        [
            ("grep", {"pattern": "canary"}),
            ("glob", {"pattern": "**/key"}),
            ("list", {}),
        ],
        project,
        permissions=ASKING,
        permission_mode=mode,
        approver=deciding(lambda _: Approve(), asked),
    )
    note = "left out: permission rules ask about secrets/**"
    assert found[1].splitlines()[0] == "src/secrets/key:1: canary elsewhere"
    assert f"[2 are {note}" in found[1]
    assert named[1].splitlines()[0] == "src/secrets/key"
    assert f"[2 are {note}" in named[1]
    assert "src/" in listed[1]
    assert "secrets/\n" not in listed[1]
    assert f"[1 file or folder is {note}" in listed[1]
    assert asked == []


async def test_the_number_left_out_does_not_tell_what_is_in_the_files(project: Path) -> None:
    told = await told_by(
        [
            ("grep", {"pattern": "canary", "limit": 1}),
            ("grep", {"pattern": "nothing has this", "limit": 1}),
            ("grep", {"pattern": "canary", "files": "*.md"}),
        ],
        project,
        permissions=ASKING,
    )
    assert len({text for _, text in told}) == 1


async def test_lines_in_denied_files_do_not_use_up_the_limit(project: Path) -> None:
    (project / "zebra").write_text("canary in the open\n")
    (told,) = await told_by(
        [("grep", {"pattern": "canary", "limit": 1})],
        project,
        permissions={"deny": ["read(secrets/**)"]},
    )
    assert told == ("ok", "zebra:1: canary in the open")


async def test_a_search_in_the_folder_itself_is_asked_about_and_then_shows_it(
    project: Path,
) -> None:
    asked: list[ApprovalRequest] = []
    ways: list[tuple[str, dict[str, Any]]] = [
        ("grep", {"pattern": "canary", "path": "secrets"}),
        ("glob", {"pattern": "*", "path": "hidden"}),
        ("list", {"path": "secrets"}),
        ("grep", {"pattern": "canary", "path": "secrets/key"}),
    ]
    told = await told_by(
        ways, project, permissions=ASKING, approver=deciding(lambda _: Approve(), asked)
    )
    assert [request.ruling and request.ruling.rule for request in asked] == ["read(secrets/**)"] * 4
    assert told[0] == ("ok", "secrets/key:1: canary one")
    assert told[1] == ("ok", "secrets/key")
    assert told[2][1].startswith("key")
    assert told[3] == ("ok", "secrets/key:1: canary one")


async def test_without_an_approval_the_folder_itself_is_not_searched(project: Path) -> None:
    ways: list[tuple[str, dict[str, Any]]] = [("grep", {"pattern": "canary", "path": "secrets"})]
    denied = await told_by(
        ways, project, permissions=ASKING, approver=deciding(lambda _: Deny("no"), [])
    )
    not_asked = await told_by(
        ways, project, permissions=ASKING, permission_mode="dont_ask", approver=lambda _: Approve()
    )
    assert [outcome for outcome, _ in (*denied, *not_asked)] == ["denied", "denied"]
    assert "canary" not in str(denied + not_asked)


async def test_an_approval_for_the_session_shows_the_folder_and_nothing_from_above(
    project: Path,
) -> None:
    asked: list[ApprovalRequest] = []
    inside = ("grep", {"pattern": "canary", "path": "secrets"})
    script = [
        calls(inside),
        calls(inside),
        calls(("grep", {"pattern": "canary"})),
        says("done"),
    ]
    _, provider = await run_script(
        script,
        workspace=project,
        permissions=ASKING,
        approver=deciding(lambda _: Approve(scope="session"), asked),
    )
    texts = [text for request in provider.requests[1:] for _, _, text in outcomes_in(request)[-1:]]
    assert texts[:2] == ["secrets/key:1: canary one"] * 2
    assert "canary" not in texts[2]
    assert "1 file or folder is left out" in texts[2]
    assert len(asked) == 1


async def test_approving_a_folder_does_not_approve_what_a_narrower_rule_asks_about(
    project: Path,
) -> None:
    (project / "secrets/a.pem").write_text("canary of a key\n")
    rules = {"ask": ["read(secrets/**)", "read(*.pem)", "grep(secrets/k*)"]}
    grep, glob = await told_by(
        [
            ("grep", {"pattern": "canary", "path": "secrets"}),
            ("glob", {"pattern": "*", "path": "secrets"}),
        ],
        project,
        permissions=rules,
        approver=lambda _: Approve(),
    )
    assert "canary" not in grep[1]
    assert "[2 are left out: permission rules ask about *.pem, secrets/k*." in grep[1]
    assert glob[1].splitlines()[0] == "secrets/key"
    assert "[1 file or folder is left out: permission rules ask about *.pem." in glob[1]
