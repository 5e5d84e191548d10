"""The contract of control channels: order, isolation of handlers, backpressure, commands, close."""

import asyncio
from collections.abc import Callable

from haptera.kernel.blocks.control_channel import ControlChannelInterface, Subscription
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.events import Event, Idle, StatusChanged, TextDelta
from haptera.model.ids import PartId
from haptera.model.operations.operation import new_command_id
from haptera.model.operations.session import AbortQuery, Command
from haptera.testing.contracts.samples import other_tasks, run_contract
from haptera.testing.promises import Report, require, require_same

_MANY = 10_000
"""More events than any channel lets a handler be behind."""


def _delta(number: int) -> TextDelta:
    return TextDelta(part_id=PartId("prt_1"), offset=number, text=str(number))


def _offsets(events: list[Event]) -> list[int]:
    return [event.offset for event in events if isinstance(event, TextDelta)]


async def check_every_handler_sees_everything_in_order(channel: ControlChannelInterface) -> None:
    """Plain and async handlers get the same events, in the order of publishing."""
    plain: list[Event] = []
    slow: list[Event] = []

    async def handle(event: Event) -> None:
        await other_tasks()
        slow.append(event)

    channel.subscribe(plain.append)
    channel.subscribe(handle)
    for number in range(0, 30, 3):
        channel.publish([_delta(number), _delta(number + 1), _delta(number + 2)])
    await channel.drain()
    require_same(_offsets(plain), list(range(30)), "a plain handler")
    require_same(_offsets(slow), list(range(30)), "an async handler")


async def check_an_async_handler_is_awaited_before_its_next_event(
    channel: ControlChannelInterface,
) -> None:
    """A handler never runs twice at the same time."""
    at_work, most = 0, 0

    async def handle(_: Event) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await other_tasks()
        at_work -= 1

    channel.subscribe(handle)
    channel.publish([_delta(number) for number in range(5)])
    await channel.drain()
    require_same(most, 1, "one event at a time")


async def check_a_handler_that_fails_disturbs_nothing(channel: ControlChannelInterface) -> None:
    """It gets the next event all the same, and so do the others."""
    seen: list[Event] = []
    failed: list[Event] = []

    def fail(event: Event) -> None:
        failed.append(event)
        raise ValueError("a handler failed")

    channel.subscribe(fail)
    channel.subscribe(seen.append)
    channel.publish([_delta(0), _delta(1)])
    await channel.drain()
    require_same(_offsets(failed), [0, 1], "it gets its next event")
    require_same(_offsets(seen), [0, 1], "others get everything")


async def check_a_handler_can_ask_for_one_kind_and_leave(channel: ControlChannelInterface) -> None:
    """`on` filters; the function that it returns ends it."""
    seen: list[Event] = []
    leave = channel.on(TextDelta, seen.append)
    channel.publish([StatusChanged(status=Idle()), _delta(0)])
    leave()
    channel.publish([_delta(1)])
    await channel.drain()
    require_same(_offsets(seen), [0], "one kind, until it left")
    require_same(len(seen), 1, "no other kind")


async def check_publishing_does_not_wait_but_says_when_to(channel: ControlChannelInterface) -> None:
    """A handler that is far behind is waited for in `wait_for_space`, and misses nothing."""
    gate = asyncio.Event()
    seen: list[Event] = []

    async def handle(event: Event) -> None:
        await gate.wait()
        seen.append(event)

    channel.subscribe(handle)
    require(channel.has_space, "there is space at first")
    channel.publish([_delta(number) for number in range(_MANY)])
    require_same(seen, [], "publishing does not wait for a handler")
    require(not channel.has_space, "a handler that is far behind leaves no space")
    waiting = asyncio.ensure_future(channel.wait_for_space())
    await other_tasks()
    require(not waiting.done(), "there is no space while the handler stands still")
    gate.set()
    await waiting
    await channel.drain()
    require_same(len(seen), _MANY, "nothing was lost")


async def check_commands_reach_the_receiver(channel: ControlChannelInterface) -> None:
    """At once; without a receiver there is an error, and no command is lost unnoticed."""
    command = AbortQuery(id=new_command_id())
    _require_closed(lambda: channel.submit(command), "without a receiver")
    received: list[Command] = []
    channel.receiver = received.append
    channel.submit(command)
    require_same(received, [command], "the receiver has it")


async def check_closing_delivers_and_ends(channel: ControlChannelInterface) -> None:
    """What was published is delivered; nothing can be published or submitted afterwards."""
    seen: list[Event] = []

    async def handle(event: Event) -> None:
        await other_tasks()
        seen.append(event)

    channel.receiver = lambda _: None
    channel.subscribe(handle)
    channel.publish([_delta(number) for number in range(5)])
    await channel.close()
    require_same(_offsets(seen), list(range(5)), "what was published is delivered")
    _require_closed(lambda: channel.publish([_delta(9)]), "publishing after the close")
    command = AbortQuery(id=new_command_id())
    _require_closed(lambda: channel.submit(command), "a command after the close")


async def check_a_subscription_that_is_pulled_gets_every_batch(
    channel: ControlChannelInterface,
) -> None:
    """From when it is attached until it is detached; the channel's end is its own."""
    pulled: Subscription[Event] = Subscription()
    channel.publish([_delta(0)])
    detach = channel.attach(pulled)
    channel.publish([_delta(1), _delta(2)])
    require_same(_offsets(await pulled.next_batch()), [1, 2], "what is published while attached")
    detach()
    channel.publish([_delta(3)])
    pulled.end()
    require_same(_offsets(await pulled.next_batch()), [], "nothing once it is detached")


async def check_a_wait_for_space_can_be_given_up(channel: ControlChannelInterface) -> None:
    """A query that is stopped waits for no handler, and neither does one that is excused."""
    gate = asyncio.Event()

    async def handle(_: Event) -> None:
        await gate.wait()

    channel.subscribe(handle)
    channel.publish([_delta(number) for number in range(_MANY)])
    stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(channel.wait_for_space(unless=(stopped,)))
    await other_tasks()
    require(not waiting.done(), "there is no space while the handler stands still")
    stopped.set_result(None)
    await waiting
    gate.set()
    await channel.drain()


async def check_an_excused_handler_is_not_waited_for(channel: ControlChannelInterface) -> None:
    """It waits for the publisher itself, and both would wait for ever."""
    gate = asyncio.Event()

    async def handle(_: Event) -> None:
        channel.excuse()
        await gate.wait()

    channel.subscribe(handle)
    channel.publish([_delta(number) for number in range(_MANY)])
    await other_tasks()
    await channel.wait_for_space()
    gate.set()
    await channel.drain()


def _require_closed(attempt: Callable[[], None], what: str) -> None:
    try:
        attempt()
    except SessionError as error:
        require_same(error.code, ErrorCode.CLOSED, f"{what} is CLOSED")
    else:
        require(condition=False, promise=f"{what} raises CLOSED")


async def control_channel_contract(make: Callable[[], ControlChannelInterface]) -> Report:
    """Check a control channel; `make` returns a new one."""
    return await run_contract(__name__, make)
