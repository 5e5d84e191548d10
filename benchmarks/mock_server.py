"""A fast loopback mock provider in a process of its own: Messages, Chat Completions, Responses.

The model name of a request says what is answered (`benchmarks.script`). The standard library
alone, and uvloop where it is installed. `GET /__stats__` gives the counters as JSON.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from benchmarks.frames import Reply, stamp, text_reply, tool_reply
from benchmarks.script import Api, Script, parse_model

API_OF_PATH: dict[str, Api] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
}
STATS_PATH = "/__stats__"

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_MODEL = re.compile(rb'"model"\s*:\s*"([^"]+)"')
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_ERROR_TYPE = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\nrequest-id: req_bench\r\n\r\n"
)


@dataclass(slots=True)
class Counters:
    """What the server has seen."""

    requests: int = 0
    open_connections: int = 0
    by_path: Counter[str] = field(default_factory=Counter)
    by_model: Counter[str] = field(default_factory=Counter)
    disconnects: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=1000))
    arrived: dict[str, float] = field(default_factory=dict)
    """When a request for a model first came, by its name."""

    def to_json(self) -> bytes:
        """Encode for `GET /__stats__`, without the connection that asks."""
        disconnects = [{"at": at, "mid_reply": mid_reply} for at, mid_reply in self.disconnects]
        fields = {
            "requests": self.requests,
            "open_connections": self.open_connections - 1,
            "by_path": self.by_path,
            "disconnects": disconnects,
            "arrived": self.arrived,
            "clock": time.monotonic(),
        }
        return json.dumps(fields).encode()


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection: takes one request after the other and writes its answer."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._buffer = bytearray()
        self._is_replying = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection in."""
        # uvloop's transports do not inherit asyncio's classes.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._counters.open_connections += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio passes it
        """Count the connection out, note when, and whether an answer was under way."""
        self._counters.open_connections -= 1
        self._counters.disconnects.append((time.monotonic(), self._is_replying))
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Collect bytes and answer what is complete."""
        self._buffer += data
        self._answer_next()

    def _answer_next(self) -> None:
        while not self._is_replying:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[: end + 2])
            length = _LENGTH.search(head)
            body_end = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < body_end:
                return
            body = bytes(self._buffer[end + 4 : body_end])
            del self._buffer[:body_end]
            self._answer(head.split(b" ", 2)[1].partition(b"?")[0].decode(), body)

    def _answer(self, path: str, body: bytes) -> None:
        if path == STATS_PATH:
            self._write_json(200, self._counters.to_json())
            return
        api, model = API_OF_PATH.get(path), _MODEL.search(body)
        self._counters.requests += 1
        self._counters.by_path[path] += 1
        if api is None or model is None or not _STREAM.search(body):
            self._write_error(replace(Script(), status=400 if api else 404), "unusable request")
            return
        name = model[1].decode()
        self._counters.by_model[name] += 1
        self._counters.arrived.setdefault(name, time.monotonic())
        try:
            script = parse_model(name)
        except TypeError as error:
            self._write_error(replace(Script(), status=400), str(error))
            return
        has_recovered = (
            script.failing is not None and self._counters.by_model[name] > script.failing
        )
        if script.is_faulty and not has_recovered:
            self._fail(api, script)
        else:
            self._reply(self._choose(api, script, body), script)

    def _choose(self, api: Api, script: Script, body: bytes) -> Reply:
        if script.tools and tool_results(api, body) < script.tools:
            return tool_reply(api, self._counters.requests)
        return text_reply(api, script)

    def _reply(self, reply: Reply, script: Script) -> None:
        number = self._counters.requests
        if script.delay and reply.deltas:
            self._is_replying = True
            self._transport.write(_STREAM_HEAD + stamp(reply.opening, number))
            start = asyncio.get_running_loop().time()
            self._pace(
                iter((*reply.deltas, stamp(reply.closing, number))), script.delay / 1e6, start
            )
        else:
            self._transport.write(_STREAM_HEAD)
            self._transport.write(stamp(reply.burst, number))

    def _pace(self, pieces: Iterator[bytes], delay: float, due: float) -> None:
        piece = next(pieces, None)
        if piece is None:
            self._is_replying, self._timer = False, None
            self._answer_next()
            return
        self._transport.write(piece)
        # Absolute times: a late timer does not make the whole stream slower.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(due + delay, self._pace, pieces, delay, due + delay)

    def _fail(self, api: Api, script: Script) -> None:
        if script.status is not None:
            self._write_error(script, "scripted fault")
            return
        self._is_replying = True
        end = script.cut if script.cut is not None else script.stall
        self._transport.write(_STREAM_HEAD + text_reply(api, script).burst[:end])
        if script.cut is not None:
            self._transport.close()

    def _write_error(self, script: Script, message: str) -> None:
        status = script.status or 500
        kind = _ERROR_TYPE.get(status, "invalid_request_error" if status < 500 else "api_error")
        error = {"type": "error", "error": {"type": kind, "message": message, "code": kind}}
        retry = "" if script.retry is None else f"retry-after: {script.retry}\r\n"
        self._write_json(status, json.dumps(error).encode(), extra=retry)

    def _write_json(self, status: int, body: bytes, *, extra: str = "") -> None:
        head = (
            f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\n{extra}"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._transport.write(head.encode() + body)


def tool_results(api: Api, body: bytes) -> int:
    """Count the tool results after the last prompt in a request, so that no memory is needed."""
    request = json.loads(body)
    messages = request["input" if api == "responses" else "messages"]
    count = 0
    for message in reversed(messages if isinstance(messages, list) else []):
        if message.get("type") == "function_call_output" or message.get("role") == "tool":
            count += 1
        elif message.get("role") == "user":
            found = _result_blocks(message["content"])
            if not found:
                break
            count += found
    return count


def _result_blocks(content: str | list[dict[str, object]]) -> int:
    blocks = content if isinstance(content, list) else []
    return sum(block.get("type") == "tool_result" for block in blocks)


async def serve() -> None:
    """Listen on a free loopback port, say which, and serve until standard input ends."""
    loop = asyncio.get_running_loop()
    counters = Counters()
    server = await loop.create_server(lambda: Connection(counters), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def running_server() -> Iterator[str]:
    """Run the server in a process of its own; gives its base URL, without a path."""
    command = [sys.executable, "-m", "benchmarks.mock_server"]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            # Leaving the block closes its standard input, which ends it even if this fails.
            process.terminate()


def main() -> None:
    """Serve on the fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve())
    else:
        uvloop.run(serve())


if __name__ == "__main__":
    main()
