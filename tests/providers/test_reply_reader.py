"""The reader of a reply: how long a provider may keep the line open without saying anything."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.providers.reply_reader import ReplyReader
from holdfast.providers.wire.anthropic_messages import PROTOCOL
from holdfast.testing.clocks import run_seeded
from holdfast.vocabulary.errors import ErrorCode
from tests.providers.exchanges import case

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


def read_all(pieces: Sequence[tuple[float, bytes]], *, busy_seconds: float) -> ErrorCode | None:
    """Read a reply with a patience of ten seconds, and do something else after each piece."""

    async def read() -> ErrorCode | None:
        reader = ReplyReader(PROTOCOL, SlowReply(pieces), content_seconds=10)
        while not reader.is_finished and reader.failure is None:
            await reader.next_parts()
            await asyncio.sleep(busy_seconds)  # noqa: TID251 - virtual time
        return reader.failure.code if reader.failure else None

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
