"""The stream processor: an answer put together from any split of its stream, alone each time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import ErrorCode, PartEnded, PartStarted, SessionError, TextDelta, TextPart
from haptera.kernel.blocks.stream_processor.processor import (
    AnswerAssembler,
    ProcessedStream,
    StreamProcessor,
)
from haptera.model.events import Event, ReasoningDelta, ToolInputDelta
from haptera.model.log.turns import PartCheckpoint
from haptera.model.parts import (
    CompactionPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ToolCallPart,
)
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.model.usage import Usage
from haptera.system.clock import Stamp
from haptera.testing import FakeClock, calls, reasoning, says

RICH: list[StreamPart] = [
    *reasoning("let me ", "think"),
    PartOpaque(payload={"type": "server_tool"}),
    *calls(("look", {"path": "a", "deep": [1, 2]}), ("taste", {}), text="I look."),
]


async def in_batches(*batches: Sequence[StreamPart]) -> AsyncIterator[Sequence[StreamPart]]:
    for batch in batches:
        yield batch


def bare(parts: Sequence[Part]) -> list[tuple[object, ...]]:
    """Return what parts hold, without the ids that are made anew for each stream."""
    found: list[tuple[object, ...]] = []
    for part in parts:
        match part:
            case ToolCallPart():
                found.append((part.name, part.arguments, part.invalid))
            case ReasoningPart():
                found.append(("reasoning", part.text, part.signature))
            case ProviderPart():
                found.append(("provider", part.payload))
            case _:
                found.append((type(part).__name__, getattr(part, "text", None)))
    return found


async def process(*parts: StreamPart) -> ProcessedStream:
    return await StreamProcessor(clock=FakeClock()).process(in_batches(parts))


def an_assembler() -> AnswerAssembler:
    return AnswerAssembler(stamp=Stamp(FakeClock()), provider="scripted", model="one")


def assembled(batches: Sequence[Sequence[StreamPart]], saves: set[int]) -> AnswerAssembler:
    answer = an_assembler()
    for place, batch in enumerate(batches):
        answer.feed(batch, [])
        if place in saves:
            answer.checkpoint([])
    answer.close([])
    return answer


def split_text(parts: Sequence[StreamPart], size: int) -> list[StreamPart]:
    """Cut every delta into pieces of a size."""
    cut: list[StreamPart] = []
    for part in parts:
        if isinstance(part, PartDelta):
            text = part.text
            cut += [
                PartDelta(key=part.key, text=text[start : start + size])
                for start in range(0, len(text), size)
            ]
        else:
            cut.append(part)
    return cut


@given(st.integers(1, 9), st.lists(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_an_answer_is_the_same_however_its_stream_is_cut_and_saved(
    size: int, cuts: list[int], saves: set[int]
) -> None:
    stream = split_text(RICH, size)
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    batches = [stream[start:end] for start, end in pairwise(places)]
    assert bare(assembled(batches, saves).parts) == bare(assembled([RICH], set()).parts)


@given(st.integers(1, 5), st.sets(st.integers(0, 20)))
def test_what_is_saved_in_pieces_adds_up_to_the_text_and_is_saved_once(
    size: int, saves: set[int]
) -> None:
    answer, out = an_assembler(), list[Event]()
    for place, part in enumerate(split_text(says("The quick brown fox"), size)):
        answer.feed([part], out)
        if place in saves:
            answer.checkpoint(out)
    saved = ""
    for event in out:
        if isinstance(event, PartCheckpoint):
            assert event.offset == len(saved)
            saved += event.text
        if isinstance(event, PartEnded) and isinstance(event.part, TextPart):
            assert event.offset == len(saved)
            saved += event.part.text
    assert saved == "The quick brown fox"


def test_every_delta_says_where_it_begins() -> None:
    out: list[Event] = []
    an_assembler().feed(RICH, out)
    seen: dict[str, int] = {}
    for event in out:
        if isinstance(event, TextDelta | ReasoningDelta | ToolInputDelta):
            assert event.offset == seen.get(event.part_id, 0)
            seen[event.part_id] = event.offset + len(event.text)
    assert len(seen) == 4


async def test_the_events_of_a_stream_come_in_order() -> None:
    processor = StreamProcessor(clock=FakeClock())
    seen: list[str] = []
    processor.on(PartStarted, lambda event: seen.append(f"start {event.part_kind}"))
    processor.on(TextDelta, lambda event: seen.append(f"text {event.text}"))
    processor.on(ReasoningDelta, lambda event: seen.append(f"thought {event.text}"))
    processor.on(PartEnded, lambda _event: seen.append("end"))
    await processor.process(in_batches([*reasoning("hm"), *says("a", "b")]))
    thought = ["start reasoning", "thought hm", "end"]
    assert seen == [*thought, "start text", "text a", "text b", "end"]


async def test_a_processed_stream_has_its_parts_finish_and_usage() -> None:
    usage = Usage(input=100, output=20, cache_read=60, cache_write=30)
    done = await process(*says("hello", finish="length", reason="max_tokens", usage=usage))
    assert bare(done.parts) == [("TextPart", "hello")]
    assert done.finished == StreamFinished(kind="length", reason="max_tokens", usage=usage)
    assert (done.usage, done.compacted) == (usage, False)


async def test_an_empty_stream_has_no_parts() -> None:
    done = await process()
    assert (done.parts, done.finished, done.usage) == ((), None, Usage())


async def test_reasoning_keeps_its_signature() -> None:
    done = await process(*reasoning("because", signature="sealed"), *says("so"))
    assert bare(done.parts)[0] == ("reasoning", "because", "sealed")


async def test_two_trains_of_thought_are_told_apart() -> None:
    done = await process(
        PartOpened(key="a", kind="reasoning"),
        PartOpened(key="b", kind="reasoning"),
        PartDelta(key="a", text="one "),
        PartDelta(key="b", text="uno"),
        PartDelta(key="a", text="two"),
        PartClosed(key="b"),
        PartClosed(key="a"),
    )
    assert [part[1] for part in bare(done.parts)] == ["one two", "uno"]


async def test_a_compaction_is_noticed() -> None:
    done = await process(
        PartOpened(key="c", kind="compaction"),
        PartDelta(key="c", text="so far"),
        PartClosed(key="c"),
        StreamFinished(kind="compaction"),
    )
    assert done.compacted
    assert isinstance(done.parts[0], CompactionPart)


async def test_a_part_of_an_unknown_kind_is_kept_with_its_provider_and_model() -> None:
    processor = StreamProcessor(clock=FakeClock())
    opaque = PartOpaque(payload={"type": "search", "sealed": "x"})
    done = await processor.process(in_batches([opaque]), provider="acme", model="m1")
    (part,) = done.parts
    assert isinstance(part, ProviderPart)
    assert (part.provider, part.model, part.payload) == ("acme", "m1", opaque.payload)


async def test_orphans_duplicates_and_empty_pieces_change_nothing() -> None:
    done = await process(
        PartDelta(key="0", text="too early"),
        PartOpened(key="0", kind="text"),
        PartDelta(key="0", text="a"),
        PartOpened(key="0", kind="text"),
        PartDelta(key="0", text=""),
        PartDelta(key="else", text="lost"),
        PartClosed(key="else"),
        PartDelta(key="0", text="b"),
        PartClosed(key="0"),
        PartClosed(key="0"),
        PartDelta(key="0", text="too late"),
    )
    assert bare(done.parts) == [("TextPart", "ab")]


async def test_what_is_open_at_the_end_is_ended_but_half_a_call_is_dropped() -> None:
    done = await process(
        PartOpened(key="0", kind="text"),
        PartDelta(key="0", text="half"),
        PartOpened(key="1", kind="tool_call", call_id="1", name="look"),
        PartDelta(key="1", text='{"pa'),
    )
    assert bare(done.parts) == [("TextPart", "half")]


async def test_call_ids_that_a_provider_repeats_or_forgets_are_made_unique() -> None:
    done = await process(*calls(("a", {}), ("b", {}), ("c", {}), ids=("same", "same", "")))
    ids = [part.call_id for part in done.parts if isinstance(part, ToolCallPart)]
    assert ids[0] == "same"
    assert len(set(ids)) == 3
    assert all(ids)


async def test_arguments_that_are_not_json_are_kept_as_they_came() -> None:
    done = await process(*calls(("look", '{"path": ')))
    assert bare(done.parts) == [("look", {}, '{"path": ')]


async def test_nothing_of_one_stream_reaches_the_next() -> None:
    processor = StreamProcessor(clock=FakeClock())
    broken: list[StreamPart] = [
        StreamOpened(),
        PartOpened(key="0", kind="text"),
        PartDelta(key="0", text="old"),
    ]
    await processor.process(in_batches(broken))
    done = await processor.process(in_batches(says("new")))
    assert bare(done.parts) == [("TextPart", "new")]


async def test_handlers_are_subscribed_once_and_hear_every_stream_until_they_leave() -> None:
    processor = StreamProcessor(clock=FakeClock())
    heard: list[str] = []
    leave = processor.on(TextDelta, lambda event: heard.append(event.text))
    await processor.process(in_batches(says("one")))
    await processor.process(in_batches(says("two")))
    leave()
    await processor.process(in_batches(says("three")))
    assert heard == ["one", "two"]


async def test_a_second_stream_at_the_same_time_is_refused() -> None:
    processor = StreamProcessor(clock=FakeClock())
    reached, release = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[Sequence[StreamPart]]:
        reached.set()
        await release.wait()
        yield says("first")

    first = asyncio.ensure_future(processor.process(slow()))
    await reached.wait()
    with pytest.raises(SessionError) as caught:
        await processor.process(in_batches(says("second")))
    assert caught.value.code is ErrorCode.STREAM_BUSY
    release.set()
    assert bare((await first).parts) == [("TextPart", "first")]


async def test_a_stream_that_breaks_ends_its_parts_and_frees_the_processor() -> None:
    processor = StreamProcessor(clock=FakeClock())
    ended: list[Part] = []
    processor.on(PartEnded, lambda event: ended.append(event.part))

    async def breaking() -> AsyncIterator[Sequence[StreamPart]]:
        yield says("half")[:3]
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        await processor.process(breaking())
    assert bare(ended) == [("TextPart", "half")]
    assert bare((await processor.process(in_batches(says("next")))).parts) == [("TextPart", "next")]
