"""Names that other systems have for our events, commands, errors and fields: one table.

Nothing else knows these names. The properties `alias` and `aliases` of events, commands and errors
read it, and so do what writes events, exported states and schemas, and JSON-RPC.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class _Variants(NamedTuple):
    """Names that depend on what an event holds."""

    variant_of: Callable[[Any], str]
    names: Mapping[str, tuple[str, ...]]
    """By variant; those of any other one are under an empty name."""


EVENT_NAMES: Mapping[str, tuple[str, ...] | _Variants] = {
    "session.opened": ("session.created",),
    "session.changed": ("session.updated",),
    "session.deleted": ("session.deleted",),
    "session.status": _Variants(
        lambda event: str(event.status.__struct_config__.tag),
        {
            "": ("session.status", "status"),
            "error": ("session.error", "session.status", "status"),
        },
    ),
    "input.promoted": ("message.created",),
    "query.started": _Variants(
        lambda event: "resumed" if event.message is None else "",
        {
            "": ("start", "agent_start", "stream.start"),
            "resumed": ("stream.start", "start", "agent_start"),
        },
    ),
    "query.suspended": ("query.suspended",),
    "query.ended": _Variants(
        lambda event: str(event.stop_reason),
        {
            "": ("finish", "agent_end", "stream.end", "done"),
            "aborted": ("stream.end", "agent_end", "done"),
            "error": ("error", "agent_end", "stream.end", "done"),
        },
    ),
    "turn.started": ("step-start", "turn_start", "message.created", "message_start"),
    "turn.ended": _Variants(
        lambda event: "interrupted" if event.interrupted else "",
        {
            "": ("message_usage", "turn_end", "message.updated", "message_end"),
            "interrupted": ("message.updated", "message_usage", "turn_end", "message_end"),
        },
    ),
    "turn.discarded": _Variants(
        lambda event: "failed" if event.error is not None else "",
        {
            "": ("message.deleted", "part.deleted"),
            "failed": ("part.deleted", "message.deleted"),
        },
    ),
    "part.started": _Variants(
        lambda event: str(event.part_kind),
        {
            "": ("part.created",),
            "text": ("text-start", "part.created"),
            "reasoning": ("reasoning-start", "part.created"),
            "tool_call": ("tool-input-start", "part.created"),
            "compaction": ("message_compaction_start", "part.created"),
        },
    ),
    "part.checkpoint": ("part.updated",),
    "part.ended": _Variants(
        lambda event: str(event.part.__struct_config__.tag),
        {
            "": ("part.updated",),
            "text": ("text-end", "part.updated"),
            "reasoning": ("reasoning-end", "part.updated"),
            "tool_call": ("tool-input-end", "part.updated"),
            "compaction": ("message_compaction", "part.updated"),
        },
    ),
    "text.delta": ("text-delta", "stream.delta", "message_text"),
    "reasoning.delta": ("reasoning-delta", "stream.delta", "message_thinking"),
    "compaction.delta": ("stream.delta",),
    "tool.input.delta": ("tool-input-delta", "stream.delta"),
    "tool.progress": ("stream.delta",),
    "approval.requested": ("tool_approval_request",),
    "approval.settled": ("tool_approval_response",),
    "tool.started": ("tool-call",),
    "tool.ended": _Variants(
        lambda event: str(event.outcome), {"ok": ("tool-result",), "": ("tool-error",)}
    ),
    "tool.failed": ("tool_error",),
    "subagent": _Variants(
        lambda event: str(event.change),
        {"status": ("agent_status",), "joined": ("agent_joined",), "left": ("agent_left",)},
    ),
    "retry.scheduled": ("retry",),
    "compaction": ("compact_boundary", "message_compaction"),
    "usage.reported": ("result_usage",),
    "hook.message": ("hookMessage",),
    "instrumentation.summary": ("query_summary",),
    "instrumentation.turn": _Variants(
        lambda event: "failed" if event.error or event.interrupted else "",
        {"": ("step-finish",), "failed": ()},
    ),
    "stream.heartbeat": ("heartbeat",),
}
"""By kind of event; the best known name first."""

_COMMANDS = {
    "abort": "cancel",
    "approve": "tool_approval_response",
    "deny": "tool_approval_response",
}
"""By kind of command."""

_ERRORS = {
    "BUSY": "session_busy",
    "STREAM_BUSY": "session_busy",
    "NOT_FOUND": "session_not_found",
    "MESSAGE_NOT_FOUND": "message_not_found",
    "AUTH": "provider_auth_error",
    "RATE_LIMITED": "api_error",
    "OVERLOADED": "api_error",
    "MODEL_NOT_FOUND": "api_error",
    "SERVER_ERROR": "api_error",
    "QUOTA": "api_error",
    "BAD_REQUEST": "api_error",
    "CONTENT_FILTER": "api_error",
    "PROTOCOL": "api_error",
    "OUTPUT_INVALID": "api_error",
    "CONTEXT_LENGTH": "output_length_error",
    "ABORTED": "aborted",
}
"""By code, the type of a session's error; what has none is `unknown`."""

METHODS: Mapping[str, str] = MappingProxyType(
    {
        "resume": "ai/session/resume",
        "create": "chat/session/create",
        "get": "chat/session/get",
        "update": "chat/session/update",
    }
)
"""Methods of JSON-RPC, by what they do with a session."""

NATIVE_ID_NAMES = ("cliSessionId", "sdkSessionId")
"""Fields that are written beside `native_session_id`, with the same value."""


def event_names(kind: str, event: object = None) -> tuple[str, ...]:
    """Return all other names of an event, or of a kind; the best known one first."""
    row = EVENT_NAMES.get(kind, ())
    if not isinstance(row, _Variants):
        return row
    if event is not None:
        try:
            variant = row.variant_of(event)
        except AttributeError:  # an entry that a later version stored in a way of its own
            pass
        else:
            return row.names.get(variant, row.names.get("", ()))
    return tuple(dict.fromkeys(name for names in row.names.values() for name in names))


def command_name(kind: str) -> str:
    """Return the other name of a command; without one, its kind."""
    return _COMMANDS.get(kind, kind)


def error_name(code: str) -> str:
    """Return the type of a session's error that a code belongs to."""
    return _ERRORS.get(code, "unknown")
