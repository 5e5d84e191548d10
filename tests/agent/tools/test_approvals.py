"""Approvals: asked all at once, run as they are answered, used once, and never left hanging."""

import asyncio
from typing import Any

import pytest

from haptera import (
    AgentSession,
    ApprovalRequest,
    ApprovalRequested,
    ApprovalSettled,
    Approve,
    Deny,
    ErrorCode,
    ToolEnded,
    ToolStarted,
    tool,
)
from haptera.model.approvals import Decision
from haptera.model.log.entry import Entry
from haptera.stores.memory import MemoryStore
from haptera.testing import calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import (
    events_of,
    failure_of,
    make_agent,
    outcomes_in,
    playing,
    run_script,
)

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool(approval="ask")
async def erase(path: str) -> str:
    """Erase a file."""
    RAN.append(path)
    return f"{path} is gone"


@tool
async def look() -> str:
    """Look around."""
    RAN.append("look")
    return "seen"


ERASE: Step = calls(("erase", {"path": "a"}))
ERASE_TWO: Step = calls(("erase", {"path": "a"}), ("erase", {"path": "b"}))


def answered(decision: Decision, **options: Any) -> dict[str, Any]:
    async def approver(_request: ApprovalRequest) -> Decision:
        return decision

    return {"tools": [erase, look], "approver": approver, **options}


# With an approver.


async def test_an_approved_call_runs() -> None:
    _, provider = await run_script([ERASE, says("done")], **answered(Approve()))
    assert outcomes_in(provider.requests[1]) == [("erase", "ok", "a is gone")]


async def test_a_denied_call_does_not_run_and_the_model_is_told_why() -> None:
    _, provider = await run_script([ERASE, says("ok")], **answered(Deny("it is needed")))
    assert outcomes_in(provider.requests[1]) == [("erase", "denied", "it is needed")]
    assert RAN == []


async def test_a_denial_without_a_reason_tells_the_model_not_to_try_again() -> None:
    _, provider = await run_script([ERASE, says("ok")], **answered(Deny()))
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert (outcome, "Do not try it again" in text) == ("denied", True)


async def test_an_approval_may_change_the_arguments() -> None:
    options = answered(Approve(arguments={"path": "b"}))
    async with playing([ERASE, says("ok")], **options) as (session, provider):
        events = await events_of(session)
    assert (RAN, outcomes_in(provider.requests[1])) == (["b"], [("erase", "ok", "b is gone")])
    (settled,) = [event for event in events if isinstance(event, ApprovalSettled)]
    assert settled.arguments == {"path": "b"}


async def test_changed_arguments_that_do_not_fit_are_invalid_input() -> None:
    options = answered(Approve(arguments={"path": 7}))
    _, provider = await run_script([ERASE, says("ok")], **options)
    assert (RAN, outcomes_in(provider.requests[1])[0][1]) == ([], "error")


async def test_one_switch_asks_for_every_tool_until_it_is_turned_back() -> None:
    @tool
    async def peek(path: str) -> str:
        """Look into a file."""
        RAN.append(path)
        return f"{path} is a file"

    peeks: list[Step] = [calls(("peek", {"path": "a"})), says("done"), says("again")]
    script: list[Step] = [calls(("peek", {"path": "b"})), *peeks]
    async with playing(script, tools=[peek]) as (session, _):
        await session.configure(approval="ask")
        resting = await session.chat("go")
        assert (resting.stop_reason, RAN) == ("approval", [])
        assert [(item.tool, item.arguments) for item in resting.pending] == [
            ("peek", {"path": "b"})
        ]
        await session.deny(resting.pending[0].id)
        await session.configure(approval="by_tool")
        assert (await session.resume()).text == "done"
        assert RAN == ["a"]
        assert (await session.chat("more")).text == "again"


@pytest.mark.parametrize("answer", [None, True, "yes"])
async def test_an_answer_that_is_no_decision_is_an_error_to_the_program(answer: Any) -> None:
    async with playing([ERASE], **answered(answer)) as (session, provider):
        error = await failure_of(session.chat("go"))
    assert (error.code, RAN, len(provider.requests)) == (ErrorCode.HOOK_FAILED, [], 1)
    assert error.message == (
        f"the approver returned {type(answer).__name__}; it must return Approve or Deny"
    )


