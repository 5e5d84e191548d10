"""Compaction: a summary is sent instead of earlier messages, and nothing is lost by it."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haptera import (
    AbortController,
    Agent,
    AgentSession,
    ErrorCode,
    TextDelta,
    Usage,
    tool,
)
from haptera.hooks import AfterCompaction, BeforeCompaction, Block, Hooks, Proceed
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.errors import ProviderError, RequestError
from haptera.model.log.compactions import Compaction
from haptera.model.messages import Message
from haptera.model.parts import CompactionPart, ReminderPart, TextPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import RetrySettings, RuntimeSettings
from haptera.model.stream_parts import PartClosed, PartDelta, PartOpened
from haptera.stores.memory import MemoryStore
from haptera.sync import Agent as BlockingAgent
from haptera.system.owned_tasks import OwnedTasks
from haptera.testing import Gate, ScriptedProvider, calls, says
from haptera.testing.clocks import AutoClock
from haptera.testing.scripted_provider import Step, finished
from tests.scripted_agents import MODEL, events_of, failure_of, make_agent, playing, texts_in

SMALL = CompactionSettings(context_window=2_000)
LONG = "word " * 340  # about 425 tokens
TOO_LONG = RequestError(ErrorCode.CONTEXT_LENGTH, "the prompt is too long")
BROKEN = ProviderError(ErrorCode.BAD_REQUEST, "the summariser is broken")


def summaries_in(request: ModelRequest) -> list[str]:
    return [
        part.text
        for message in request.messages
        for part in message.parts
        if isinstance(part, CompactionPart)
    ]


def is_question(request: ModelRequest) -> bool:
    return "You summarise a conversation" in "".join(request.system)


def compactions_in(events: Sequence[object]) -> list[Compaction]:
    return [event for event in events if isinstance(event, Compaction)]


async def fill(session: AgentSession, prompts: int = 3) -> None:
    for number in range(prompts):
        await session.chat(f"{number} {LONG}")


def answers(count: int = 3) -> list[Step]:
    return [says(f"answer {number}") for number in range(count)]


# By hand.


async def test_a_summary_is_sent_instead_of_the_earlier_messages() -> None:
    script: list[Step] = [*answers(), says("# Objective\n- words"), says("on")]
    async with playing(script) as (session, provider):
        await fill(session)
        before = session.messages
        done = await session.compact("keep the numbers")
        assert (done.trigger, done.strategy, done.rejected) == ("manual", "summarise", None)
        assert done.alias == "compact_boundary"
        assert (done.tokens_before or 0) > (done.tokens_after or 0) > 0
        await session.chat("go on")
        assert [message.id for message in session.messages if message in before] == [
            message.id for message in before
        ], "the conversation is whole"
    question, request = provider.requests[3:]
    assert is_question(question)
    assert "Pay attention to this: keep the numbers" in texts_in(question)[0]
    assert all(f"answer {number}" in texts_in(question)[0] for number in range(3))
    assert summaries_in(request) == ["# Objective\n- words"]
    assert texts_in(request)[-1].endswith("go on")
    assert not any("answer 0" in text for text in texts_in(request))


async def test_the_question_names_the_headings() -> None:
    async with playing([*answers(1), says("short")]) as (session, provider):
        await session.chat(LONG)
        await session.compact()
    system = provider.requests[-1].system[0]
    for heading in ("Objective", "Details", "Work done", "Active", "Blocked", "Next", "Files"):
        assert f"# {heading}" in system
    assert provider.requests[-1].tools == ()


async def test_an_earlier_summary_is_carried_into_the_next_one() -> None:
    script: list[Step] = [*answers(), says("first summary"), *answers(2), says("second summary")]
    async with playing(script) as (session, provider):
        await fill(session)
        await session.compact()
        await fill(session, 2)
        await session.compact()
    question = texts_in(provider.requests[-1])[0]
    assert "<summary_so_far>\nfirst summary\n</summary_so_far>" in question
    assert "Bring the summary so far up to date" in question


async def test_a_cheaper_model_can_write_the_summaries() -> None:
    other = ScriptedProvider([says("by another")], provider="cheap")
    wanted = CompactionSettings(model="cheap/small")
    async with playing(answers(1), compaction=wanted, providers=[other]) as (session, _):
        await session.chat(LONG)
        assert (await session.compact()).summary == "by another"
    assert [request.model for request in other.requests] == ["small"]


async def test_what_a_summary_costs_is_counted() -> None:
    used = Usage(input=700, output=30)
    script: list[Step] = [*answers(1), says("short", usage=used)]
    async with playing(script) as (session, _):
        await session.chat(LONG)
        before = session._opened().fold.usage
        done = await session.compact()
        assert done.usage == used
        assert session._opened().fold.usage == before + used


async def test_there_is_nothing_to_compact_in_an_empty_session() -> None:
    async with playing([]) as (session, _):
        assert (await failure_of(session.compact())).code is ErrorCode.NOTHING_TO_SEND


async def test_a_session_that_went_back_to_an_answer_is_compacted() -> None:
    script = [says("one"), says("two"), says("# Objective\n- go on"), says("three")]
    async with playing(script) as (session, _):
        first = await session.chat("a")
        await session.chat("b")
        await session.rewind(to=str(first.message_id))
        await session.compact()
        assert (await session.chat("c")).text == "three"
        assert session.unfinished.query_id is None


async def test_a_session_that_is_busy_is_not_compacted() -> None:
    gate = Gate()
    async with playing([[gate, *says("done")]]) as (session, _):
        await session.send("go")
        await gate.reached.wait()
        refused = await failure_of(session.compact())
        assert (refused.code, refused.message) == (
            ErrorCode.BUSY,
            "the session is busy; abort or wait first",
        )
        gate.open()
        await session.wait_idle()


def test_the_blocking_session_compacts_and_expands() -> None:
    provider = ScriptedProvider([*answers(1), says("short")])
    blocking = BlockingAgent(MODEL, providers=[provider], environment={})
    with blocking as agent, agent.session() as session:
        session.chat(LONG)
        done = session.compact()
        assert done.summary == "short"
        assert [message.text for message in session.expand()] == [LONG, "answer 0"]


# A summariser that does not do its work.

BAD: dict[str, Any] = {
    "failing": (BROKEN, ErrorCode.BAD_REQUEST),
    "empty": (says("   "), ErrorCode.PROTOCOL),
    "refusing": (says("I cannot", finish="refusal"), ErrorCode.PROTOCOL),
    "cut off": (says("half of it", finish="length"), ErrorCode.PROTOCOL),
    "over-long": (says("much " * 30_000), ErrorCode.PROTOCOL),
    "calling tools": (calls(("look", {})), ErrorCode.PROTOCOL),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_summary_that_cannot_be_used_changes_nothing(kind: str) -> None:
    step, code = BAD[kind]
    async with playing([*answers(), step, says("on")]) as (session, provider):
        await fill(session)
        before = session.messages
        assert (await failure_of(session.compact())).code is code
        assert session.messages == before
        await session.chat("go on")
        assert session.messages[: len(before)] == before
    request = provider.requests[-1]
    assert summaries_in(request) == []
    assert texts_in(request)[:6] == [message.text for message in before]


async def test_a_slow_summariser_can_be_aborted() -> None:
    gate = Gate()
    async with playing([*answers(), [gate], says("on")]) as (session, provider):
        await fill(session)
        before = session.messages
        stop = AbortController()
        failing = asyncio.ensure_future(failure_of(session.compact(signal=stop.signal)))
        await gate.reached.wait()
        stop.abort()
        assert (await failing).code is ErrorCode.ABORTED
        assert session.messages == before
        assert (await session.chat("go on")).text == "on"
        assert provider.open_streams == 0


async def test_a_summary_is_retried_like_a_turn() -> None:
    busy = ProviderError(ErrorCode.OVERLOADED, "busy")
    script: list[Step] = [*answers(1), busy, busy, says("short")]
    async with playing(script, clock=AutoClock()) as (session, provider):
        await session.chat(LONG)
        assert (await session.compact()).summary == "short"
    assert len(provider.requests) == 4


# By itself.


async def test_a_failed_summary_does_not_count_as_a_failed_turn() -> None:
    @tool
    def look() -> str:
        """Look."""
        return LONG * 4

    busy = ProviderError(ErrorCode.OVERLOADED, "busy")
    script: list[Step] = [busy, calls(("look", {})), busy, says("gist"), says("end")]
    options: dict[str, Any] = {"watchdogs": {"repeated_errors": 2}, "clock": AutoClock()}
    async with playing(script, tools=[look], compaction=SMALL, **options) as (session, provider):
        assert (await session.chat("go")).text == "end"
    assert summaries_in(provider.requests[-1])[0].startswith("gist")


async def test_a_conversation_is_compacted_before_it_is_too_long() -> None:
    script: list[Step] = [*answers(3), says("the gist"), says("fourth")]
    provider = ScriptedProvider(script, window=2_000)
    agent = Agent(MODEL, providers=[provider], environment={}, compaction=SMALL)
    async with agent, agent.session() as session:
        await fill(session)
        events = await events_of(session, f"3 {LONG}")
        (done,) = compactions_in(events)
        assert (done.trigger, done.strategy, done.summary) == ("auto", "summarise", "the gist")
        assert (done.tokens_before or 0) > 1_500 > (done.tokens_after or 0)
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["fourth"]
    assert provider.refused == 0
    assert summaries_in(provider.requests[-1]) == ["the gist"]
    assert texts_in(provider.requests[-1])[-1].startswith("3 word")


async def test_without_auto_compaction_or_with_the_strategy_off_nothing_is_compacted() -> None:
    for options in (
        {"compaction": SMALL, "runtime": RuntimeSettings(auto_compaction=False)},
        {"compaction": CompactionSettings(context_window=2_000, strategy="off")},
    ):
        async with playing(answers(6), **options) as (session, provider):
            await fill(session, 6)
        assert not any(map(is_question, provider.requests))


async def test_the_tokens_that_a_provider_counted_decide() -> None:
    heavy = says("heavy", usage=Usage(input=1_800, output=10))
    async with playing([heavy, says("gist"), says("on")], compaction=SMALL) as (session, provider):
        await session.chat("a few words only")
        await session.chat("go on")
    assert is_question(provider.requests[1])


async def test_the_end_of_the_conversation_is_kept_in_whole_turns() -> None:
    wanted = CompactionSettings(context_window=20_000)
    script: list[Step] = [*answers(34), says("gist"), says("on")]
    async with playing(script, compaction=wanted) as (session, provider):
        await fill(session, 34)
        (done,) = compactions_in(await events_of(session, LONG))
        kept = [item for item in session.messages if item.id == done.kept_from]
        assert kept[0].text.endswith(LONG)
    sent = texts_in(provider.requests[-1])
    assert 2_000 < sum(map(len, sent)) / 4 < 15_000
    assert len(sent) % 2 == 1, "prompts with their answers, and the new prompt"


async def test_a_long_query_is_compacted_between_its_turns_and_keeps_its_prompt() -> None:
    @tool
    async def look(n: int) -> str:
        """Look."""
        return f"{n} " + "seen " * 300

    script: list[Step] = [
        *(calls(("look", {"n": number}), ids=(f"c{number}",)) for number in range(4)),
        says("gist"),
        says("found"),
    ]
    wanted = CompactionSettings(context_window=2_000)
    async with playing(script, compaction=wanted, tools=[look], loop_threshold=None) as (
        session,
        provider,
    ):
        assert (await session.chat("find the needle")).text == "found"
    (summary,) = summaries_in(provider.requests[-1])
    assert summary.startswith("gist")
    assert "find the needle" in summary


async def test_a_query_rests_after_a_compaction_if_that_is_wanted() -> None:
    wanted = CompactionSettings(context_window=2_000, pause_after=True)
    async with playing([*answers(3), says("gist"), says("on")], compaction=wanted) as (session, _):
        await fill(session)
        result = await session.chat(f"3 {LONG}")
        assert (result.stop_reason, result.stop_detail) == ("complete", "compaction")
        assert (result.text, result.turns) == ("", 0)
        assert (await session.chat("now")).text == "on"


async def test_cached_reminders_come_back_with_the_summary_and_are_sent_once() -> None:
    script: list[Step] = [*answers(3), says("gist"), says("on"), says("and on")]
    async with playing(script, compaction=SMALL, cached_reminders=["be kind"]) as (session, prov):
        await fill(session)
        await session.chat(f"3 {LONG}")
        await session.chat("more")
    for request in (prov.requests[0], *prov.requests[-2:]):
        parts = [part for message in request.messages for part in message.parts]
        told = [part.text for part in parts if isinstance(part, ReminderPart) and part.persisted]
        assert told == ["be kind"]


@pytest.mark.parametrize("kind", BAD)
async def test_without_a_usable_summary_the_query_goes_on_and_the_log_says_so(kind: str) -> None:
    """The request still fits, so that everything is sent; soon it would not, and the end is."""
    step, _ = BAD[kind]
    # 1,565 of 2,000 tokens are more than is usable, and fit.
    script: list[Step] = [*answers(3), step, says("fourth")]
    async with playing(script, compaction=SMALL) as (session, provider):
        await fill(session)
        (done,) = compactions_in(await events_of(session, "word " * 200))
        assert done.strategy == "none"
        assert done.rejected
        assert summaries_in(provider.requests[-1]) == []
        assert len(provider.requests[-1].messages) == 7
        provider.add(step, says("fifth"))
        (fallen,) = compactions_in(await events_of(session, LONG))
        assert fallen.strategy == "tail"
        assert fallen.rejected
        (note,) = summaries_in(provider.requests[-1])
        assert "were left out" in note
        assert texts_in(provider.requests[-1])[-1].endswith(LONG)
        assert session.messages[-1].text == "fifth"
        assert session.messages[0].text.startswith("0 word")


async def test_a_rejected_summary_is_not_asked_for_again_at_every_turn() -> None:
    script: list[Step] = [*answers(3), BROKEN, says("fourth"), says("fifth")]
    async with playing(script, compaction=SMALL) as (session, provider):
        await fill(session)
        await session.chat("word " * 200)
        await session.chat("short")
    assert sum(map(is_question, provider.requests)) == 1


# A provider that refuses.


async def test_a_request_that_is_too_long_is_compacted_and_sent_once_more() -> None:
    script: list[Step] = [*answers(3), TOO_LONG, says("gist"), says("fourth")]
    async with playing(script) as (session, provider):
        await fill(session)
        events = await events_of(session, "go on")
        (done,) = compactions_in(events)
        assert (done.trigger, done.strategy) == ("overflow", "summarise")
        assert session.messages[-1].text == "fourth"
    assert summaries_in(provider.requests[-1]) == ["gist"]


async def test_a_request_that_is_still_too_long_fails_and_loses_nothing() -> None:
    script: list[Step] = [*answers(3), TOO_LONG, says("gist"), TOO_LONG]
    async with playing(script) as (session, _):
        await fill(session)
        assert (await failure_of(session.chat("go on"))).code is ErrorCode.CONTEXT_LENGTH
        assert [item.text[:1] for item in session.messages if "word" in item.text] == [*"012"]


async def test_an_overflow_after_the_first_words_is_not_hidden() -> None:
    begun: Step = [PartOpened(key="0", kind="text"), PartDelta(key="0", text="I "), TOO_LONG]
    async with playing([*answers(1), begun]) as (session, _):
        await session.chat("hello")
        assert (await failure_of(session.chat("go on"))).code is ErrorCode.CONTEXT_LENGTH


async def test_a_summariser_that_overflows_too_leaves_the_end_of_the_conversation() -> None:
    script: list[Step] = [*answers(3), TOO_LONG, TOO_LONG, says("fourth")]
    async with playing(script) as (session, provider):
        await fill(session)
        (done,) = compactions_in(await events_of(session, "go on"))
        assert (done.trigger, done.strategy) == ("overflow", "tail")
        assert session.messages[-1].text == "fourth"
    assert "were left out" in summaries_in(provider.requests[-1])[0]


# Old results of tools.


@tool
async def read(n: int) -> str:
    """Read."""
    return f"{n:05}" + "line\n" * 7_999  # about 10,000 tokens


READING: dict[str, Any] = {
    "compaction": CompactionSettings(context_window=100_000),
    "tools": [read],
    "loop_threshold": None,
}


def reads(count: int, *, first: int = 0) -> list[Step]:
    numbers = range(first, first + count)
    return [calls(("read", {"n": number}), ids=(f"c{number}",)) for number in numbers]


async def test_old_results_of_tools_are_left_out_of_what_is_sent_and_kept_in_the_log() -> None:
    count = 9
    async with playing([*reads(count), says("done")], **READING) as (session, provider):
        events = await events_of(session)
        (done,) = compactions_in(events)
        assert (done.strategy, done.trigger) == ("prune", "auto")
        assert (done.tokens_before or 0) - (done.tokens_after or 0) >= 20_000
        sent = [len(text) for text in results_in(provider.requests[-1].messages)]
        assert sorted(sent) == sent, "the old ones are short"
        assert sent.count(40_000) >= 5
        assert sent.count(40_000) < count
        assert [len(text) for text in results_in(session.messages)] == [40_000] * count
        assert not any(map(is_question, provider.requests))


async def test_what_was_left_out_stays_left_out_when_another_message_is_edited() -> None:
    script = [*reads(9), says("done"), says("on")]
    async with playing(script, **READING) as (session, provider):
        assert len(compactions_in(await events_of(session))) == 1
        left_out = short_results_in(provider.requests[-1])
        assert left_out
        await session.replace_message(session.messages[0].id, "go, please")
        assert compactions_in(await events_of(session, "on")) == []
    assert short_results_in(provider.requests[-1]) == left_out


async def test_results_are_left_out_again_when_the_messages_that_hold_them_were_edited() -> None:
    script = [*reads(9), says("done"), says("on"), says("and on")]
    async with playing(script, **READING) as (session, provider):
        await events_of(session)
        left_out = short_results_in(provider.requests[-1])
        holding = [item.id for item in session.messages if results_in([item])]
        for message_id in holding[: len(left_out)]:
            await session.add_message("look at this", after=message_id)  # it joins the results
        (done,) = compactions_in(await events_of(session, "on"))
        assert done.strategy == "prune"
        again = short_results_in(provider.requests[-1])
        assert len(again) >= len(left_out) > 0
        assert compactions_in(await events_of(session, "and on")) == []
    assert short_results_in(provider.requests[-1]) == again


def short_results_in(request: ModelRequest) -> list[str]:
    return [text for text in results_in(request.messages) if len(text) < 1_000]


def results_in(messages: Sequence[Message]) -> list[str]:
    return [
        piece.text
        for message in messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
        for piece in part.content
        if isinstance(piece, TextPart)
    ]


# Hooks.


async def test_a_hook_can_block_a_compaction_and_another_hears_of_one() -> None:
    told: list[AfterCompaction] = []
    asked: list[BeforeCompaction] = []
    blocks = [Block("not now")]

    def gate(given: BeforeCompaction) -> Proceed | Block:
        asked.append(given)
        return blocks.pop() if blocks else Proceed()

    hooks = Hooks(before_compaction=gate, after_compaction=told.append)
    script: list[Step] = [*answers(3), says("fourth"), says("gist")]
    async with playing(script, compaction=SMALL, hooks=hooks) as (session, provider):
        await fill(session)
        await session.chat("word " * 200)
        assert not any(map(is_question, provider.requests))
        await session.compact()
    assert [(given.trigger, given.context_window) for given in asked] == [
        ("auto", 2_000),
        ("manual", 2_000),
    ]
    assert [(given.trigger, given.strategy) for given in told] == [("manual", "summarise")]


async def test_a_hook_that_blocks_what_the_user_asked_for_is_an_error() -> None:
    hooks = Hooks(before_compaction=lambda _given: Block("never"))
    async with playing(answers(1), hooks=hooks) as (session, _):
        await session.chat(LONG)
        error = await failure_of(session.compact())
        assert error.code is ErrorCode.HOOK_FAILED
        assert "never" in error.message
        assert len(session.messages) == 2


async def test_a_hook_that_blocks_the_query_of_a_second_compaction_is_an_error_too() -> None:
    answers_of_gate: list[Proceed | Block] = [Proceed(), Proceed(), Block("never")]
    hooks = Hooks(before_query=lambda _given: answers_of_gate.pop(0))
    async with playing([*answers(1), says("gist")], hooks=hooks) as (session, _):
        await session.chat(LONG)
        await session.compact()
        error = await failure_of(session.compact())
        assert error.code is ErrorCode.HOOK_FAILED
        assert "never" in error.message


async def test_a_compaction_that_a_watchdog_ends_is_an_error() -> None:
    gate, clock = Gate(), AutoClock()
    script: list[Step] = [*answers(1), says("gist"), says("second"), [gate]]
    watchdogs = {"idle_seconds": 5}
    async with playing(script, watchdogs=watchdogs, clock=clock) as (session, _):
        await session.chat(LONG)
        await session.compact()
        await session.chat(LONG)
        error = await failure_of(session.compact())
        assert error.code is ErrorCode.TIMEOUT
        assert "there was no progress" in error.message


# The provider's own.


async def test_a_provider_s_summary_comes_as_an_event_and_is_sent_back() -> None:
    own = [
        PartOpened(key="s", kind="compaction"),
        PartDelta(key="s", text="its own summary"),
        PartClosed(key="s"),
        *says("here")[1:-1],
        finished("stop", "end_turn", Usage(input=900, output=5)),
    ]
    wanted = CompactionSettings(strategy="server")
    async with playing([own, says("on")], compaction=wanted) as (session, provider):
        events = await events_of(session)
        (done,) = compactions_in(events)
        assert (done.trigger, done.strategy, done.tokens_before) == ("provider", "server", 900)
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["here"]
        await session.chat("go on")
    assert provider.requests[0].compaction.enabled
    assert summaries_in(provider.requests[1]) == ["its own summary"]


# Looking back, going back, going elsewhere.


async def test_what_was_compacted_can_be_looked_at() -> None:
    script: list[Step] = [*answers(), says("first"), *answers(2), says("second")]
    async with playing(script) as (session, _):
        await fill(session)
        first = await session.compact()
        await fill(session, 2)
        await session.compact()
        told = [message.text for message in await session.expand(first.id)]
        assert told[1::2] == ["answer 0", "answer 1", "answer 2"]
        assert "first" in str(await session.expand())
        assert (await failure_of(session.expand("no such"))).code is ErrorCode.NOT_FOUND


async def test_a_rewind_behind_a_compaction_takes_it_back() -> None:
    script: list[Step] = [*answers(), says("gist"), says("on"), says("again")]
    async with playing(script) as (session, provider):
        await fill(session)
        behind = session.messages[1].id
        await session.compact()
        await session.chat("go on")
        await session.rewind(to=behind)
        assert [message.text for message in session.messages][1:] == ["answer 0"]
        await session.chat("again")
    assert summaries_in(provider.requests[-1]) == []
    assert len(provider.requests[-1].messages) == 3


async def test_a_fork_and_an_export_carry_a_compaction() -> None:
    script: list[Step] = [*answers(), says("gist"), says("forked"), says("restored")]
    store = MemoryStore()
    agent, provider = make_agent(script, store=store)
    async with agent, agent.session("one") as session:
        await fill(session)
        await session.compact()
        async with await session.fork() as branch:
            await branch.chat("go on")
            assert len(await branch.expand()) == 6
        state = await session.export()
        async with agent.session(restore=state) as restored:
            await restored.chat("go on")
    for request in provider.requests[-2:]:
        assert summaries_in(request) == ["gist"]
    assert [message.text for message in state.messages][1::2][:3] == [
        "answer 0",
        "answer 1",
        "answer 2",
    ]


async def test_a_compaction_that_was_cut_off_is_done_when_the_session_is_resumed(
    tmp_path: Path,
) -> None:
    gate, before, after = Gate(), tmp_path / "before", tmp_path / "after"
    agent, _ = make_agent([*answers(), [gate]], store=f"jsonl:{before}")
    async with agent, agent.session("one") as session:
        await fill(session)
        compacting = OwnedTasks().start(session.compact("names"), name="compacting")
        await gate.reached.wait()
        shutil.copytree(before, after)  # what a process that dies now leaves behind
        compacting.cancel()
        await asyncio.wait({compacting})
    agent, provider = make_agent([says("gist"), says("on")], store=f"jsonl:{after}")
    async with agent, agent.session("one") as session:
        assert session.unfinished.query_id is not None
        assert len(session.messages) == 6
        await session.resume()
        assert session.unfinished.query_id is None
        await session.chat("go on")
    assert "Pay attention to this: names" in texts_in(provider.requests[0])[0]
    assert summaries_in(provider.requests[1]) == ["gist"]


async def test_retries_of_the_summary_are_those_of_the_settings() -> None:
    busy = ProviderError(ErrorCode.OVERLOADED, "busy")
    none = RetrySettings(max_retries=0)
    async with playing([*answers(1), busy], retry=none) as (session, _):
        await session.chat(LONG)
        assert (await failure_of(session.compact())).code is ErrorCode.OVERLOADED


async def test_an_unknown_price_of_a_summary_is_said_to_be_unknown() -> None:
    async with playing([*answers(1), says("short")]) as (session, _):
        await session.chat(LONG)
        done = await session.compact()
        assert done.cost is None
