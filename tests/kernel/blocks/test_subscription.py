"""A subscription: one consumer, a limit that the publisher meets, and an end that is seen."""

import asyncio
from typing import Literal

import pytest

from haptera import ErrorCode, RequestError, TextDelta
from haptera.kernel.blocks.control_channel import Subscription
from haptera.model.events import Event, ToolProgress
from haptera.model.ids import CallId, PartId


def said(text: str) -> TextDelta:
    return TextDelta(part_id=PartId("p"), offset=0, text=text)


def many(count: int) -> list[Event]:
    return [said(str(number)) for number in range(count)]


async def settle(*tasks: "asyncio.Task[None]") -> None:
    """Let tasks run as far as they can."""
    await asyncio.wait(tasks, timeout=0)


async def test_everything_that_came_is_handed_over_at_once_and_in_order() -> None:
    stream: Subscription[Event] = Subscription()
    stream.publish([said("a")])
    stream.publish([said("b"), said("c")])
    batch = await stream.next_batch()
    assert [event.text for event in batch if isinstance(event, TextDelta)] == ["a", "b", "c"]


async def test_a_consumer_waits_for_the_first_event() -> None:
    stream: Subscription[Event] = Subscription()
    waiting = asyncio.ensure_future(stream.next_batch())
    await asyncio.wait([waiting], timeout=0)
    assert not waiting.done()
    stream.publish([said("a")])
    assert len(await waiting) == 1


async def test_the_end_is_an_empty_batch_and_stays_one() -> None:
    stream: Subscription[Event] = Subscription()
    stream.publish([said("a")])
    stream.end()
    assert len(await stream.next_batch()) == 1
    assert await stream.next_batch() == []
    assert await stream.next_batch() == []


async def test_the_end_wakes_a_consumer_that_waits() -> None:
    stream: Subscription[Event] = Subscription()
    waiting = asyncio.ensure_future(stream.next_batch())
    await asyncio.wait([waiting], timeout=0)
    stream.end()
    assert await waiting == []


async def test_an_error_comes_after_the_last_event() -> None:
    stream: Subscription[Event] = Subscription()
    stream.publish([said("a")])
    stream.end(RequestError(ErrorCode.NETWORK, "broke"))
    assert len(await stream.next_batch()) == 1
    with pytest.raises(RequestError) as caught:
        await stream.next_batch()
    assert caught.value.code is ErrorCode.NETWORK


async def test_the_first_end_stands_and_nothing_comes_after_it() -> None:
    stream: Subscription[Event] = Subscription()
    stream.end()
    stream.end(RequestError(ErrorCode.NETWORK, "too late"))
    stream.publish([said("too late")])
    assert await stream.next_batch() == []
    assert stream.ended


async def test_a_producer_that_is_ahead_waits_and_nothing_is_dropped() -> None:
    stream: Subscription[Event] = Subscription(limit=2)
    stream.publish(many(2))
    await stream.wait_for_space()
    stream.publish(many(1))
    producer = asyncio.ensure_future(stream.wait_for_space())
    await settle(producer)
    assert not producer.done()
    assert len(await stream.next_batch()) == 3
    await settle(producer)
    assert producer.done()


@pytest.mark.parametrize("how", ["end", "abandon", "excuse"])
async def test_a_waiting_producer_goes_on_when_the_consumer_will_make_no_space(how: str) -> None:
    stream: Subscription[Event] = Subscription(limit=0)
    stream.publish(many(1))
    producer = asyncio.ensure_future(stream.wait_for_space())
    await settle(producer)
    assert not producer.done()
    getattr(stream, how)()
    await settle(producer)
    assert producer.done()


async def test_an_excused_consumer_misses_nothing_and_no_producer_waits_for_it() -> None:
    stream: Subscription[Event] = Subscription(limit=0)
    stream.publish(many(1))
    stream.excuse()
    stream.publish(many(5))
    await stream.wait_for_space()
    assert len(await stream.next_batch()) == 6
    stream.publish(many(1))
    assert not stream.has_space


async def test_a_publisher_waits_no_longer_once_what_it_works_for_was_stopped() -> None:
    stream: Subscription[Event] = Subscription(limit=0)
    stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream.publish(many(1))
    producer = asyncio.ensure_future(stream.wait_for_space(unless=(stopped,)))
    await settle(producer)
    assert not producer.done()
    stopped.set_result(None)
    await producer
    assert not stream.has_space


async def test_taking_one_event_makes_space_for_one() -> None:
    stream: Subscription[Event] = Subscription(limit=1)
    stream.publish(many(3))
    assert not stream.has_space
    assert stream.next_event() is not None
    assert not stream.has_space
    stream.next_event()
    assert stream.has_space
    stream.next_event()
    assert stream.next_event() is None


