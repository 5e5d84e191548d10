"""What a query returns: the same from every function, complete, and with how it really ended."""

from typing import Any

import pytest

import haptera
import haptera.sync
from haptera import (
    AbortController,
    AgentError,
    AssistantMessage,
    ConfigError,
    ErrorCode,
    QueryEnded,
    TextPart,
    Usage,
    UserMessage,
    tool,
)
from haptera.model.errors import ProviderError
from haptera.model.log.entry import Entry
from haptera.model.messages import Sender
from haptera.model.stream_parts import FinishKind, PartClosed, PartDelta, PartOpened
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, reasoning, says
from haptera.testing.scripted_provider import Step, finished
from tests.scripted_agents import MODEL, events_of, failure_of, playing, run_script


@tool
async def look(path: str) -> str:
    """Look at a path."""
    return f"{path} is there"


RICH: list[Step] = [
    [*reasoning("hm"), *calls(("look", {"path": "a"}), ids=("1",), text="I look. ")],
    calls(("look", {"path": "b"}), ids=("2",)),
    says("All ", "there."),
]
REFUSED: list[Step] = [ProviderError(ErrorCode.AUTH, "no", basis="status")]

# The same, from every function.


def options_of(provider: ScriptedProvider) -> dict[str, Any]:
    return {
        "model": MODEL,
        "providers": [provider],
        "tools": [look],
        "clock": FakeClock(),
        "environment": {},
    }


async def by_run_agent(provider: ScriptedProvider) -> Any:
    return await haptera.run_agent("go", **options_of(provider))


async def by_run_agent_stream(provider: ScriptedProvider) -> Any:
    stream = haptera.run_agent_stream("go", **options_of(provider))
    async for _ in stream:
        pass
    return await stream.result()


async def by_session(provider: ScriptedProvider) -> Any:
    session = await haptera.create_agent_session(**options_of(provider))
    async with session:
        return await session.chat("go")


async def by_agent(provider: ScriptedProvider) -> Any:
    async with haptera.Agent(**options_of(provider)) as agent:
        return await agent.run("go")


async def by_awaiting(provider: ScriptedProvider) -> Any:
    async with haptera.Agent(**options_of(provider)) as agent:
        return await agent.stream("go")


def by_blocking_run(provider: ScriptedProvider) -> Any:
    return haptera.sync.run_agent("go", **options_of(provider))


def by_blocking_stream(provider: ScriptedProvider) -> Any:
    stream = haptera.sync.run_agent_stream("go", **options_of(provider))
    for _ in stream:
        pass
    return stream.result()


def by_blocking_session(provider: ScriptedProvider) -> Any:
    with haptera.sync.create_agent_session(**options_of(provider)) as session:
        return session.chat("go")


def by_blocking_agent(provider: ScriptedProvider) -> Any:
    with haptera.sync.Agent(**options_of(provider)) as agent:
        return agent.run("go")


ASYNC_FUNCTIONS = [by_run_agent, by_run_agent_stream, by_session, by_agent, by_awaiting]
BLOCKING_FUNCTIONS = [by_blocking_run, by_blocking_stream, by_blocking_session, by_blocking_agent]


def essence(result: Any) -> dict[str, Any]:
    """Return a result without the ids and times that are new each time."""
    return {
        "text": result.text,
        "parts": [
            (type(message).__name__, [type(part).__name__ for part in message.parts], message.text)
            for message in result.messages
        ],
        "calls": [(call.call_id, call.name, call.arguments) for call in result.tool_calls],
        "rest": (result.usage, result.cost, result.provider, result.model),
        "end": (result.stop_reason, result.finish_reason, result.turns, result.resumed),
    }


EXPECTED = {
    "text": "All there.",
    "parts": [
        ("UserMessage", ["TextPart"], "go"),
        ("AssistantMessage", ["ReasoningPart", "TextPart", "ToolCallPart"], "I look. "),
        ("UserMessage", ["ToolResultPart"], ""),
        ("AssistantMessage", ["ToolCallPart"], ""),
        ("UserMessage", ["ToolResultPart"], ""),
        ("AssistantMessage", ["TextPart"], "All there."),
    ],
    "calls": [("1", "look", {"path": "a"}), ("2", "look", {"path": "b"})],
    "rest": (Usage(input=30, output=15), None, "scripted", "one"),
    "end": ("complete", "end_turn", 3, False),
}


@pytest.mark.parametrize("ask", ASYNC_FUNCTIONS)
async def test_every_async_function_gives_the_same_result(ask: Any) -> None:
    provider = ScriptedProvider(RICH)
    assert essence(await ask(provider)) == EXPECTED
    provider.check()


@pytest.mark.parametrize("ask", BLOCKING_FUNCTIONS)
def test_every_blocking_function_gives_the_same_result(ask: Any) -> None:
    provider = ScriptedProvider(RICH)
    assert essence(ask(provider)) == EXPECTED
    provider.check()