async def test_an_approver_can_decide_by_what_a_tool_does_to_the_world() -> None:
    @tool(approval="ask", effect="read")
    async def peek(path: str) -> str:
        """Look into a file."""
        return f"{path} is a file"

    async def approver(request: ApprovalRequest) -> Decision:
        return Approve() if request.effect == "read" else Deny(request.effect)

    script: list[Step] = [
        calls(("erase", {"path": "a"}), ("peek", {"path": "b"})),
        says("done"),
    ]
    _, provider = await run_script(script, tools=[erase, peek], approver=approver)
    assert outcomes_in(provider.requests[1]) == [
        ("erase", "denied", "external"),
        ("peek", "ok", "b is a file"),
    ]


async def test_what_a_tool_does_to_the_world_is_still_known_when_the_query_rests() -> None:
    @tool(approval="ask", effect="write")
    async def note() -> str:
        """Write something down."""
        return "noted"

    async with playing([calls(("note", {}))], tools=[note]) as (session, _):
        result = await session.chat("go")
        assert [request.effect for request in result.pending] == ["write"]


async def test_an_approver_that_fails_has_not_approved() -> None:
    async def broken(_request: ApprovalRequest) -> Decision:
        raise RuntimeError("with a secret in it")

    script = [ERASE, says("ok")]
    _, provider = await run_script(script, tools=[erase], approver=broken)
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert (RAN, outcome, "secret" in text) == ([], "denied", False)


async def test_a_request_says_what_is_asked() -> None:
    seen: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> Decision:
        seen.append(request)
        return Approve()

    script = [calls(("erase", {"path": "a"}), ids=("x",)), says("ok")]
    result, _ = await run_script(script, tools=[erase], approver=approve)
    (request,) = seen
    assert (request.call_id, request.tool, request.arguments) == ("x", "erase", {"path": "a"})
    assert request.session_id == result.session_id
    assert len(request.arguments_hash) == 64


async def test_all_questions_are_asked_before_any_is_answered_and_run_as_answers_arrive() -> None:
    answers = {path: asyncio.Event() for path in "abc"}
    asked: list[str] = []
    ended = asyncio.Event()

    @tool(approval="ask")
    async def touch(path: str) -> str:
        """Touch a file."""
        RAN.append(path)
        ended.set()
        return path

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request.arguments["path"])
        await answers[request.arguments["path"]].wait()
        return Approve()

    script = [calls(*(("touch", {"path": path}) for path in "abc")), says("ok")]
    async with playing(script, tools=[touch], approver=approver) as (session, provider):
        asking = asyncio.ensure_future(session.chat("go"))
        for path in "cab":
            while len(asked) < 3:
                await asyncio.sleep(0)  # noqa: TID251 - lets the others ask
            ended.clear()
            answers[path].set()
            await ended.wait()
        await asking
    assert RAN == ["c", "a", "b"]
    assert [item[2] for item in outcomes_in(provider.requests[1])] == ["a", "b", "c"]


async def test_calls_that_need_no_approval_do_not_wait_for_those_that_do() -> None:
    looked = asyncio.Event()

    @tool
    async def peek() -> str:
        """Look at once."""
        looked.set()
        return "seen"

    async def approver(_request: ApprovalRequest) -> Decision:
        await looked.wait()
        return Approve()

    script = [calls(("erase", {"path": "a"}), ("peek", {})), says("ok")]
    result, _ = await run_script(script, tools=[erase, peek], approver=approver)
    assert result.text == "ok"


async def test_a_decision_is_in_the_log_before_the_tool_starts() -> None:
    async with playing([ERASE, says("ok")], **answered(Approve())) as (session, _):
        events = await events_of(session)
    kinds = [
        e.kind for e in events if isinstance(e, ApprovalRequested | ApprovalSettled | ToolStarted)
    ]
    assert kinds == ["approval.requested", "approval.settled", "tool.started"]


