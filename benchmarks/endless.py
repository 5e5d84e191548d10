"""Hostile answers: peak memory for an answer without end, and work per byte of a stream's lines.

Run it with `python -m benchmarks.endless`. Nothing is timed: memory is what `tracemalloc` sees at
its peak, as a multiple of the text that came, and work is the number of bytes copied per byte that
came. The peer is a transport in this process that never ends an answer by itself.
"""

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import suppress

from haptera import Agent, AgentError, Limits, RetrySettings
from haptera.providers.transport.protocol import HttpRequest
from haptera.providers.transport.sse import SseParser

_LIMITS = Limits()
WORD = "endless "
READ = 16 * 1024
"""About how many bytes come in one read."""

PROTOCOLS = {
    "anthropic": "anthropic/claude-sonnet-5",
    "chat": "openai-chat/gpt-5",
    "responses": "openai/gpt-5",
    "gemini": "gemini/gemini-2.5-pro",
    "ollama": "ollama/qwen3",
}

_CHAT = 'data: {"id":"c","choices":[{"index":0,"delta":%s}]}\n\n'
_GEMINI = 'data: {"candidates":[{"content":{"parts":[%s]}}]}\n\n'
_BLOCK = 'event: content_block_start\ndata: {"type":"content_block_start","index":0,%s}\n\n'
_GROWS = 'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":%s}\n\n'
_CALL = '"content_block":{"type":"%s","id":"call_1","name":"work","input":{}}'
_ITEM = 'data: {"type":"response.output_item.added","output_index":0,"item":%s}\n\n'
_PIECE = 'data: {"type":"response.%s.delta","output_index":0,"delta":"endless "}\n\n'
_LINE = '{"model":"x","message":%s}\n'

_FRAMES: dict[tuple[str, str], tuple[str, str]] = {
    ("anthropic", "text"): (
        _BLOCK % '"content_block":{"type":"text","text":""}',
        _GROWS % '{"type":"text_delta","text":"endless "}',
    ),
    ("anthropic", "reasoning"): (
        _BLOCK % '"content_block":{"type":"thinking","thinking":""}',
        _GROWS % '{"type":"thinking_delta","thinking":"endless "}',
    ),
    ("anthropic", "arguments"): (
        _BLOCK % (_CALL % "tool_use"),
        _GROWS % '{"type":"input_json_delta","partial_json":"endless "}',
    ),
    ("anthropic", "unshown"): (
        _BLOCK % (_CALL % "server_tool_use"),
        _GROWS % '{"type":"input_json_delta","partial_json":"endless "}',
    ),
    ("chat", "text"): (_CHAT % '{"content":""}', _CHAT % '{"content":"endless "}'),
    ("chat", "reasoning"): (_CHAT % "{}", _CHAT % '{"reasoning_content":"endless "}'),
    ("chat", "arguments"): (
        _CHAT % '{"tool_calls":[{"index":0,"id":"a","function":{"name":"work"}}]}',
        _CHAT % '{"tool_calls":[{"index":0,"function":{"arguments":"endless "}}]}',
    ),
    ("chat", "unshown"): (_CHAT % "{}", _CHAT % '{"refusal":"endless "}'),
    ("responses", "text"): (
        _ITEM % '{"type":"message","id":"m"}',
        _PIECE % "output_text",
    ),
    ("responses", "reasoning"): (
        _ITEM % '{"type":"reasoning","id":"r"}',
        _PIECE % "reasoning_text",
    ),
    ("responses", "arguments"): (
        _ITEM % '{"type":"function_call","id":"f","call_id":"a","name":"work"}',
        _PIECE % "function_call_arguments",
    ),
    ("responses", "unshown"): (_ITEM % '{"type":"message","id":"m"}', _PIECE % "refusal"),
    ("gemini", "text"): ("", _GEMINI % '{"text":"endless "}'),
    ("gemini", "reasoning"): ("", _GEMINI % '{"text":"endless ","thought":true}'),
    ("gemini", "arguments"): (
        _GEMINI % '{"functionCall":{"name":"work","willContinue":true}}',
        _GEMINI % '{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"endless ",'
        '"willContinue":true}],"willContinue":true}}',
    ),
    ("ollama", "text"): ("", _LINE % '{"content":"endless "}'),
    ("ollama", "reasoning"): ("", _LINE % '{"thinking":"endless "}'),
}


