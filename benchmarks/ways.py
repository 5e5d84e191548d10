"""Three ways through the package, each traced: a prompt, a tool with approval, an HTTP message.

The models are scripted and the store is the one in memory, so nothing but the package is counted.
"""

import asyncio
import importlib
import json
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.call_trace import CallTrace

PROMPT = '`chat("hi")`'
"""The name of the shortest way."""
_ROUNDS = 6
"""How often each way is gone. The first time warms up; of the others the shortest counts, since a
timer may come between on a busy machine."""
_TOKEN = "token-of-the-benchmarks"
_HOST = "127.0.0.1:4000"

Found: TypeAlias = Any
"""What belongs to a package that is found by its name, which no type checker knows."""
Way = Callable[[CallTrace], Awaitable[None]]
"""Goes a way once and traces what belongs to it."""


def traced_ways(package: Path) -> dict[str, CallTrace]:
    """Go each way and return what it called, by the name of the way."""
    return asyncio.run(_all_ways(package))


async def erase(path: str) -> str:
    """Erase a file: the tool that needs an approval."""
    return f"{path} is gone"


async def _all_ways(package: Path) -> dict[str, CallTrace]:
    root: Found = importlib.import_module(package.name)
    testing: Found = importlib.import_module(f"{package.name}.testing")
    server: Found = importlib.import_module(f"{package.name}.server")
    if Path(root.__file__).parent != package:
        raise RuntimeError(f"{package.name} is imported from {root.__file__}, not from {package}")

    says, calls = testing.says("hello"), testing.calls(("erase", {"path": "a"}))

    def agent_of(*steps: Found, **options: Found) -> Found:
        provider = testing.ScriptedProvider(steps * _ROUNDS)
        fixed = {"providers": [provider], "environment": {}, "snapshots": False}
        return root.Agent("scripted/one", **fixed, **options)

    async with agent_of(says) as agent:
        prompt = await _shortest(package, _way_of_a_prompt(agent))
    async with agent_of(calls, says, tools=[root.tool(approval="ask")(erase)]) as agent:
        tool = await _shortest(package, _way_of_a_tool(agent))
    async with agent_of(says, says) as agent:
        app = server.create_app(agent, token=_TOKEN)
        message = await _shortest(package, _way_of_a_message(app))
        await app.close()
    return {
        PROMPT: prompt,
        "tool with approval, resumed": tool,
        "HTTP message, `Prefer: wait`": message,
    }


async def _shortest(package: Path, go: Way) -> CallTrace:
    """Go a way several times, each in a new session; the first time warms up."""
    traces = [CallTrace(package) for _ in range(_ROUNDS)]
    for trace in traces:
        await go(trace)
    return min(traces[1:], key=lambda trace: trace.named.total())


def _way_of_a_prompt(agent: Found) -> Way:
    async def go(trace: CallTrace) -> None:
        async with agent.session() as session:
            with trace.running():
                result = await session.chat("hi")
        _check(result.text, "hello")

    return go


def _way_of_a_tool(agent: Found) -> Way:
    async def go(trace: CallTrace) -> None:
        async with agent.session() as session:
            with trace.running():
                rests = await session.chat("erase a")
                for question in rests.pending:
                    await session.approve(question.id)
                result = await session.resume()
        _check((rests.stop_reason, result.text), ("approval", "hello"))

    return go


def _way_of_a_message(app: Found) -> Way:
    async def go(trace: CallTrace) -> None:
        status, session = await _request(app, "/api/v1/sessions", {})
        _check(status, 201)
        path = f"/api/v1/sessions/{session['id']}/messages"
        for block in (nullcontext(), trace.running()):  # the first message opens the session
            with block:
                status, answer = await _request(app, path, {"content": "hi"}, ("prefer", "wait=9"))
            _check((status, answer["text"]), (200, "hello"))

    return go


async def _request(
    app: Found, path: str, fields: object, *more: tuple[str, str]
) -> tuple[int, dict[str, Any]]:
    """Send one request to an application in this process; returns the status and the body."""
    body = json.dumps(fields).encode()
    headers = [
        ("host", _HOST),
        ("authorization", f"Bearer {_TOKEN}"),
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        *more,
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "server": ("127.0.0.1", 4000),
        "client": ("127.0.0.1", 5000),
    }
    given = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not given:
            await asyncio.Event().wait()  # the client stays
        return given.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    content = b"".join(each.get("body", b"") for each in sent[1:])
    return sent[0]["status"], json.loads(content)


def _check(seen: object, wanted: object) -> None:
    if seen != wanted:
        raise RuntimeError(f"a way did not end with {wanted!r}: {seen!r}")
