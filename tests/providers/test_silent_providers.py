"""How long a provider may keep the line open without saying anything."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.settings import Timeouts
from haptera.providers.client import ProviderEndpoint, WireModelClient
from haptera.providers.transport.protocol import HttpRequest
from haptera.providers.wire.anthropic_messages import PROTOCOL
from haptera.testing.clocks import run_seeded
from tests.providers.exchanges import REQUEST, case

TEXT = case("text")
BEGUN = TEXT[: TEXT.index(b"event: content_block_stop")]
REST = TEXT[len(BEGUN) :]
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class SlowReply:
    """A reply whose pieces come at their time, in virtual seconds."""

    status = 200

    def __init__(self, pieces: Sequence[tuple[float, bytes]]) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self._pieces = iter(pieces)

    async def read(self) -> bytes:
        seconds, data = next(self._pieces, (0.0, b""))
        await asyncio.sleep(seconds)  # noqa: TID251 - virtual time
        return data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


class SlowTransport:
    """A transport that answers every request with one slow reply."""

    def __init__(self, reply: SlowReply) -> None:
        self._reply = reply

    async def send(self, request: HttpRequest) -> SlowReply:
        return self._reply

    async def close(self) -> None:
        pass


def read_all(pieces: Sequence[tuple[float, bytes]], *, busy_seconds: float) -> ErrorCode | None:
    """Read a reply with a time limit of ten seconds, and do something else after each piece."""
    client = WireModelClient(
        provider="p",
        protocol=PROTOCOL,
        endpoint=ProviderEndpoint(base_url="http://127.0.0.1"),
        tokens=None,
        transport=SlowTransport(SlowReply(pieces)),
    )

    async def read() -> ErrorCode | None:
        try:
            async for _ in client.stream(replace(REQUEST, timeouts=Timeouts(content=10.0))):
                await asyncio.sleep(busy_seconds)  # noqa: TID251 - virtual time
        except AgentError as error:
            return error.code
        return None

    return run_seeded(read, seed=1)


@pytest.mark.parametrize(
    ("pings", "code"), [([4.0, 4.0], None), ([4.0, 4.0, 4.0], ErrorCode.TIMEOUT)]
)
def test_pings_without_content_are_waited_for_so_long(
    pings: list[float], code: ErrorCode | None
) -> None:
    pieces = [(0.0, BEGUN), *((seconds, PING) for seconds in pings), (1.0, REST)]
    assert read_all(pieces, busy_seconds=0) == code


def test_the_time_between_two_reads_is_not_the_provider_s() -> None:
    assert read_all([(0.0, BEGUN), (1.0, PING), (1.0, REST)], busy_seconds=100) is None
