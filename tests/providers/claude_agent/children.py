"""Scripted children: the frames that they print, and agents that run them as their CLI."""

import asyncio
import json
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from haptera import Agent
from haptera.model.native_messages import NativeMessage
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.model.parts import TextPart
from haptera.model.settings import Settings
from haptera.ports.native_agent import NativeHost, NativeOpening
from haptera.providers.claude_agent.agent import AgentSurroundings, ClaudeAgent
from haptera.providers.claude_agent.session import ClaudeSession, SessionLimits
from haptera.system.clock import SystemClock

PROGRAM = Path(__file__).with_name("scripted_child.py")
MODEL = "claude-agent/claude-sonnet-4-6"
FIRST = "11111111-1111-4111-8111-111111111111"
SECOND = "22222222-2222-4222-8222-222222222222"

Frame = dict[str, Any]
USER: Frame = {"expect": "user"}


def init(session_id: str = FIRST) -> Frame:
    return {
        "emit": {
            "type": "system",
            "subtype": "init",
            "session_id": session_id,
            "model": "claude-sonnet-4-6",
            "tools": ["Bash", "Read"],
        }
    }


def emit(**frame: Any) -> Frame:
    return {"emit": frame}


def event(session_id: str = FIRST, **inner: Any) -> Frame:
    return emit(type="stream_event", session_id=session_id, parent_tool_use_id=None, event=inner)


def text(said: str, message_id: str = "msg_1", session_id: str = FIRST) -> list[Frame]:
    """One streamed answer of text."""
    head = {"id": message_id, "model": "claude-sonnet-4-6", "usage": {"input_tokens": 10}}
    return [
        event(session_id, type="message_start", message=head),
        event(
            session_id,
            type="content_block_start",
            index=0,
            content_block={"type": "text", "text": ""},
        ),
        event(
            session_id,
            type="content_block_delta",
            index=0,
            delta={"type": "text_delta", "text": said},
        ),
        event(session_id, type="content_block_stop", index=0),
        event(
            session_id,
            type="message_delta",
            delta={"stop_reason": "end_turn"},
            usage={"output_tokens": 5},
        ),
        event(session_id, type="message_stop"),
    ]


