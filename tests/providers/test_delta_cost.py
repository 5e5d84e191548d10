"""What a text delta that is alone in its read costs in the providers: calls, counted and not timed.

Bytes come from a reply that never waits, so that the count holds no call of an event loop or of the
HTTP client. Over a real connection three more belong to each read: the reply's own `read`, and that
one and the client's `stream` again, when they are resumed.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from haptera.providers.client import ProviderEndpoint, WireModelClient
from haptera.providers.transport.protocol import HttpRequest
from haptera.testing.decode_reply import PROTOCOLS
from tests.providers.exchanges import REQUEST

FEW, MANY = 100, 300


def anthropic(count: int) -> list[bytes]:
    delta = {"type": "text_delta", "text": "word "}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
        *[{"type": "content_block_delta", "index": 0, "delta": delta}] * count,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]


def chat(count: int) -> list[bytes]:
    def frame(delta: dict[str, str], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return f"data: {json.dumps({'id': 'c', 'choices': [choice]})}\n\n".encode()

    return [*[frame({"content": "word "})] * (count + 1), frame({}, "stop")]


def responses(count: int) -> list[bytes]:
    delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r"}},
        *[{**delta, "delta": "word "}] * (count + 1),
        {"type": "response.completed", "response": {"id": "r", "status": "completed"}},
    ]
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]


def gemini(count: int) -> list[bytes]:
    content = {"parts": [{"text": "word "}]}
    usage = {"promptTokenCount": 3, "totalTokenCount": 4}
    frame = {"candidates": [{"content": content}], "usageMetadata": usage}
    last = {"candidates": [{"content": content, "finishReason": "STOP"}]}
    frames = [*[frame] * (count + 1), last]
    return [f"data: {json.dumps(each)}\r\n\r\n".encode() for each in frames]


def ollama(count: int) -> list[bytes]:
    lines = [{"message": {"content": "word "}}] * (count + 1)
    return [json.dumps(each).encode() + b"\n" for each in [*lines, {"done": True}]]


class ReadyReply:
    """A reply whose bytes have all arrived, to be read frame by frame."""

    status = 200

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self._frames = iter(frames)

    async def read(self) -> bytes:
        return next(self._frames, b"")

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


class ReadyTransport:
    """A transport that gives one reply."""

    def __init__(self, reply: ReadyReply) -> None:
        self._reply = reply

    async def send(self, request: HttpRequest) -> ReadyReply:
        return self._reply

    async def close(self) -> None:
        pass


class Calls:
    """Counts the calls of functions of the package, by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and "/src/haptera/" in frame.f_code.co_filename:
            self.counts[frame.f_code.co_qualname] += 1

    async def of(self, api: str, frames: Sequence[bytes]) -> "Calls":
        """Count what reading one answer calls."""
        client = WireModelClient(
            provider="p",
            protocol=PROTOCOLS[api],
            endpoint=ProviderEndpoint(base_url="http://127.0.0.1"),
            tokens=None,
            transport=ReadyTransport(ReadyReply(frames)),
        )
        reads = 0
        sys.setprofile(self)
        try:
            async for _ in client.stream(REQUEST):
                reads += 1
        finally:
            sys.setprofile(None)
        assert reads >= len(frames) - 2
        return self


@pytest.mark.parametrize(
    ("api", "frames", "most"),
    [
        ("anthropic-messages", anthropic, 4),
        ("compat-chat", chat, 5),
        ("compat-responses", responses, 6),
        ("gemini-generatecontent", gemini, 8),
        ("ollama-native", ollama, 7),
    ],
)
async def test_a_delta_that_is_alone_in_its_read_costs_few_calls(
    api: str, frames: Callable[[int], list[bytes]], most: int
) -> None:
    few, many = await Calls().of(api, frames(FEW)), await Calls().of(api, frames(MANY))
    growth = many.counts - few.counts
    assert sum(growth.values()) // (MANY - FEW) <= most, growth
