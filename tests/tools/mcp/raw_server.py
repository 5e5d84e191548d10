"""An MCP server on the raw protocol, one JSON message a line: well-behaved, or hostile on demand.

python raw_server.py MODE [FILE]: what it is told about (cancellations, answers) goes to the file.
"""

import base64
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
LOG = sys.argv[2] if len(sys.argv) > 2 else os.devnull
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
EVIL = "Adds\x1b[31m red\x1b]0;title\x07 text\u202e\u200b\x08\U000e0041"

waiting: dict[Any, Callable[[dict[str, Any]], None]] = {}
extra: list[str] = []
lock = threading.Lock()


def send(**message: Any) -> None:
    with lock:
        if MODE == "garbage":
            sys.stdout.write("this is no message\n{\n\n")
        line = json.dumps({"jsonrpc": "2.0", **message})
        sys.stdout.write(line.replace('"DEEP"', endlessly_deep(5000)) + "\n")
        sys.stdout.flush()


def note(text: str) -> None:
    with Path(LOG).open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def tool(name: str, *, schema: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"The tool {name}",
        "inputSchema": schema or {"type": "object", "properties": {}},
        **more,
    }


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"inner": schema}}
    return schema


def endlessly_deep(levels: int) -> str:
    """Write a schema that is too deep for the encoder, with quotes that look like its end."""
    begin = '{"type": "object", "title": "]}\\\\\\"}", "properties": {"inner": '
    return begin * levels + "{}" + "}}" * levels


def tools() -> list[dict[str, Any]]:
    if MODE == "invalid":
        return [tool("echo"), tool("list", schema={"type": "array"})]
    if MODE == "deep":
        return [tool("before"), tool("deep", schema=deep(150)), tool("deeper", schema={
            "type": "object", "properties": {"inner": "DEEP"},
        }), tool("after")]  # fmt: skip
    if MODE == "hostile":
        wide = {f"field{number}": {"type": "string"} for number in range(5000)}
        return [
            tool("shell"),
            tool("shell", description="the same name again"),
            tool("huge", schema={"type": "object", "properties": wide}),
            tool("deep", schema=deep(30)),
            tool("a.b/c d"),
            tool("a_b_c_d"),
            tool("x" * 300),
            tool("evil", schema={
                "type": "object",
                "properties": {"text": {"type": "string", "description": EVIL}},
            }) | {"description": EVIL + "y" * 20_000},
        ]  # fmt: skip
    names = ("echo", "fail", "media", "structured", "steps", "slow", "crash", "big", "ask")
    more = ("sample", "change", "environment", "binary", "open_page")
    return [
        *(tool(name) for name in (*names, *more, *extra)),
        tool("look", annotations={"readOnlyHint": True}),
        tool("store", annotations={"openWorldHint": False, "idempotentHint": True}),
    ]


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


MEDIA = [
    {"type": "text", "text": "see"},
    {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"},
    {"type": "image", "data": "no base64!", "mimeType": "image/png"},
    {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
    {
        "type": "resource",
        "resource": {"uri": "file:///b", "blob": PIXEL, "mimeType": "application/zip"},
    },
    {"type": "resource_link", "uri": "file:///c", "name": "linked", "mimeType": "text/plain"},
]
FORM = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": EVIL},
        "nights": {"type": "integer", "default": 2},
    },
    "required": ["city"],
}
OUT: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "echo": lambda arguments: text(json.dumps(arguments)),
    "fail": lambda _: text("it went wrong", isError=True),
    "media": lambda _: {"content": MEDIA},
    "structured": lambda _: {"content": [], "structuredContent": {"degrees": 7}},
    "big": lambda _: text("0123456789" * 1_000_000),
    "binary": lambda _: {
        "content": [{"type": "image", "data": "A" * (12 << 20), "mimeType": "image/png"}]
    },
    "environment": lambda _: text(json.dumps(dict(os.environ))),
}  # fmt: skip


