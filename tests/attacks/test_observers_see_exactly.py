"""Observers that join late, twice, or fall behind put the same text together."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptera import Agent, AgentSession
from haptera.kernel.blocks.control_channel import ControlChannel, Subscription
from haptera.kernel.session.observers import observe
from haptera.model.events import Event, ObserverLagged, ReasoningDelta, TextDelta
from haptera.model.ids import PartId, SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded
from haptera.model.log.turns import PartCheckpoint, PartEnded, PartStarted
from haptera.model.log.workspace import Snapshot
from haptera.model.parts import ReasoningPart, TextPart
from haptera.model.settings import RuntimeSettings
from haptera.stores.memory import MemoryLog, MemoryStore
from haptera.system.clock import Stamp
from haptera.testing import FakeClock, Gate, LoopClock, ScriptedProvider, calls, run_seeded, says
from haptera.testing.scripted_provider import reasoning
from tests.attacks.moments import others_run, until


class Screen:
    """Puts text together by part and offset, and notices what does not fit."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[int, str]] = {}
        self.ended: dict[str, str] = {}
        self.seqs: list[int] = []

    def show(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, Entry):
            self.seqs.append(event.seq)
        match event:
            case TextDelta() | ReasoningDelta() | PartCheckpoint():
                assert event.part_id not in self.ended, "more of a part that has ended"
                self._write(event.part_id, event.offset, event.text)
            case PartEnded(part_id=part_id, offset=offset, part=part):
                if isinstance(part, TextPart | ReasoningPart):
                    assert offset == 0, "an ended part comes whole"
                    self._check(part_id, part.text)
                    self.ended[part_id] = part.text

    def _write(self, part_id: str, offset: int, text: str) -> None:
        places = self.parts.setdefault(part_id, {})
        for place, character in enumerate(text, start=offset):
            assert places.setdefault(place, character) == character, "two texts in one place"

    def _check(self, part_id: str, whole: str) -> None:
        for place, character in self.parts.get(part_id, {}).items():
            assert whole[place] == character, "what was shown is not what was kept"


async def _watch(session: AgentSession, after: int, screen: Screen) -> None:
    """Observe until the query has ended, resuming as often as told to."""
    while True:
        async with aclosing(session.events(after=after)) as events:
            async for event in events:
                if isinstance(event, ObserverLagged):
                    after = event.resume_after
                    break
                screen.show(event)
                if isinstance(event, QueryEnded):
                    return
            else:
                return


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=30),
    joins=st.lists(st.integers(0, 40), max_size=4),
    buffer=st.integers(1, 20),
    step=st.integers(1, 40),
    seed=st.integers(0, 2**16),
)
def test_every_observer_ends_with_the_text_that_was_said(
    texts: list[str], joins: list[int], buffer: int, step: int, seed: int
) -> None:
    async def play() -> None:
        runtime = RuntimeSettings(observer_buffer=buffer, checkpoint_bytes=step)
        provider = ScriptedProvider(
            [[*[[beat] for beat in (*reasoning(*texts), *says(*texts))]], says("later")]
        )
        agent = Agent("scripted/m", providers=[provider], runtime=runtime, clock=LoopClock())
        async with agent, agent.session() as session:
            screens = [Screen() for _ in range(len(joins) + 1)]
            async with asyncio.TaskGroup() as group:
                group.create_task(_watch(session, 0, screens[0]))
                for join, screen in zip(joins, screens[1:], strict=True):
                    group.create_task(_join_late(session, join, screen))
                result = await session.chat("go")
            for screen in screens:
                assert screen.seqs == sorted(set(screen.seqs))
                assert "".join(screen.ended.values()).endswith(result.text)

    run_seeded(play, seed)


async def _join_late(session: AgentSession, steps: int, screen: Screen) -> None:
    for _ in range(steps):
        await others_run()
    await _watch(session, 0, screen)


