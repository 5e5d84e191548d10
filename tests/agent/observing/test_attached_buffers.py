"""Buffers that a program attaches to a session: the batches of the channel, shared and bounded."""

import asyncio

import pytest

from haptera import Event, SessionError, TextDelta
from haptera.building_blocks import Subscription
from haptera.testing import says
from tests.scripted_agents import make_agent, playing, tasks_left

PIECES = [str(number) for number in range(30)]


async def drained(buffer: Subscription[Event]) -> list[list[Event]]:
    """Take everything that waits, batch by batch as it was taken."""
    batches: list[list[Event]] = []
    while True:
        try:
            batch = await buffer.next_batch(0)
        except TimeoutError:
            return batches
        if not batch:
            return batches
        batches.append(batch)


def _texts(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


class Noted(Subscription[Event]):
    """Notes the batches as they are published."""

    def __init__(self) -> None:
        super().__init__(limit=10_000)
        self.batches: list[list[Event]] = []

    def publish(self, events: object) -> None:
        """Note a batch."""
        assert isinstance(events, list | tuple)
        self.batches.append(list(events))


async def test_what_came_in_one_read_is_published_at_once_and_the_same_to_all() -> None:
    one, other = Noted(), Noted()
    async with playing([[says(*PIECES)]]) as (session, _):  # all parts in one read
        for buffer in (one, other):
            session.attach(buffer)
        await session.chat("go")
    assert one.batches == other.batches
    together = [batch for batch in one.batches if _texts(batch)]
    assert [_texts(batch) for batch in together] == [PIECES]
    pairs = zip(one.batches, other.batches, strict=True)
    assert all(a is b for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True))


async def test_a_buffer_gets_what_happens_until_it_is_detached_or_the_session_closed() -> None:
    kept: Subscription[Event] = Subscription(limit=10_000)
    left: Subscription[Event] = Subscription(limit=10_000)
    async with playing([says("a"), says("b")]) as (session, _):
        session.attach(kept)
        detach = session.attach(left)
        await session.chat("go")
        detach()
        detach()
        await session.chat("go on")
    seen = [text for batch in await drained(kept) for text in _texts(batch)]
    assert (seen, kept.ended) == (["a", "b"], True)
    assert [text for batch in await drained(left) for text in _texts(batch)] == ["a"]
    assert not left.ended


async def test_a_buffer_that_is_not_read_lags_by_number_or_size_and_holds_up_no_query() -> None:
    by_number: Subscription[Event] = Subscription(limit=2, when_full="lag")
    by_size: Subscription[Event] = Subscription(
        limit=10_000,
        when_full="lag",
        size_limit=20,
        size_of=lambda event: len(event.text) if isinstance(event, TextDelta) else 0,
    )
    async with playing([says(*PIECES), says(*PIECES)]) as (session, _):
        for buffer in (by_number, by_size):
            session.attach(buffer)
        async with asyncio.timeout(10):
            await session.chat("go")
            await session.chat("go on")
    assert (by_number.lagged, by_size.lagged) == (True, True)
    assert await by_size.next_batch() == []


async def test_a_session_that_is_not_open_has_nothing_to_attach_to() -> None:
    agent, _ = make_agent([])
    buffer: Subscription[Event] = Subscription()
    async with agent:
        session = agent.session()
        with pytest.raises(SessionError, match="not open yet"):
            session.attach(buffer)
        await session.open()
        await session.close()
        session.attach(buffer)
        assert await buffer.next_batch() == []
    assert tasks_left() == []