@pytest.mark.parametrize(
    ("scope", "asked"), [("once", "abaa"), ("query", "aba"), ("session", "ab")]
)
async def test_an_approval_may_reach_further_than_one_call_with_the_same_arguments(
    scope: Any, asked: str
) -> None:
    seen: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> Decision:
        seen.append(request)
        return Approve(scope=scope)

    other = calls(("erase", {"path": "b"}))
    script = [ERASE, other, ERASE, says("one"), ERASE, says("two")]
    async with playing(script, tools=[erase], approver=approve) as (session, _):
        await session.chat("go")
        await session.chat("on")
    assert RAN == ["a", "b", "a", "a"]
    assert "".join(request.arguments["path"] for request in seen) == asked


async def test_a_loop_is_put_to_the_approver() -> None:
    reasons: list[str | None] = []

    def approve(request: ApprovalRequest) -> Decision:
        reasons.append(request.reason)
        return Deny("enough") if len(RAN) == 2 else Approve()

    script = [*[calls(("look", {}))] * 3, says("ok")]
    _, provider = await run_script(script, tools=[look], approver=approve)
    assert (len(reasons), RAN) == (1, ["look", "look"])
    assert "same call" in str(reasons[0])
    assert outcomes_in(provider.requests[3])[-1][1:] == ("denied", "enough")


async def test_the_program_may_answer_before_the_approver() -> None:
    asked: asyncio.Queue[ApprovalRequest] = asyncio.Queue()

    async def approver(request: ApprovalRequest) -> Decision:
        asked.put_nowait(request)
        await asyncio.Event().wait()
        raise AssertionError

    async with playing([ERASE, says("ok")], tools=[erase], approver=approver) as (session, _):
        asking = asyncio.ensure_future(session.chat("go"))
        await session.approve((await asked.get()).id)
        assert (await asking).text == "ok"
    assert RAN == ["a"]


async def test_an_approver_is_cancelled_with_its_query() -> None:
    entered, stopped = asyncio.Event(), asyncio.Event()

    async def approver(_request: ApprovalRequest) -> Decision:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    async with playing([ERASE], tools=[erase], approver=approver) as (session, _):
        asking = asyncio.ensure_future(session.chat("go"))
        await entered.wait()
        session.abort()
        assert (await failure_of(asking)).code is ErrorCode.ABORTED
        await stopped.wait()


# Without one: later, by id.


async def resting(session: AgentSession) -> list[str]:
    """Run until the query rests, and return the ids that wait."""
    result = await session.chat("go")
    assert result.stop_reason == "approval"
    assert [item.id for item in session.unfinished.approvals] == [i.id for i in result.pending]
    return [item.id for item in result.pending]


async def test_a_query_rests_until_it_is_resumed() -> None:
    async with playing([ERASE, says("done")], tools=[erase]) as (session, provider):
        (approval,) = await resting(session)
        assert RAN == []
        await session.approve(approval)
        result = await session.resume()
        assert (result.text, result.resumed, result.turns) == ("done", True, 1)
        assert result.messages[0].text == "go"
    assert outcomes_in(provider.requests[1]) == [("erase", "ok", "a is gone")]


async def test_the_calls_of_a_resumed_query_name_the_turn_that_made_them() -> None:
    async with playing([ERASE, says("done")], tools=[erase]) as (session, _):
        (approval,) = await resting(session)
        turn_id = session.messages[-1].turn_id
        ran: list[Entry] = []
        session.on(ToolStarted, ran.append)
        session.on(ToolEnded, ran.append)
        await session.approve(approval)
        await session.resume()
    assert turn_id is not None
    assert [entry.turn_id for entry in ran] == [turn_id, turn_id]


async def test_answers_may_come_one_by_one_in_any_order() -> None:
    async with playing([ERASE_TWO, says("done")], tools=[erase]) as (session, provider):
        first, second = await resting(session)
        await session.approve(second, arguments={"path": "c"})
        await session.deny(first, "keep it")
        await session.resume()
    assert outcomes_in(provider.requests[1]) == [
        ("erase", "denied", "keep it"),
        ("erase", "ok", "c is gone"),
    ]


