"""A provider on loopback that speaks three protocols and says what its script tells it to.

Anthropic Messages, OpenAI Responses and OpenAI Chat Completions, each streamed. Requests that
offer tools are the turns of a session and take the next reply of the script; others (a tool that
asks for a title) get a fixed answer. Every request is kept.
"""

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

MODEL = "made-up-1"


class Reply(NamedTuple):
    """What the model says in one turn."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Names of tools, with arguments."""
    reasoning: str = ""


class Request(NamedTuple):
    """What a tool sent."""

    path: str
    body: dict[str, Any]

    @property
    def is_turn(self) -> bool:
        """Whether it is a turn of the session: only those offer tools."""
        return bool(self.body.get("tools"))

    @property
    def text(self) -> str:
        """The body as JSON, to search in."""
        return json.dumps(self.body, ensure_ascii=False)


class LoopbackProvider(http.server.ThreadingHTTPServer):
    """Serves the script and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, script: Sequence[Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = list(script)
        self.requests: list[Request] = []
        self.replies = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def turns(self) -> list[Request]:
        """The requests that were turns of a session."""
        return [request for request in self.requests if request.is_turn]

    def answer(self, request: Request) -> tuple[int, Reply]:
        """Return the number of the reply and the reply itself."""
        with self.lock:
            self.requests.append(request)
            self.replies += 1
            if not request.is_turn:
                return self.replies, Reply("A title")
            return self.replies, self.script.pop(0) if self.script else Reply("The script is over.")


class _Handler(http.server.BaseHTTPRequestHandler):
    server: LoopbackProvider

    def log_message(self, *args: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        self.server.requests.append(Request(self.path, {}))
        self._send(json.dumps({"object": "list", "data": [{"id": MODEL}]}), "application/json")

    def do_HEAD(self) -> None:
        self._send("", "text/plain")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self.server.requests.append(Request(self.path, body))
            self._send('{"input_tokens": 10}', "application/json")
            return
        events = next((make for end, make in _PROTOCOLS.items() if path.endswith(end)), None)
        if events is None:
            self.server.requests.append(Request(self.path, body))
            self._send("{}", "application/json")
            return
        number, reply = self.server.answer(Request(self.path, body))
        if path.endswith("/messages") and not body.get("stream"):
            self._send(json.dumps(_whole_message(number, reply)), "application/json")
            return
        self._send("".join(events(number, reply)), "text/event-stream")

    def _send(self, content: str, kind: str) -> None:
        raw = content.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)


@contextmanager
def serving(*script: Reply) -> Iterator[LoopbackProvider]:
    """Serve a script on a free port until the block is left."""
    provider = LoopbackProvider(script)
    thread = threading.Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        provider.shutdown()
        thread.join()
        provider.server_close()


def _sse(data: dict[str, Any], *, named: bool = True) -> str:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n"


def _blocks(number: int, reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": "c2VhbA=="})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for place, (name, arguments) in enumerate(reply.calls):
        call_id = f"toolu_{number}_{place}"
        blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
    return blocks


def _whole_message(number: int, reply: Reply) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": _blocks(number, reply),
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def _anthropic(number: int, reply: Reply) -> Iterator[str]:
    whole = _whole_message(number, reply)
    begun = {**whole, "content": [], "stop_reason": None}
    yield _sse({"type": "message_start", "message": begun})
    for index, block in enumerate(whole["content"]):
        empty, deltas = _deltas(block)
        yield _sse({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _sse({"type": "content_block_delta", "index": index, "delta": delta})
        yield _sse({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _sse({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}})
    yield _sse({"type": "message_stop"})


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        return {**block, "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    arguments = json.dumps(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]


def _responses(number: int, reply: Reply) -> Iterator[str]:
    response: dict[str, Any] = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": MODEL,
        "status": "in_progress",
        "output": [],
    }
    yield _sse({"type": "response.created", "response": response})
    items = list(_items(number, reply))
    for index, item in enumerate(items):
        place = {"output_index": index}
        yield _sse({"type": "response.output_item.added", **place, "item": item})
        if item["type"] == "message":
            delta = {"item_id": item["id"], "content_index": 0, "delta": reply.text}
            yield _sse({"type": "response.output_text.delta", **place, **delta})
        yield _sse({"type": "response.output_item.done", **place, "item": item})
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    done = {**response, "status": "completed", "output": items, "usage": usage}
    yield _sse({"type": "response.completed", "response": done})


def _items(number: int, reply: Reply) -> Iterator[dict[str, Any]]:
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "content": []}
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        yield {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    for place, (name, arguments) in enumerate(reply.calls):
        yield {
            "type": "function_call",
            "id": f"fc_{number}_{place}",
            "call_id": f"call_{number}_{place}",
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }


def _chat(number: int, reply: Reply) -> Iterator[str]:
    base = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _sse({**base, "choices": [choice]}, named=False)

    yield chunk({"role": "assistant", "content": ""})
    if reply.reasoning:
        yield chunk({"reasoning_content": reply.reasoning})
    if reply.text:
        yield chunk({"content": reply.text})
    for place, (name, arguments) in enumerate(reply.calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call_id = f"call_{number}_{place}"
        call = {"index": place, "id": call_id, "type": "function", "function": function}
        yield chunk({"tool_calls": [call]})
    yield chunk({}, "tool_calls" if reply.calls else "stop")
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    yield _sse({**base, "choices": [], "usage": usage}, named=False)
    yield "data: [DONE]\n\n"


_PROTOCOLS = {"/messages": _anthropic, "/responses": _responses, "/chat/completions": _chat}