class GatedLog(MemoryLog):
    """A log whose reader gets what is there when the test lets it."""

    def __init__(self) -> None:
        super().__init__(MemoryStore()._sessions)
        self.gate = Gate()
        self.entries: list[Entry] = []

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read when the gate is open."""
        await self.gate.wait()
        return self.entries[after:limit]


async def test_a_delta_older_than_what_the_log_has_shown_is_not_shown_again() -> None:
    """The log is read while events arrive: what it holds already must not come once more."""
    stamp, part_id = Stamp(FakeClock()), PartId("prt_1")
    started = PartStarted(**stamp(), seq=1, part_id=part_id, part_kind="text")
    ended = PartEnded(**stamp(), seq=2, part_id=part_id, part=TextPart(text="abc"))
    last = Snapshot(**stamp(), seq=3, tree="t")
    log, channel = GatedLog(), ControlChannel()
    log.entries = [started, ended]
    seen: list[Event] = []

    async def read() -> None:
        observing = observe(
            channel,
            log,
            SessionId("s"),
            subscription=Subscription(when_full="lag"),
            after=0,
            head=lambda: 0,
        )
        async with aclosing(observing) as events:
            async for event in events:
                seen.append(event)
                if event is last:
                    return

    reader = asyncio.ensure_future(read())
    await log.gate.reached.wait()
    channel.publish([started, TextDelta(part_id=part_id, offset=0, text="abc")])
    log.gate.open()
    await until(lambda: ended in seen)
    await others_run()
    channel.publish([ended])
    fresh = TextDelta(part_id=PartId("prt_2"), offset=0, text="new")
    channel.publish([fresh, last])
    await reader
    assert seen == [started, ended, fresh, last]


async def test_a_reader_that_is_not_behind_does_not_lag_because_one_read_brought_much() -> None:
    runtime = RuntimeSettings(observer_buffer=10)
    provider = ScriptedProvider([[says(*["x"] * 200)]])
    agent = Agent("scripted/m", providers=[provider], runtime=runtime, clock=FakeClock())
    async with agent, agent.session() as session:
        kinds: list[str] = []

        async def read() -> None:
            async with aclosing(session.events()) as events:
                async for event in events:
                    kinds.append(event.kind)
                    if isinstance(event, QueryEnded):
                        return

        reader = asyncio.ensure_future(read())
        await others_run()
        await session.chat("go")
        await reader
    assert kinds.count("text.delta") == 200
    assert "observer.lagged" not in kinds


async def test_an_observer_that_reads_nothing_keeps_no_more_than_its_buffer() -> None:
    runtime = RuntimeSettings(observer_buffer=50)
    provider = ScriptedProvider([[[beat] for beat in says(*["x"] * 5000)]])
    agent = Agent("scripted/m", providers=[provider], runtime=runtime, clock=FakeClock())
    async with agent, agent.session() as session:
        events: AsyncGenerator[Event, None] = session.events()
        await anext(events)
        await session.chat("go")
        seen: list[Any] = [event async for event in _until_lagged(events)]
        assert len(seen) < 60
        assert isinstance(seen[-1], ObserverLagged)
        rest = Screen()
        await _watch(session, seen[-1].resume_after, rest)
        assert list(rest.ended.values()) == ["x" * 5000]


async def _until_lagged(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    async with aclosing(events):
        async for event in events:
            yield event
            if isinstance(event, ObserverLagged):
                return


async def test_what_a_handler_is_told_is_what_the_stream_tells() -> None:
    from_handler, from_stream = Screen(), Screen()
    provider = ScriptedProvider([calls(("nothing", {}), text="one"), says("two", " three")])
    agent = Agent("scripted/m", providers=[provider], clock=FakeClock())
    async with agent, agent.session() as session:
        session.on(Entry, from_handler.show)
        session.on(TextDelta, from_handler.show)
        async for event in session.stream("go"):
            from_stream.show(event)
    assert from_handler.ended == from_stream.ended
    assert list(from_stream.ended.values()) == ["one", "two three"]