@pytest.mark.parametrize("ask", ASYNC_FUNCTIONS)
async def test_every_async_function_raises_the_same_error(ask: Any) -> None:
    error = await failure_of(ask(ScriptedProvider(REFUSED)))
    assert (error.code, error.result is not None) == (ErrorCode.AUTH, True)


@pytest.mark.parametrize("ask", BLOCKING_FUNCTIONS)
def test_every_blocking_function_raises_the_same_error(ask: Any) -> None:
    with pytest.raises(AgentError) as caught:
        ask(ScriptedProvider(REFUSED))
    assert (caught.value.code, caught.value.result is not None) == (ErrorCode.AUTH, True)


async def test_a_result_names_its_session_and_its_last_answer() -> None:
    async with playing([says("one"), says("two")]) as (session, _):
        first = await session.chat("go")
        second = await session.chat("on")
        assert first.session_id == second.session_id == session.session_id
        answers = [item for item in session.messages if isinstance(item, AssistantMessage)]
        assert [first.message_id, second.message_id] == [item.id for item in answers]
        assert [message.text for message in second.new_messages] == ["on", "two"]


# How a query ended.

FINISHES: dict[FinishKind, str] = {
    "stop": "complete",
    "length": "max_tokens",
    "context_window": "max_tokens",
    "refusal": "refusal",
    "other": "complete",
}


@pytest.mark.parametrize(("finish", "stop_reason"), FINISHES.items())
async def test_a_finish_of_the_model_is_a_reason_to_stop(
    finish: FinishKind, stop_reason: str
) -> None:
    result, _ = await run_script([says("text", finish=finish, reason="THEIR_WORD")])
    assert (result.stop_reason, result.finish_reason) == (stop_reason, "THEIR_WORD")


@pytest.mark.parametrize("finish", ["pause", "compaction"])
async def test_a_model_that_pauses_is_asked_to_go_on(finish: FinishKind) -> None:
    script = [says("first ", finish=finish), says("second")]
    result, provider = await run_script(script)
    assert (result.text, result.turns, len(provider.requests)) == ("first second", 2, 2)
    assert provider.requests[1].messages[-1].text == "first "


@pytest.mark.parametrize("finish", ["length", "context_window", "refusal"])
async def test_a_call_of_an_answer_that_was_cut_off_is_not_run(finish: FinishKind) -> None:
    script = [*calls(("look", {"path": "a"}))[:-1], finished(finish, "cut")]
    result, _ = await run_script([script], tools=[look])
    assert result.stop_reason == FINISHES[finish]
    assert len(result.tool_calls) == 1


@pytest.mark.parametrize("empty", [[finished("stop", "STOP")], says("", reason="STOP")])
async def test_an_answer_without_anything_in_it_adds_no_message_and_is_an_error(
    empty: Step,
) -> None:
    async with playing([empty, says("here")]) as (session, _):
        error = await failure_of(session.chat("go"))
        assert (error.code, error.retryable, "(STOP)" in error.message) == (
            ErrorCode.PROTOCOL,
            False,
            True,
        )
        assert error.result is not None
        assert (error.result.text, error.result.message_id) == ("", None)
        assert (error.result.stop_reason, error.result.finish_reason) == ("error", "STOP")
        assert [type(message) for message in session.messages] == [UserMessage]
        assert (await session.chat("again")).text == "here"


@pytest.mark.parametrize("finish", ["length", "context_window", "refusal"])
async def test_an_answer_that_was_cut_off_before_it_began_says_so(finish: FinishKind) -> None:
    result, _ = await run_script([[finished(finish, "cut")]])
    assert (result.text, result.stop_reason) == ("", FINISHES[finish])


async def test_a_model_may_have_nothing_to_add_after_its_tools() -> None:
    script: list[Step] = [
        calls(("look", {"path": "a"}), text="I look."),
        [finished("stop", "end_turn")],
    ]
    result, _ = await run_script(script, tools=[look])
    assert (result.stop_reason, result.text, result.turns) == ("complete", "I look.", 2)


async def test_an_answer_that_ends_without_saying_so_was_interrupted() -> None:
    steps: list[Step] = [[PartOpened(key="0", kind="text"), PartDelta(key="0", text="half")]]
    async with playing(steps, retry=haptera.RetrySettings(interruption_retries=0)) as (session, _):
        error = await failure_of(session.chat("go"))
        assert error.code is ErrorCode.STREAM_INTERRUPTED
        assert error.result is not None
        assert (error.result.text, error.result.stop_reason) == ("half", "error")


async def test_what_comes_after_the_end_of_an_answer_does_not_count() -> None:
    late = [PartOpened(key="9", kind="text"), PartDelta(key="9", text="late"), PartClosed(key="9")]
    script: list[Any] = [says("whole"), late, [finished("stop", "again")]]
    async with playing([script]) as (session, _):
        kinds = [event.kind for event in await events_of(session)]
        assert (kinds.count("turn.ended"), session.messages[-1].text) == (1, "whole")


