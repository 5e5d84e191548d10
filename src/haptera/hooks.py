"""Hooks: functions of your program that are called at the points of a session.

    from haptera.hooks import BeforeTool, Block, Hooks, Proceed

    hooks = Hooks()

    @hooks.on("before_tool")
    async def keep_out(given: BeforeTool) -> Proceed | Block:
        return Block("not on Sundays") if given.call.name == "pay" else Proceed()

    agent = Agent("anthropic/claude-sonnet-5", hooks=hooks)

The guide is docs/hooks.md.
"""

from haptera.kernel.blocks.hook_dispatch.registration import HookFunctions, Hooks
from haptera.model.events import HookFailed
from haptera.model.log.notes import HookMessage
from haptera.model.requests import ModelRequest
from haptera.ports.hooks import (
    AfterCompaction,
    AfterQuery,
    AfterTool,
    AfterTurn,
    Answer,
    BeforeCompaction,
    BeforeQuery,
    BeforeTool,
    BeforeTurn,
    Block,
    HookInput,
    HookNote,
    HookPoint,
    Proceed,
    SessionEnd,
    SessionResume,
    SessionStart,
    TransformMessages,
    TransformRequest,
    Verdict,
)

__all__ = [
    "AfterCompaction",
    "AfterQuery",
    "AfterTool",
    "AfterTurn",
    "Answer",
    "BeforeCompaction",
    "BeforeQuery",
    "BeforeTool",
    "BeforeTurn",
    "Block",
    "HookFailed",
    "HookFunctions",
    "HookInput",
    "HookMessage",
    "HookNote",
    "HookPoint",
    "Hooks",
    "ModelRequest",
    "Proceed",
    "SessionEnd",
    "SessionResume",
    "SessionStart",
    "TransformMessages",
    "TransformRequest",
    "Verdict",
]
