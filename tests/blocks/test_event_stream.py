"""The event stream: one consumer, a bound that holds the producer, and an end that is seen."""

import asyncio

import pytest

from holdfast import ErrorCode, RequestError, SessionError, TextDelta
from holdfast.blocks.event_stream import EventStream
from holdfast.vocabulary.events import Event
from holdfast.vocabulary.ids import PartId


def said(text: str) -> TextDelta:
    return TextDelta(part_id=PartId("p"), offset=0, text=text)


def many(count: int) -> list[Event]:
    return [said(str(number)) for number in range(count)]


async def settle(*tasks: "asyncio.Task[None]") -> None:
    """Let tasks run as far as they can."""
    await asyncio.wait(tasks, timeout=0)


async def test_everything_that_came_is_handed_over_at_once_and_in_order() -> None:
    stream = EventStream()
    stream.publish([said("a")])
    stream.publish([said("b"), said("c")])
    batch = await stream.next_batch()
    assert [event.text for event in batch if isinstance(event, TextDelta)] == ["a", "b", "c"]


async def test_a_consumer_waits_for_the_first_event() -> None:
    stream = EventStream()
    waiting = asyncio.ensure_future(stream.next_batch())
    await asyncio.wait([waiting], timeout=0)
    assert not waiting.done()
    stream.publish([said("a")])
    assert len(await waiting) == 1


async def test_the_end_is_an_empty_batch_and_stays_one() -> None:
    stream = EventStream()
    stream.publish([said("a")])
    stream.end()
    assert len(await stream.next_batch()) == 1
    assert await stream.next_batch() == []
    assert await stream.next_batch() == []


async def test_the_end_wakes_a_consumer_that_waits() -> None:
    stream = EventStream()
    waiting = asyncio.ensure_future(stream.next_batch())
    await asyncio.wait([waiting], timeout=0)
    stream.end()
    assert await waiting == []


async def test_an_error_comes_after_the_last_event() -> None:
    stream = EventStream()
    stream.publish([said("a")])
    stream.end(RequestError(ErrorCode.NETWORK, "broke"))
    assert len(await stream.next_batch()) == 1
    with pytest.raises(RequestError) as caught:
        await stream.next_batch()
    assert caught.value.code is ErrorCode.NETWORK


async def test_the_first_end_stands_and_nothing_comes_after_it() -> None:
    stream = EventStream()
    stream.end()
    stream.end(RequestError(ErrorCode.NETWORK, "too late"))
    stream.publish([said("too late")])
    assert await stream.next_batch() == []
    assert stream.phase == "closed"


async def test_the_phases_can_be_seen() -> None:
    stream = EventStream()
    assert (stream.phase, stream.ended) == ("idle", False)
    stream.phase = "connected"
    assert not stream.ended
    stream.end()
    assert (stream.phase, stream.ended) == ("closed", True)
    failed = EventStream()
    failed.end(RequestError(ErrorCode.NETWORK, "broke"))
    assert (failed.phase, failed.ended) == ("error", True)


async def test_a_second_consumer_is_refused() -> None:
    stream = EventStream()
    stream.claim()
    with pytest.raises(SessionError) as caught:
        stream.claim()
    assert caught.value.code is ErrorCode.STREAM_BUSY


async def test_a_producer_that_is_ahead_waits_and_nothing_is_dropped() -> None:
    stream = EventStream(limit=2)
    stream.publish(many(2))
    await stream.room()
    stream.publish(many(1))
    producer = asyncio.ensure_future(stream.room())
    await settle(producer)
    assert not producer.done()
    assert len(await stream.next_batch()) == 3
    await producer


@pytest.mark.parametrize("how", ["end", "abandon", "release"])
async def test_a_waiting_producer_is_let_go_when_nobody_will_make_room(how: str) -> None:
    stream = EventStream(limit=0)
    stream.publish(many(1))
    producer = asyncio.ensure_future(stream.room())
    await settle(producer)
    getattr(stream, how)()
    await producer


async def test_a_released_stream_keeps_everything_and_never_holds_again() -> None:
    stream = EventStream(limit=0)
    stream.publish(many(1))
    stream.release()
    stream.publish(many(5))
    await stream.room()
    assert len(await stream.next_batch()) == 6


async def test_a_consumer_that_left_gets_nothing_more_and_holds_nobody() -> None:
    stream = EventStream(limit=1)
    stream.publish(many(5))
    stream.abandon()
    stream.publish(many(5))
    await stream.room()
    assert stream.abandoned
    stream.end()
    assert await stream.next_batch() == []


async def test_a_cancelled_producer_loses_nothing() -> None:
    stream = EventStream(limit=0)
    stream.publish(many(3))
    producer = asyncio.ensure_future(stream.room())
    await settle(producer)
    producer.cancel()
    await asyncio.wait([producer])
    assert len(await stream.next_batch()) == 3
