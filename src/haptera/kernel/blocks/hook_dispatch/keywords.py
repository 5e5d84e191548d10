"""Keywords of functions with options, by `scripts/write_keywords.py`: not by hand.

A module of its own because it is data that a script writes.
"""

from typing import TypedDict

from haptera.ports.hooks import (
    AfterCompactionHook,
    AfterQueryHook,
    AfterToolHook,
    AfterTurnHook,
    BeforeCompactionHook,
    BeforeQueryHook,
    BeforeToolHook,
    BeforeTurnHook,
    SessionEndHook,
    SessionResumeHook,
    SessionStartHook,
    TransformMessagesHook,
    TransformRequestHook,
)


class HookKeywords(TypedDict, total=False):
    """One function for each point, as `Hooks(...)` takes them; None is no function."""

    session_start: SessionStartHook | None
    """Called after a new session was opened; a fork is one, too."""
    session_resume: SessionResumeHook | None
    """Called after an existing session was opened, also after a crash."""
    session_end: SessionEndHook | None
    """Called when a session is closed, after its queries."""
    before_query: BeforeQueryHook | None
    """A gate before each query; the prompt is already in the log."""
    after_query: AfterQueryHook | None
    """Called after each query, however it ended."""
    before_turn: BeforeTurnHook | None
    """A gate before a model is asked; a retry or a fallback model is not a new turn."""
    after_turn: AfterTurnHook | None
    """Called after a model answered, failed or was interrupted."""
    transform_messages: TransformMessagesHook | None
    """Changes the messages before each request is built, retries included."""
    transform_request: TransformRequestHook | None
    """Changes each request before it is sent, retries included."""
    before_tool: BeforeToolHook | None
    """A gate before the arguments of a tool call are parsed."""
    after_tool: AfterToolHook | None
    """Called after a tool call ended: it ran, failed, was denied, answered by a hook or
    cancelled."""
    before_compaction: BeforeCompactionHook | None
    """A gate before the conversation is compacted."""
    after_compaction: AfterCompactionHook | None
    """Called after the conversation was compacted."""
