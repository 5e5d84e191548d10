"""Permissions: rules and modes decide, and every decision is in the log with who and why."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haptera import AgentSession, ApprovalRequest, Approve, ConfigError, Deny, ToolEnded, tool
from haptera.access.administration import distrust_project
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.hooks import BeforeTool, Block, Hooks, Proceed
from haptera.model.agent_defaults import Permissions
from haptera.model.approvals import CallFacts, Decision, Ruling
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryStarted
from haptera.model.log.tools import ToolStarted
from haptera.stores.memory import MemoryStore
from haptera.testing import calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of, live_of, make_agent, outcomes_in, playing, run_script

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool(approval="ask", effect="write")
async def erase(path: str) -> str:
    """Erase a file."""
    RAN.append(path)
    return f"{path} is gone"


@tool(effect="read")
async def look(path: str = ".") -> str:
    """Look around."""
    RAN.append(f"look {path}")
    return "seen"


ERASE: Step = calls(("erase", {"path": "a"}))


def approving(decision: Decision, asked: list[ApprovalRequest]) -> Any:
    def approve(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return decision

    return approve


async def log_of(session: AgentSession) -> Sequence[Entry]:
    live = await live_of(session)
    return await live.store.log.read(live.session_id)


def rulings(entries: Sequence[Entry]) -> list[tuple[str, str, str, str | None, str | None]]:
    """Return kind, action, reason, rule and source of everything that was decided."""
    return [
        (entry.kind, found.action, found.reason, found.rule, found.source)
        for entry in entries
        if isinstance(entry, ApprovalRequested | ToolStarted | ToolEnded)
        and (found := entry.ruling) is not None
    ]


# Rules.


async def test_every_decision_is_in_the_log_with_who_and_why() -> None:
    rules = Permissions(
        allow=("erase(path=tmp/*)",), ask=("look(path=secret)",), deny=("erase(path=keep)",)
    )
    script = [
        calls(("erase", {"path": "tmp/1"}), ("erase", {"path": "keep"}), ("look", {})),
        calls(("look", {"path": "secret"}), ("erase", {"path": "other"})),
        says("done"),
    ]
    asked: list[ApprovalRequest] = []
    options: dict[str, Any] = {"tools": [erase, look], "permissions": rules}
    approver = approving(Approve(by="ana"), asked)
    async with playing(script, approver=approver, **options) as (session, provider):
        await session.chat("go")
        entries = await log_of(session)
    assert RAN == ["tmp/1", "look .", "look secret", "other"]
    assert rulings(entries) == [
        ("tool.ended", "deny", "a rule denies it", "erase(path=keep)", "program"),
        ("tool.started", "allow", "a rule allows it", "erase(path=tmp/*)", "program"),
        ("tool.started", "allow", "the tool does not ask", None, "tool"),
        ("approval.requested", "ask", "a rule asks", "look(path=secret)", "program"),
        ("approval.requested", "ask", "the tool asks", None, "tool"),
        ("tool.started", "allow", "it was approved", None, "ana"),
        ("tool.started", "allow", "it was approved", None, "ana"),
    ]
    assert [request.reason for request in asked] == ["a rule asks", None]
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[1])] == [
        "ok",
        "denied",
        "ok",
    ]


async def test_rules_of_the_file_and_of_the_program_count_together(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "[defaults.permissions]\ndeny = ['erase(path=keep)']\nallow = ['erase(path=a)']\n"
    )
    script = [calls(("erase", {"path": "keep"}), ("erase", {"path": "a"})), says("done")]
    options: dict[str, Any] = {"config_dir": tmp_path, "permissions": {"allow": ["erase"]}}
    async with playing(script, tools=[erase], **options) as (session, _):
        await session.chat("go")
        entries = await log_of(session)
    assert RAN == ["a"]
    assert [(rule, source) for *_, rule, source in rulings(entries)] == [
        ("erase(path=keep)", "user file"),
        ("erase(path=a)", "user file"),
    ]


@pytest.mark.parametrize("rules", [{"deny": ["erase(("]}, {"allow": ["shell(a; b)"]}])
def test_a_rule_that_is_not_understood_is_refused(rules: dict[str, list[str]]) -> None:
    with pytest.raises(ConfigError, match="permission rule"):
        make_agent([], permissions=rules)


def test_a_kind_of_rule_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"permissions\.denied"):
        make_agent([], permissions={"denied": ["erase"]})


async def test_a_denial_wins_over_an_approval_with_other_arguments() -> None:
    options: dict[str, Any] = {"tools": [erase], "permissions": {"deny": ["erase(path=keep)"]}}
    approver = approving(Approve(arguments={"path": "keep"}, by="ana"), [])
    async with playing([ERASE, says("ok")], approver=approver, **options) as (session, provider):
        await session.chat("go")
        entries = await log_of(session)
    assert RAN == []
    assert outcomes_in(provider.requests[1]) == [("erase", "denied", "a rule denies it")]
    assert rulings(entries)[-1][:2] == ("tool.ended", "deny")


async def test_a_rule_that_came_after_the_approval_wins() -> None:
    store = MemoryStore()
    agent, _ = make_agent([ERASE], tools=[erase], store=store)
    async with agent, agent.session("one") as session:
        (request,) = (await session.chat("go")).pending
        await session.approve(request.id)
    rules = {"deny": ["erase"]}
    later, provider = make_agent([says("ok")], tools=[erase], store=store, permissions=rules)
    async with later, later.session("one") as session:
        await session.resume()
    assert (RAN, outcomes_in(provider.requests[0])[0][1]) == ([], "denied")


async def test_what_a_hook_or_the_loop_guard_refuses_is_in_the_log_as_well() -> None:
    async def hook(given: BeforeTool) -> Block | Proceed:
        return Block("not that") if given.call.name == "erase" else Proceed()

    script = [ERASE, *[calls(("look", {}))] * 3, says("done")]
    async with playing(script, tools=[erase, look], hooks=Hooks(before_tool=hook)) as (session, _):
        await session.chat("go")
        entries = await log_of(session)
    found = [(action, source) for _, action, _, _, source in rulings(entries)]
    assert found == [("deny", "hook"), ("allow", "tool"), ("allow", "tool"), ("deny", "loop")]


async def test_a_tool_that_cannot_say_what_it_would_do_is_asked_about() -> None:
    class Broken:
        spec, rules, prepare = look.spec, look.rules, look.prepare

        async def facts(self, arguments: dict[str, Any]) -> CallFacts:
            raise RuntimeError("no")

    class Source:
        offered = (Broken(),)

        def tools(self) -> tuple[Broken, ...]:
            return self.offered

    asked: list[ApprovalRequest] = []
    script = [calls(("look", {})), says("ok")]
    approver = approving(Deny("no"), asked)
    await run_script(script, tools=[Source()], approver=approver)
    reason = "what it would do could not be found out"
    assert [request.reason for request in asked] == [reason]
    assert asked[0].ruling == Ruling(action="ask", reason=reason)


# Modes.


@pytest.mark.parametrize(
    ("mode", "ran", "asked"),
    [
        ("default", ["look ."], ["erase"]),
        ("ask", ["look ."], ["erase"]),
        ("plan", ["look ."], []),
        ("dont_ask", ["look ."], []),
    ],
)
@pytest.mark.parametrize("how", ["argument", "environment", "configured"])
async def test_a_mode_takes_effect(mode: Any, how: str, ran: list[str], asked: list[str]) -> None:
    seen: list[ApprovalRequest] = []
    script = [calls(("look", {}), ("erase", {"path": "a"})), says("done")]
    options: dict[str, Any] = {"tools": [erase, look], "approver": approving(Deny(), seen)}
    if how == "argument":
        options["permission_mode"] = mode
    if how == "environment":
        options["environment"] = {"HAPTERA_PERMISSION_MODE": mode}
    async with playing(script, **options) as (session, _):
        if how == "configured":
            await session.configure(permission_mode=mode)
        await session.chat("go")
        assert session.settings.permission_mode == ("default" if mode == "ask" else mode)
    assert (RAN, [request.tool for request in seen]) == (ran, asked)


async def test_where_every_call_is_asked_about_a_rule_still_allows_and_the_log_says_why() -> None:
    asked: list[ApprovalRequest] = []
    script = [calls(("look", {}), ("look", {"path": "a"})), says("done")]
    options: dict[str, Any] = {"permissions": {"allow": ["look(path=a)"]}, "approval": "ask"}
    approver = approving(Approve(by="ana"), asked)
    async with playing(script, tools=[look], approver=approver, **options) as (session, _):
        await session.chat("go")
        entries = await log_of(session)
    assert [(request.arguments, request.reason) for request in asked] == [
        ({}, "every call is asked about")
    ]
    assert rulings(entries)[0][1:] == ("ask", "every call is asked about", None, "setting")


async def test_a_mode_can_be_that_of_one_query_and_is_in_the_log() -> None:
    script = [ERASE, says("one"), ERASE]
    async with playing(script, tools=[erase]) as (session, _):
        assert (await session.chat("plan", permission_mode="plan")).text == "one"
        assert (await session.chat("do it")).stop_reason == "approval"
        entries = await log_of(session)
    started = [entry.policy for entry in entries if isinstance(entry, QueryStarted)]
    assert [policy and policy["mode"] for policy in started] == ["plan", "default"]
    assert RAN == []


async def test_without_asking_what_was_approved_before_still_runs() -> None:
    asked: list[ApprovalRequest] = []
    script = [ERASE, says("one"), ERASE, calls(("erase", {"path": "b"})), says("two")]
    approver = approving(Approve(scope="session", by="ana"), asked)
    async with playing(script, tools=[erase], approver=approver) as (session, provider):
        await session.chat("go")
        await session.configure(permission_mode="dont_ask")
        await session.chat("on")
        entries = await log_of(session)
    assert (len(asked), RAN) == (1, ["a", "a"])
    told = ("allow", "exactly this was approved for the session", None, "ana")
    assert rulings(entries)[2][1:] == told
    assert "the mode is dont_ask" in outcomes_in(provider.requests[-1])[-1][2]


# After a denial.


@pytest.mark.parametrize("by", ["rule", "person"])
async def test_a_denial_can_end_the_query(by: str) -> None:
    options: dict[str, Any] = {"tools": [erase, look], "on_deny": "stop"}
    if by == "rule":
        options["permissions"] = {"deny": ["erase"]}
    else:
        options["approver"] = approving(Deny("not that"), [])
    script = [calls(("erase", {"path": "a"}), ids=("x",)), says("sorry")]
    async with playing(script, **options) as (session, provider):
        result = await session.chat("go")
        assert (result.stop_reason, result.stop_detail) == ("refusal", 'erase({"path":"a"})')
        assert (RAN, result.pending) == ([], ())
        assert (await failure_of(session.resume())).code == "NOTHING_TO_SEND"
        assert (await session.chat("then?")).text == "sorry"
    reason = "a rule denies it" if by == "rule" else "not that"
    assert outcomes_in(provider.requests[1]) == [("erase", "denied", reason)]


async def test_after_a_denial_that_ends_the_query_nothing_else_of_the_answer_runs() -> None:
    def decide(request: ApprovalRequest) -> Decision:
        return Deny("no") if request.arguments["path"] == "a" else Approve()

    three = calls(*(("erase", {"path": path}) for path in "abc"))
    async with playing([three, says("sorry")], tools=[erase], approver=decide, on_deny="stop") as (
        session,
        provider,
    ):
        result = await session.chat("go")
        assert (result.stop_reason, result.pending) == ("refusal", ())
        entries = await log_of(session)
        await session.chat("then?")
    started = [entry for entry in entries if isinstance(entry, ToolStarted)]
    assert len(started) == len(RAN)
    assert "a" not in RAN
    told = outcomes_in(provider.requests[1])
    assert told[0] == ("erase", "denied", "no")
    for name, outcome, text in told[1:]:
        assert (name, outcome) in {("erase", "denied"), ("erase", "ok")}
        assert outcome == "ok" or "another call of the same answer was denied" in text
    settled = {entry.approval_id for entry in entries if isinstance(entry, ApprovalSettled)}
    requested = {entry.approval_id for entry in entries if isinstance(entry, ApprovalRequested)}
    assert settled == requested


async def test_a_rule_that_denies_one_call_stops_the_others_before_they_run() -> None:
    both = calls(("look", {}), ("erase", {"path": "a"}))
    options: dict[str, Any] = {"permissions": {"deny": ["erase"]}, "on_deny": "stop"}
    result, _ = await run_script([both], tools=[erase, look], **options)
    assert (result.stop_reason, RAN) == ("refusal", [])


async def test_a_denied_call_that_is_repeated_is_a_loop_and_the_approver_is_not_asked() -> None:
    asked: list[ApprovalRequest] = []
    options: dict[str, Any] = {"permissions": {"deny": ["erase"]}, "tools": [erase]}
    result, _ = await run_script([ERASE] * 4, approver=approving(Approve(), asked), **options)
    assert (result.stop_reason, asked, RAN) == ("loop", [], [])


# Replies.


async def test_a_reply_may_carry_a_note_to_the_model() -> None:
    note = "[note from the person who approved this call: use b next time]"
    approver = approving(Approve(feedback="use b next time"), [])
    async with playing([ERASE, says("ok")], tools=[erase], approver=approver) as (session, model):
        await session.chat("go")
        entries = await log_of(session)
    assert outcomes_in(model.requests[1]) == [("erase", "ok", f"a is gone{note}")]
    (settled,) = [entry for entry in entries if isinstance(entry, ApprovalSettled)]
    assert settled.feedback == "use b next time"


async def test_a_note_can_be_given_from_another_process_and_with_a_failure() -> None:
    @tool(approval="ask")
    async def fail() -> str:
        """Fail."""
        raise RuntimeError("no")

    store = MemoryStore()
    agent, provider = make_agent([calls(("fail", {})), says("ok")], tools=[fail], store=store)
    async with agent, agent.session("one") as session:
        (request,) = (await session.chat("go")).pending
        await (await agent.remote("one")).approve(request.id, feedback="look at the log")
        live = await live_of(session)
        await live.commands.carry_out_pending()
        await session.resume()
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert (outcome, "look at the log" in text) == ("error", True)


# How long an approval holds.


async def approved_for_project(folder: Path, home: Path, **options: Any) -> list[ApprovalRequest]:
    """Let one more agent erase `a` in a folder; returns what was asked."""
    asked: list[ApprovalRequest] = []
    given: dict[str, Any] = {
        "tools": [erase],
        "cwd": folder,
        "environment": {"HAPTERA_HOME": str(home)},
        "approver": approving(Approve(scope="project", by="ana"), asked),
    }
    await run_script([options.pop("call", ERASE), says("ok")], **(given | options))
    return asked


async def test_an_approval_for_the_project_holds_in_its_folder_for_the_same_call(
    tmp_path: Path,
) -> None:
    here, there, home = (tmp_path / name for name in ("here", "there", "home"))
    for folder in (here, there, home):
        folder.mkdir()
    assert len(await approved_for_project(here, home)) == 1
    assert len(await approved_for_project(here, home)) == 0
    assert len(await approved_for_project(there, home)) == 1
    other = calls(("erase", {"path": "b"}))
    assert len(await approved_for_project(here, home, call=other)) == 1
    assert RAN == ["a", "a", "a", "b"]
    kept = home / "data" / "permissions.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert list(here.iterdir()) == []


async def test_an_approval_for_the_project_is_one_of_its_owner(tmp_path: Path) -> None:
    assert len(await approved_for_project(tmp_path, tmp_path, owner="ana")) == 1
    assert len(await approved_for_project(tmp_path, tmp_path, owner="bob")) == 1
    assert len(await approved_for_project(tmp_path, tmp_path, owner="ana")) == 0
    assert len(await approved_for_project(tmp_path, tmp_path, owner="bob")) == 0


@pytest.mark.parametrize("damage", ["nonsense", "[]", '{"grants": [{"key": 7}]}'])
async def test_what_is_kept_and_damaged_approves_nothing(damage: str, tmp_path: Path) -> None:
    await approved_for_project(tmp_path, tmp_path)
    (tmp_path / "data" / "permissions.json").write_text(damage)
    assert len(await approved_for_project(tmp_path, tmp_path)) == 1
    assert len(await approved_for_project(tmp_path, tmp_path)) == 0


async def test_what_others_could_have_written_approves_nothing(tmp_path: Path) -> None:
    await approved_for_project(tmp_path, tmp_path)
    (tmp_path / "data" / "permissions.json").chmod(0o666)
    assert len(await approved_for_project(tmp_path, tmp_path)) == 1


async def test_an_approval_for_the_project_that_is_given_while_the_query_rests_is_kept(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {
        "tools": [erase],
        "cwd": tmp_path,
        "environment": {"HAPTERA_HOME": str(tmp_path)},
    }
    async with playing([ERASE, says("ok")], **options) as (session, _):
        (request,) = (await session.chat("go")).pending
        await session.approve(request.id, scope="project")
        await session.resume()
    result, _ = await run_script([ERASE, says("ok")], **options)
    assert (result.stop_reason, RAN) == ("complete", ["a", "a"])


async def test_an_approval_for_the_project_that_was_taken_back_does_not_live_on_in_the_log(
    tmp_path: Path,
) -> None:
    home = {"HAPTERA_HOME": str(tmp_path)}
    options: dict[str, Any] = {"tools": [erase], "cwd": tmp_path, "environment": home}
    async with playing([ERASE, ERASE, says("ok"), ERASE], **options) as (session, _):
        (request,) = (await session.chat("go")).pending
        await session.approve(request.id, scope="project")
        assert (await session.resume()).text == "ok"
        distrust_project(ConfigurationSources(cwd=tmp_path, environment=home))
        assert (await session.chat("again")).stop_reason == "approval"
    assert RAN == ["a", "a"]


async def test_an_approval_for_the_project_that_cannot_be_kept_holds_once(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    asked = await approved_for_project(tmp_path, tmp_path)
    assert (len(asked), RAN) == (1, ["a"])
    assert len(await approved_for_project(tmp_path, tmp_path)) == 1


async def test_an_approval_is_not_used_in_another_folder(tmp_path: Path) -> None:
    store = MemoryStore()
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    options: dict[str, Any] = {"tools": [erase], "store": store, "project": "one"}
    agent, _ = make_agent([ERASE], cwd=here, **options)
    async with agent, agent.session("one") as session:
        (request,) = (await session.chat("go")).pending
        assert request.folder == str(here)
        await session.approve(request.id)
    later, provider = make_agent([says("ok")], cwd=there, **options)
    async with later, later.session("one") as session:
        await session.resume()
    ((_, outcome, text),) = outcomes_in(provider.requests[0])
    assert (RAN, outcome) == ([], "denied")
    assert "not what was approved any more" in text


# The rules in force.


async def test_the_rules_in_force_at_a_query_are_in_the_log(tmp_path: Path) -> None:
    options: dict[str, Any] = {"permissions": {"deny": ["erase"]}, "store": MemoryStore()}
    said = [says("one"), says("two"), says("three"), says("four")]
    agent, _ = make_agent(said, **options)
    async with agent, agent.session("one") as session:
        await session.chat("1")
        await session.chat("2")
        await session.configure(permission_mode="plan")
        await session.chat("3")
        fork = await session.fork()
        async with fork:
            await fork.chat("4")
            branch = await log_of(fork)
        entries = await log_of(session)
    rule = {"rule": "erase", "action": "deny", "source": "program"}
    started = [entry.policy for entry in entries if isinstance(entry, QueryStarted)]
    assert started == [
        {"mode": "default", "rules": [rule]},
        None,
        {"mode": "plan", "rules": [rule]},
    ]
    assert [entry.policy for entry in branch if isinstance(entry, QueryStarted)] == [
        {"mode": "plan", "rules": [rule]}
    ]
