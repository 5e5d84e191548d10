"""An answer that never ends, or hardly goes on: bounded in size, in memory and in time."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.endless import KINDS, PROTOCOLS, EndlessTransport, agent_on, peak_of
from haptera import AgentError, ErrorCode, Limits, Timeouts
from haptera.kernel.blocks.stream_processor.processor import StreamProcessor
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamPart,
)
from haptera.providers.reply_reader import read_body
from haptera.testing import FakeClock, says
from haptera.testing.clocks import run_seeded
from tests.providers.exchanges import REQUEST, client_for
from tests.providers.faulty_server import Connection, faulty_server
from tests.scripted_agents import failure_of, playing

pytestmark = pytest.mark.slow

CASES = [(protocol, kind) for protocol in PROTOCOLS for kind in KINDS if KINDS[kind](protocol)]
SMALL = 32 * 1024


@pytest.mark.parametrize(("protocol", "kind"), CASES)
async def test_an_answer_that_never_ends_is_stopped_and_what_was_said_is_kept(
    protocol: str, kind: str
) -> None:
    transport = EndlessTransport(protocol, kind)
    limits = Limits(part_characters=SMALL, reply_bytes=64 * SMALL)
    async with agent_on(transport, protocol, limits=limits) as agent:
        error = await failure_of(agent.run("go"))
    assert error.code is ErrorCode.PROTOCOL
    assert not error.retryable
    assert transport.requests == 1
    assert transport.sent < 128 * SMALL
    assert error.result is not None
    if kind == "text":
        assert SMALL < len(error.result.text) < 4 * SMALL


@pytest.mark.parametrize(("protocol", "kind"), CASES)
async def test_a_part_that_streams_takes_a_small_multiple_of_its_text(
    protocol: str, kind: str
) -> None:
    text, peak = await peak_of(protocol, kind, characters=4 * SMALL)
    assert text >= 4 * SMALL
    assert peak < 6 * text


def opened(key: str, kind: Any = "tool_call") -> list[StreamPart]:
    return [PartOpened(key=key, kind=kind, call_id=key, name="work"), PartClosed(key=key)]


END = StreamFinished(kind="stop", reason="stop")
TOO_MUCH: dict[str, tuple[Limits, list[StreamPart]]] = {
    "one part": (Limits(part_characters=10), says("x" * 11)),
    "one part among short ones": (Limits(part_characters=10), [*says("x" * 11)[:-1], *says("y")]),
    "all parts": (
        Limits(answer_characters=10),
        [*says("x" * 6)[:-1], PartOpened(key="b", kind="text"), PartDelta(key="b", text="y" * 6)],
    ),
    "a provider's own part": (Limits(part_characters=10), [PartOpaque(payload={"a": "x" * 9})]),
    "a signature": (
        Limits(part_characters=10),
        [PartOpened(key="a", kind="reasoning"), PartClosed(key="a", signature="x" * 11)],
    ),
    "the number of parts": (Limits(answer_parts=2), [PartOpaque(payload={})] * 3),
    "the number of calls": (Limits(answer_parts=2), [*opened("a"), *opened("b"), *opened("c")]),
    "a name": (Limits(part_characters=10), opened("x" * 11)),
}


@pytest.mark.parametrize("limits_and_parts", TOO_MUCH.values(), ids=TOO_MUCH)
async def test_whatever_an_answer_has_too_much_of_is_refused_even_when_it_ends(
    limits_and_parts: tuple[Limits, list[StreamPart]],
) -> None:
    limits, parts = limits_and_parts
    async with playing([[parts, [END]]], limits=limits) as (session, _):
        error = await failure_of(session.chat("go"))
    assert error.code is ErrorCode.PROTOCOL
    assert "more than" in error.message


async def test_text_that_is_as_long_as_the_limits_is_an_answer() -> None:
    limits = Limits(part_characters=5, answer_characters=5, answer_parts=1)
    async with playing([says("exact")], limits=limits) as (session, _):
        assert (await session.chat("go")).text == "exact"


async def test_the_calls_of_an_answer_that_holds_too_much_are_not_run() -> None:
    ran: list[str] = []

    def work() -> str:
        """Work."""
        ran.append("work")
        return "done"

    parts = [*opened("a"), *opened("b"), StreamFinished(kind="tool_calls", reason="x")]
    async with playing([[parts], says("on")], tools=[work], limits=Limits(answer_parts=1)) as (
        session,
        provider,
    ):
        await failure_of(session.chat("go"))
        await session.chat("and now?")
    assert ran == []
    assert "not run" in str(provider.requests[1].messages)


async def test_a_processor_alone_is_bounded_too() -> None:
    processor = StreamProcessor(clock=FakeClock())

    async def endless() -> Any:
        yield [PartOpened(key="a", kind="text")]
        while True:
            yield [PartDelta(key="a", text="x" * (1 << 20))]

    with pytest.raises(AgentError) as caught:
        await processor.process(endless())
    assert caught.value.code is ErrorCode.PROTOCOL


async def test_an_error_whose_body_drips_is_told_in_time() -> None:
    async def drips(connection: Connection) -> None:
        await connection.head(429, {"content-type": "application/json"})
        while True:
            await connection.piece(b" ")
            await asyncio.sleep(0.02)  # noqa: TID251 - a server of its own, on real sockets

    limits = Timeouts(connect=5, first_byte=5, between_bytes=5, content=0.2)
    async with faulty_server(drips) as server:
        client = client_for(server.url)
        async with asyncio.timeout(30):
            with pytest.raises(AgentError) as caught:
                async for _ in client.stream(_request(limits)):
                    pass
        await client.close()
    assert (caught.value.code, caught.value.status) == (ErrorCode.RATE_LIMITED, 429)


def _request(timeouts: Timeouts) -> Any:
    return replace(REQUEST, timeouts=timeouts)


class Drip:
    """A reply of which one byte comes every second, in virtual time."""

    status = 500

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.bytes = 0

    async def read(self) -> bytes:
        await asyncio.sleep(1)  # noqa: TID251 - virtual time
        self.bytes += 1
        return b"x"

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_body_is_read_for_so_long_and_no_longer() -> None:
    reply = Drip()
    assert run_seeded(lambda: read_body(reply, seconds=4.5), seed=1) == b"xxxx"
    assert reply.bytes == 4
