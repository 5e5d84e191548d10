"""Native messages: what an agent that keeps its own session emits, in one grammar for all of them.

A turn of a native agent is any number of messages and exactly one `NativeResult`; or it raises.
Answers come as the stream parts of `haptera.model.stream_parts`.
"""

from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec

from haptera.model.json_types import JsonObject
from haptera.model.parts import ResultContent
from haptera.model.stream_parts import StreamPart
from haptera.model.usage import Usage


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What all native messages share."""


class NativeStarted(_Message, frozen=True, kw_only=True, tag="started"):
    """The agent says which session it works in; it may say so before every turn."""

    session_id: str
    model: str = ""
    tools: tuple[str, ...] = ()
    facts: JsonObject = msgspec.field(default_factory=dict)
    """What else it says of how it runs, such as the state of its MCP servers."""


class NativeAnswer(_Message, frozen=True, kw_only=True, tag="answer"):
    """More of an answer of the model; the last part is a `StreamFinished`."""

    message_id: str
    parts: tuple[StreamPart, ...]
    parent: str | None = None
    """The tool call whose sub-agent speaks; None for the agent itself."""
    whole: bool = False
    """Whether it came in whole parts: that it is complete is only known by what follows it."""


class NativeToolResult(_Message, frozen=True, kw_only=True, tag="tool_result"):
    """The answer to a tool call that the agent ran."""

    call_id: str
    outcome: Literal["ok", "error", "denied"] = "ok"
    content: tuple[ResultContent, ...] = ()
    parent: str | None = None


class NativeBoundary(_Message, frozen=True, kw_only=True, tag="boundary"):
    """The agent compacted its own history."""

    trigger: Literal["auto", "manual"]
    pre_tokens: int | None = None
    post_tokens: int | None = None
    details: JsonObject = msgspec.field(default_factory=dict)
    """What else the agent reports about it."""


class NativeRetry(_Message, frozen=True, kw_only=True, tag="retry"):
    """A request of the agent to its model failed and is repeated."""

    attempt: int
    delay: float = 0.0
    """Seconds until the next attempt."""
    max_retries: int | None = None
    status: int | None = None
    error: str = ""


class NativeReset(_Message, frozen=True, kw_only=True, tag="reset"):
    """The agent began a new session of its own: its id changes and its costs start at zero."""

    session_id: str | None = None


class NativeSubagent(_Message, frozen=True, kw_only=True, tag="subagent"):
    """A sub-agent began, reports, or ended."""

    change: Literal["joined", "status", "left"]
    agent: str
    call_id: str | None = None
    """The tool call that started it."""
    status: str = ""
    description: str = ""


class NativeNotice(_Message, frozen=True, kw_only=True, tag="notice"):
    """Something else that the agent says of itself."""

    name: str
    facts: JsonObject = msgspec.field(default_factory=dict)


class NativeResult(_Message, frozen=True, kw_only=True, tag="result"):
    """A turn has ended. Whether it failed says `is_error`, whatever its subtype."""

    subtype: str = "success"
    is_error: bool = False
    session_id: str | None = None
    text: str = ""
    turns: int = 0
    stop_reason: str | None = None
    terminal_reason: str | None = None
    usage: Usage | None = None
    """What this turn used."""
    model_usage: JsonObject | None = None
    total_cost_usd: Decimal | None = None
    """The running total of the native session, not of this turn."""
    cost_is_known: bool = True
    """False when the agent invented a price for a model that it does not know."""
    status: int | None = None
    """The HTTP status of the failed request to the model."""
    error: str | None = None
    """The agent's own word for the kind of error."""
    errors: tuple[str, ...] = ()
    entry: str | None = None
    """The last entry of the conversation in the transcript; None when that is not known."""
    entries: int = 0
    """How many entries of the conversation the transcript has."""


NativeMessage: TypeAlias = (
    NativeStarted
    | NativeAnswer
    | NativeToolResult
    | NativeBoundary
    | NativeRetry
    | NativeReset
    | NativeSubagent
    | NativeNotice
    | NativeResult
)