def has_frames(kind: str) -> Callable[[str], bool]:
    """Return whether a protocol can go on without end in this way."""
    return lambda protocol: (protocol, kind) in _FRAMES


KINDS = {kind: has_frames(kind) for kind in ("text", "reasoning", "arguments", "unshown")}


class EndlessReply:
    """A reply that goes on, until enough characters came if there is such a number."""

    status = 200

    def __init__(self, transport: "EndlessTransport", frames: tuple[bytes, bytes]) -> None:
        self._transport = transport
        opening, delta = frames
        self._words = max(1, READ // len(delta))
        self._next = opening
        self._batch = delta * self._words
        is_lines = transport.protocol == "ollama"
        kind = "application/x-ndjson" if is_lines else "text/event-stream"
        self.headers: Mapping[str, str] = {"content-type": kind}

    async def read(self) -> bytes:
        """Return the next words at once."""
        transport = self._transport
        if transport.enough is not None and transport.characters >= transport.enough:
            return b""
        await asyncio.sleep(0)
        data, self._next = self._next or self._batch, self._batch
        if data is self._batch:
            transport.characters += self._words * len(WORD)
        transport.sent += len(data)
        return data

    async def drain(self) -> None:
        """Do nothing: it never ends."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


class EndlessTransport:
    """Answers every request with the same words, again and again."""

    def __init__(self, protocol: str, kind: str, *, enough: int | None = None) -> None:
        self.protocol = protocol
        self.enough = enough
        self.requests = self.characters = self.sent = 0
        opening, delta = _FRAMES[protocol, kind]
        self._frames = opening.encode(), delta.encode()

    async def send(self, request: HttpRequest) -> EndlessReply:  # noqa: ARG002 - a Transport has it
        """Begin to answer."""
        self.requests += 1
        return EndlessReply(self, self._frames)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def agent_on(transport: EndlessTransport, protocol: str, *, limits: Limits = _LIMITS) -> Agent:
    """Return an agent that talks to an endless peer, cut off from the machine."""
    return Agent(
        PROTOCOLS[protocol],
        api_key="key-that-is-made-up",
        transport=lambda: transport,
        environment={},
        retry=RetrySettings(max_retries=0, interruption_retries=0),
        limits=limits,
    )


async def peak_of(protocol: str, kind: str, *, characters: int) -> tuple[int, int]:
    """Return how many characters came, and the bytes that were held at the peak meanwhile."""
    async with agent_on(EndlessTransport(protocol, kind, enough=1), protocol) as agent:
        with suppress(AgentError):
            await agent.run("the first answer loads modules")
    transport = EndlessTransport(protocol, kind, enough=characters)
    async with agent_on(transport, protocol) as agent:
        gc.collect()
        tracemalloc.start()
        try:
            with suppress(AgentError):
                await agent.run("go")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    return transport.characters, peak


def work_per_byte(line: bytes, *, step: int, total: int) -> float:
    """Return how many bytes are copied for each byte of a frame of such lines that never ends."""
    parser = SseParser(takes_json_blocks=True)
    body = line * (total // len(line) + 1)
    for start in range(0, len(body), step):
        parser.feed(body[start : start + step], [])
    return parser.copied / len(body)


def main() -> int:
    """Print both tables."""
    characters = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20
    print("| protocol | kind | characters | peak bytes | multiple |\n|---|---|---|---|---|")
    for protocol, kind in _FRAMES:
        text, peak = asyncio.run(peak_of(protocol, kind, characters=characters))
        print(f"| {protocol} | {kind} | {text} | {peak} | {peak / text:.1f} |", flush=True)
    print("\n| lines of a frame | bytes a read | copied bytes per byte |\n|---|---|---|")
    for size in (1, 8, 1 << 20):
        for step in (1, 8, 64, 16 * 1024):
            line = b"x" * (size - 1) + b"\n" if size > 1 else b":\n"
            total = (1 << 18) if step < 64 else (1 << 21)
            work = work_per_byte(line, step=step, total=total)
            print(f"| {size} | {step} | {work:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