def call(number: Any, params: dict[str, Any]) -> None:
    name, arguments = params["name"], params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if name == "steps":
        for step in (1, 2, 3):
            told = {
                "progressToken": token,
                "progress": step,
                "total": 3,
                "message": f"\x1b[1m{step}",
            }
            send(method="notifications/progress", params=told)
        send(id=number, result=text("done"))
    elif name == "slow":
        note(f"slow {number}")  # it is never answered
        send(method="notifications/progress", params={"progressToken": token, "progress": 1})
    elif name == "crash":
        os.write(2, b"about to \x1b[31mcrash\n")
        os._exit(7)
    elif name in {"ask", "open_page"}:
        asked: dict[str, Any] = {"message": "Where to?\x1b[2J"}
        page = {"mode": "url", "url": "https://example.test/pay", "elicitationId": "1"}
        asked |= {"mode": "form", "requestedSchema": FORM} if name == "ask" else page
        ask(number, "elicitation/create", asked)
    elif name == "sample":
        said = {"role": "user", "content": {"type": "text", "text": "hi"}}
        ask(number, "sampling/createMessage", {"messages": [said], "maxTokens": 5})
    elif name == "change":
        extra.append(f"later{len(extra)}")
        for _ in range(arguments.get("times", 1)):
            send(method="notifications/tools/list_changed")
        send(id=number, result=text("changed"))
    elif name in OUT:
        send(id=number, result=OUT[name](arguments))
    else:
        send(id=number, error={"code": -32602, "message": f"no tool {name}\x1b[31m"})


def ask(number: Any, method: str, params: dict[str, Any]) -> None:
    """Ask the client something, and answer the call with what it says."""
    own = f"own-{number}"
    waiting[own] = lambda answer: send(id=number, result=text(json.dumps(answer)))
    send(id=own, method=method, params=params)


def pages(params: dict[str, Any]) -> dict[str, Any]:
    if MODE != "endless":
        return {"tools": tools()}
    page = int(params.get("cursor") or 0)
    note(f"page {page}")
    return {"tools": [tool(f"tool{page}")], "nextCursor": str(page + 1)}


RESOURCES = [{"uri": "memo://one", "name": "one", "mimeType": "text/plain"}]
TEMPLATES = [{"uriTemplate": "memo://{name}", "name": "any"}]
PROMPTS = [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]


CAN = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
ABOUT = {"name": "raw\x1b[31m", "version": "1"}
ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "initialize": lambda _: {
        "protocolVersion": "2025-11-25",
        "capabilities": CAN,
        "serverInfo": ABOUT,
        "instructions": "be kind\x07",
    },
    "tools/list": pages,
    "resources/list": lambda _: {"resources": RESOURCES},
    "resources/templates/list": lambda _: {
        "resourceTemplates": TEMPLATES if MODE != "invalid-templates" else [{"name": 7}]
    },
    "resources/read": lambda params: {"contents": [{"uri": params["uri"], "text": "remember"}]},
    "prompts/list": lambda _: {"prompts": PROMPTS},
    "prompts/get": lambda params: {
        "messages": [
            {
                "role": "user",
                "content": {"type": "text", "text": f"Greet {params['arguments']['who']}."},
            }
        ]
    },
    "ping": lambda _: {},
}


def note_answer(answer: dict[str, Any]) -> None:
    note(f"answered {answer}")


def answer(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method is None:
        heard = waiting.pop(number, note_answer)
        heard(message.get("result") or message.get("error") or {})
    elif method == "tools/call":
        call(number, params)
    elif method in ANSWERS:
        note(method)
        send(id=number, result=ANSWERS[method](params))
    elif method == "notifications/cancelled":
        note(f"cancelled {params.get('requestId')}")
    elif number is not None:
        send(id=number, error={"code": -32601, "message": "Method not found"})


def main() -> None:
    note(f"started {os.getpid()}")
    if MODE == "dies":
        sys.exit("no licence\x1b[31m")
    if MODE == "floods":
        while True:
            sys.stdout.write("garbage\n")
    if MODE == "endless-line":
        while True:
            sys.stdout.write("x" * (1 << 20))
    for line in sys.stdin:
        if MODE != "silent":
            answer(json.loads(line))


if __name__ == "__main__":
    main()
