"""What a native agent says of itself, as events: compactions, retries, sub-agents, notices."""

from collections.abc import Sequence

from haptera.kernel.blocks.error_classification import code_of_status
from haptera.kernel.query.query import Query
from haptera.model.errors import ErrorCode, error_with_code
from haptera.model.events import (
    Event,
    NativeNoted,
    Retrying,
    SubagentChanged,
    ToolProgress,
)
from haptera.model.ids import CallId
from haptera.model.json_types import JsonObject
from haptera.model.log.compactions import Compaction
from haptera.model.log.turns import RetryScheduled
from haptera.model.native_messages import (
    NativeAnswer,
    NativeBoundary,
    NativeNotice,
    NativeRetry,
    NativeStarted,
    NativeSubagent,
)
from haptera.model.stream_parts import PartOpened

_FAILED_SERVERS = frozenset({"failed", "needs-auth"})


def report_events(
    query: Query,
    message: NativeBoundary | NativeRetry | NativeSubagent | NativeNotice,
    *,
    provider: str,
) -> Sequence[Event]:
    """Return the events that relay a report."""
    match message:
        case NativeBoundary():
            return _boundary(query, message)
        case NativeRetry():
            return _retry(query, message, provider=provider)
        case NativeSubagent():
            return [_subagent(message)]
        case NativeNotice(name=name, facts=facts):
            return [NativeNoted(name=name, facts=_plain(facts))]


def started_events(message: NativeStarted) -> Sequence[Event]:
    """Return what an agent says of how it runs: its facts, and MCP servers that it lacks."""
    if not message.facts:
        return []
    told: list[Event] = [NativeNoted(name="init", facts=_plain(message.facts))]
    servers = message.facts.get("mcp_servers")
    told += [
        NativeNoted(name="mcp_server_failed", facts=_plain(server))
        for server in (servers if isinstance(servers, list) else ())
        if isinstance(server, dict) and server.get("status") in _FAILED_SERVERS
    ]
    return told


def subagent_progress(message: NativeAnswer) -> Sequence[Event]:
    """Return what is shown of a sub-agent's answer: which tools it calls, at the call it is for."""
    return [
        ToolProgress(
            call_id=CallId(message.parent or ""),
            tool="Task",
            progress={"parent_tool_use_id": message.parent, "tool": part.name},
        )
        for part in message.parts
        if isinstance(part, PartOpened) and part.kind == "tool_call"
    ]


def _boundary(query: Query, message: NativeBoundary) -> Sequence[Event]:
    compaction = Compaction(
        **query.stamp(),
        trigger=message.trigger,
        strategy="native",
        summary="",
        tokens_before=message.pre_tokens,
        tokens_after=message.post_tokens,
    )
    facts = NativeNoted(name="compact_metadata", facts=_plain(message.details))
    return [compaction, facts]


def _retry(query: Query, message: NativeRetry, *, provider: str) -> Sequence[Event]:
    code = ErrorCode.SERVER_ERROR if message.status is None else code_of_status(message.status)
    error = error_with_code(
        code,
        f"the agent's request failed: {message.error or message.status}",
        status=message.status,
        provider=provider,
    ).report
    next_at = query.stamp.clock.time_ms() + int(message.delay * 1000)
    query.handle.phase = "reconnecting"
    query.session.set_status(
        Retrying(attempt=message.attempt, message=error.message, next_at=next_at)
    )
    return [
        RetryScheduled(
            **query.turn_stamp(),
            attempt=message.attempt,
            delay=message.delay,
            next_at=next_at,
            error=error,
        )
    ]


def _subagent(message: NativeSubagent) -> Event:
    return SubagentChanged(
        change=message.change,
        agent=message.agent,
        call_id=CallId(message.call_id) if message.call_id else None,
        status=message.status,
        description=message.description,
    )


def _plain(facts: JsonObject) -> JsonObject:
    """Keep of an agent's facts what is a plain value."""
    return {
        name: value for name, value in facts.items() if isinstance(value, str | int | float | bool)
    }
