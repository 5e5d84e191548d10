"""A session whose model is a native agent, over a scripted child."""

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import AbortSignal, Agent, AgentError, Approve, Deny, SessionError, tool
from haptera.hooks import (
    AfterQuery,
    AfterTool,
    BeforeQuery,
    BeforeTool,
    Block,
    Hooks,
    Proceed,
)
from haptera.kernel.session.native_turns import TurnTimes
from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.canonical import arguments_hash
from haptera.model.entry_bytes import encode_event
from haptera.model.errors import ConfigError, ErrorCode, ProviderError
from haptera.model.events import (
    Event,
    ObserverLagged,
    SubagentChanged,
    TextDelta,
    ToolProgress,
)
from haptera.model.log.approvals import ApprovalRequested
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.native import UsageReported
from haptera.model.log.queries import QueryEnded
from haptera.model.log.sessions import SessionChanged
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.model.log.turns import RetryScheduled, TurnEnded
from haptera.model.log.workspace import Snapshot
from haptera.model.parts import TextPart
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, says
from tests.providers.claude_agent.children import (
    FIRST,
    MODEL,
    SECOND,
    USER,
    Child,
    agent_of,
    call,
    emit,
    event,
    hook,
    init,
    mcp_call,
    permission,
    result,
    text,
    tool_result,
)
from tests.scripted_agents import live_of

pytestmark = pytest.mark.slow

TOUCH = {"command": "touch x"}


def turn(said: str, number: int = 1, session_id: str = FIRST, **more: Any) -> list[dict[str, Any]]:
    """A prompt and its answer."""
    return [
        USER,
        init(session_id),
        *text(said, f"msg_{number}", session_id),
        result(said, session_id, **more),
    ]


def bash_turn(*questions: dict[str, Any], **ended: Any) -> list[dict[str, Any]]:
    """A prompt, a call of Bash, its questions, its end, and an answer."""
    steps = [USER, init(), *call("Bash", TOUCH), *questions]
    return [*steps, tool_result("made", **ended), *text("Done.", "msg_2"), result("Done.")]


async def events_of(stream: Any) -> list[Event]:
    async with stream:
        return [event async for event in stream]


async def test_a_query_has_the_same_events_and_result_as_with_any_model(tmp_path: Path) -> None:
    child = Child(tmp_path, turn("Hello."))
    async with agent_of(child) as agent, agent.session("ana") as session:
        stream = session.stream("Hi")
        events = await events_of(stream)
        answer = await stream.result()
        kinds = [event.kind for event in events if isinstance(event, Entry)]
        assert session.native_session_id == FIRST
        assert [message.text for message in session.messages] == ["Hi", "Hello."]
    assert kinds[0] == "query.started"
    assert kinds[-1] == "query.ended"
    assert {"turn.started", "part.started", "part.ended", "turn.ended", "usage.reported"} <= set(
        kinds
    )
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hello."]
    assert (answer.text, answer.stop_reason, answer.turns) == ("Hello.", "complete", 1)
    assert (answer.provider, answer.model) == ("claude-agent", "claude-sonnet-4-6")
    assert (answer.usage.input, answer.usage.output) == (10, 5)
    assert answer.cost == Decimal("0.25")
    assert (answer.native_session_id, answer.resume, answer.resumed) == (FIRST, None, False)


async def test_files_are_recorded_around_the_query_of_a_native_agent(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "AGENTS.md").write_text("the agent reads this itself")
    child = Child(tmp_path, turn("Hello."))
    home = {**child.environment(), "HAPTERA_HOME": str(tmp_path / "home")}
    options: dict[str, Any] = {"workspace": tmp_path / "work", "environment": home}
    async with agent_of(child, **options) as agent, agent.session() as session:
        events = await events_of(session.stream("Hi"))
        assert session.context_files == ()
    taken = [event for event in events if isinstance(event, Snapshot)]
    assert [(item.moment, bool(item.tree)) for item in taken] == [("before", True), ("after", True)]


async def test_the_native_id_is_in_the_log_as_soon_as_it_is_seen_and_whenever_it_changes(
    tmp_path: Path,
) -> None:
    reset = emit(type="conversation_reset", new_conversation_id="x", session_id=FIRST, uuid="u")
    steps = [*turn("One"), USER, reset, init(SECOND), *text("Two", "msg_2", SECOND)]
    child = Child(tmp_path, [*steps, result("Two", SECOND, total_cost_usd=0.1)])
    async with agent_of(child) as agent, agent.session("ana") as session:
        events = await events_of(session.stream("1"))
        second = await session.chat("2")
        assert session.native_session_id == SECOND
    seen = next(e.changes for e in events if isinstance(e, SessionChanged))
    assert seen["native_session_id"] == FIRST
    kinds = [event.kind for event in events]
    assert kinds.index("session.changed") < kinds.index("turn.started")
    assert second.cost == Decimal("0.1")  # the running total began again


async def test_a_turn_costs_what_the_user_says_of_the_agent_s_own_models(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[prices."claude-agent/claude-sonnet-4-6"]\ninput = 1_000_000\noutput = 0\n'
    )
    child = Child(tmp_path, turn("Hello."))
    async with agent_of(child, config_dir=tmp_path) as agent, agent.session() as session:
        events = await events_of(session.stream("Hi"))
    (ended,) = [event for event in events if isinstance(event, TurnEnded)]
    assert ended.cost == Decimal(10)
    assert ended.context_window is not None


