"""Instrumentation: typed events with what each query, request and tool call took; never per delta.

Also what is shown before every turn, with every failed tool, and while a provider is silent.
"""

import asyncio
from typing import Any

import pytest

from haptera import Agent, Approve, Event, tool
from haptera.model.errors import ErrorCode, ProviderError
from haptera.model.events import (
    Heartbeat,
    Instrumented,
    QueryMeasured,
    QuerySummary,
    ToolFailed,
    ToolMeasured,
    TurnMeasured,
)
from haptera.model.log.conversation import Conversation
from haptera.model.settings import RetrySettings
from haptera.model.stream_parts import PartClosed, PartDelta, PartOpened, StreamOpened
from haptera.model.usage import Usage
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, reasoning, says
from haptera.testing.clocks import AutoClock, LoopClock, run_seeded
from haptera.testing.scripted_provider import Step, finished
from tests.messages_by_hand import assistant, user
from tests.providers.faulty_server import Connection, faulty_server
from tests.providers.test_delta_cost import anthropic
from tests.scripted_agents import events_of, failure_of, playing, run_script

OVERLOADED = ProviderError(
    ErrorCode.OVERLOADED, "come back later", basis="status", request_id="req_failed"
)


@tool
async def look(path: str = ".") -> str:
    """Look at a path."""
    return f"{path} is there"


