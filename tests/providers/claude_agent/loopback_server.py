"""An Anthropic server on loopback whose answers are chosen by keywords in the last prompt.

`say X` answers X; `call NAME {json}` calls a tool, and says `Done.` when it has the result;
`slow X` streams X and then waits until the test lets it go on; `fail N` answers with an HTTP
status. A request to summarise, as `/compact` makes it, gets a summary. Every request is kept.
"""

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_COMMAND = re.compile(r"(?:^|: )(say|call|slow|fail(?= \d)) (.+)$", re.MULTILINE)


class LoopbackServer(http.server.ThreadingHTTPServer):
    """Serves answers and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.streaming = threading.Event()
        """Set when the first half of a slow answer is out."""
        self.go_on = threading.Event()
        self.count = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def last(self) -> str:
        """The conversation of the last request, as JSON."""
        return json.dumps(self.requests[-1]["messages"], ensure_ascii=False)


@contextmanager
def serving() -> Iterator[LoopbackServer]:
    """Serve on a free port until the block is left."""
    server = LoopbackServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: LoopbackServer

    def log_message(self, *args: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        self._send(200, b"{}", "application/json")

    def do_HEAD(self) -> None:
        self._send(200, b"", "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if not self.path.partition("?")[0].endswith("/messages"):
            self._send(200, b'{"input_tokens": 10}', "application/json")
            return
        self.server.requests.append(body)
        self.server.count += 1
        command, argument = _command_in(body)
        if command == "fail":
            status = int(argument.split()[0])
            kind = "authentication_error" if status == 401 else "api_error"
            error = {"type": "error", "error": {"type": kind, "message": f"made up {status}"}}
            self._send(status, json.dumps(error).encode(), "application/json")
            return
        blocks = _blocks(self.server.count, command, argument)
        if not body.get("stream"):
            whole = _message(self.server.count, blocks)
            self._send(200, json.dumps(whole).encode(), "application/json")
            return
        self._stream(blocks, slow=command == "slow")

    def _stream(self, blocks: list[dict[str, Any]], *, slow: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        try:
            for frame in _frames(self.server.count, blocks):
                self.wfile.write(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode())
                self.wfile.flush()
                if slow and frame["type"] == "content_block_delta":
                    self.server.streaming.set()
                    self.server.go_on.wait()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the caller hung up, as an interrupted one does
        self.close_connection = True

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _command_in(body: dict[str, Any]) -> tuple[str, str]:
    message = body["messages"][-1]
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if any(block["type"] == "tool_result" for block in blocks):
        return "say", "Done."
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    said = "\n".join(each for each in texts if not each.startswith("<system-reminder>")).strip()
    if "summary" in said.lower() and "conversation so far" in said.lower():
        return "say", "<summary>They talked.</summary>"
    if "<so-far>" in said and "[pay" in said:
        return "say", "Paid already."  # a model that does as it is told
    found = _COMMAND.findall(said)
    return found[-1] if found else ("say", "Hm.")


def _blocks(number: int, command: str, argument: str) -> list[dict[str, Any]]:
    if command != "call":
        return [{"type": "text", "text": argument.strip()}]
    name, _, arguments = argument.partition(" ")
    call = {"id": f"toolu_{number}", "name": name, "input": json.loads(arguments)}
    return [{"type": "tool_use", **call}]


def _message(number: int, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    calls = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-6",
        "content": blocks,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def _frames(number: int, blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    whole = _message(number, blocks)
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}
