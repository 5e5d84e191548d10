"""The control channel: events out, each subscriber in order and on its own; commands in."""

import asyncio
import logging

import pytest

from holdfast import ErrorCode, SessionError, TextDelta
from holdfast.blocks.control_channel import ControlChannel
from holdfast.vocabulary.commands import AbortQuery, Command, CommandId
from holdfast.vocabulary.events import Event, StatusChanged
from holdfast.vocabulary.ids import PartId
from holdfast.vocabulary.status import Busy, Idle


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
    ControlChannel().publish([said("a")])


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
    assert channel.subscriber_count == 0


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


async def test_commands_reach_whoever_is_in_charge() -> None:
    channel = ControlChannel()
    taken: list[Command] = []
    channel.receive_with(taken.append)
    command = AbortQuery(id=CommandId("cmd_1"))
    channel.submit(command)
    assert taken == [command]


async def test_a_command_to_nobody_is_refused() -> None:
    with pytest.raises(SessionError) as caught:
        ControlChannel().submit(AbortQuery(id=CommandId("cmd_1")))
    assert caught.value.code is ErrorCode.CLOSED


async def test_closing_delivers_what_was_published_and_takes_nothing_more() -> None:
    channel = ControlChannel()
    heard: list[Event] = []

    async def slow(event: Event) -> None:
        heard.append(event)

    channel.receive_with(lambda _command: None)
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