def of_kind(events: list[Any], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


class Timed:
    """An agent on a clock that the script moves."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.seen: list[Instrumented] = []

    def after(self, seconds: float) -> Any:
        """Return a beat of a script in which time passes."""

        async def wait() -> None:
            self.clock.advance(seconds)

        return wait

    async def run(self, script: list[Step], **options: Any) -> None:
        await run_script(script, clock=self.clock, instrumentation=self.seen.append, **options)


# What a turn, a tool call and a query took.


async def test_a_turn_is_measured_with_its_latency_to_the_first_token() -> None:
    timed = Timed()
    opened = StreamOpened(model="one-2026", response_id="resp_1", request_id="req_1")
    answer: Step = [
        timed.after(0.25),
        [opened, PartOpened(key="0", kind="text")],
        timed.after(0.5),
        PartDelta(key="0", text="Hello"),
        timed.after(1),
        [PartClosed(key="0"), finished("stop", "end_turn", Usage(input=12, output=3))],
    ]
    await timed.run([answer])
    (turn,) = of_kind(timed.seen, TurnMeasured)
    assert (turn.provider, turn.model, turn.attempt) == ("scripted", "one", 1)
    assert (turn.first_token_ms, turn.duration_ms) == (750, 1750)
    assert (turn.usage, turn.finish_reason) == (Usage(input=12, output=3), "end_turn")
    assert turn.response_model == "one-2026"
    assert (turn.response_id, turn.request_id) == ("resp_1", "req_1")
    assert (turn.error, turn.interrupted) == (None, False)


async def test_a_query_is_measured_with_its_turns_attempts_and_tool_calls() -> None:
    timed = Timed()

    @tool
    async def wait(seconds: float) -> str:
        """Wait."""
        timed.clock.advance(seconds)
        return "done"

    await timed.run([calls(("wait", {"seconds": 2.0}), ids=["c1"]), says("fine")], tools=[wait])
    (ran,) = of_kind(timed.seen, ToolMeasured)
    assert (ran.tool, ran.call_id, ran.outcome) == ("wait", "c1", "ok")
    assert (ran.duration_ms, ran.attempts, ran.error) == (2000, 1, None)
    (query,) = of_kind(timed.seen, QueryMeasured)
    assert (query.stop_reason, query.finish_reason) == ("complete", "end_turn")
    assert (query.turns, query.attempts, query.tool_calls) == (2, 2, 1)
    assert (query.duration_ms, query.first_token_ms) == (2000, 0)
    assert query.usage == Usage(input=20, output=10)
    turns = of_kind(timed.seen, TurnMeasured)
    assert ran.turn_id == turns[0].turn_id
    assert {event.session_id for event in timed.seen} == {query.session_id}
    assert {event.query_id for event in timed.seen} == {query.query_id}


async def test_a_request_that_fails_is_measured_and_counts_as_an_attempt() -> None:
    seen: list[Instrumented] = []
    await run_script(
        [OVERLOADED, says("at last")],
        clock=AutoClock(),
        retry=RetrySettings(max_retries=1),
        instrumentation=seen.append,
    )
    failed, answered = of_kind(seen, TurnMeasured)
    assert (failed.attempt, failed.error.code) == (1, ErrorCode.OVERLOADED)
    assert (failed.request_id, failed.first_token_ms) == ("req_failed", None)
    assert (answered.attempt, answered.error) == (2, None)
    (query,) = of_kind(seen, QueryMeasured)
    assert (query.turns, query.attempts) == (1, 2)


async def test_a_query_that_fails_is_measured_with_its_error() -> None:
    seen: list[Instrumented] = []
    refused = ProviderError(ErrorCode.AUTH, "no", basis="status")
    async with playing([refused], instrumentation=seen.append) as (session, _):
        await failure_of(session.chat("go"))
    (turn,) = of_kind(seen, TurnMeasured)
    (query,) = of_kind(seen, QueryMeasured)
    assert (query.stop_reason, query.error.code) == ("error", ErrorCode.AUTH)
    assert turn.error == query.error


async def test_a_tool_that_is_repeated_says_how_often_it_was_run() -> None:
    left = [RuntimeError("busy"), RuntimeError("busy")]

    @tool(idempotent=True, retry=2)
    async def flaky() -> str:
        """Fail twice."""
        if left:
            raise left.pop()
        return "fine"

    seen: list[Instrumented] = []
    await run_script(
        [calls(("flaky", {})), says("ok")],
        tools=[flaky],
        clock=AutoClock(),
        instrumentation=seen.append,
    )
    assert [(item.outcome, item.attempts) for item in of_kind(seen, ToolMeasured)] == [("ok", 3)]


async def test_what_an_abort_cuts_off_is_measured_before_the_query_ends() -> None:
    gate, started = Gate(), asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    step: Step = [*says("half")[:3], gate]
    seen: list[Event] = []
    async with playing([step, calls(("hang", {}))], tools=[hang]) as (session, _):
        session.on(Instrumented, seen.append)
        for reached in (gate.reached, started):
            asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
            await reached.wait()
            session.abort()
            assert (await asking).stop_reason == "aborted"
    kinds = [event.kind.partition(".")[2] for event in seen]
    assert kinds == ["summary", "turn", "query", "summary", "turn", "tool", "query"]
    cut, whole = of_kind(seen, TurnMeasured)
    assert (cut.interrupted, cut.finish_reason, cut.first_token_ms) == (True, None, 0)
    assert (whole.interrupted, whole.finish_reason) == (False, "tool_use")
    assert [tool.outcome for tool in of_kind(seen, ToolMeasured)] == ["cancelled"]
    assert [query.stop_reason for query in of_kind(seen, QueryMeasured)] == ["aborted", "aborted"]


async def test_the_request_id_comes_from_the_head_of_the_reply() -> None:
    async def answer(connection: Connection) -> None:
        await connection.head(headers={"request-id": "req_from_head"})
        for frame in anthropic(2):
            await connection.piece(frame)
        await connection.end()

    seen: list[Instrumented] = []
    async with faulty_server(answer) as server:
        options: dict[str, Any] = {"api_key": "k", "environment": {}, "base_url": server.url}
        async with Agent(
            "anthropic/claude-sonnet-5", instrumentation=seen.append, **options
        ) as agent:
            await agent.run("go")
    (turn,) = of_kind(seen, TurnMeasured)
    assert (turn.request_id, turn.response_model, turn.response_id) == ("req_from_head", "m", "m")


# What is shown before every turn, and of every failed tool.


async def test_a_summary_before_every_turn_counts_what_is_sent() -> None:
    script: list[Step] = [
        says("earlier"),
        [*calls(("look", {}))[:1], *reasoning("hm"), *calls(("look", {}))[1:]],
        says("done"),
    ]
    seen: list[QuerySummary] = []
    async with playing(script, tools=[look], system_prompt=["Be brief.", "Be kind."]) as (
        session,
        provider,
    ):
        session.on(QuerySummary, seen.append)
        await session.chat("before")
        await session.chat("go", reminders=["It is noon.", "It rains."])
    assert [item.alias for item in seen] == ["query_summary"] * 3
    assert [item.user_messages for item in seen] == [1, 2, 3]
    assert [item.assistant_messages for item in seen] == [0, 1, 2]
    assert [item.thinking_blocks for item in seen] == [0, 0, 1]
    assert [item.system_prompts for item in seen] == [2, 2, 2]
    assert [item.tools for item in seen] == [1, 1, 1]
    reminders = [item.system_reminder for item in seen]
    assert reminders == [None, "It is noon.\n\nIt rains.", None]
    counted = [item.user_messages + item.assistant_messages for item in seen]
    assert counted == [len(request.messages) for request in provider.requests]


def test_counting_what_is_sent_looks_at_each_message_once() -> None:
    conversation = Conversation([user("1"), assistant("2")])
    counts = conversation.counts.update()
    assert (counts.user, counts.assistant) == (1, 1)
    conversation.push(user("3"))
    conversation.push(user("joins it"))
    assert (counts.update().user, counts.assistant) == (2, 1)
    assert conversation.remove_last() is not None
    assert (counts.update().user, counts.assistant) == (1, 1)
    conversation.set_history([user("anew")])
    assert (counts.update().user, counts.assistant) == (1, 0)


@pytest.mark.parametrize(
    ("asked", "arguments"),
    [({"path": "a"}, {"path": "a"}), ({"path": 7}, {"path": 7}), ("{no json", "{no json")],
)
async def test_a_failed_tool_is_shown_with_its_name_its_input_and_its_error(
    asked: Any, arguments: Any
) -> None:
    @tool
    async def fail(path: str) -> str:
        """Fail."""
        raise RuntimeError("it is broken")

    async with playing([calls(("fail", asked)), says("sorry")], tools=[fail]) as (session, _):
        (failed,) = of_kind(await events_of(session), ToolFailed)
    assert (failed.alias, failed.tool, failed.arguments) == ("tool_error", "fail", arguments)
    assert failed.error.code in (ErrorCode.TOOL_FAILED, ErrorCode.TOOL_INVALID_INPUT)


async def test_a_failed_tool_is_shown_with_the_input_that_it_ran_with() -> None:
    @tool(approval="ask")
    async def fail(path: str) -> str:
        """Fail."""
        raise RuntimeError("it is broken")

    async def approver(_request: Any) -> Approve:
        return Approve(arguments={"path": "b"})

    script = [calls(("fail", {"path": "a"})), says("sorry")]
    async with playing(script, tools=[fail], approver=approver) as (session, _):
        (failed,) = of_kind(await events_of(session), ToolFailed)
    assert failed.arguments == {"path": "b"}


# While a provider is silent.


def beats_of(script: list[Step], gates: dict[Gate, float], **runtime: Any) -> list[Heartbeat]:
    """Play a script in virtual time, opening its gates after so many seconds."""
    seen: list[Heartbeat] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for gate, seconds in gates.items():
            loop.call_later(seconds, gate.open)
        provider = ScriptedProvider(script)
        options: dict[str, Any] = {"runtime": runtime, "environment": {}, "clock": LoopClock()}
        made = Agent("scripted/one", providers=[provider], **options)
        async with made as agent, agent.session() as session:
            session.on(Heartbeat, seen.append)
            await session.chat("go")

    run_seeded(run, seed=1)
    return seen


def test_a_heartbeat_is_shown_every_thirty_seconds_while_a_provider_is_silent() -> None:
    gate = Gate()
    beats = beats_of([[gate, *says("at last")]], {gate: 100.0})
    assert [beat.silent_seconds for beat in beats] == [30.0, 60.0, 90.0]
    assert {(beat.provider, beat.model, beat.alias) for beat in beats} == {
        ("scripted", "one", "heartbeat")
    }


def test_silence_in_the_middle_of_an_answer_counts_from_what_was_said_last() -> None:
    first, second = Gate(), Gate()
    answer = says("one", "two")
    script: list[Step] = [[first, *answer[:3], second, *answer[3:]]]
    beats = beats_of(script, {first: 25.0, second: 95.0})
    # The first beat comes at 30 and finds that something was said; 60 and 90 find nothing.
    assert [beat.silent_seconds for beat in beats] == [30.0, 60.0]


@pytest.mark.parametrize(("seconds", "count"), [(0, 0), (10, 9), (1000, 0)])
def test_how_often_a_heart_beats_is_a_setting(seconds: float, count: int) -> None:
    gate = Gate()
    beats = beats_of([[gate, *says("late")]], {gate: 95.0}, heartbeat_seconds=seconds)
    assert len(beats) == count


def test_a_provider_that_answers_at_once_causes_no_heartbeat() -> None:
    assert beats_of([calls(("look", {})), says("fine")], {}) == []


def test_a_slow_consumer_is_not_a_silent_provider() -> None:
    """What waits is the query, for its consumer: nothing is said of the provider."""
    seen: list[Heartbeat] = []

    async def consume() -> None:
        provider = ScriptedProvider([[[part] for part in says(*"abcdef")]])
        runtime: Any = {"buffer_size": 1}
        options: dict[str, Any] = {"environment": {}, "clock": LoopClock()}
        made = Agent("scripted/one", providers=[provider], runtime=runtime, **options)
        async with made as agent, agent.session() as session:
            session.on(Heartbeat, seen.append)
            async for event in session.stream("go"):
                if event.kind == "text.delta":
                    await LoopClock().sleep(70)

    run_seeded(consume, seed=1)
    assert seen == []


def test_heartbeats_do_not_pile_up_before_a_consumer_that_does_not_read() -> None:
    read: list[Heartbeat] = []

    async def consume() -> None:
        gate = Gate()
        asyncio.get_running_loop().call_later(5000, gate.open)
        provider = ScriptedProvider([[gate, *says("late")]])
        runtime: Any = {"buffer_size": 3, "heartbeat_seconds": 1}
        options: dict[str, Any] = {"environment": {}, "clock": LoopClock()}
        made = Agent("scripted/one", providers=[provider], runtime=runtime, **options)
        async with made as agent, agent.session() as session:
            async for event in session.stream("go"):
                if event.kind == "turn.started":
                    await LoopClock().sleep(4000)
                if isinstance(event, Heartbeat):
                    read.append(event)

    run_seeded(consume, seed=1)
    assert len([beat for beat in read if beat.silent_seconds < 3999]) <= 4
    assert max(beat.silent_seconds for beat in read) > 4900  # those that it has time for are shown


async def test_an_error_of_a_handler_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_event: Instrumented) -> None:
        raise RuntimeError("no")

    result, _ = await run_script([says("fine")], instrumentation=fail)
    assert result.text == "fine"
    assert "a handler failed on instrumentation.query" in caplog.text
