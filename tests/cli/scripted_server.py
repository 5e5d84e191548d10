"""A model behind a real loopback URL whose answers a test writes down: Anthropic Messages, SSE."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Turn:
    """One answer: text in pieces, then tool calls; or an HTTP error."""

    text: str | list[str] = ""
    thinking: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    status: int = 200
    error: str = "scripted"
    """What an HTTP error says."""
    hold: threading.Event | None = None
    """Where given, the answer stops after its first piece until the event is set."""

    @property
    def pieces(self) -> list[str]:
        """The text as it is streamed."""
        return [self.text] if isinstance(self.text, str) else self.text


class ScriptedServer:
    """Answers requests with the turns in their order; the last one is repeated."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        """Those of each request, with names in lower case."""
        self.arrived = threading.Semaphore(0)
        """Released once for each request."""
        self.url = ""
        self.by_word: dict[str, Turn] = {}
        """What is answered when the last message has a word, in whatever order requests come."""

    def next_turn(self, request: dict[str, Any]) -> Turn:
        """Return the answer to a request that has just come."""
        last = json.dumps(request["messages"][-1])
        for word, turn in self.by_word.items():
            if word in last:
                return turn
        return self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]


@contextlib.contextmanager
def scripted_server(*turns: Turn) -> Iterator[ScriptedServer]:
    """Run a server until the block is left."""
    script = ScriptedServer()
    script.turns = list(turns)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            script.headers.append({name.lower(): each for name, each in self.headers.items()})
            request = json.loads(body)
            script.requests.append(request)
            script.arrived.release()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._answer(script.next_turn(request))

        def _answer(self, turn: Turn) -> None:
            if turn.status != 200:
                error = {"type": "error", "error": {"type": "api_error", "message": turn.error}}
                content = json.dumps(error).encode()
                self.send_response(turn.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for number, event in enumerate(_events_of(turn)):
                if turn.hold is not None and number == 3:
                    turn.hold.wait(60)
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield script
    finally:
        for turn in turns:
            if turn.hold is not None:
                turn.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _events_of(turn: Turn) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": message}
    index = 0
    if turn.thinking:
        yield from _block(
            index,
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": turn.thinking},
                {"type": "signature_delta", "signature": "c2ln"},
            ],
        )
        index += 1
    if any(turn.pieces):
        deltas = [{"type": "text_delta", "text": piece} for piece in turn.pieces]
        yield from _block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for name, arguments in turn.calls:
        start = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        yield from _block(index, start, [delta])
        index += 1
    stop = "tool_use" if turn.calls else "end_turn"
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": 5},
    }
    yield {"type": "message_stop"}


def _block(
    index: int, start: dict[str, Any], deltas: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
