"""The control channel: events out, each subscriber in order and on its own; commands in."""

import asyncio
import logging

import pytest

from haptera import ErrorCode, SessionError, TextDelta
from haptera.kernel.blocks.control_channel import ControlChannel, Subscription
from haptera.model.events import Busy, Event, Idle, StatusChanged, ToolProgress
from haptera.model.ids import CallId, PartId
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import AbortQuery, Command


def said(text: str) -> TextDelta:
    return TextDelta(part_id=PartId("p"), offset=0, text=text)


def texts(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


async def test_every_subscriber_hears_every_event_in_order() -> None:
    channel = ControlChannel()
    first: list[Event] = []
    second: list[Event] = []
    channel.subscribe(first.append)
    channel.subscribe(second.append)
    channel.publish([said("a"), said("b")])
    channel.publish([said("c")])
    assert texts(first) == texts(second) == ["a", "b", "c"]


async def test_publishing_without_subscribers_is_fine() -> None:
    channel = ControlChannel()
    channel.publish([said("a")])
    assert not await is_held_up(channel)
    heard: list[Event] = []
    channel.subscribe(heard.append)
    channel.publish([said("b")])
    assert texts(heard) == ["b"], "nothing that was published before is kept"


async def test_a_handler_can_choose_a_kind() -> None:
    channel = ControlChannel()
    heard: list[StatusChanged] = []
    channel.on(StatusChanged, heard.append)
    channel.publish([said("a"), StatusChanged(status=Busy()), StatusChanged(status=Idle())])
    assert [event.status for event in heard] == [Busy(), Idle()]


async def test_a_handler_that_left_hears_nothing_more() -> None:
    channel = ControlChannel()
    heard: list[Event] = []
    leave = channel.subscribe(heard.append)
    channel.publish([said("a")])
    leave()
    leave()
    channel.publish([said("b")])
    assert texts(heard) == ["a"]
    assert len(channel) == 0


async def test_publishing_does_not_wait_for_a_slow_handler() -> None:
    channel = ControlChannel()
    release = asyncio.Event()
    heard: list[Event] = []

    async def slow(event: Event) -> None:
        await release.wait()
        heard.append(event)

    channel.subscribe(slow)
    channel.publish([said("a"), said("b")])
    assert heard == []
    release.set()
    await channel.drain()
    assert texts(heard) == ["a", "b"]


async def test_a_slow_handler_gets_one_event_at_a_time_in_order() -> None:
    channel = ControlChannel()
    steps: list[str] = []
    gates = {name: asyncio.Event() for name in "abc"}

    async def slow(event: Event) -> None:
        assert isinstance(event, TextDelta)
        steps.append(f"{event.text} begins")
        await gates[event.text].wait()
        steps.append(f"{event.text} ends")

    channel.subscribe(slow)
    channel.publish([said("a"), said("b")])
    channel.publish([said("c")])
    for name in "cba":
        gates[name].set()
    await channel.drain()
    expected = [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
    assert steps == expected


async def test_a_slow_handler_does_not_hold_up_the_others() -> None:
    channel = ControlChannel()
    never = asyncio.Event()
    heard: list[Event] = []

    async def stuck(_event: Event) -> None:
        await never.wait()

    channel.subscribe(stuck)
    channel.subscribe(heard.append)
    channel.publish([said("a")])
    channel.publish([said("b")])
    assert texts(heard) == ["a", "b"]
    never.set()
    await channel.drain()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_handler_that_fails_still_gets_the_next_event_and_so_do_the_others(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    channel = ControlChannel()
    tried: list[Event] = []
    heard: list[Event] = []

    def fail(event: Event) -> None:
        tried.append(event)
        raise ValueError("mine alone")

    async def fail_later(event: Event) -> None:
        fail(event)

    channel.subscribe(fail_later if is_async else fail)
    channel.subscribe(heard.append)
    with caplog.at_level(logging.ERROR):
        channel.publish([said("a"), said("b")])
        await channel.drain()
    assert texts(tried) == texts(heard) == ["a", "b"]
    assert len(caplog.records) == 2


async def test_a_handler_may_subscribe_and_leave_while_it_hears() -> None:
    channel = ControlChannel()
    heard: list[Event] = []
    leave = channel.subscribe(lambda _event: leave())

    def bring_another(_event: Event) -> None:
        channel.subscribe(heard.append)

    channel.subscribe(bring_another)
    channel.publish([said("a")])
    channel.publish([said("b")])
    assert texts(heard) == ["b"]


async def test_a_handler_may_publish_while_it_hears() -> None:
    channel = ControlChannel()
    heard: list[Event] = []

    def answer(event: Event) -> None:
        heard.append(event)
        if texts(heard) == ["a"]:
            channel.publish([said("b")])

    channel.subscribe(answer)
    channel.publish([said("a")])
    assert texts(heard) == ["a", "b"]


async def test_what_a_handler_did_not_hear_before_it_left_is_dropped() -> None:
    channel = ControlChannel()
    release = asyncio.Event()
    heard: list[Event] = []

    async def slow(event: Event) -> None:
        heard.append(event)
        await release.wait()

    leave = channel.subscribe(slow)
    channel.publish([said("a"), said("b")])
    await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0)
    leave()
    release.set()
    await channel.drain()
    await channel.close()
    assert texts(heard) == ["a"]


class Slow:
    """A handler that takes one event each time it is let go."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._turns = asyncio.Semaphore(0)

    async def __call__(self, event: Event) -> None:
        await self._turns.acquire()
        self.heard.append(event)

    def let_go(self, times: int = 1) -> None:
        for _ in range(times):
            self._turns.release()


async def others_run() -> None:
    """Let every task that is ready run, a few times over."""
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop


async def is_held_up(channel: ControlChannel) -> bool:
    """Whether a publisher has to wait."""
    waiting = asyncio.ensure_future(channel.wait_for_space())
    await others_run()
    return waiting.cancel()


async def test_a_publisher_waits_for_a_handler_that_is_far_behind() -> None:
    channel, slow = ControlChannel(limit=2), Slow()
    channel.subscribe(slow)
    channel.publish([said("a"), said("b"), said("c")])
    assert not await is_held_up(channel)
    channel.publish([said("d")])
    assert await is_held_up(channel)
    slow.let_go()
    assert not await is_held_up(channel)
    slow.let_go(3)
    await channel.drain()
    assert texts(slow.heard) == ["a", "b", "c", "d"]


async def test_events_of_other_kinds_do_not_wait_for_a_handler() -> None:
    channel, slow = ControlChannel(limit=2), Slow()
    channel.on(StatusChanged, slow)
    channel.publish([StatusChanged(status=Busy()), *[said("a")] * 50])
    channel.publish([said("b")] * 50)
    assert not await is_held_up(channel)
    slow.let_go()
    await channel.drain()
    assert slow.heard == [StatusChanged(status=Busy())]


async def test_a_publisher_does_not_wait_for_a_handler_that_left_or_was_stopped() -> None:
    channel, slow = ControlChannel(limit=0), Slow()
    leave = channel.subscribe(slow)
    channel.publish([said("a"), said("b")])
    waiting = asyncio.ensure_future(channel.wait_for_space())
    await others_run()
    assert not waiting.done()
    leave()
    await others_run()
    assert waiting.done()
    channel.subscribe(Slow())
    channel.publish([said("c"), said("d")])
    waiting = asyncio.ensure_future(channel.wait_for_space())
    await others_run()
    assert not waiting.done()
    await channel.close(within=0)
    await others_run()
    assert waiting.done()
    slow.let_go()


async def test_a_handler_that_is_behind_skips_a_tool_s_progress_and_nothing_else() -> None:
    channel, slow = ControlChannel(limit=1), Slow()
    channel.subscribe(slow)
    progress = ToolProgress(call_id=CallId("call"), tool="count", progress=1)
    channel.publish([progress, said("a"), said("b")])
    channel.publish([progress, said("c")])
    slow.let_go(4)
    await channel.drain()
    assert slow.heard[0] == progress
    assert texts(slow.heard[1:]) == ["a", "b", "c"]


async def test_a_handler_that_waits_for_the_publisher_is_excused_until_its_next_event() -> None:
    channel = ControlChannel(limit=0)
    published = asyncio.Event()
    next_one = Slow()

    async def wait_for_the_end(event: Event) -> None:
        if texts([event]) == ["a"]:
            channel.excuse()
            await published.wait()
        else:
            await next_one(event)

    channel.subscribe(wait_for_the_end)
    channel.publish([said("a")])
    await others_run()
    channel.publish([said("b"), said("c"), said("d")])
    assert not await is_held_up(channel)
    published.set()
    assert await is_held_up(channel)
    next_one.let_go(3)
    await channel.drain()
    assert texts(next_one.heard) == ["b", "c", "d"]


async def test_commands_reach_the_receiver() -> None:
    channel = ControlChannel()
    taken: list[Command] = []
    channel.receiver = taken.append
    command = AbortQuery(id=CommandId("cmd_1"))
    channel.submit(command)
    assert taken == [command]


async def test_a_command_is_refused_without_a_receiver() -> None:
    with pytest.raises(SessionError) as caught:
        ControlChannel().submit(AbortQuery(id=CommandId("cmd_1")))
    assert caught.value.code is ErrorCode.CLOSED


async def test_closing_delivers_what_was_published_and_takes_nothing_more() -> None:
    channel = ControlChannel()
    heard: list[Event] = []

    async def slow(event: Event) -> None:
        heard.append(event)

    channel.receiver = lambda _command: None
    channel.subscribe(slow)
    channel.publish([said("a"), said("b")])
    await channel.close()
    assert texts(heard) == ["a", "b"]
    assert channel.closed
    with pytest.raises(SessionError) as caught:
        channel.publish([said("c")])
    assert caught.value.code is ErrorCode.CLOSED
    with pytest.raises(SessionError):
        channel.submit(AbortQuery(id=CommandId("cmd_1")))
    await channel.close()


async def test_a_handler_that_never_ends_does_not_hold_up_closing_for_ever() -> None:
    channel = ControlChannel()
    stopped = asyncio.Event()

    async def stuck(_event: Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    channel.subscribe(stuck)
    channel.publish([said("a")])
    await channel.close(within=0)
    assert stopped.is_set()


async def test_an_attached_subscription_gets_every_event_until_it_is_detached() -> None:
    channel, pulled = ControlChannel(), Subscription[Event]()
    detach = channel.attach(pulled)
    channel.publish([said("a")])
    detach()
    detach()
    channel.publish([said("b")])
    assert texts(await pulled.next_batch()) == ["a"]
    assert len(channel) == 0


async def test_an_attached_subscription_that_is_full_holds_up_publishers_like_a_handler() -> None:
    channel, pulled = ControlChannel(), Subscription[Event](limit=1)
    channel.attach(pulled)
    channel.publish([said("a"), said("b")])
    assert await is_held_up(channel)
    await pulled.next_batch()
    assert not await is_held_up(channel)


async def test_while_handlers_finish_what_is_published_reaches_pulled_subscriptions_only() -> None:
    channel, slow, pulled = ControlChannel(), Slow(), Subscription[Event]()
    channel.subscribe(slow)
    channel.attach(pulled)
    channel.publish([said("a")])
    closing = asyncio.ensure_future(channel.close())
    await others_run()
    channel.publish([said("b")])
    slow.let_go()
    await closing
    assert texts(slow.heard) == ["a"]
    assert texts(await pulled.next_batch()) == ["a", "b"]
    assert await pulled.next_batch() == [], "closing ends it"


async def test_a_subscription_that_comes_too_late_has_ended() -> None:
    channel, pulled = ControlChannel(), Subscription[Event]()
    await channel.close()
    channel.attach(pulled)
    assert await pulled.next_batch() == []
