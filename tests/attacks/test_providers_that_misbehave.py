"""Model clients that keep no promise: the session still ends each query once, and goes on."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentSession, ErrorCode
from haptera.model.events import TextDelta
from haptera.model.log.turns import TurnEnded
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.settings import RetrySettings
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamPart,
)
from haptera.testing import EventRecorder, FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import finished
from tests.history_grammar import violations

Play = Callable[[ModelRequest], AsyncGenerator[Sequence[StreamPart], None]]


class RawProvider:
    """A client that does exactly what a test says."""

    provider = "raw"

    def __init__(self, *plays: Play) -> None:
        self._plays = list(plays)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Play the next one; every request must be one that a provider takes."""
        assert violations(request.messages) == []
        return self._plays.pop(0)(request)

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count nothing."""
        return TokenCount(tokens=0, exact=False)

    async def close(self) -> None:
        """Close nothing."""


@asynccontextmanager
async def _session(*plays: Play, **options: Any) -> AsyncIterator[AgentSession]:
    options.setdefault("clock", FakeClock())
    options.setdefault("retry", RetrySettings(max_retries=0, interruption_retries=0))
    agent = Agent("raw/m", providers=[RawProvider(*plays)], **options)
    async with agent, agent.session() as session:
        yield session


async def _answer(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
    yield says("fine")


async def _after_the_end(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
    yield [*says("a"), PartOpened(key="x", kind="text"), PartDelta(key="x", text="lost")]
    yield says("b")
    yield calls(("no_such", {}))


async def _nothing(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
    no_batches: tuple[Sequence[StreamPart], ...] = ()
    for batch in no_batches:
        yield batch


async def _empty_lists(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
    for _ in range(50):
        yield []
    yield says("fine")


async def _nothing_said(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
    yield [PartOpened(key="0", kind="text"), PartDelta(key="0", text=""), PartClosed(key="0")]
    yield [finished("stop", "end_turn")]


async def _doubled_keys(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
    yield [
        PartOpened(key="0", kind="text"),
        PartDelta(key="0", text="a"),
        PartOpened(key="0", kind="reasoning"),
        PartDelta(key="0", text="b"),
        PartDelta(key="never opened", text="?"),
        PartClosed(key="0"),
        PartClosed(key="0"),
        PartOpened(key="0", kind="text"),
        PartDelta(key="0", text="c"),
        finished("stop", "end_turn"),
    ]


async def _raises(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
    yield says("so far")[:-2]
    raise ValueError("a client may raise anything")


async def _reuses_its_list(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
    batch: list[StreamPart] = []
    payload = {"type": "kept"}
    for part in (*says("fine")[:-1], PartOpaque(payload=payload), says("")[-1]):
        batch[:] = [part]
        yield batch
        batch.clear()
    payload["type"] = "changed afterwards"


async def test_nothing_counts_after_the_end_of_an_answer() -> None:
    async with _session(_after_the_end, _answer) as session:
        seen = EventRecorder()
        async with session.stream("go") as stream:
            async for event in stream:
                seen(event)
            result = await stream.result()
        assert (result.text, result.turns, result.usage.input) == ("a", 1, 10)
        assert seen.counts["turn.ended"] == 1
        assert len(seen.ends) == 1
        assert (await session.chat("and now?")).text == "fine"


async def test_an_empty_stream_adds_no_answer() -> None:
    async with _session(_nothing, _answer) as session:
        with pytest.raises(AgentError) as raised:
            await session.chat("go")
        assert raised.value.code is ErrorCode.STREAM_INTERRUPTED
        assert [message.text for message in session.messages] == ["go"]
        assert (await session.chat("again")).text == "fine"


@pytest.mark.parametrize("play", [_empty_lists, _reuses_its_list])
async def test_lists_that_are_empty_or_used_again_make_no_difference(play: Play) -> None:
    async with _session(play) as session:
        assert (await session.chat("go")).text == "fine"


async def test_what_a_client_changes_later_does_not_change_the_conversation() -> None:
    async with _session(_reuses_its_list, _answer) as session:
        result = await session.chat("go")
        assert "changed afterwards" not in str(result.messages)
        assert "changed afterwards" not in str(session.messages)


async def test_an_answer_of_nothing_is_an_error_and_the_next_request_is_valid() -> None:
    async with _session(_nothing_said, _answer) as session:
        with pytest.raises(AgentError, match="without saying anything"):
            await session.chat("go")
        assert (await session.chat("again")).text == "fine"


async def test_an_answer_that_a_stop_sequence_ended_at_once_is_empty() -> None:
    async with _session(_nothing_said, _answer) as session:
        result = await session.chat("go", stop=("END",))
        assert (result.text, result.stop_reason) == ("", "complete")
        assert (await session.chat("again")).text == "fine"


async def test_parts_opened_twice_closed_twice_or_never_opened_do_no_harm() -> None:
    async with _session(_doubled_keys) as session:
        assert (await session.chat("go")).text == "abc"


async def test_an_error_of_no_known_kind_ends_the_query_and_keeps_what_came() -> None:
    async with _session(_raises, _answer) as session:
        seen = EventRecorder()
        with pytest.raises(AgentError) as raised:
            async for event in session.stream("go"):
                seen(event)
        assert raised.value.result is not None
        assert raised.value.result.text == "so far"
        assert len(seen.ends) == 1
        assert (await session.chat("again")).text == "fine"


@pytest.mark.slow
async def test_an_answer_of_ten_thousand_parts_is_kept_whole_and_in_order() -> None:
    parts: list[StreamPart] = []
    for place in range(10_000):
        key = str(place)
        parts += [PartOpened(key=key, kind="text"), PartDelta(key=key, text=f"{place} ")]
        parts.append(PartClosed(key=key))
    provider = ScriptedProvider([[*parts, finished("stop", "end_turn")]])
    async with Agent("scripted/m", providers=[provider], clock=FakeClock()) as agent:
        result = await agent.run("go")
    assert result.text == "".join(f"{place} " for place in range(10_000))


async def test_a_million_characters_in_one_delta_arrive_whole() -> None:
    text = "0123456789" * 100_000
    provider = ScriptedProvider([says(text)])
    async with Agent("scripted/m", providers=[provider], clock=FakeClock()) as agent:
        assert (await agent.run("go")).text == text


async def test_a_client_that_cancels_itself_does_not_hang_the_query() -> None:
    async def cancels(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        yield says("so far")[:-2]
        raise asyncio.CancelledError

    async with _session(cancels, _answer) as session:
        with pytest.raises(AgentError) as raised:
            await session.chat("go")
        assert raised.value.result is not None
        assert raised.value.result.text == "so far"
        assert (await session.chat("again")).text == "fine"


async def test_half_of_a_character_pair_breaks_neither_the_log_nor_the_answer(
    tmp_path: Path,
) -> None:
    async def broken(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        yield says("a\ud83d", "b")

    async with _session(broken, _answer, store=f"sqlite:{tmp_path / 'log'}") as session:
        texts = [event.text async for event in session.stream("go") if isinstance(event, TextDelta)]
        assert "".join(texts) == "a\ufffdb"
        assert (await session.chat("again")).text == "fine"


async def test_a_turn_that_ended_is_not_ended_again_by_an_abort() -> None:
    async def lingers(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        yield says("fine")
        await asyncio.Event().wait()

    ends: list[TurnEnded] = []
    async with _session(lingers) as session:
        session.on(TurnEnded, ends.append)
        session.on(TurnEnded, lambda _event: session.abort())
        with pytest.raises(AgentError) as raised:
            await session.chat("go")
        assert raised.value.result is not None
        assert raised.value.result.text == "fine"
        assert [end.interrupted for end in ends] == [False]
