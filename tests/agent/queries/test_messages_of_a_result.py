"""The messages of a result: the whole conversation and the new ones, each with its facts."""

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from haptera import AssistantMessage, ErrorCode, TextDelta, Usage, tool
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.errors import ProviderError
from haptera.model.events import CompactionDelta
from haptera.model.parts import CompactionPart
from haptera.model.stream_parts import (
    FinishKind,
    PartClosed,
    PartDelta,
    PartOpened,
    StreamFinished,
    StreamPart,
)
from haptera.testing import FakeClock, Gate, calls, says
from haptera.testing.scripted_provider import Step, finished
from tests.scripted_agents import events_of, failure_of, make_agent, playing

START_MS = 1_700_000_000_000


def summarises(text: str, *more: StreamPart) -> list[StreamPart]:
    """Script a provider that summarises the conversation, and then perhaps goes on."""
    return [
        PartOpened(key="s", kind="compaction"),
        PartDelta(key="s", text=text),
        PartClosed(key="s"),
        *(more or (finished("compaction", "compaction"),)),
    ]


def answers_in(messages: tuple[object, ...]) -> list[AssistantMessage]:
    return [item for item in messages if isinstance(item, AssistantMessage)]


async def test_messages_are_the_whole_conversation_and_new_messages_those_of_the_query() -> None:
    async with playing([says("one"), says("two")]) as (session, _):
        first = await session.chat("go")
        second = await session.chat("on")
        assert [item.text for item in first.messages] == ["go", "one"]
        assert [item.text for item in second.messages] == ["go", "one", "on", "two"]
        assert [item.text for item in second.new_messages] == ["on", "two"]


async def test_messages_of_a_result_are_not_copied() -> None:
    async with playing([says("one"), says("two")]) as (session, _):
        first = await session.chat("go")
        second = await session.chat("on")
        assert second.messages is session.messages
        assert all(map(lambda ours, theirs: ours is theirs, first.messages, second.messages))
        assert second.new_messages[0] is second.messages[2]


async def test_the_summary_of_a_provider_is_no_text_of_the_answer() -> None:
    script: list[Step] = [summarises("what was said", *says("and on")[1:])]
    async with playing(script) as (session, _):
        events = await events_of(session)
        texts = [event.text for event in events if isinstance(event, TextDelta)]
        assert texts == ["and on"]
        assert [item.text for item in events if isinstance(item, CompactionDelta)] == [
            "what was said"
        ]
        assert session.messages[-1].text == "and on"


async def test_a_query_rests_after_a_compaction_if_that_is_wanted() -> None:
    wanted = CompactionSettings(enabled=True, pause_after=True)
    script: list[Step] = [summarises("what was said"), says("here")]
    async with playing(script, compaction=wanted) as (session, provider):
        result = await session.chat("go")
        assert (result.stop_reason, result.finish_reason) == ("complete", "compaction")
        assert (result.text, result.turns, len(provider.requests)) == ("", 1, 1)
        assert (await session.chat("answer it now")).text == "here"
        sent = [part for message in provider.requests[1].messages for part in message.parts]
        assert [part.text for part in sent if isinstance(part, CompactionPart)] == ["what was said"]


async def test_without_that_wish_a_compaction_does_not_end_the_query() -> None:
    script: list[Step] = [summarises("what was said"), says("here")]
    async with playing(script, compaction=CompactionSettings(enabled=True)) as (session, _):
        assert (await session.chat("go")).text == "here"


@tool
async def look() -> str:
    """Look around."""
    return "nothing"


async def test_every_message_has_its_time() -> None:
    clock = FakeClock()

    async def pass_a_second() -> None:
        clock.advance(1)

    slow: list[Step] = [
        [pass_a_second, calls(("look", {}), ids=("1",))],
        [pass_a_second, says("done")],
    ]
    async with playing(slow, clock=clock, tools=[look]) as (session, _):
        result = await session.chat("go")
        times = [(item.time or 0) - START_MS for item in result.messages]
        assert times == [0, 1000, 1000, 2000]


async def test_every_answer_has_its_model_usage_and_cost() -> None:
    usage = Usage(input=7, output=3)
    end = StreamFinished(kind="stop", reason="end_turn", usage=usage, cost=Decimal("0.25"))
    async with playing([[*says("one")[:-1], end]]) as (session, _):
        (answer,) = answers_in((await session.chat("go")).messages)
        assert (answer.provider, answer.model) == ("scripted", "one")
        assert (answer.usage, answer.cost) == (usage, Decimal("0.25"))


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        ("stop", "complete"),
        ("length", "max_tokens"),
        ("context_window", "max_tokens"),
        ("refusal", "refusal"),
        ("other", "complete"),
    ],
)
async def test_every_answer_says_why_it_ends(finish: FinishKind, stop_reason: str) -> None:
    async with playing([says("one", finish=finish)]) as (session, _):
        (answer,) = answers_in((await session.chat("go")).messages)
        assert answer.stop_reason == stop_reason


async def test_an_answer_that_calls_a_tool_says_so() -> None:
    async with playing([calls(("look", {})), says("done")], tools=[look]) as (session, _):
        answers = answers_in((await session.chat("go")).messages)
        assert [answer.stop_reason for answer in answers] == ["tool_calls", "complete"]


async def test_an_aborted_answer_and_one_that_failed_differ(tmp_path: Path) -> None:
    failure = ProviderError(ErrorCode.BAD_REQUEST, "no more", basis="status")
    script: list[Step] = [[*says("half")[:-2], Gate()], [*says("hal")[:-2], failure]]
    store = f"sqlite:{tmp_path / 'chats.db'}"
    agent, _ = make_agent(script, store=store)
    async with agent, agent.session("ana") as session:
        async with session.stream("go") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
        error = await failure_of(session.chat("again"))
        assert error.result is not None
        told = [(item.text, item.stop_reason) for item in answers_in(error.result.messages)]
        assert told == [("half", "aborted"), ("hal", "error")]
    reopened, _ = make_agent([], store=store)
    async with reopened, reopened.session("ana") as session:
        assert [item.stop_reason for item in answers_in(session.messages)] == ["aborted", "error"]


async def test_messages_say_whose_they_are_as_their_json_does() -> None:
    async with playing([calls(("look", {})), says("done")], tools=[look]) as (session, _):
        result = await session.chat("go")
    roles = [message.role for message in result.messages]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert [msgspec.to_builtins(message)["role"] for message in result.messages] == roles