async def test_resuming_before_all_are_answered_rests_again() -> None:
    async with playing([ERASE_TWO, says("done")], tools=[erase]) as (session, _):
        first, second = await resting(session)
        await session.approve(first)
        again = await session.resume()
        assert (again.stop_reason, [item.id for item in again.pending]) == ("approval", [second])
        await session.approve(second)
        assert (await session.resume()).text == "done"
    assert RAN == ["a", "b"]


@pytest.mark.parametrize("how", ["approve", "deny"])
async def test_an_answer_is_used_once(how: str) -> None:
    async with playing([ERASE, says("done")], tools=[erase]) as (session, _):
        (approval,) = await resting(session)
        await getattr(session, how)(approval)
        for late in (session.approve(approval), session.deny(approval)):
            assert (await failure_of(late)).code is ErrorCode.NOT_FOUND
        await session.resume()
    assert (["a"] if how == "approve" else []) == RAN


async def test_changed_arguments_that_the_tool_does_not_take_leave_the_question_open() -> None:
    steps = [calls(("erase", {"path": "a"})), says("done")]
    async with playing(steps, tools=[erase]) as (session, _):
        (request,) = (await session.chat("go")).pending
        error = await failure_of(session.approve(request.id, arguments={"path": 3}))
        assert error.code is ErrorCode.TOOL_INVALID_INPUT
        assert "erase" in error.message
        await session.approve(request.id, arguments={"path": "b"})
        assert (await session.resume()).text == "done"
    assert RAN == ["b"]


async def test_an_answer_to_nothing_is_refused() -> None:
    async with playing([]) as (session, _):
        assert (await failure_of(session.approve("apr_x"))).code is ErrorCode.NOT_FOUND


async def test_a_new_prompt_cancels_what_waits() -> None:
    async with playing([ERASE, says("instead")], tools=[erase]) as (session, provider):
        (approval,) = await resting(session)
        assert (await session.chat("never mind")).text == "instead"
        assert (await failure_of(session.approve(approval))).code is ErrorCode.NOT_FOUND
        assert session.unfinished.approvals == ()
    assert RAN == []
    assert outcomes_in(provider.requests[1])[0][:2] == ("erase", "denied")


async def test_calls_that_need_no_approval_run_before_the_query_rests() -> None:
    script: list[Step] = [calls(("erase", {"path": "a"}), ("look", {})), says("done")]
    async with playing(script, tools=[erase, look]) as (session, _):
        (approval,) = await resting(session)
        assert RAN == ["look"]
        await session.approve(approval)
        await session.resume()
    assert RAN == ["look", "a"]


async def test_without_an_approver_an_unanswered_call_can_be_denied() -> None:
    script = [ERASE, says("well")]
    result, provider = await run_script(script, tools=[erase], unanswered="deny")
    assert (result.stop_reason, result.pending, RAN) == ("complete", (), [])
    assert outcomes_in(provider.requests[1])[0][:2] == ("erase", "denied")


async def test_another_process_may_answer_and_resume() -> None:
    store = MemoryStore()
    agent, _ = make_agent([ERASE], tools=[erase], store=store)
    async with agent, agent.session("shared") as session:
        (approval,) = await resting(session)
    later, provider = make_agent([says("done")], tools=[erase], store=store)
    async with later, later.session("shared") as session:
        assert [item.tool for item in session.unfinished.approvals] == ["erase"]
        await session.approve(approval, by="ana")
        assert (await session.resume()).text == "done"
    assert (RAN, outcomes_in(provider.requests[0])) == (["a"], [("erase", "ok", "a is gone")])


async def test_an_approval_for_a_whole_query_by_id_does_not_outlive_it() -> None:
    async with playing([ERASE, ERASE, says("one"), ERASE], tools=[erase]) as (session, _):
        (approval,) = await resting(session)
        await session.approve(approval, scope="query")
        assert (await session.resume()).text == "one"
        assert RAN == ["a", "a"]
        assert (await session.chat("again")).stop_reason == "approval"


async def test_there_is_nothing_to_resume_when_everything_has_ended() -> None:
    async with playing([says("done")]) as (session, _):
        await session.chat("go")
        assert (await failure_of(session.resume())).code is ErrorCode.NOTHING_TO_SEND