def call(
    name: str, arguments: Frame, call_id: str = "toolu_1", message_id: str = "msg_c"
) -> list[Frame]:
    """One streamed answer that calls a tool."""
    head = {"id": message_id, "model": "claude-sonnet-4-6", "usage": {"input_tokens": 10}}
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    return [
        event(type="message_start", message=head),
        event(type="content_block_start", index=0, content_block=block),
        event(type="content_block_delta", index=0, delta=delta),
        event(type="content_block_stop", index=0),
        event(type="message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 5}),
        event(type="message_stop"),
    ]


def tool_result(content: str, call_id: str = "toolu_1", *, is_error: bool = False) -> Frame:
    block = {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": content,
        "is_error": is_error,
    }
    return emit(
        type="user",
        message={"role": "user", "content": [block]},
        parent_tool_use_id=None,
        session_id=FIRST,
    )


def hook(name: str, arguments: Frame, call_id: str = "toolu_1", **more: Any) -> Frame:
    """The question before a tool: the first hook is ours."""
    said = {"tool_name": name, "tool_input": arguments, "tool_use_id": call_id, **more}
    return {
        "ask": {
            "request": {
                "subtype": "hook_callback",
                "callback_id": "hook_0",
                "tool_use_id": call_id,
                "input": said,
            }
        }
    }


def permission(name: str, arguments: Frame, call_id: str = "toolu_1", **more: Any) -> Frame:
    request = {
        "subtype": "can_use_tool",
        "tool_name": name,
        "input": arguments,
        "tool_use_id": call_id,
        "permission_suggestions": [],
        **more,
    }
    return {"ask": {"request": request}}


def mcp_call(name: str, arguments: Frame) -> list[Frame]:
    """Messages that call a tool of the server `haptera`."""

    def message(**inner: Any) -> Frame:
        wrapped = {"subtype": "mcp_message", "server_name": "haptera", "message": inner}
        return {"ask": {"request": wrapped}}

    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    return [
        message(jsonrpc="2.0", id=0, method="initialize", params=hello),
        message(jsonrpc="2.0", method="notifications/initialized"),
        message(
            jsonrpc="2.0",
            id=1,
            method="tools/call",
            params={"name": name, "arguments": arguments},
        ),
    ]


def result(said: str = "done", session_id: str = FIRST, **more: Any) -> Frame:
    return emit(
        **{
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "session_id": session_id,
            "duration_ms": 5,
            "duration_api_ms": 3,
            "num_turns": 1,
            "result": said,
            "stop_reason": "end_turn",
            "total_cost_usd": 0.25,
            "usage": {"input_tokens": 10, "output_tokens": 5},
            "modelUsage": {"claude-sonnet-4-6": {"contextWindow": 200000, "costUSD": 0.25}},
            **more,
        }
    )


def _pipe(owner: object, path: Path) -> int:
    """Make a named pipe that is open as long as its owner lives."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    weakref.finalize(owner, os.close, descriptor)
    return descriptor


async def one_step() -> None:
    """Let what is ready run once."""
    await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something holds that no event tells of."""
    async with asyncio.timeout(20):
        while not condition():
            await one_step()


def received(folder: Path) -> list[tuple[str, Any]]:
    """What the child in a folder got, by kind."""
    path = folder / "received.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(kind, value) for kind, value in map(json.loads, lines)]


class Child:
    """A program in a folder of its own, and what it received."""

    def __init__(self, folder: Path, steps: Sequence[Frame], **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        script = {"steps": list(steps), "settings": settings}
        (folder / "script.json").write_text(json.dumps(script))
        self._pipes = {
            name: _pipe(self, folder / name)
            for step in steps
            if "gate" in step
            for name in (f"{step['gate']}.gate", f"{step['gate']}.reached")
        }
        self.executable = folder / "claude"
        start = f'exec "{sys.executable}" -I -S "{PROGRAM}" "{folder}" "$@"'
        self.executable.write_text(f"#!/bin/sh\n{start}\n")
        self.executable.chmod(0o755)

    def of(self, kind: str) -> list[Any]:
        return [value for each, value in received(self.folder) if each == kind]

    @property
    def argv(self) -> list[str]:
        argv: list[str] = self.of("start")[-1]["argv"]
        return argv

    def open_gate(self, name: str) -> None:
        """Let the child go on."""
        os.write(self._pipes[f"{name}.gate"], b"x")

    async def reached(self, name: str) -> None:
        """Wait until the child stands before a gate."""
        loop, pipe = asyncio.get_running_loop(), self._pipes[f"{name}.reached"]
        ready = asyncio.Event()
        loop.add_reader(pipe, ready.set)
        try:
            async with asyncio.timeout(20):
                await ready.wait()
        finally:
            loop.remove_reader(pipe)
        os.read(pipe, 1)

    def environment(self, **more: str) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "ANTHROPIC_API_KEY": "made-up-key",
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
            **more,
        }


def claude_agent(
    child: Child, *, limits: SessionLimits | None = None, **settings: Any
) -> ClaudeAgent:
    """The agent itself, whose CLI is the child."""
    return ClaudeAgent(
        ClaudeAgentSettings(executable=str(child.executable), **settings),
        AgentSurroundings(
            environment=child.environment(),
            cwd=child.folder,
            clock=SystemClock(),
            limits=limits or SessionLimits(),
        ),
    )


def opening(host: NativeHost | None = None, **more: Any) -> NativeOpening:
    told = {"owner": "ana", **more}
    return NativeOpening(model="claude-sonnet-4-6", settings=Settings(), host=host, **told)


async def open_session(
    child: Child, *, limits: SessionLimits | None = None, **more: Any
) -> ClaudeSession:
    session = await claude_agent(child, limits=limits).open(opening(**more))
    assert isinstance(session, ClaudeSession)
    return session


def words(said: str) -> tuple[TextPart, ...]:
    return (TextPart(text=said),)


async def drain(session: ClaudeSession) -> list[NativeMessage]:
    return [message async for batch in session.stream() for message in batch]


def agent_of(child: Child, **options: Any) -> Agent:
    """An agent of Haptera whose model runs in the child."""
    settings: Any = {"executable": str(child.executable), **options.pop("claude_agent", {})}
    options.setdefault("environment", child.environment())
    options.setdefault("cwd", child.folder)
    return Agent(options.pop("model", MODEL), claude_agent=settings, **options)