async def test_time_is_counted_from_the_start_to_the_end_of_a_failure_too() -> None:
    clock = FakeClock()
    gate = Gate()
    steps: list[Step] = [[gate, ProviderError(ErrorCode.AUTH, "no", basis="status")]]
    async with playing(steps, clock=clock) as (session, _):
        stream = session.stream("go")
        async with stream:
            await gate.reached.wait()
            clock.advance(1.5)
            gate.open()
            error = await failure_of(stream.result())
    assert error.result is not None
    assert error.result.duration_ms == 1500


async def test_every_result_took_some_time() -> None:
    result, _ = await run_script([says("quick")])
    assert result.duration_ms >= 1


async def test_a_failed_query_keeps_what_came_and_the_session_goes_on() -> None:
    broken = [*says("so far")[:3], ProviderError(ErrorCode.BAD_REQUEST, "no", basis="status")]
    async with playing([broken, says("fine")]) as (session, provider):
        error = await failure_of(session.chat("go"))
        assert error.result is not None
        assert (error.result.text, error.result.stop_reason) == ("so far", "error")
        assert (await session.chat("again")).text == "fine"
    assert [m.text for m in provider.requests[1].messages] == ["go", "so far", "again"]


# What is refused before anything is built.


@pytest.mark.parametrize("prompt", ["", "   ", "\n\t", [], [TextPart(text=" ")]])
async def test_an_empty_prompt_is_refused(prompt: Any) -> None:
    async with playing([]) as (session, _):
        for ask in (session.chat, haptera.run_agent):
            with pytest.raises(ConfigError, match="Empty prompt") as caught:
                await ask(prompt)
            assert caught.value.code is ErrorCode.CONFIG_INVALID
        for stream in (session.stream, haptera.run_agent_stream):
            with pytest.raises(ConfigError, match="Empty prompt"):
                stream(prompt)
        assert session.messages == ()


@pytest.mark.parametrize("prompt", [["text"], [7], [haptera.ToolCallPart(call_id="1", name="x")]])  # type: ignore[arg-type]
async def test_a_prompt_of_what_a_user_cannot_say_is_refused(prompt: Any) -> None:
    async with playing([]) as (session, _):
        error = await failure_of(session.chat(prompt))
    assert error.code is ErrorCode.CONFIG_INVALID


async def test_a_prompt_may_be_parts_or_a_message_and_keeps_its_sender() -> None:
    sender = Sender(kind="orchestrator")
    message = UserMessage(id="m", parts=(TextPart(text="hi"),), sender=sender)  # type: ignore[arg-type]
    async with playing([says("1"), says("2")]) as (session, provider):
        await session.chat([TextPart(text="a"), TextPart(text="b")])
        await session.chat(message)
    sent = provider.requests[1].messages
    assert [item.text for item in sent] == ["ab", "1", "hi"]
    assert isinstance(sent[2], UserMessage)
    assert sent[2].sender == sender


class CountingProvider(ScriptedProvider):
    """Counts the reads of its name."""

    looked = 0

    @property
    def provider(self) -> str:
        type(self).looked += 1
        return "scripted"


async def test_a_signal_that_was_aborted_before_builds_nothing() -> None:
    controller = AbortController()
    controller.abort("changed my mind")
    provider = CountingProvider()
    options: Any = {"model": MODEL, "providers": [provider], "environment": {}}
    error = await failure_of(haptera.run_agent("go", signal=controller.signal, **options))
    assert (error.code, CountingProvider.looked) == (ErrorCode.ABORTED, 0)
    assert "changed my mind" in error.message
    assert error.result is not None
    assert error.result.stop_reason == "aborted"


# The order of events.


async def test_the_events_of_a_query_come_in_order() -> None:
    async with playing(RICH, tools=[look]) as (session, _):
        events = [event async for event in session.stream("go")]
    kinds = [event.kind for event in events]
    assert [kind for kind in kinds if kind.partition(".")[0] in ("query", "turn", "tool")] == [
        "query.started",
        "turn.started",
        "tool.input.delta",
        "tool.input.delta",
        "turn.ended",
        "tool.started",
        "tool.ended",
        "turn.started",
        "tool.input.delta",
        "tool.input.delta",
        "turn.ended",
        "tool.started",
        "tool.ended",
        "turn.started",
        "turn.ended",
        "query.ended",
    ]
    assert kinds.index("session.status") == 0
    assert isinstance(events[-1], QueryEnded)
    stored = [event.seq for event in events if isinstance(event, Entry)]
    assert stored == sorted(stored)
    assert [kind.partition(".")[2] for kind in kinds if kind.startswith("instrumentation.")] == [
        *("summary", "turn", "tool"),
        *("summary", "turn", "tool"),
        *("summary", "turn", "query"),
    ]


async def test_a_part_begins_grows_and_ends_inside_its_turn() -> None:
    async with playing([says("a", "b")]) as (session, _):
        kinds = [event.kind async for event in session.stream("go")]
    body = kinds[kinds.index("turn.started") + 1 : kinds.index("turn.ended")]
    assert body == ["part.started", "text.delta", "text.delta", "part.ended"]