async def test_the_cost_of_a_query_is_what_the_running_total_grew_by(tmp_path: Path) -> None:
    steps = [
        *turn("One", 1, total_cost_usd=0.2),
        *turn("Two", 2, total_cost_usd=0.5),
        *turn("Three", 3, modelUsage={"m": {"costBasis": "unknown"}}, total_cost_usd=0.9),
    ]
    async with agent_of(Child(tmp_path, steps)) as agent, agent.session("ana") as session:
        costs = [(await session.chat(str(n))).cost for n in range(3)]
    assert costs == [Decimal("0.2"), Decimal("0.3"), None]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"is_error": True, "api_error_status": 401}, ErrorCode.AUTH),
        ({"is_error": True, "api_error_status": 529}, ErrorCode.OVERLOADED),
        ({"is_error": True, "result": "prompt is too long"}, ErrorCode.CONTEXT_LENGTH),
        ({"subtype": "error_during_execution"}, ErrorCode.SERVER_ERROR),
    ],
)
async def test_an_error_result_is_an_error_with_its_usage(
    tmp_path: Path, more: dict[str, Any], code: ErrorCode
) -> None:
    child = Child(tmp_path, [USER, init(), result(**{"said": "API Error", **more})])
    async with agent_of(child) as agent:
        with pytest.raises(AgentError) as caught:
            await agent.run("Hi")
    assert caught.value.code is code
    assert caught.value.result is not None
    assert caught.value.result.usage.input == 10
    assert caught.value.result.stop_reason == "error"


async def test_a_limit_of_turns_is_a_limit(tmp_path: Path) -> None:
    end = result(subtype="error_max_turns", is_error=True, stop_reason="tool_use")
    async with agent_of(Child(tmp_path, [USER, init(), *text("So far"), end])) as agent:
        answer = await agent.run(
            "Hi",
        )
    assert (answer.stop_reason, answer.stop_detail) == ("limit", "turns=50")


async def test_a_boundary_a_retry_and_usage_are_relayed_as_typed_events(tmp_path: Path) -> None:
    facts = {"trigger": "auto", "pre_tokens": 900, "post_tokens": 90}
    retry = emit(type="system", subtype="api_retry", attempt=1, retry_delay_ms=10, error_status=529)
    boundary = emit(type="system", subtype="compact_boundary", compact_metadata=facts)
    child = Child(tmp_path, [USER, init(), retry, boundary, *text("Hello."), result()])
    async with agent_of(child) as agent, agent.session("ana") as session:
        events = await events_of(session.stream("Hi"))
        assert [m.text for m in session.messages] == ["Hi", "Hello."]  # nothing is cut from the log
    compaction = next(e for e in events if isinstance(e, Compaction))
    assert (compaction.alias, compaction.trigger, compaction.pre_tokens) == (
        "compact_boundary",
        "auto",
        900,
    )
    usage = next(e for e in events if isinstance(e, UsageReported))
    assert usage.alias == "result_usage"
    assert usage.total_cost_usd == Decimal("0.25")
    assert usage.model_usage is not None
    assert "claude-sonnet-4-6" in usage.model_usage
    again = next(e for e in events if isinstance(e, RetryScheduled))
    assert (again.attempt, again.error.code) == (1, ErrorCode.OVERLOADED)


async def test_sub_agents_are_attributed_and_leave_at_the_end_at_the_latest(tmp_path: Path) -> None:
    started = emit(
        type="system",
        subtype="task_started",
        task_id="t1",
        tool_use_id="toolu_1",
        description="look",
    )
    block = {"type": "tool_use", "id": "toolu_9", "name": "Read", "input": {}}
    inner = emit(
        type="assistant",
        message={"id": "msg_s", "model": "m", "content": [block]},
        parent_tool_use_id="toolu_1",
    )
    steps = [USER, init(), *call("Task", {"prompt": "look"}), started, inner]
    child = Child(tmp_path, [*steps, tool_result("seen"), *text("Done.", "msg_2"), result()])
    async with agent_of(child) as agent, agent.session("ana") as session:
        events = await events_of(session.stream("Hi"))
        names = [call.name for m in session.messages for call in getattr(m, "tool_calls", ())]
    assert names == ["Task"]  # what a sub-agent calls is not the agent's own
    changes = [e for e in events if isinstance(e, SubagentChanged)]
    assert [e.alias for e in changes] == ["agent_joined", "agent_left"]
    assert changes[0].call_id == "toolu_1"
    progress = [e for e in events if isinstance(e, ToolProgress)]
    assert [(e.call_id, e.progress["tool"]) for e in progress] == [("toolu_1", "Read")]


# Approvals.


