"""Tools in a query: resolved first, run in order or at once, and every call gets its answer."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from haptera import (
    ApprovalRequest,
    Approve,
    Deny,
    ErrorCode,
    Limits,
    QueryStarted,
    ToolContext,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    UserMessage,
    tool,
)
from haptera.hooks import Answer, Hooks
from haptera.model.events import Event, ToolFailed
from haptera.model.parts import TextPart, ToolResultPart
from haptera.testing import AutoClock, LoopClock, ScriptedProvider, calls, run_seeded, says
from haptera.testing.scripted_provider import Step, finished
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


@tool
async def note(name: str) -> str:
    """Note that it ran."""
    RAN.append(name)
    return f"noted {name}"


@tool
async def fail(name: str = "") -> str:
    """Fail."""
    RAN.append(f"fail {name}")
    raise ValueError("it broke")


def two_turns(*wishes: tuple[str, Any]) -> list[Step]:
    """Script calls, then an answer."""
    return [calls(*wishes), says("done")]


def failures(events: list[Event]) -> list[tuple[str, ErrorCode]]:
    return [(event.tool, event.error.code) for event in events if isinstance(event, ToolFailed)]


async def test_calls_run_one_after_the_other_in_the_model_s_order() -> None:
    order: list[str] = []

    @tool
    async def step(name: str) -> str:
        """Take a step."""
        order.append(f"{name} begins")
        await asyncio.sleep(0)  # noqa: TID251 - gives way to any other
        order.append(f"{name} ends")
        return name

    script = two_turns(("step", {"name": "a"}), ("step", {"name": "b"}))
    await run_script(script, tools=[step])
    assert order == ["a begins", "a ends", "b begins", "b ends"]


async def test_calls_may_run_side_by_side_and_are_answered_in_the_model_s_order() -> None:
    second_done = asyncio.Event()

    @tool
    async def first() -> str:
        """Wait for the other."""
        await second_done.wait()
        return "1"

    @tool
    async def second() -> str:
        """Let the other go."""
        second_done.set()
        return "2"

    script = two_turns(("first", {}), ("second", {}))
    _, provider = await run_script(script, tools=[first, second], parallel_tools=True)
    assert [item[0] for item in outcomes_in(provider.requests[1])] == ["first", "second"]


async def test_all_results_of_a_turn_are_one_message_with_matching_ids() -> None:
    script = [calls(("note", {"name": "a"}), ("note", {"name": "b"}), ids=("x", "y")), says("ok")]
    _, provider = await run_script(script, tools=[note])
    *_, answers = provider.requests[1].messages
    assert isinstance(answers, UserMessage)
    assert [
        (part.call_id, part.text) for part in answers.parts if isinstance(part, ToolResultPart)
    ] == [("x", "noted a"), ("y", "noted b")]


async def test_a_tool_that_does_not_exist_is_told_to_the_model_alone() -> None:
    async with playing(two_turns(("nothing", {}))) as (session, provider):
        events = await events_of(session)
    assert outcomes_in(provider.requests[1])[0][:2] == ("nothing", "error")
    assert "nothing" in outcomes_in(provider.requests[1])[0][2]
    assert failures(events) == []
    (ended,) = [event for event in events if isinstance(event, ToolEnded)]
    assert ended.error is not None
    assert ended.error.code is ErrorCode.TOOL_NOT_FOUND
    assert not any(isinstance(event, ToolStarted) for event in events)


async def test_input_that_does_not_fit_is_told_to_the_model_and_to_consumers() -> None:
    script = two_turns(("note", {"nome": "a"}), ("note", "{broken"))
    async with playing(script, tools=[note]) as (session, provider):
        events = await events_of(session)
    assert failures(events) == [("note", ErrorCode.TOOL_INVALID_INPUT)] * 2
    first, second = outcomes_in(provider.requests[1])
    assert "nome" in first[2]
    assert second[:2] == ("note", "error")
    assert RAN == []


async def test_a_failed_tool_is_told_to_the_model_and_to_consumers_and_the_query_goes_on() -> None:
    async with playing(two_turns(("fail", {})), tools=[fail]) as (session, provider):
        events = await events_of(session)
    assert failures(events) == [("fail", ErrorCode.TOOL_FAILED)]
    assert outcomes_in(provider.requests[1]) == [("fail", "error", "ValueError: it broke")]


async def test_every_call_is_resolved_before_the_first_one_runs() -> None:
    script = two_turns(("note", {"name": "a"}), ("nothing", {}), ("note", {"bad": 1}))
    async with playing(script, tools=[note]) as (session, provider):
        events = await events_of(session)
    ended = [event.outcome for event in events if isinstance(event, ToolEnded)]
    assert ended == ["error", "error", "ok"]
    assert [item[1] for item in outcomes_in(provider.requests[1])] == ["ok", "error", "error"]


async def test_a_call_is_in_the_log_before_it_runs() -> None:
    seen: list[str] = []

    @tool
    async def peek(context: ToolContext) -> str:
        """Look at the log."""
        entries = await agent._composition.session_resources().store.log.read(context.session_id)
        seen.extend(entry.kind for entry in entries)
        return "seen"

    agent, _ = make_agent(two_turns(("peek", {})), tools=[peek])
    async with agent:
        await agent.run("go")
    assert seen[-1] == "tool.started"
    assert seen.index("part.ended") < seen.index("turn.ended") < seen.index("tool.started")


async def test_progress_is_shown_while_a_tool_runs() -> None:
    @tool
    async def steps() -> AsyncIterator[str]:
        """Go step by step."""
        for name in ("half", "all", "result"):
            yield name

    @tool
    def in_a_thread(context: ToolContext) -> str:
        """Report from elsewhere."""
        context.progress({"thread": threading.current_thread() is threading.main_thread()})
        return "ok"

    script = two_turns(("steps", {}), ("in_a_thread", {}))
    async with playing(script, tools=[steps, in_a_thread]) as (session, provider):
        events = await events_of(session)
    shown = [event.progress for event in events if isinstance(event, ToolProgress)]
    assert shown == ["half", "all", {"thread": False}]
    assert [item[2] for item in outcomes_in(provider.requests[1])] == ["result", "ok"]


async def test_the_signal_of_a_tool_is_aborted_with_its_query_and_after_its_end() -> None:
    signals: list[Any] = []
    entered = asyncio.Event()

    @tool
    async def wait(context: ToolContext) -> None:
        """Wait."""
        signals.append(context.signal)
        entered.set()
        await asyncio.Event().wait()

    async with playing([calls(("wait", {}))], tools=[wait]) as (session, _):
        asking = asyncio.ensure_future(session.chat("go"))
        await entered.wait()
        assert not signals[0].aborted
        session.abort("stop")
        await failure_of(asking)
    assert signals[0].aborted


async def test_a_tool_that_cancels_itself_fails_alone() -> None:
    @tool
    async def give_up() -> None:
        """Give up."""
        raise asyncio.CancelledError

    result, provider = await run_script(two_turns(("give_up", {})), tools=[give_up])
    assert (result.stop_reason, outcomes_in(provider.requests[1])[0][1]) == ("complete", "error")


async def test_a_transform_belongs_to_its_query_only() -> None:
    script = [*two_turns(("note", {"name": "a"})), *two_turns(("note", {"name": "b"}))]
    async with playing(script, tools=[note]) as (session, provider):
        await session.chat("one", transform=lambda _name, _value: "changed")
        await session.chat("two")
    assert [item[2] for item in outcomes_in(provider.requests[3])] == ["changed", "noted b"]


async def test_a_hook_may_answer_in_the_tool_s_place() -> None:
    async def hook(_call: Any) -> Answer:
        return Answer((TextPart(text="from the hook"),))

    _, provider = await run_script(
        two_turns(("note", {"name": "a"})), tools=[note], hooks=Hooks(before_tool=hook)
    )
    assert (outcomes_in(provider.requests[1]), RAN) == ([("note", "ok", "from the hook")], [])


# Time limits and repeats, in virtual time.


def play_in_virtual_time(steps: list[Step], **options: Any) -> ScriptedProvider:
    async def play() -> ScriptedProvider:
        _, provider = await run_script(steps, clock=LoopClock(), **options)
        return provider

    return run_seeded(play, seed=7)


def test_a_tool_that_takes_too_long_is_cut_off_and_the_model_is_told() -> None:
    @tool(timeout=5)
    async def slow() -> None:
        """Take for ever."""
        await asyncio.Event().wait()

    provider = play_in_virtual_time(two_turns(("slow", {})), tools=[slow])
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert (outcome, "5 s" in text) == ("timed_out", True)


def test_a_tool_that_is_quick_enough_is_left_alone() -> None:
    @tool(timeout=5)
    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(4.9)  # noqa: TID251 - virtual time
        return "in time"

    provider = play_in_virtual_time(two_turns(("slow", {})), tools=[slow])
    assert outcomes_in(provider.requests[1]) == [("slow", "ok", "in time")]


@pytest.mark.parametrize(
    ("fails", "retries", "outcome", "runs"),
    [(1, 2, "ok", 2), (2, 2, "ok", 3), (3, 2, "error", 3), (1, 0, "error", 1)],
)
async def test_an_idempotent_tool_is_run_again_as_often_as_it_allows(
    fails: int, retries: int, outcome: str, runs: int
) -> None:
    @tool(idempotent=True, retry=retries)
    async def shaky() -> str:
        """Fail a few times."""
        RAN.append("shaky")
        if len(RAN) <= fails:
            raise ConnectionError("again")
        return "fine"

    options = {"tools": [shaky], "clock": AutoClock()}
    async with playing(two_turns(("shaky", {})), **options) as (session, provider):
        events = await events_of(session)
    assert (outcomes_in(provider.requests[1])[0][1], len(RAN)) == (outcome, runs)
    assert [event.kind for event in events].count("tool.started") == 1


async def test_a_tool_that_is_run_again_gets_its_arguments_as_the_model_sent_them() -> None:
    seen: list[str] = []

    @tool(idempotent=True, retry=2)
    async def consume(items: list[int], rest: dict[str, Any]) -> str:
        """Use the arguments up, and fail."""
        seen.append(f"{items} {rest}")
        items.pop()
        rest["inner"].clear()
        raise ConnectionError("again")

    given = {"items": [1, 2], "rest": {"inner": [3]}}
    options = {"tools": [consume], "clock": AutoClock()}
    async with playing(two_turns(("consume", given)), **options) as (session, _):
        await session.chat("go")
        assert seen == ["[1, 2] {'inner': [3]}"] * 3
        (call,) = [part for item in session.messages for part in getattr(item, "tool_calls", ())]
        assert call.arguments == given


# Garbled turns, loops and limits.


def garbled(text: str = "I will now use") -> Step:
    """Script a turn that promises calls and makes none."""
    return [*says(text)[:-1], finished("tool_calls", "tool_use")]


async def test_a_turn_that_promises_calls_and_makes_none_is_taken_back_and_asked_again() -> None:
    result, provider = await run_script([garbled(), says("sorry")])
    assert result.text == "sorry"
    assert [m.text for m in provider.requests[1].messages] == ["go"]
    assert provider.requests[0].messages == provider.requests[1].messages


async def test_a_third_garbled_turn_is_an_error() -> None:
    async with playing([garbled()] * 3) as (session, provider):
        error = await failure_of(session.chat("go"))
        assert (error.code, len(provider.requests)) == (ErrorCode.PROTOCOL, 3)
        assert [message.text for message in session.messages] == ["go"]


async def test_a_good_turn_forgives_the_garbled_ones_before_it() -> None:
    script = [garbled(), garbled(), calls(("note", {"name": "a"})), garbled(), garbled()]
    result, provider = await run_script([*script, says("done")], tools=[note])
    assert (result.text, len(provider.requests)) == ("done", 6)


async def test_the_third_identical_call_with_the_same_results_is_refused_and_the_model_told() -> (
    None
):
    script = [*[calls(("note", {"name": "a"}))] * 3, says("I see")]
    result, provider = await run_script(script, tools=[note])
    assert (result.stop_reason, result.text, RAN) == ("complete", "I see", ["a", "a"])
    assert "was not run" in str(provider.requests[-1].messages[-1].parts)


async def test_a_model_that_insists_on_a_refused_call_ends_the_query_which_names_it() -> None:
    result, _ = await run_script([calls(("note", {"name": "a"}))] * 4, tools=[note])
    assert (result.stop_reason, RAN, len(result.tool_calls)) == ("loop", ["a", "a"], 4)
    assert result.stop_detail == 'note({"name":"a"})'


async def test_running_tests_between_edits_is_no_loop() -> None:
    runs: list[str] = []

    @tool
    def run_tests() -> str:
        """Run the tests."""
        runs.append("run")
        return "2 failed"

    @tool
    def edit(line: int) -> str:
        """Change a line."""
        return "changed"

    steps = [(calls(("run_tests", {})), calls(("edit", {"line": n}))) for n in range(5)]
    script = [step for pair in steps for step in pair]
    result, _ = await run_script([*script, says("green")], tools=[run_tests, edit])
    assert (result.stop_reason, result.text, len(runs)) == ("complete", "green", 5)


async def test_the_same_call_with_another_result_each_time_is_no_loop() -> None:
    count = iter(range(10))

    @tool
    def poll() -> int:
        """See how far it is."""
        return next(count)

    result, _ = await run_script([*[calls(("poll", {}))] * 6, says("done")], tools=[poll])
    assert (result.stop_reason, next(count)) == ("complete", 6)


async def test_an_approver_may_let_a_repeated_call_run() -> None:
    asked: list[str | None] = []

    def approve(request: ApprovalRequest) -> Approve:
        asked.append(request.reason)
        return Approve()

    script = [*[calls(("note", {"name": "a"}))] * 4, says("done")]
    result, _ = await run_script(script, tools=[note], approver=approve)
    assert (result.stop_reason, RAN) == ("complete", ["a"] * 4)
    assert asked == ["the same call had the same result several times"] * 2


async def test_a_repeated_call_is_refused_without_asking_where_that_is_set() -> None:
    def fail(request: ApprovalRequest) -> Approve:
        raise AssertionError

    script = [*[calls(("note", {"name": "a"}))] * 3, says("done")]
    result, _ = await run_script(script, tools=[note], approver=fail, on_loop="deny")
    assert (result.text, RAN) == ("done", ["a", "a"])


@pytest.mark.parametrize("between", [(), (("note", {"name": "b"}),)], ids=["alone", "then-another"])
async def test_a_repeated_call_that_the_approver_denied_does_not_run_when_the_model_insists(
    between: tuple[tuple[str, dict[str, str]], ...],
) -> None:
    asked: list[str | None] = []

    def deny(request: ApprovalRequest) -> Deny:
        asked.append(request.reason)
        return Deny("enough")

    same = ("note", {"name": "a"})
    script = [calls(same), calls(same), calls(same, *between), calls(same)]
    script += [says("done")] if between else []
    result, provider = await run_script(script, tools=[note], approver=deny)
    assert asked == ["the same call had the same result several times"]
    if between:  # another call came after it: the row is broken, and starts again
        assert (result.text, RAN) == ("done", ["a", "a", "b", "a"])
    else:
        assert (result.stop_reason, len(provider.requests), RAN) == ("loop", 4, ["a", "a"])


@pytest.mark.parametrize("wish", [("note", {"name": "a"}), ("nowhere", {})], ids=str)
async def test_repeated_calls_go_on_where_they_are_allowed(wish: Any) -> None:
    script = [*[calls(wish)] * 6, says("done")]
    result, _ = await run_script(script, tools=[note], on_loop="allow")
    assert (result.stop_reason, result.text, len(result.tool_calls)) == ("complete", "done", 6)


@pytest.mark.parametrize(
    "wish", [("nowhere", {"name": "a"}), ("note", {"name": 7}), ("note", "{half")], ids=str
)
@pytest.mark.parametrize("approver", [None, lambda request: Approve()], ids=["alone", "approver"])
async def test_a_call_that_can_never_run_goes_in_circles_like_any_other(
    wish: Any, approver: Any
) -> None:
    result, provider = await run_script([calls(wish)] * 4, tools=[note], approver=approver)
    assert (result.stop_reason, len(provider.requests), RAN) == ("loop", 4, [])
    assert (result.stop_detail or "").startswith(f"{wish[0]}(")


async def test_identical_calls_of_two_queries_are_no_loop() -> None:
    script = [*[calls(("note", {"name": "a"}))] * 2, says("x")] * 2
    async with playing(script, tools=[note]) as (session, _):
        for _ in range(2):
            assert (await session.chat("go")).stop_reason == "complete"


async def test_after_a_loop_the_session_goes_on() -> None:
    script = [*[calls(("note", {"name": "a"}))] * 4, says("fine")]
    async with playing(script, tools=[note]) as (session, provider):
        await session.chat("go")
        assert (await session.chat("stop that")).text == "fine"
    assert outcomes_in(provider.requests[4])[-1][:2] == ("note", "interrupted")


CALL = calls(("note", {"name": "a"}))
OTHER = calls(("note", {"name": "b"}))


@pytest.mark.parametrize(
    ("limits", "turns"),
    [
        (Limits(turns=2), 2),
        (Limits(turns=3), 3),
        (Limits(tokens=15), 2),
        (Limits(tokens=16), 3),
        (Limits(tool_calls=1), 2),
        (Limits(tool_calls=2), 3),
        (Limits(seconds=0), 1),
    ],
    ids=str,
)
async def test_on_the_last_turn_tools_are_withheld_and_a_wrap_up_is_asked_for(
    limits: Limits, turns: int
) -> None:
    script = [CALL, OTHER, CALL][: turns - 1]
    result, provider = await run_script([*script, says("so far")], tools=[note], limits=limits)
    *earlier, last = provider.requests
    assert all(request.tools for request in earlier)
    assert last.tools == ()
    assert "last turn" in str(last.messages[-1].parts[-1])
    assert (result.turns, result.text) == (turns, "so far")
    assert result.stop_reason == ("limit" if turns > 1 else "complete")


async def test_a_limit_of_seconds_counts_what_the_clock_says() -> None:
    clock = LoopClock()

    async def play() -> Any:
        @tool
        async def slow() -> str:
            """Take ten seconds."""
            await clock.sleep(10)
            return "slow"

        script = [calls(("slow", {})), says("so far")]
        return await run_script(script, tools=[slow], clock=clock, limits=Limits(seconds=9))

    result, provider = await asyncio.to_thread(run_seeded, play, 3)
    assert (result.stop_reason, provider.requests[1].tools) == ("limit", ())


async def test_an_unknown_cost_never_reaches_a_limit() -> None:
    result, _ = await run_script([CALL, says("done")], tools=[note], limits=Limits(cost=0.000001))
    assert (result.stop_reason, result.cost) == ("complete", None)


async def test_a_model_that_calls_tools_on_the_last_turn_all_the_same_is_stopped() -> None:
    result, _ = await run_script([CALL, OTHER], tools=[note], limits=Limits(turns=2))
    assert (result.stop_reason, RAN) == ("limit", ["a"])


async def test_a_model_that_pauses_on_the_last_turn_is_stopped() -> None:
    script = [CALL, says("hold on", finish="pause")]
    result, provider = await run_script(script, tools=[note], limits=Limits(turns=2))
    assert (result.stop_reason, len(provider.requests)) == ("limit", 2)


async def test_a_garbled_last_turn_is_the_last_all_the_same() -> None:
    result, _ = await run_script([CALL, garbled()], tools=[note], limits=Limits(turns=2))
    assert result.stop_reason == "limit"


# Reminders.


async def test_reminders_of_a_query_go_with_its_first_request_only_and_are_not_kept() -> None:
    async with playing([CALL, says("a"), says("b")], tools=[note]) as (session, provider):
        await session.chat("go", reminders=["be quick"])
        await session.chat("on")
        assert "be quick" not in str(session.messages)
    assert ["be quick" in str(request.messages) for request in provider.requests] == [
        True,
        False,
        False,
    ]


async def test_standing_reminders_are_kept_with_the_first_prompt() -> None:
    async with playing([says("a"), says("b")], cached_reminders=["rules"]) as (session, provider):
        events = await events_of(session)
        await session.chat("on")
    assert [str(request.messages).count("rules") for request in provider.requests] == [1, 1]
    (started,) = [event for event in events if isinstance(event, QueryStarted)]
    assert "rules" in str(started.message)


async def test_two_queries_of_one_agent_do_not_meet_in_its_blocks() -> None:
    agent, provider = make_agent([CALL, says("one"), OTHER, says("two")], tools=[note])
    async with agent:
        first = await agent.run("first")
        second = await agent.run("second")
    assert (first.text, second.text, RAN) == ("one", "two", ["a", "b"])
    assert first.session_id != second.session_id
    assert [m.text for m in provider.requests[2].messages] == ["second"]