@pytest.mark.parametrize("when_full", ["wait", "lag"])
async def test_progress_of_tools_is_skipped_only_for_a_consumer_that_is_waited_for(
    when_full: Literal["wait", "lag"],
) -> None:
    progress = ToolProgress(call_id=CallId("call"), tool="count", progress=1)
    stream: Subscription[Event] = Subscription(limit=1, when_full=when_full)
    stream.publish([progress, said("a")])
    assert await stream.next_batch() == [progress, said("a")]
    stream.publish([progress, *many(1)])
    stream.publish([progress, said("b")])
    kept = await stream.next_batch()
    if when_full == "wait":
        assert kept == [progress, *many(1), said("b")]
    else:
        assert (kept, stream.lagged) == ([], True)


async def test_a_consumer_that_lags_is_told_so_and_no_producer_waits_for_it() -> None:
    stream: Subscription[Event] = Subscription(limit=2, when_full="lag")
    stream.publish(many(3))
    assert stream.has_space
    await stream.wait_for_space()
    assert not stream.lagged, "what came at once may exceed the limit"
    stream.publish(many(1))
    assert stream.lagged
    assert await stream.next_batch() == []
    stream.publish(many(1))
    assert await stream.next_batch() == []


async def test_a_consumer_that_takes_in_time_does_not_lag() -> None:
    stream: Subscription[Event] = Subscription(limit=2, when_full="lag")
    for _ in range(5):
        stream.publish(many(3))
        assert len(await stream.next_batch()) == 3
    assert not stream.lagged


async def test_a_consumer_that_was_woken_does_not_lag_before_it_had_a_turn() -> None:
    stream: Subscription[Event] = Subscription(limit=0, when_full="lag")
    waiting = asyncio.ensure_future(stream.next_batch())
    await asyncio.wait([waiting], timeout=0)
    stream.publish(many(1))
    stream.publish(many(1))
    assert (len(await waiting), stream.lagged) == (2, False)
    stream.publish(many(1))
    stream.publish(many(1))
    assert (await stream.next_batch(), stream.lagged) == ([], True)


async def test_a_consumer_lags_also_when_what_waits_is_too_large() -> None:
    stream: Subscription[TextDelta] = Subscription(
        limit=100, when_full="lag", size_limit=10, size_of=lambda event: len(event.text)
    )
    for _ in range(5):
        stream.publish([said("x" * 30)])
        assert len(await stream.next_batch()) == 1, "one that is taken in time may be larger"
    stream.publish([said("x" * 5), said("x" * 5)])
    stream.publish([said("y")])
    assert not stream.lagged
    stream.publish([said("z")])
    assert (await stream.next_batch(), stream.lagged) == ([], True)


async def test_a_wait_ends_when_its_time_is_up_and_the_next_one_begins_anew() -> None:
    stream: Subscription[str] = Subscription()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await stream.next_batch(0)
    stream.publish(["a"])
    assert await stream.next_batch(0) == ["a"]
    waiting = asyncio.ensure_future(stream.next_batch(60))
    await asyncio.wait([waiting], timeout=0)
    stream.publish(["b"])
    assert await waiting == ["b"]
    untimed = asyncio.ensure_future(stream.next_batch())
    await asyncio.wait([untimed], timeout=0)
    stream.end()
    assert (await untimed, await stream.next_batch(60)) == ([], [])


async def test_a_wait_keeps_its_own_deadline_whatever_the_one_before_had() -> None:
    stream: Subscription[str] = Subscription()
    waiting = asyncio.ensure_future(stream.next_batch(60))
    await asyncio.wait([waiting], timeout=0)
    stream.publish(["a"])
    assert await waiting == ["a"]
    with pytest.raises(TimeoutError):
        await stream.next_batch(0)


async def test_what_comes_when_the_time_is_up_is_still_handed_over() -> None:
    stream: Subscription[str] = Subscription()
    waiting = asyncio.ensure_future(stream.next_batch(0))
    await asyncio.wait([waiting], timeout=0)
    stream.publish(["a"])
    assert await waiting == ["a"]


async def test_a_cancelled_consumer_loses_nothing() -> None:
    stream: Subscription[Event] = Subscription()
    waiting = asyncio.ensure_future(stream.next_batch())
    await asyncio.wait([waiting], timeout=0)
    waiting.cancel()
    await asyncio.wait([waiting])
    stream.publish(many(2))
    assert len(await stream.next_batch()) == 2


async def test_a_consumer_that_left_gets_nothing_more_and_no_producer_waits_for_it() -> None:
    stream: Subscription[Event] = Subscription(limit=1)
    stream.publish(many(5))
    stream.abandon()
    stream.publish(many(5))
    await stream.wait_for_space()
    assert stream.abandoned
    stream.end()
    assert await stream.next_batch() == []


async def test_a_cancelled_producer_loses_nothing() -> None:
    stream: Subscription[Event] = Subscription(limit=0)
    stream.publish(many(3))
    producer = asyncio.ensure_future(stream.wait_for_space())
    await settle(producer)
    producer.cancel()
    await asyncio.wait([producer])
    assert len(await stream.next_batch()) == 3


async def test_a_consumer_that_finds_events_ready_does_not_touch_the_loop() -> None:
    stream: Subscription[Event] = Subscription()
    stream.publish(many(3))
    step = stream.next_batch()
    with pytest.raises(StopIteration) as done:
        step.send(None)
    assert len(done.value.value) == 3