async def test_a_question_of_the_agent_is_an_approval_of_ours(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Approve()

    child = Child(tmp_path, bash_turn(hook("Bash", TOUCH), permission("Bash", TOUCH)))
    async with agent_of(child, approver=approve) as agent, agent.session("ana") as session:
        events = await events_of(session.stream("make x"))
    kinds = [e.kind for e in events if isinstance(e, Entry)]
    order = ["turn.ended", "approval.requested", "approval.settled", "tool.started", "tool.ended"]
    assert [kind for kind in kinds if kind in order][: len(order)] == order
    assert (asked[0].tool, asked[0].arguments, asked[0].call_id) == ("Bash", TOUCH, "toolu_1")
    granted = child.of("answer")[-1]["response"]
    assert granted == {"behavior": "allow", "updatedInput": TOUCH}


async def test_an_answer_may_change_the_input(tmp_path: Path) -> None:
    changed = {"command": "touch y"}
    child = Child(tmp_path, bash_turn(permission("Bash", TOUCH)))
    async with agent_of(child, approver=lambda _request: Approve(arguments=changed)) as agent:
        await agent.run("make x")
    assert child.of("answer")[-1]["response"]["updatedInput"] == changed


async def test_answers_to_a_question_of_the_agent_are_merged_into_its_input(tmp_path: Path) -> None:
    asked = {"questions": [{"question": "Which?"}]}
    steps = [USER, init(), *call("AskUserQuestion", asked), permission("AskUserQuestion", asked)]
    child = Child(tmp_path, [*steps, tool_result("ok"), *text("Done.", "msg_2"), result()])
    answers = {"answers": {"Which?": "the first"}}
    async with agent_of(child, approver=lambda _request: Approve(arguments=answers)) as agent:
        await agent.run("ask me")
    assert child.of("answer")[-1]["response"]["updatedInput"] == {**asked, **answers}


async def test_a_denial_reaches_the_agent_with_its_reason(tmp_path: Path) -> None:
    child = Child(tmp_path, bash_turn(permission("Bash", TOUCH), is_error=True))
    agent = agent_of(child, approver=lambda _request: Deny("not here"))
    async with agent, agent.session("ana") as session:
        events = await events_of(session.stream("make x"))
    assert child.of("answer")[-1]["response"] == {"behavior": "deny", "message": "not here"}
    assert [e.outcome for e in events if isinstance(e, ToolEnded)] == ["denied"]
    assert not [e for e in events if isinstance(e, ToolStarted)]


async def test_a_cancelled_query_denies_everything_that_is_pending(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def approve(_request: ApprovalRequest) -> Decision:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    cut = result(subtype="error_during_execution", is_error=True)["emit"]
    steps = [USER, init(), *call("Bash", TOUCH), permission("Bash", TOUCH), {"gate": "x"}]
    child = Child(tmp_path, steps, on_interrupt=[cut])
    async with agent_of(child, approver=approve) as agent, agent.session("ana") as session:
        running = asyncio.ensure_future(session.chat("make x"))
        await waiting.wait()
        session.abort("enough")
        with pytest.raises(AgentError) as caught:
            await running
        await child.reached("x")
        assert caught.value.code is ErrorCode.ABORTED
    denied = child.of("answer")[-1]["response"]
    assert denied["behavior"] == "deny"
    assert "cancelled" in denied["message"]


async def test_a_call_that_only_reads_is_shown_although_the_agent_does_not_ask(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, bash_turn(hook("Bash", TOUCH)))
    async with agent_of(child) as agent, agent.session("ana") as session:
        events = await events_of(session.stream("look"))
    ended = [e for e in events if isinstance(e, ToolEnded)]
    assert [(e.tool, e.outcome) for e in ended] == [("Bash", "ok")]
    assert [e.tool for e in events if isinstance(e, ToolStarted)] == ["Bash"]


async def test_a_call_that_runs_without_a_question_is_in_the_log_before_it_runs(
    tmp_path: Path,
) -> None:
    steps = [USER, init(), *call("Edit", TOUCH), hook("Edit", TOUCH), {"gate": "run"}]
    child = Child(tmp_path, [*steps, tool_result("made"), *text("Done.", "msg_2"), result()])
    agent = agent_of(child, claude_agent={"permission_mode": "accept_edits"})
    async with agent, agent.session("ana") as session:
        seen: list[str] = []
        session.on(Entry, lambda entry: seen.append(entry.kind))
        running = asyncio.ensure_future(session.chat("edit"))
        await child.reached("run")
        assert "tool.started" in seen
        child.open_gate("run")
        await running


async def test_a_hook_of_the_users_can_block_a_call_of_the_agent(tmp_path: Path) -> None:
    async def before(_call: object) -> Block:
        return Block("never")

    child = Child(tmp_path, bash_turn(hook("Bash", TOUCH), is_error=True))
    async with agent_of(child, hooks=Hooks(before_tool=before)) as agent:
        await agent.run("make x")
    said = child.of("answer")[-1]["response"]["hookSpecificOutput"]
    assert (said["permissionDecision"], said["permissionDecisionReason"]) == ("deny", "never")


async def test_hooks_are_told_of_queries_and_of_every_call_of_the_agent(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []

    async def see(given: BeforeQuery | BeforeTool) -> Proceed:
        if isinstance(given, BeforeTool):
            told.append(("BeforeTool", given.call.name))
        elif given.prompt is not None:
            told.append(("BeforeQuery", given.prompt.text))
        return Proceed()

    async def note(given: AfterQuery | AfterTool) -> None:
        if isinstance(given, AfterTool):
            told.append(("AfterTool", given.ended.outcome))
        else:
            told.append(("AfterQuery", given.ended.stop_reason))

    hooks = Hooks(before_query=see, before_tool=see, after_tool=note, after_query=note)
    child = Child(tmp_path, bash_turn(hook("Bash", TOUCH)))
    async with agent_of(child, hooks=hooks) as agent:
        await agent.run("make x")
    assert told == [
        ("BeforeQuery", "make x"),
        ("BeforeTool", "Bash"),
        ("AfterTool", "ok"),
        ("AfterQuery", "complete"),
    ]


async def test_a_gate_that_fails_keeps_a_prompt_from_the_agent(tmp_path: Path) -> None:
    async def fail(_given: object) -> Proceed:
        raise KeyError

    child = Child(tmp_path, turn("Hello."))
    async with agent_of(child, hooks=Hooks(before_query=fail)) as agent:
        with pytest.raises(AgentError) as caught:
            await agent.run("Hi")
    assert caught.value.code is ErrorCode.HOOK_FAILED


async def test_permission_rules_hold_for_the_tools_of_the_agent(tmp_path: Path) -> None:
    denied = Child(tmp_path / "denied", bash_turn(hook("Bash", TOUCH), is_error=True))
    async with agent_of(denied, permissions={"deny": ["Bash"]}) as agent:
        await agent.run("make x")
    said = denied.of("answer")[-1]["response"]["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny"
    allowed = Child(tmp_path / "allowed", bash_turn(permission("Bash", TOUCH)))
    async with agent_of(allowed, permissions={"allow": ["Bash"]}) as agent:
        await agent.run("make x")
    assert allowed.of("answer")[-1]["response"]["behavior"] == "allow"


async def test_every_call_is_asked_about_if_that_is_wanted(tmp_path: Path) -> None:
    child = Child(tmp_path, bash_turn(hook("Bash", TOUCH)))
    async with agent_of(child, approval="ask") as agent:
        await agent.run("look")
    said = child.of("answer")[-1]["response"]["hookSpecificOutput"]
    assert said["permissionDecision"] == "ask"


STOPPED = result(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
"""How a turn ends whose call waits for an approval."""


async def test_a_query_rests_on_an_approval_and_goes_on_with_it(tmp_path: Path) -> None:
    steps = [USER, init(), *call("Bash", TOUCH), permission("Bash", TOUCH), STOPPED]
    again = [USER, *call("Bash", TOUCH, "toolu_2", "msg_b"), permission("Bash", TOUCH, "toolu_2")]
    end = [tool_result("made", "toolu_2"), *text("Done.", "msg_3"), result("Done.")]
    child = Child(tmp_path, [*steps, *again, *end])
    async with agent_of(child) as agent, agent.session("ana") as session:
        rests = await session.chat("make x")
        assert rests.stop_reason == "approval"
        assert child.of("answer")[-1]["response"]["interrupt"] is True
        await session.approve(rests.pending[0].id)
        goes_on = await session.resume()
        assert goes_on.text == "Done."
    assert "approved now" in child.of("user")[-1]
    assert child.of("answer")[-1]["response"]["behavior"] == "allow"


async def test_an_approval_that_a_query_rested_on_is_not_used_for_another_call(
    tmp_path: Path,
) -> None:
    other = {"command": "rm x"}
    steps = [USER, init(), *call("Bash", TOUCH), permission("Bash", TOUCH), STOPPED]
    again = [USER, *call("Bash", other, "toolu_2", "msg_b"), permission("Bash", other, "toolu_2")]
    child = Child(tmp_path, [*steps, *again, STOPPED])
    async with agent_of(child) as agent, agent.session("ana") as session:
        (asked,) = (await session.chat("make x")).pending
        await session.approve(asked.id)
        rests = await session.resume()
        assert rests.stop_reason == "approval"
        assert [request.arguments for request in rests.pending] == [other]
    assert child.of("answer")[-1]["response"]["behavior"] == "deny"


async def test_an_approval_that_a_query_rested_on_is_used_for_a_call_that_a_hook_changes(
    tmp_path: Path,
) -> None:
    changed = {"command": "touch y"}

    async def before(_given: BeforeTool) -> Proceed:
        return Proceed(arguments=changed)

    steps = [USER, init(), *call("Bash", TOUCH), hook("Bash", TOUCH), permission("Bash", changed)]
    again = [
        *[USER, *call("Bash", TOUCH, "toolu_2", "msg_b"), hook("Bash", TOUCH, "toolu_2")],
        *[permission("Bash", changed, "toolu_2"), tool_result("made", "toolu_2")],
    ]
    child = Child(tmp_path, [*steps, STOPPED, *again, *text("Done.", "msg_3"), result("Done.")])
    hooks = Hooks(before_tool=before)
    async with agent_of(child, hooks=hooks) as agent, agent.session("ana") as session:
        events = await events_of(session.stream("make x"))
        (asked,) = (e for e in events if isinstance(e, ApprovalRequested))
        await session.approve(asked.approval_id)
        events = await events_of(session.resume())
    assert child.of("answer")[-1]["response"] == {"behavior": "allow", "updatedInput": changed}
    (started,) = (e for e in events if isinstance(e, ToolStarted))
    digest = arguments_hash("Bash", changed)
    assert asked.arguments_hash == started.arguments_hash == digest != arguments_hash("Bash", TOUCH)


QUESTIONS = {"questions": [{"question": "Which?"}]}
ANSWERS = {"answers": {"Which?": "the first"}}


@pytest.mark.parametrize(
    ("name", "given", "changed", "runs_with"),
    [
        ("Bash", TOUCH, {"command": "touch y"}, {"command": "touch y"}),
        ("Bash", TOUCH, {}, {}),
        ("AskUserQuestion", QUESTIONS, ANSWERS, {**QUESTIONS, **ANSWERS}),
    ],
)
async def test_an_approval_that_a_query_rested_on_may_change_the_input(
    name: str,
    given: dict[str, Any],
    changed: dict[str, Any],
    runs_with: dict[str, Any],
    tmp_path: Path,
) -> None:
    steps = [USER, init(), *call(name, given), permission(name, given), STOPPED]
    again = [USER, *call(name, given, "toolu_2", "msg_b"), permission(name, given, "toolu_2")]
    end = [tool_result("made", "toolu_2"), *text("Done.", "msg_3"), result("Done.")]
    child = Child(tmp_path, [*steps, *again, *end])
    async with agent_of(child) as agent, agent.session("ana") as session:
        (asked,) = (await session.chat("go")).pending
        await session.approve(asked.id, arguments=changed)
        assert (await session.resume()).text == "Done."
    assert child.of("answer")[-1]["response"]["updatedInput"] == runs_with


async def test_a_call_that_ran_without_a_question_is_recorded_with_its_arguments(
    tmp_path: Path,
) -> None:
    steps = [USER, init(), *call("Read", TOUCH), tool_result("text"), *text("Done.", "msg_2")]
    child = Child(tmp_path, [*steps, result("Done.")])
    async with agent_of(child) as agent, agent.session("ana") as session:
        events = await events_of(session.stream("look"))
    started = [event.arguments_hash for event in events if isinstance(event, ToolStarted)]
    assert started == [arguments_hash("Read", TOUCH)]


# Our own tools.


async def test_a_tool_of_ours_runs_once_with_its_progress_and_its_record(tmp_path: Path) -> None:
    calls: list[int] = []

    @tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        calls.append(a + b)
        return str(a + b)

    numbers = {"a": 1, "b": 2}
    name = "mcp__haptera__add"
    steps = [USER, init(), *call(name, numbers), hook(name, numbers), *mcp_call("add", numbers)]
    child = Child(tmp_path, [*steps, tool_result("3"), *text("3.", "msg_2"), result("3.")])
    async with agent_of(child, tools=[add]) as agent, agent.session("ana") as session:
        events = await events_of(session.stream("1 + 2?"))
        names = [call.name for m in session.messages for call in getattr(m, "tool_calls", ())]
    assert calls == [3]
    assert names == ["add"]
    ended = [e for e in events if isinstance(e, ToolEnded)]
    assert [(e.tool, e.outcome, e.call_id) for e in ended] == [("add", "ok", "toolu_1")]
    said = child.of("answer")[-1]["response"]["mcp_response"]["result"]
    assert said["content"] == [{"type": "text", "text": "3"}]
    allowed = next(word for word in child.argv if word.startswith("--allowedTools="))
    assert "mcp__haptera" in allowed


@pytest.mark.parametrize("ends", ["the turn ends", "it is refused"])
async def test_a_call_that_did_not_run_does_not_give_its_id_to_an_equal_one(
    tmp_path: Path, ends: str
) -> None:
    calls: list[int] = []

    @tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        calls.append(a + b)
        return str(a + b)

    numbers, name = {"a": 1, "b": 2}, "mcp__haptera__add"
    first = [USER, init(), *call(name, numbers), hook(name, numbers)]
    if ends == "it is refused":
        first += [permission(name, numbers), tool_result("no", is_error=True)]
    else:
        first += [tool_result("no", is_error=True), *text("No.", "msg_2"), result("No."), USER]
    again = [*call(name, numbers, "toolu_2", "msg_3"), hook(name, numbers, "toolu_2")]
    last = [tool_result("3", "toolu_2"), *text("3.", "msg_4"), result("3.")]
    child = Child(tmp_path, [*first, *again, *mcp_call("add", numbers), *last])
    agent = agent_of(child, tools=[add], approver=lambda _r: Deny("mine"))
    async with agent, agent.session("ana") as session:
        if ends == "the turn ends":
            await session.chat("1 + 2?")
        events = await events_of(session.stream("1 + 2?"))
    assert calls == [3]
    ended = [(e.call_id, e.outcome) for e in events if isinstance(e, ToolEnded)]
    assert ended[-1] == ("toolu_2", "ok")


async def test_a_tool_of_ours_that_must_be_asked_about_is(tmp_path: Path) -> None:
    @tool(approval="ask")
    async def remove(path: str) -> str:
        """Remove a file."""
        raise AssertionError(path)

    name, path = "mcp__haptera__remove", {"path": "x"}
    steps = [USER, init(), *call(name, path), hook(name, path), *mcp_call("remove", path)]
    child = Child(tmp_path, [*steps, tool_result("no"), *text("Ok.", "msg_2"), result("Ok.")])
    agent = agent_of(child, tools=[remove], approver=lambda _r: Deny("mine"))
    async with agent, agent.session("ana") as session:
        events = await events_of(session.stream("remove x"))
    assert [e.tool for e in events if isinstance(e, ApprovalRequested)] == ["remove"]
    said = child.of("answer")[-1]["response"]["mcp_response"]["result"]
    assert said["isError"] is True
    assert "mine" in said["content"][0]["text"]


# Stopping.


async def test_an_abort_keeps_what_was_said_and_the_next_query_is_clean(tmp_path: Path) -> None:
    cut = result(subtype="error_during_execution", is_error=True, total_cost_usd=0.3)["emit"]
    steps = [USER, init(), *text("Half an ans")[:3], {"gate": "x"}, *turn("Two", 2)[:-1]]
    child = Child(tmp_path, [*steps, result("Two", total_cost_usd=0.5)], on_interrupt=[cut])
    async with agent_of(child) as agent, agent.session("ana") as session:
        async with session.stream("1", on_abort="return") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    session.abort()
        first = await stream.result()
        child.open_gate("x")
        second = await session.chat("2")
    assert (first.stop_reason, first.text) == ("aborted", "Half an ans")
    assert (second.text, second.resume) == ("Two", "native")
    assert second.cost == Decimal("0.2")  # without what the aborted one had cost


@pytest.mark.slow
async def test_a_timeout_of_the_caller_stops_the_agent(tmp_path: Path) -> None:
    cut = result(subtype="error_during_execution", is_error=True)["emit"]
    child = Child(tmp_path, [USER, init(), {"gate": "x"}], on_interrupt=[cut])
    async with agent_of(child) as agent:
        with pytest.raises(AgentError) as caught:
            await agent.run("Hi", signal=AbortSignal.timeout(1.0))
    assert caught.value.code is ErrorCode.ABORTED


async def test_a_query_may_take_so_long_and_the_next_one_goes_on(tmp_path: Path) -> None:
    cut = result(subtype="error_during_execution", is_error=True)["emit"]
    steps = [USER, init(), {"gate": "x"}, *turn("Two", 2)]
    child = Child(tmp_path, steps, on_interrupt=[cut])
    async with agent_of(child) as agent, agent.session("ana") as session:
        with pytest.raises(AgentError) as caught:
            await session.chat("1", timeout=0.3)
        child.open_gate("x")
        second = await session.chat("2")
    assert caught.value.code is ErrorCode.TIMEOUT
    assert second.text == "Two"
    assert len(child.of("start")) == 1


async def test_a_turn_may_take_as_long_as_the_settings_of_the_agent_say(tmp_path: Path) -> None:
    times = {"turn_send_timeout": 7.0, "turn_result_timeout": 8.0}
    child = Child(tmp_path, turn("Hello."))
    async with agent_of(child, claude_agent=times) as agent, agent.session("ana") as session:
        await session.chat("Hi")
        native = (await live_of(session)).native.live
        assert native is not None
        assert native.driver._times == TurnTimes(send=7.0, result=8.0)


async def test_tokens_of_a_native_session_are_estimated(tmp_path: Path) -> None:
    async with agent_of(Child(tmp_path, turn("Hello."))) as agent, agent.session() as session:
        await session.chat("Hi")
        count = await session.count_tokens("And now?")
    assert count.tokens > 0
    assert not count.exact


async def test_an_agent_compacts_its_own_history(tmp_path: Path) -> None:
    child = Child(tmp_path, turn("Hello."))
    async with agent_of(child) as agent, agent.session("ana") as session:
        await session.chat("Hi")
        with pytest.raises(ConfigError, match="a native agent compacts its own history") as caught:
            await session.compact()
    assert caught.value.code is ErrorCode.CONFIG_INVALID


async def test_an_agent_is_no_fallback_of_a_model(tmp_path: Path) -> None:
    wire = ScriptedProvider([ProviderError(ErrorCode.BAD_REQUEST, "no")], provider="wire")
    agent = agent_of(Child(tmp_path, []), model="wire/any", providers=[wire], fallbacks=[MODEL])
    async with agent:
        with pytest.raises(AgentError):
            await agent.run("Hi")


async def test_notes_of_other_sessions_lead_the_prompt(tmp_path: Path) -> None:
    child = Child(tmp_path, turn("Yes."))
    wire = ScriptedProvider([says("Noted.")], provider="wire")
    async with agent_of(child, providers=[wire]) as agent:
        async with agent.session("other", model="wire/any") as other:
            await other.chat("Hi")
            await other.note("The build is red.")
        async with agent.session("ana") as session:
            await session.chat("How is the build?")
    assert "The build is red." in child.of("user")[0]
    assert child.of("user")[0].endswith("How is the build?")


async def test_a_steer_joins_the_query_that_runs(tmp_path: Path) -> None:
    steps = [USER, init(), {"gate": "x"}, *text("One"), result("One")]
    child = Child(tmp_path, [*steps, USER, *text("Shorter", "msg_2"), result("Shorter")])
    async with agent_of(child) as agent, agent.session("ana") as session:
        running = asyncio.ensure_future(session.chat("1"))
        await child.reached("x")
        await session.steer("shorter please")
        child.open_gate("x")
        answer = await running
    assert answer.text == "Shorter"
    assert child.of("user") == ["1", "shorter please"]


async def test_an_output_type_is_asked_for_and_repaired(tmp_path: Path) -> None:
    child = Child(tmp_path, [*turn("about three", 1), *turn("3", 2)])
    async with agent_of(child) as agent:
        answer = await agent.run("How many?", output_type=int)
    assert answer.output == 3
    assert "does not fit" in child.of("user")[1]


# Going on.


def transcript_of(child: Child, session_id: str = FIRST) -> Path:
    folder = child.folder / "home" / ".claude" / "projects" / "x"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{session_id}.jsonl"
    path.write_text('{"type": "user"}\n')
    return path


@pytest.mark.slow
async def test_going_on_is_native_by_replay_or_not_at_all(tmp_path: Path) -> None:
    """The matrix: what is there, what is wanted, and what the result says."""
    rows: list[tuple[bool, str, str | None]] = [
        (True, "native", "native"),
        (False, "native", "replay"),
        (True, "replay", "replay"),
        (True, "fail", "native"),
        (False, "fail", None),
    ]
    for number, (has_transcript, policy, expected) in enumerate(rows):
        store = f"sqlite:{tmp_path / f'{number}.db'}"
        first = Child(tmp_path / f"{number}-a", turn("Hello Ana."))
        agent = agent_of(first, store=store, project="p")
        async with agent, agent.session("ana") as session:
            await session.chat("I am Ana")
        second = Child(tmp_path / f"{number}-b", turn("You are Ana.", 2, SECOND))
        if has_transcript:
            transcript_of(second)
        options = {"store": store, "project": "p", "claude_agent": {"resume": policy}}
        async with agent_of(second, **options) as agent, agent.session("ana") as session:
            assert session.native_session_id == FIRST  # it survived the restart of everything
            if expected is None:
                with pytest.raises(SessionError) as caught:
                    await session.chat("Who am I?")
                assert caught.value.code is ErrorCode.NOT_FOUND
                continue
            stream = session.stream("Who am I?")
            events = await events_of(stream)
            answer = await stream.result()
        assert (answer.resume, answer.resumed) == (expected, expected == "native"), (
            has_transcript,
            policy,
        )
        assert answer.native_session_id == SECOND
        ended = [e for e in events if isinstance(e, QueryEnded)][-1]
        assert (ended.resume, ended.native_session_id) == (expected, SECOND)
        prompt = second.of("user")[0]
        assert (f"--resume={FIRST}" in second.argv) == (expected == "native")
        assert ("Hello Ana." in prompt) == (expected == "replay")
        assert prompt.endswith("Who am I?")


@pytest.mark.parametrize(
    "changes",
    [
        {"thinking": "high"},
        {"denied_tools": ["Bash"]},
        {"allowed_tools": ["Read"]},
        {"limits": {"turns": 7}},
        {"system_prompt": "Be brief."},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_settings_that_change_reach_a_program_that_is_open(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    steps = [*turn("One."), *turn("Two.", 2), *turn("Three.", 3)]
    child = Child(tmp_path, steps)
    transcript_of(child)
    async with agent_of(child) as agent, agent.session("ana") as session:
        await session.chat("1")
        await session.chat("2")
        assert len(child.of("start")) == 1, "the same program answers while nothing changes"
        await session.configure(**changes)
        await session.chat("3")
        assert len(child.of("start")) == 2
    first, second = (each["argv"] for each in child.of("start"))
    assert first != second


async def test_an_edited_conversation_is_handed_over_anew(tmp_path: Path) -> None:
    first, second = (
        Child(tmp_path / "a", turn("Blue.")),
        Child(tmp_path / "b", turn("Yes.", 2, SECOND)),
    )
    transcript_of(second)
    store = f"sqlite:{tmp_path / 'chat.db'}"
    async with agent_of(first, store=store, project="p") as agent, agent.session("ana") as session:
        await session.chat("Which colour?")
        await session.replace_part(session.messages[-1].id, 0, TextPart(text="Red."))
    async with agent_of(second, store=store, project="p") as agent, agent.session("ana") as session:
        answer = await session.chat("Sure?")
    assert answer.resume == "replay", "the native session still says Blue"
    prompt = second.of("user")[0]
    assert "Red." in prompt
    assert "Blue." not in prompt


async def test_what_a_reopened_session_says_native_replay_and_wire_side_by_side(
    tmp_path: Path,
) -> None:
    said: dict[str, dict[str, Any]] = {}
    for way in ("native", "replay", "wire"):
        store = f"sqlite:{tmp_path / way}.db"
        wire = ScriptedProvider([says("One"), says("Two")], provider="wire")
        model = "wire/any" if way == "wire" else MODEL
        results = []
        for number, answer in enumerate(("One", "Two")):
            child = Child(tmp_path / f"{way}-{number}", turn(answer, number))
            if way == "native":
                transcript_of(child)
            agent = agent_of(child, model=model, store=store, project="p", providers=[wire])
            async with agent, agent.session("ana") as session:
                results.append(await session.chat(str(number)))
        plain = msgspec.to_builtins(results[-1])
        facts = ("provider", "resumed", "resume", "native_session_id")
        said[way] = {name: plain.get(name) for name in facts if plain.get(name)}
    assert said == {
        "native": {
            "provider": "claude-agent",
            "resumed": True,
            "resume": "native",
            "native_session_id": FIRST,
        },
        "replay": {"provider": "claude-agent", "resume": "replay", "native_session_id": FIRST},
        "wire": {"provider": "wire"},
    }


async def test_a_session_that_does_not_exist_or_has_no_name_is_refused(tmp_path: Path) -> None:
    child = Child(tmp_path, [])
    async with agent_of(child) as agent:
        with pytest.raises(SessionError) as caught:
            await agent.session("unknown", must_exist=True).open()
        assert caught.value.code is ErrorCode.NOT_FOUND
        with pytest.raises(AgentError) as blank:
            agent.session(" ")
        assert blank.value.code is ErrorCode.CONFIG_INVALID
    assert child.of("start") == []


def choosing(path: Path, condition: str, then: Child, otherwise: Child) -> Path:
    """A program that is one of two children."""
    lines = [
        "#!/bin/sh",
        f'if {condition}; then exec "{then.executable}" "$@"; fi',
        f'exec "{otherwise.executable}" "$@"',
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


async def test_a_session_changes_between_native_and_wire_models_by_a_hand_over(
    tmp_path: Path,
) -> None:
    wire = ScriptedProvider([says("Blue, as you said.")], provider="wire")
    steps = [*turn("Noted: blue."), {"gate": "over"}]
    child = Child(tmp_path, steps)
    again = Child(tmp_path / "again", turn("Still blue.", 2, SECOND))
    switch = choosing(tmp_path / "switch", f'[ -e "{tmp_path}/moved" ]', again, child)
    agent = agent_of(child, claude_agent={"executable": str(switch)}, providers=[wire])
    async with agent, agent.session("ana") as session:
        await session.chat("My colour is blue")
        await session.configure(model="wire/any")
        second = await session.chat("Which colour?")
        (tmp_path / "moved").touch()
        await session.configure(model=MODEL)
        third = await session.chat("And now?")
    assert (second.text, second.resume) == ("Blue, as you said.", "replay")
    assert "Noted: blue." in str(wire.requests[-1].messages)
    assert (third.text, third.resume) == ("Still blue.", "replay")
    assert "Blue, as you said." in again.of("user")[0]


async def test_after_a_rewind_the_native_session_is_not_gone_on_with(tmp_path: Path) -> None:
    first = Child(tmp_path, [*turn("One", 1), *turn("Two", 2), *turn("Other", 3)])
    transcript_of(first)
    async with agent_of(first) as agent, agent.session("ana") as session:
        one = await session.chat("1")
        await session.chat("2")
        await session.rewind(to=one.message_id or "")
        other = await session.chat("3")
    assert other.resume == "replay"
    assert "Two" not in first.of("user")[-1]
    assert "One" in first.of("user")[-1]


async def test_after_an_edit_the_native_session_is_not_gone_on_with(tmp_path: Path) -> None:
    child = Child(tmp_path, turn("One", 1))
    async with agent_of(child) as agent, agent.session("ana") as session:
        one = await session.chat("My colour is blue")
        await session.remove_message(session.messages[-1].id)
        two = await session.chat("2")
        while session.messages:
            await session.remove_message(session.messages[-1].id)
        three = await session.chat("3")
    assert (one.resume, two.resume, three.resume) == (None, "replay", None)
    assert "blue" in child.of("user")[1]
    assert "One" not in child.of("user")[1]
    assert child.of("user")[2] == "3"
    assert len(child.of("start")) == 3


async def test_after_a_failed_query_the_native_session_is_gone_on_with(tmp_path: Path) -> None:
    failed = result(is_error=True, api_error_status=529)
    child = Child(tmp_path, [USER, init(), failed, *turn("Two", 2)])
    async with agent_of(child) as agent, agent.session("ana") as session:
        with pytest.raises(AgentError):
            await session.chat("1")
        two = await session.chat("2")
    assert (two.text, two.resume) == ("Two", "native")
    assert child.of("user") == ["1", "2"]


async def test_a_branch_goes_on_in_a_copy_of_the_native_session(tmp_path: Path) -> None:
    child = Child(tmp_path, turn("One", 1))
    copy = Child(tmp_path / "copy", turn("In the copy", 2, SECOND, total_cost_usd=0.4))
    switch = choosing(tmp_path / "switch", 'expr "$*" : ".*--fork-session" >/dev/null', copy, child)
    transcript_of(child)
    agent = agent_of(child, claude_agent={"executable": str(switch)})
    async with agent, agent.session("ana") as session:
        await session.chat("1")
        branch = await session.fork()
        answer = await branch.chat("2")
        assert (branch.native_session_id, session.native_session_id) == (SECOND, FIRST)
        await branch.close()
    assert f"--resume={FIRST}" in copy.argv
    assert (answer.resume, answer.native_session_id) == ("native", SECOND)
    assert answer.cost == Decimal("0.15")  # its total includes the original's


async def test_an_exported_state_names_the_native_session_by_all_its_names(tmp_path: Path) -> None:
    async with agent_of(Child(tmp_path, turn("Hello."))) as agent, agent.session("ana") as session:
        await session.chat("Hi")
        state = await session.export()
    written = state.to_dict()
    assert {written[name] for name in ("native_session_id", "cliSessionId", "sdkSessionId")} == {
        FIRST
    }


async def test_a_written_event_names_the_native_session_by_all_its_names(tmp_path: Path) -> None:
    async with agent_of(Child(tmp_path, turn("Hello."))) as agent, agent.session("ana") as session:
        events = await events_of(session.stream("Hi"))
    written = [json.loads(encode_event(event)) for event in events]
    named = [each["cliSessionId"] for each in written if "sdkSessionId" in each]
    assert named == [FIRST, FIRST]  # when it was seen, and at the end of the query


async def test_what_was_said_is_shown_searched_and_exported_and_never_sent_back(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    child = Child(tmp_path, [*turn("A nightingale.", 1), *turn("Yes.", 2)])
    async with agent_of(child, store=store) as agent, agent.session("ana") as session:
        await session.chat("Which bird?")
        await session.chat("Sure?")
        state = await session.export()
        hits = await store.search.find("nightingale", owner="local")
    assert [message.text for message in state.messages][:2] == ["Which bird?", "A nightingale."]
    assert len(hits) == 1
    assert child.of("user") == ["Which bird?", "Sure?"]


async def test_observers_share_a_query_and_one_that_falls_behind_is_told(tmp_path: Path) -> None:
    pieces = [
        event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "x"})
        for _ in range(200)
    ]
    first, *_, stop, end, last = text("x")
    begin = text("")[1]
    steps = [USER, init(), first, begin, *pieces, stop, end, last, result()]
    runtime = {"observer_buffer": 20}
    agent = agent_of(Child(tmp_path, steps), runtime=runtime)
    async with agent, agent.session("ana") as session:
        slow = session.events()
        await anext(slow)
        answer = await session.chat("Hi")
        seen: list[Event] = []
        async for each in slow:
            seen.append(each)
            if isinstance(each, QueryEnded | ObserverLagged):
                break
        await slow.aclose()
    assert answer.text == "x" * 200  # the query did not wait for the observer
    assert isinstance(seen[-1], ObserverLagged)


async def test_an_agent_that_dies_is_started_again_for_the_next_query(tmp_path: Path) -> None:
    child = Child(tmp_path, [USER, init(), *text("Half")[:3], {"die": 1}])
    transcript_of(child)
    store = f"sqlite:{tmp_path / 'a.db'}"
    async with agent_of(child, store=store) as agent, agent.session("ana") as session:
        with pytest.raises(AgentError):
            await session.chat("1")
        (child.folder / "script.json").write_text(
            (Child(tmp_path / "later", turn("Two", 2)).folder / "script.json").read_text()
        )
        answer = await session.chat("2")
    assert (answer.text, answer.resume) == ("Two", "native")


def test_a_session_of_an_agent_has_no_native_id_with_other_models() -> None:
    agent = Agent("wire/any", providers=[ScriptedProvider(provider="wire")], environment={})
    assert agent.settings.model == "wire/any"
